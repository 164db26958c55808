"""What tensors stand on: memory, files and host arrays, and which values a run keeps."""
