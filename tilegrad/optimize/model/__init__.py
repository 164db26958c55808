"""The estimate of a kernel's time, and why it has its shape."""
