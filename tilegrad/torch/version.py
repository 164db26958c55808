"""`torch.version`: that of PyTorch whose names these are, and of the libraries that it would have
been built with: none.
"""

from tilegrad.torch.absent_hints import refuse_others

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]

__version__ = "2.13.0+tilegrad"
debug, cuda, hip, git_version = False, None, None, "unknown"

refuse_others(__name__)
