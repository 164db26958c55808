"""Random tensors of `torch`: uniform, normal, whole numbers, permutations, draws by probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.calls.draws import drawn_at_once
from tilegrad.tensor.handle.size_arguments import here
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.device_names import name_of
from tilegrad.torch.made_tensors import Rest, full_like, like, options_of, sizes_of
from tilegrad.torch.streams import Stream, drawing
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "bernoulli",
    "multinomial",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
]


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


def rand(
    *size: Any,
    generator: Stream | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Unpack[Rest],
) -> Tensor:
    """Random numbers, uniform in 0 <= x < 1."""
    with drawing(generator):
        return _drawn(Tensor.rand, sizes_of(size), options_of(device, dtype, requires_grad))


def randn(
    *size: Any,
    generator: Stream | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Unpack[Rest],
) -> Tensor:
    """Normally distributed random numbers."""
    with drawing(generator):
        return _drawn(Tensor.randn, sizes_of(size), options_of(device, dtype, requires_grad))


def rand_like(input: ours.Tensor, *, dtype: DType | None = None, device: Any = None,
              requires_grad: bool = False, **rest: Unpack[Rest]) -> Tensor:  # fmt: skip
    """As `rand`, in the shape, dtype and device of another tensor."""
    sizes, options = like(input, dtype, device, requires_grad)
    return _drawn(Tensor.rand, sizes, options)


def randn_like(input: ours.Tensor, *, dtype: DType | None = None, device: Any = None,
               requires_grad: bool = False, **rest: Unpack[Rest]) -> Tensor:  # fmt: skip
    """As `randn`, in the shape, dtype and device of another tensor."""
    sizes, options = like(input, dtype, device, requires_grad)
    return _drawn(Tensor.randn, sizes, options)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Stream | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Unpack[Rest],
) -> Tensor:
    """Random integers, uniform in low..high - 1; `low` may be left out."""
    if size is None:
        low, high, size = 0, low, high
    if high is None:
        low, high = 0, low
    options = options_of(device, dtype or dtypes.int64, requires_grad)
    with drawing(generator):
        return _integers(int(low), int(high), size, options)


def randint_like(
    input: ours.Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """As `randint`, in the shape, dtype and device of another tensor."""
    least, most = (0, low) if high is None else (low, high)
    sizes, options = like(input, dtype, device, False)
    return _integers(least, most, sizes, options)


def randperm(
    n: int,
    *,
    generator: Stream | None = None,
    dtype: DType | None = None,
    device: Any = None,
    **rest: Unpack[Rest],
) -> Tensor:
    """0..n - 1 in a random order."""
    with drawing(generator):
        return Tensor.randperm(n, name_of(device), dtype or dtypes.int64)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Stream | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normally distributed random numbers; without `size` one for each element of `mean` or
    `std`.
    """
    if isinstance(std, (int, float)) and std < 0:
        raise ConfigError(f"normal: std {std} is below 0", line=here())
    if size is None:
        size = tuple(mean.shape if isinstance(mean, OurTensor) else std.shape)
    target = next((each.device for each in (mean, std) if isinstance(each, OurTensor)), device)
    made: Tensor = randn(*size, generator=generator, dtype=dtype, device=target) * std + mean
    return made.requires_grad_() if requires_grad else made


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
