"""Stage 2: derivatives, from a graph to the graph of its gradients."""

from tilegrad.grad.backward import gradients

__all__ = ["gradients"]
