"""Random tensors of `torch`: uniform, normal, whole numbers, permutations, draws by probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.calls.draws import drawn_at_once
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.made_tensors import Making, full_like, like, options_of, sizes_of
from tilegrad.torch.streams import Stream, drawing
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm",
]  # fmt: skip


def _drawn(make: Callable[..., Tensor], sizes: Sequence[int], options: dict[str, Any]) -> Tensor:
    """A random tensor, in memory where that can be."""
    wants_grad = options.pop("requires_grad", None)
    made = drawn_at_once(sizes, options.get("device"), lambda count: make(count, **options))
    made = make(*sizes, **options) if made is None else made
    return made._wanting(wants_grad)


def _integers(low: int, high: int, sizes: Sequence[int], options: dict[str, Any]) -> Tensor:
    """Random integers, in a float dtype if one is asked for."""
    dtype: DType = options["dtype"]
    if dtype.is_int:
        return _drawn(partial(Tensor.randint, low=low, high=high), sizes, options)
    wants_grad = options.pop("requires_grad", None)
    whole = _integers(low, high, sizes, {**options, "dtype": dtypes.int64})
    return whole.to(dtype)._wanting(wants_grad)


def rand(*size: Any, generator: Stream | None = None, **options: Unpack[Making]) -> Tensor:
    """Random numbers, uniform in 0 <= x < 1."""
    with drawing(generator):
        return _drawn(Tensor.rand, sizes_of(size), options_of(options))


def randn(*size: Any, generator: Stream | None = None, **options: Unpack[Making]) -> Tensor:
    """Normally distributed random numbers."""
    with drawing(generator):
        return _drawn(Tensor.randn, sizes_of(size), options_of(options))


def rand_like(input: ours.Tensor, **options: Unpack[Making]) -> Tensor:
    """As `rand`, in the shape, dtype and device of another tensor."""
    return _drawn(Tensor.rand, *like(input, options))


def randn_like(input: ours.Tensor, **options: Unpack[Making]) -> Tensor:
    """As `randn`, in the shape, dtype and device of another tensor."""
    return _drawn(Tensor.randn, *like(input, options))


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Stream | None = None,
    **options: Unpack[Making],
) -> Tensor:
    """Random integers, uniform in low..high - 1; `low` may be left out."""
    if size is None:
        low, high, size = 0, low, high
    if high is None:
        low, high = 0, low
    with drawing(generator):
        return _integers(int(low), int(high), size, options_of(options, dtypes.int64))


def randint_like(
    input: ours.Tensor, low: int, high: int | None = None, **options: Unpack[Making]
) -> Tensor:
    """As `randint`, in the shape, dtype and device of another tensor."""
    least, most = (0, low) if high is None else (low, high)
    return _integers(least, most, *like(input, options))


def randperm(n: int, *, generator: Stream | None = None, **options: Unpack[Making]) -> Tensor:
    """0..n - 1 in a random order."""
    with drawing(generator):
        return Tensor.randperm(n, **options_of(options, dtypes.int64))


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Stream | None = None,
    **options: Unpack[Making],
) -> Tensor:
    """Normally distributed random numbers; without `size` one for each element of `mean` or
    `std`.
    """
    if isinstance(std, (int, float)) and std < 0:
        raise ConfigError(f"normal: std {std} is below 0")
    if size is None:
        size = tuple(mean.shape if isinstance(mean, OurTensor) else std.shape)
    wants_grad = options.pop("requires_grad", False)
    options["device"] = next(
        (each.device for each in (mean, std) if isinstance(each, OurTensor)), options.get("device")
    )
    made: Tensor = randn(*size, generator=generator, **options) * std + mean
    return made.requires_grad_() if wants_grad else made


def bernoulli(input: Any, p: float | None = None, *, generator: Stream | None = None) -> Tensor:
    """1 with the probability that an element of `input` says, or `p`, else 0."""
    share: Any = as_ours(input) if p is None else full_like(input, p)
    with drawing(generator):
        return share.bernoulli().to(input.dtype)  # type: ignore[no-any-return]


def multinomial(
    input: Any, num_samples: int, replacement: bool = False, *, generator: Stream | None = None
) -> Tensor:
    """Random indices, each with the probability that the weight there says."""
    with drawing(generator):
        return as_ours(input).multinomial(num_samples, replacement)  # type: ignore[no-any-return]
