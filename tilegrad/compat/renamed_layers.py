"""Layers and optimizers whose arguments stand in another order, or under other names, in
tinygrad; and its data sets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tilegrad import nn
from tilegrad.base.errors import ConfigError, DataError
from tilegrad.compat.helpers import fetch
from tilegrad.io import tar_extract
from tilegrad.nn import optim, state
from tilegrad.nn.layers import Sizes
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "LAMB", "LARS", "SGD", "Adam", "AdamW", "BatchNorm", "ConvTranspose1d", "ConvTranspose2d",
    "Embedding", "Muon", "OptimizerGroup", "cifar", "load_state_dict", "mnist",
    "safe_load_metadata",
]  # fmt: skip


class BatchNorm(nn.BatchNorm):
    """`tilegrad.nn.BatchNorm`, with `momentum` at the end."""

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ):
        super().__init__(sz, eps, momentum, affine, track_running_stats)


class ConvTranspose2d(nn.ConvTranspose2d):
    """`tilegrad.nn.ConvTranspose2d`, with `dilation` before `groups`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
            dilation,
        )  # fmt: skip


class ConvTranspose1d(ConvTranspose2d):
    """As ConvTranspose2d, along one axis."""

    axes = 1


class Embedding(nn.Embedding):
    """`tilegrad.nn.Embedding`."""

    def __init__(self, vocab_size: int, embed_size: int):
        super().__init__(vocab_size, embed_size)


class _Steps:
    """`schedule_step` beside the `step` of an optimizer, and tinygrad's rule that a step is taken
    while training only.
    """

    params: list[Tensor]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move each parameter that has a gradient.

        Raises ConfigError unless `Tensor.training` is on.
        """
        if not Tensor.training:
            raise ConfigError(
                f"{type(self).__name__}.step: Tensor.training is off",
                remedy="put the step under `with Tensor.train():`",
            )
        above: Any = super()
        return above.step(closure)

    def schedule_step(self) -> list[Tensor]:
        """The step, taken at once; the parameters, as tensors to realize with others."""
        self.step()
        return list(self.params)


class SGD(_Steps, optim.SGD):
    """`tilegrad.nn.optim.SGD`; all parameters are written in one schedule, `fused` or not."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: str | None = None,
        fused: bool = False,
    ):
        if classic and momentum:
            raise ConfigError(
                "SGD: classic=True, the learning rate within the momentum, is not supported",
                remedy="leave it out: while the learning rate stays, both are the same",
            )
        super().__init__(params, lr, momentum, weight_decay, nesterov)


class Adam(_Steps, optim.Adam):
    """`tilegrad.nn.optim.Adam`, with `b1` and `b2` for `betas`."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: str | None = None,
        fused: bool = False,
    ):
        super().__init__(params, lr, (b1, b2), eps)


class AdamW(_Steps, optim.AdamW):
    """`tilegrad.nn.optim.AdamW`, with `b1` and `b2` for `betas`."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: str | None = None,
        fused: bool = False,
    ):
        super().__init__(params, lr, (b1, b2), eps, weight_decay)


class LAMB(_Steps, optim.LAMB):
    """`tilegrad.nn.optim.LAMB`, with `b1` and `b2` for `betas`."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        device: str | None = None,
        fused: bool = False,
    ):
        super().__init__(params, lr, (b1, b2), eps, weight_decay)


class LARS(_Steps, optim.LARS):
    """`tilegrad.nn.optim.LARS`, whose momentum holds the learning rate: `classic`, as it is by
    default in tinygrad.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        *,
        nesterov: bool = False,
        tcoef: float = 0.001,
        device: str | None = None,
        fused: bool = False,
    ):
        super().__init__(params, lr, momentum, weight_decay, nesterov, tcoef)


class Muon(_Steps, optim.Muon):
    """`tilegrad.nn.optim.Muon` in the dtype of the gradient, `momentum` before `weight_decay`."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: str | None = None,
        fused: bool = False,
    ):
        super().__init__(
            params, lr, weight_decay, momentum, nesterov, ns_coefficients, ns_steps=ns_steps
        )

    def _rounded(self, x: Tensor) -> Tensor:
        return x


class OptimizerGroup(_Steps):
    """Several optimizers that step together."""

    def __init__(self, *optimizers: Any):
        if not optimizers:
            raise ConfigError("OptimizerGroup: there are no optimizers")
        self.optimizers = optimizers
        self.params = [tensor for each in optimizers for tensor in each.params]
        self.buffers = [tensor for each in optimizers for tensor in each.buffers]

    def __getitem__(self, index: int) -> Any:
        return self.optimizers[index]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for each in self.optimizers:
            each.zero_grad()

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Step with each, in order."""
        for each in self.optimizers:
            each.step()


def mnist(device: str | None = None, fashion: bool = False) -> tuple[Tensor, ...]:
    """Images and labels for training, then for the test: uint8, images (n, 1, 28, 28).

    From the files that `tilegrad.nn.datasets` finds; raises DataError where there are none.
    """
    from tilegrad.nn import datasets

    found = datasets.fashion_mnist(download=False) if fashion else datasets.mnist(download=False)
    images = [Tensor(x[:, None], device=device) for x in (found.x_train, found.x_test)]
    labels = [Tensor(y.astype("uint8"), device=device) for y in (found.y_train, found.y_test)]
    return images[0], labels[0], images[1], labels[1]


CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


def cifar(device: str | None = None) -> tuple[Tensor, ...]:
    """CIFAR-10: images and labels for training, then for the test: uint8, images (n, 3, 32, 32).

    From the archive that `fetch` finds; raises DataError where there is none.
    """
    files = tar_extract(fetch(CIFAR_URL, gunzip=True), device)
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    found: list[Tensor] = []
    for names in (batches, ["test_batch"]):
        # A row is a label and the pixels, red before green before blue.
        rows = [files[f"cifar-10-batches-bin/{name}.bin"].reshape(-1, 3073) for name in names]
        whole = Tensor.cat(*rows).contiguous()
        found += [whole[:, 1:].reshape(-1, 3, 32, 32), whole[:, 0]]
    return tuple(found)


class MissingNames(DataError, KeyError):
    """The error for names that tinygrad reports as a KeyError."""

    __str__ = DataError.__str__


def load_state_dict(
    model: object, state_dict: Mapping[str, Any], *args: Any, **options: Any
) -> Any:
    """`nn.state.load_state_dict`, which raises a KeyError for names that are missing."""
    try:
        return state.load_state_dict(model, state_dict, *args, **options)
    except DataError as error:
        raise MissingNames(str(error)) from error


def safe_load_metadata(t: Any) -> tuple[Tensor, int, dict[str, Any]]:
    """The bytes of a safetensors file, where those of its tensors begin, and its header."""
    data = t if isinstance(t, Tensor) else Tensor(Path(t))
    size = int.from_bytes(data[:8].data().tobytes(), "little")
    header = json.loads(data[8 : 8 + size].data().tobytes())
    return data, 8 + size, header
