"""Functions with gradients of their own, of complex numbers: what flows below are the pairs."""

from __future__ import annotations

from typing import Any

from tilegrad.torch.complex import Complex

__all__ = ["of_pairs"]


def _pair(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_pair, value))
    return value.pair if isinstance(value, Complex) else value


def of_pairs(function: Any, base: Any, kinds: list[bool]) -> tuple[Any, list[bool]]:
    """The function of pairs for one whose arguments are complex where `kinds` says so, and a list
    that says after its call which outputs are.
    """
    outputs: list[bool] = []

    def numbers(values: Any, are_complex: list[bool]) -> list[Any]:
        return [
            Complex(each) if is_one and each is not None else each
            for each, is_one in zip(values, are_complex, strict=True)
        ]

    def forward(ctx: Any, *args: Any) -> Any:
        given = numbers(args, kinds)
        if hasattr(function, "setup_context"):
            found = function.forward(*given)
            function.setup_context(ctx, tuple(given), found)
        else:
            found = function.forward(ctx, *given)
        several = found if isinstance(found, tuple) else (found,)
        outputs[:] = [isinstance(each, Complex) for each in several]
        return _pair(found)

    def backward(ctx: Any, *gradients: Any) -> Any:
        return _pair(function.backward(ctx, *numbers(gradients, outputs)))

    space = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(function.__name__, (base,), space), outputs
