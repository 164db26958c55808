"""The rest of NumPy's and PyTorch's functions, composed of the operations of the other folders."""
