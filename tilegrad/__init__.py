"""tilegrad: a deep-learning framework and tensor compiler."""
