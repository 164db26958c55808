"""Layers, losses, optimizers, and data to train on."""
