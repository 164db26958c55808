"""Stage 9: one file ties renderer, compiler and runtime to one kind of hardware."""

from tilegrad.base.absent import says_what_to_call

# PyTorch has a class of this name.
says_what_to_call(__name__, 'the device as a text, as in Tensor(x, device="CPU")')
