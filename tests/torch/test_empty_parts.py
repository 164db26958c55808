"""Values without an element, as of an expert without a token: what they are joined to or written to
has their dtype, and what they were computed from gets a gradient of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch

# No row of three, as positions and as a mask.
NO_ROWS, NO_MASK = torch.zeros(0, dtype=torch.int64), torch.zeros(3) > 1


def _written(key: Any) -> Callable[[Any], Any]:
    def write(rows: Any) -> Any:
        y = torch.ones(3, 2)
        y[key] = rows
        return y

    return write


JOINS: dict[str, Callable[[Any], Any]] = {
    "cat": lambda rows: torch.cat([rows, torch.ones(3, 2)]),
    "cat of vectors": lambda rows: torch.cat([rows.flatten(), torch.ones(3)]),
    "positions": _written(NO_ROWS),
    "mask": _written(NO_MASK),
    "slice": _written(slice(3, None)),
    "index_put": lambda rows: torch.ones(3, 2).index_put((NO_ROWS,), rows),
    "index_copy": lambda rows: torch.ones(3, 2).index_copy(0, NO_ROWS, rows),
    "index_add": lambda rows: torch.ones(3, 2).index_add(0, NO_ROWS, rows),
    "scatter": lambda rows: torch.ones(3, 2).scatter(0, NO_ROWS[:, None].expand(0, 2), rows),
    "scatter_reduce": lambda rows: torch.ones(3, 2).scatter_reduce(
        0, NO_ROWS[:, None].expand(0, 2), rows, "amax"
    ),
    "masked_scatter": lambda rows: torch.ones(3, 2).masked_scatter(NO_MASK[:, None], rows),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_made_an_empty_part_has_a_gradient_of_zeros(name: str) -> None:
    for _ in range(4):
        weight = torch.tensor([0.5, 2.0], requires_grad=True)
        found = JOINS[name]((torch.ones(3, 2) * weight)[NO_MASK])
        assert found.requires_grad
        found.sum().backward()
        assert found.tolist() == torch.ones(found.shape).tolist()
        assert weight.grad.tolist() == [0.0, 0.0]


def test_the_dtype_of_an_empty_vector_counts() -> None:
    """A list that grows from nothing has the default dtype."""
    grown = torch.cat([torch.tensor([]), torch.tensor([1, 2])])
    assert grown.dtype is torch.float32 and grown.tolist() == [1.0, 2.0]
    rows = torch.cat([torch.zeros(0, dtype=torch.float64), torch.ones(1, 2)], -1)
    assert rows.dtype is torch.float64 and rows.tolist() == [[1.0, 1.0]]
    assert torch.cat([torch.ones(2, 1, dtype=torch.int8), torch.tensor([])]).shape == (2, 1)


def test_no_element_is_taken_where_a_mask_asks_for_one() -> None:
    with pytest.raises(RuntimeError, match="masked_scatter: the source has no element"):
        torch.ones(3).masked_scatter(torch.ones(3) > 0, torch.tensor([]))


def test_no_rows_add_nothing_to_a_gradient_that_is_no_number() -> None:
    """The mean of nothing is no number, and so is what flows back from it; its sum is 0."""
    bias = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.zeros(0, 2) + bias
    loss = (y * y).mean()
    loss.backward()
    assert math.isnan(loss.item())
    assert bias.grad.tolist() == [0.0, 0.0]


def test_attention_of_no_features_is_empty_and_a_divergence_needs_no_axis() -> None:
    x = torch.zeros(1, 2, 3, 0)
    found = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    assert found.shape == (1, 2, 3, 0)
    one = torch.tensor(0.5)
    divergence = torch.nn.functional.kl_div(one.log(), one, reduction="batchmean")
    assert divergence.item() == 0.0
