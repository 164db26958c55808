"""The memory of tensors: buffers, files and host arrays, and the values that a run keeps."""
