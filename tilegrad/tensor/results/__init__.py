"""Where values come out: realize, kernels written by hand, printing."""
