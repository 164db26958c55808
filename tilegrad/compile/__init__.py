"""Stage 7: source text to a binary."""

from tilegrad.base.absent import says_what_to_call

# PyTorch has a function of this name.
says_what_to_call(__name__, "tilegrad.jit(function)")
