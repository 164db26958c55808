"""Making kernels: from a scheduled kernel to compiled code, here or in helper processes."""
