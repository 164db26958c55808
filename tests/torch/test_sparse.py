"""Sparse tensors beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
warnings.filterwarnings("ignore", message="Sparse")
BOTH = (theirs, ours)
RNG = np.random.default_rng(8)
ROWS, COLUMNS = RNG.integers(0, 5, 14), RNG.integers(0, 4, 14)
VALUES, RIGHT = RNG.normal(size=14), RNG.normal(size=(4, 3))


def made(torch: Any, **options: Any) -> Any:
    return torch.sparse_coo_tensor(np.stack([ROWS, COLUMNS]), VALUES, (5, 4), **options)


def dense() -> Any:
    found = np.zeros((5, 4))
    np.add.at(found, (ROWS, COLUMNS), VALUES)
    return found


def test_positions_and_values() -> None:
    for torch in BOTH:
        s = made(torch)
        assert (s.is_sparse, str(s.layout), s.sparse_dim(), s.dense_dim()) == (
            True, "torch.sparse_coo", 2, 0,
        )  # fmt: skip
        assert not s.is_coalesced()
        with pytest.raises(RuntimeError, match="uncoalesced"):
            s.indices()
        np.testing.assert_allclose(s.to_dense().numpy(), dense())
        whole = s.coalesce()
        rows, columns = np.nonzero(dense())
        assert whole.indices().tolist() == [rows.tolist(), columns.tolist()]
        np.testing.assert_allclose(whole.values().numpy(), dense()[rows, columns])
        assert (whole._nnz(), tuple(whole.shape), whole.numel()) == (len(rows), (5, 4), 20)
        csr = whole.to_sparse_csr()
        assert csr.crow_indices().tolist() == [0, *np.cumsum(np.bincount(rows)).tolist()]
        assert csr.col_indices().tolist() == columns.tolist()
        again = torch.sparse_csr_tensor(
            csr.crow_indices(), csr.col_indices(), csr.values(), csr.shape
        )
        np.testing.assert_allclose((again @ torch.tensor(RIGHT)).numpy(), dense() @ RIGHT)


def test_products_and_their_gradients() -> None:
    found = []
    for torch in BOTH:
        values = torch.tensor(VALUES, requires_grad=True)
        right = torch.tensor(RIGHT, requires_grad=True)
        s = torch.sparse_coo_tensor(np.stack([ROWS, COLUMNS]), values, (5, 4))
        out = torch.sparse.mm(s, right)
        loss = out.square().sum() + (s @ right[:, 0]).sum() + (s.t() @ out).sum()
        loss.backward()
        found.append((loss.item(), values.grad.numpy(), right.grad.numpy()))
    for mine, other in zip(found[1], found[0]):
        np.testing.assert_allclose(mine, other, rtol=1e-9)


def test_arithmetic_and_reductions() -> None:
    for torch in BOTH:
        s, d = made(torch), dense()
        np.testing.assert_allclose((s * 2 + s).to_dense().numpy(), 3 * d)
        np.testing.assert_allclose((s - s / 4).to_dense().numpy(), d * 0.75)
        np.testing.assert_allclose((-s).coalesce().abs().to_dense().numpy(), np.abs(d))
        np.testing.assert_allclose((torch.ones(5, 4).double() + s).numpy(), 1 + d)
        np.testing.assert_allclose(torch.sparse.sum(s).item(), d.sum())
        np.testing.assert_allclose(torch.sparse.sum(s, 0).to_dense().numpy(), d.sum(0))
        np.testing.assert_allclose(torch.sparse.sum(s, (0, 1)).item(), d.sum())
        np.testing.assert_allclose(
            torch.mm(torch.ones(2, 5).double(), s).numpy(), d.sum(0)[None].repeat(2, 0)
        )
        np.testing.assert_allclose(
            torch.sparse.addmm(torch.ones(5, 3).double(), s, torch.tensor(RIGHT), alpha=2).numpy(),
            1 + 2 * d @ RIGHT,
        )
        whole = s.coalesce()
        shown = np.where(d != 0, d, -np.inf)
        powers = np.exp(shown - shown.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(torch.sparse.softmax(whole, 1).to_dense().numpy(), expected)


def test_dense_tensors_become_sparse_and_vectors_are_values() -> None:
    for torch in BOTH:
        x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
        s = x.to_sparse()
        assert s.indices().tolist() == [[0, 2, 2], [1, 0, 1]]
        assert s.values().tolist() == [2.0, 3.0, 4.0]
        rows = x.to_sparse(1)
        assert rows.indices().tolist() == [[0, 2]]
        assert rows.values().tolist() == [[0.0, 2.0], [3.0, 4.0]]
        assert rows.to_dense().tolist() == x.tolist()
        assert x.to_dense().tolist() == x.tolist()
        assert isinstance(s, torch.Tensor)
        assert torch.is_tensor(s)


def test_a_module_holds_a_sparse_matrix_as_a_buffer() -> None:
    for torch in BOTH:
        layer = torch.nn.Module()
        layer.register_buffer("adjacency", made(torch).coalesce().float())
        out = torch.sparse.mm(layer.adjacency, torch.ones(4, 1))
        np.testing.assert_allclose(out.numpy(), dense().sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("indices", "values", "size"),
    [
        ([[0, 9], [0, 1]], [1.0, 2.0], (3, 3)),
        ([[0, 1]], [1.0, 2.0, 3.0], (3,)),
        ([[0, 1]], [1.0, 2.0], (3, 3)),
    ],
)
def test_what_does_not_fit_raises(indices: Any, values: Any, size: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        ours.sparse_coo_tensor(indices, values, size)
    with pytest.raises((RuntimeError, IndexError)):
        theirs.sparse_coo_tensor(indices, values, size, check_invariants=True)


def test_what_sparse_tensors_lack_says_what_to_do() -> None:
    s = made(ours)
    with pytest.raises(AttributeError, match="to_dense"):
        s.argsort()
    with pytest.raises(TypeError, match="to_dense"):
        s.numpy()


@pytest.mark.parametrize(
    "call",
    [
        lambda torch, s: torch.sparse.softmax(s.coalesce(), 5),
        lambda torch, s: torch.sparse.sum(s, 7),
        lambda torch, s: s.transpose(0, 5),
    ],
)
def test_an_axis_that_is_not_there_raises(call: Any) -> None:
    for torch in BOTH:
        with pytest.raises(IndexError):
            call(torch, made(torch))
