"""What `print` and format specifications show of a tensor, and that nothing runs for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor, dtypes, jit
from tilegrad.base.errors import DTypeError


def shown(array: np.ndarray, dtype: str = "float32") -> str:
    numbers = np.array2string(array, separator=", ", prefix="Tensor(")
    return f"Tensor({numbers}, dtype={dtype}, device=CPU)"


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
VIEWS: list[tuple[str, Callable[[Tensor], Tensor], np.ndarray]] = [
    ("whole", lambda x: x, X),
    ("row", lambda x: x[1], X[1]),
    ("one", lambda x: x[1, 2, 3], X[1, 2, 3]),
    ("window", lambda x: x[:, 1:, ::2], X[:, 1:, ::2]),
    ("turned", lambda x: x.permute(2, 0, 1).flip(0), X.transpose(2, 0, 1)[::-1]),
    ("reshaped", lambda x: x.permute(2, 1, 0).reshape(6, 4), X.transpose(2, 1, 0).reshape(6, 4)),
    ("stretched", lambda x: x[:, :1].expand(2, 3, 4), np.repeat(X[:, :1], 3, 1)),
    ("padded", lambda x: x[0].pad((1, 0, 0, 2)), np.pad(X[0], ((0, 2), (1, 0)))),
    ("detached", lambda x: x.detach()[0], X[0]),
    ("empty", lambda x: x[:0], X[:0]),
]


@pytest.mark.parametrize(
    ("take", "expected"), [case[1:] for case in VIEWS], ids=[c[0] for c in VIEWS]
)
def test_a_view_of_memory_shows_its_values_and_runs_nothing(
    take: Callable[[Tensor], Tensor], expected: np.ndarray
) -> None:
    x = take(Tensor(X).realize())
    before = GlobalCounters.kernel_count
    assert repr(x) == str(x) == shown(expected)
    assert GlobalCounters.kernel_count == before


def test_what_waits_on_the_host_shows_its_values() -> None:
    assert repr(Tensor([[1, 2], [3, 4]])) == shown(np.array([[1, 2], [3, 4]]), "int32")
    assert repr(Tensor([1, 2, 3])[1:]) == shown(np.array([2, 3]), "int32")
    assert repr(Tensor(2.5)) == "Tensor(2.5, dtype=float32, device=CPU)"


def test_a_value_that_was_computed_for_another_tensor_is_shown() -> None:
    a = Tensor([1.0, 2.0]).realize()
    first, second = a * 2, a * 2
    assert "MUL" in repr(second)
    first.realize()
    assert repr(second) == shown(np.array([2.0, 4.0]))


def test_long_tensors_are_shortened() -> None:
    text = repr(Tensor.arange(100_000).realize())
    assert (
        text == "Tensor([    0,     1,     2, ..., 99997, 99998, 99999], dtype=int32, device=CPU)"
    )


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_every_dtype_is_shown(dtype: object) -> None:
    text = repr(Tensor([1, 0]).cast(dtype).realize())
    numbers = {"bool": "[ True, False]"}.get(dtype.name, "[1., 0.]" if dtype.is_float else "[1, 0]")
    assert text == f"Tensor({numbers}, dtype={dtype.name}, device=CPU)"


def test_a_pending_assignment_is_not_shown_as_done() -> None:
    x = Tensor([1.0, 2.0]).realize()
    x += 1
    assert "1., 2." not in repr(x)
    x.realize()
    assert repr(x) == shown(np.array([2.0, 3.0]))


def test_a_parameter_says_so() -> None:
    assert repr(Tensor([1.0], requires_grad=True).realize()).endswith("requires_grad=True)")


def test_a_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"abc")
    # Its path may hold numbers.
    assert "DISK" in repr(Tensor(path)) and "97, 98" not in repr(Tensor(path))


def test_memory_that_nobody_wrote_is_not_allocated() -> None:
    x = Tensor.empty(1 << 40)
    assert "BUFFER" in repr(x)


def test_printing_inside_a_captured_function_keeps_it_captured() -> None:
    texts: list[str] = []

    @jit
    def double(x: Tensor) -> Tensor:
        texts.append(repr(x))
        return (x * 2).realize()

    for number in range(4):
        assert double(Tensor([float(number)]).realize()).item() == 2.0 * number
    assert "[1.]" not in texts[1]


def test_format_specifications_are_those_of_the_number() -> None:
    loss = (Tensor([1.0, 2.0]) * 3).mean()
    assert f"{loss:.4f} {loss:8.2e} {Tensor(3):03d} {Tensor([[2.5]])[0, 0]:.1f}" == (
        "4.5000 4.50e+00 003 2.5"
    )
    assert f"{Tensor([1, 2])}" == shown(np.array([1, 2]), "int32")
    with pytest.raises(DTypeError, match=r"format: '\.2f' formats one number, not .* shape \(2,\)"):
        f"{Tensor([1.0, 2.0]):.2f}"
