"""`torch.nn.utils.parametrizations`."""

from tilegrad.nn.utils import parametrizations as ours
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.nn.utils.marking import marking

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

orthogonal = marking(ours.orthogonal)
spectral_norm = marking(ours.spectral_norm)
weight_norm = marking(ours.weight_norm)

refuse_others(__name__)
