"""`torch.nn.utils.parametrizations`."""

from typing import TYPE_CHECKING

from tilegrad.nn.utils import parametrizations as ours
from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.nn.utils.marking import marking

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

orthogonal = marking(ours.orthogonal)
spectral_norm = marking(ours.spectral_norm)
weight_norm = marking(ours.weight_norm)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
