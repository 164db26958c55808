"""The rest of what NumPy and PyTorch have, composed of the operations of the other folders."""
