"""Arguments at the edge of what a function takes: one row, weights of another dtype, None for a
default, operands that stretch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

ROWS = np.array([[-8, 6, 3], [9, 0, 1]])
OFTEN, WEIGHTS = np.array([7, 4, 1]), np.array([0.25, 0.375, 2.0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float64])
@pytest.mark.parametrize("often", [None, OFTEN])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[0]])
def test_weights_of_a_covariance_are_not_rounded_to_the_dtype_of_its_rows(
    rows: Any, often: Any, dtype: Any
) -> None:
    counts = None if often is None else torch.tensor(often)
    x, weights = torch.tensor(rows, dtype=dtype), torch.tensor(WEIGHTS, dtype=torch.float32)
    found = torch.cov(x, fweights=counts, aweights=weights)
    assert found.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    expected = np.cov(rows, fweights=often, aweights=WEIGHTS)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_one_row_has_a_variance_and_no_matrix_of_them() -> None:
    x = torch.tensor(ROWS[:1], dtype=torch.float32)
    for found in (x.cov(), x.corrcoef(), torch.cov(x, fweights=torch.tensor(OFTEN))):
        assert found.shape == ()
    assert x.corrcoef().item() == 1
    np.testing.assert_allclose(x.cov().numpy(), np.cov(ROWS[:1]), rtol=1e-6)


def test_parts_of_complex_numbers_stretch() -> None:
    real, imag = np.arange(3.0).reshape(3, 1), np.array([1.0, -2.0])
    found = torch.complex(torch.tensor(real), torch.tensor(imag))
    np.testing.assert_array_equal(found.numpy(), real + 1j * imag)
    found = torch.polar(torch.tensor(real), torch.tensor(imag))
    np.testing.assert_allclose(found.numpy(), real * np.exp(1j * imag), rtol=1e-12)


def test_distances_take_a_mode_in_its_place() -> None:
    x, y = torch.ones(1, 2), torch.zeros(3, 2)
    found = torch.cdist(x, y, 1.0, "use_mm_for_euclid_dist_if_necessary")
    assert found.tolist() == x.cdist(x2=y, p=1, compute_mode="donot").tolist() == [[2.0] * 3]


def test_the_spacing_of_a_gradient_may_be_none() -> None:
    values = np.array([1.0, 4.0, 9.0])
    (found,) = torch.gradient(torch.tensor(values), spacing=None, dim=None)
    np.testing.assert_array_equal(found.numpy(), np.gradient(values))


@pytest.mark.parametrize("unbiased", [True, False])
def test_a_mean_beside_a_variance_has_its_axes(unbiased: bool) -> None:
    x, count = np.arange(6.0).reshape(2, 3) ** 2, int(unbiased)
    for function, expected in ((torch.var_mean, np.var), (torch.std_mean, np.std)):
        spread, mean = function(torch.tensor(x), unbiased)
        np.testing.assert_allclose(spread.numpy(), expected(x, ddof=count))
        np.testing.assert_allclose(mean.numpy(), x.mean())
        spread, mean = function(torch.tensor(x), 1, unbiased, True)
        np.testing.assert_allclose(spread.numpy(), expected(x, 1, ddof=count, keepdims=True))
        np.testing.assert_allclose(mean.numpy(), x.mean(1, keepdims=True))


REDUCTIONS: dict[str, Any] = {
    "sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "nansum": np.sum,
    "var": lambda x: np.var(x, ddof=1), "std": lambda x: np.std(x, ddof=1),
    "nanmean": np.mean, "count_nonzero": np.count_nonzero,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_no_axis_in_a_tuple_stands_for_all(name: str) -> None:
    values = np.arange(6.0).reshape(2, 3) ** 2
    x, expected = torch.tensor(values), REDUCTIONS[name](values)
    for axes in ((), []):
        for found in (
            getattr(x, name)(dim=axes), getattr(x, name)(axes), getattr(torch, name)(x, dim=axes),
            getattr(torch.Tensor, name)(x, dim=axes),
        ):  # fmt: skip
            assert found.shape == ()
            np.testing.assert_allclose(found.item(), expected, rtol=1e-12)


def test_norms_of_all_axes() -> None:
    values = np.array([[3.0, 0.0], [0.0, 4.0]])
    x = torch.tensor(values)
    assert x.norm(2, ()).item() == torch.norm(x, dim=[]).item() == 5
    assert torch.linalg.vector_norm(x, dim=()).item() == 5
    np.testing.assert_allclose(torch.norm(x, "nuc").item(), np.linalg.norm(values, "nuc"))
    assert torch.norm(x.reshape(2, 1, 2), "nuc", dim=(0, 2), keepdim=True).shape == (1, 1, 1)


def test_a_correction_may_be_none() -> None:
    values = np.array([1.0, 4.0, 9.0])
    x = torch.tensor(values)
    assert x.var(dim=None, correction=None).item() == pytest.approx(np.var(values, ddof=1))
    assert x.std(correction=None).item() == pytest.approx(np.std(values, ddof=1))


def test_a_number_is_indexed_as_a_row_of_one() -> None:
    x, at, two = torch.tensor(3.0), torch.tensor([0]), torch.tensor(2.0)
    assert x.gather(0, torch.tensor([0, 0])).tolist() == [3, 3]
    assert x.gather(0, at).shape == (1,) and x.gather(0, torch.tensor(0)).shape == ()
    assert x.index_add(0, at, two, alpha=-1).item() == 1
    assert x.index_copy(0, at, two).item() == 2
    assert x.index_fill(0, at, 7).item() == 7
    assert x.index_reduce(0, at, two, "prod").item() == 6
    assert torch.tensor([3.0, 4.0]).index_select(0, torch.tensor(1)).tolist() == [4]


def test_a_tensor_without_axes_fills() -> None:
    x = torch.arange(6).reshape(2, 3)
    found = x.index_fill(1, torch.tensor([0, 2]), torch.tensor(9))
    assert found.tolist() == [[9, 1, 9], [9, 4, 9]]


def test_new_tensors_are_made_on_a_device_and_with_a_gradient() -> None:
    x = torch.ones(2)
    for made in (
        x.new_zeros(2, 3, device="cpu", requires_grad=True),
        x.new_ones((2, 3), device="cpu", layout=None, pin_memory=False, requires_grad=True),
        x.new_empty((2, 3), device=x.device, requires_grad=True),
        x.new_full((2, 3), 4.0, device="cpu", requires_grad=True),
        x.new_tensor([[1.0] * 3] * 2, device="cpu", requires_grad=True),
    ):
        assert made.shape == (2, 3) and made.requires_grad and made.is_leaf
    assert torch.scalar_tensor(2, requires_grad=True).requires_grad
    assert x.new_zeros(2, dtype=torch.int64, device="cpu").dtype == torch.int64


def test_casts_take_a_memory_format() -> None:
    x = torch.tensor([1.5, 2.5])
    assert x.byte(memory_format=torch.preserve_format).tolist() == [1, 2]
    assert x.double(memory_format=torch.contiguous_format).dtype == torch.float64


def test_positions_have_the_dtype_that_was_asked_for() -> None:
    edges, x = torch.tensor([1, 3, 5]), torch.tensor([1, 5])
    assert torch.bucketize(x, edges, out_int32=True, right=True).dtype == torch.int32
    assert torch.searchsorted(edges, x, out_int32=True).dtype == torch.int32
    assert torch.bucketize(x, edges).dtype == torch.searchsorted(edges, x).dtype == torch.int64
    order = torch.tensor([2, 1, 0])
    assert torch.searchsorted(torch.tensor([5, 3, 1]), x, sorter=order).tolist() == [0, 2]
    small = torch.tensor([100, 99], dtype=torch.int8)
    row, column = torch.unravel_index(small, (2, 200))
    assert row.dtype == column.dtype == torch.int64
    assert row.tolist() == [0, 0] and column.tolist() == [100, 99]


def test_one_axis_of_a_transform_may_come_alone() -> None:
    values = np.arange(6.0).reshape(2, 3)
    x = torch.tensor(values)
    for found, expected in (
        (torch.fft.fftn(x, dim=0), np.fft.fftn(values, axes=(0,))),
        (torch.fft.rfftn(x, s=4, dim=-1), np.fft.rfftn(values, (4,), (-1,))),
        (torch.fft.fft2(x, dim=0), np.fft.fft2(values, axes=(0,))),
        (torch.fft.ihfftn(x, dim=1), np.fft.ihfft(values, axis=1)),
    ):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_factors_of_a_matrix_in_one() -> None:
    values = np.array([[1.0, 2.0], [4.0, 3.0]])
    packed, pivots, infos = torch.tensor(values).lu(get_infos=True)
    lower, upper = np.tril(packed.numpy(), -1) + np.eye(2), np.triu(packed.numpy())
    np.testing.assert_allclose((lower @ upper)[::-1], values)
    assert pivots.tolist() == [2, 2] and infos.item() == 0
    with pytest.raises(RuntimeError, match="always exchanged"):
        torch.tensor(values).lu(pivot=False)


def test_degrees_are_rounded_towards_zero_and_bounded() -> None:
    x = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64)
    found = torch.special.chebyshev_polynomial_u(x, torch.tensor([-0.5, 1.7, -1.0]))
    assert found.tolist() == [1, 1, 0]
    with pytest.raises(RuntimeError, match="a degree of 20000"):
        torch.special.legendre_polynomial_p(x, torch.tensor(20000))


def test_what_is_left_of_equations() -> None:
    solution, residuals, rank, _ = torch.linalg.lstsq(2 * torch.eye(3), torch.ones(3, 2))
    assert solution.tolist() == [[0.5, 0.5]] * 3 and residuals.shape == (0,)
    assert rank.dtype == torch.int64 and rank.item() == 3
    assert torch.linalg.vander(torch.tensor(2.0), N=3).tolist() == [[1, 2, 4]]


def test_a_target_that_is_neither_costs_nothing() -> None:
    x, y = torch.tensor([[1.0, 0.0]] * 3), torch.tensor([[1.0, 0.0]] * 3)
    targets = torch.tensor([1, -1, 0])
    found = torch.nn.functional.cosine_embedding_loss(x, y, targets, reduction="none")
    assert found.tolist() == [0, 1, 0]


def test_slices_of_no_image() -> None:
    assert torch.nn.functional.unfold(torch.zeros(0, 1, 5, 5), 2).shape == (0, 4, 16)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_integers_are_counted_between_ends_without_fractions(dtype: Any) -> None:
    found = torch.linspace(4.3, -3, 50, dtype=dtype)
    assert found.dtype == dtype
    # 4 - 7 * k / 49, cut to what lies nearer to 0.
    expected = [int((4 * 49 - 7 * k) / 49) for k in range(50)]
    assert found.tolist() == expected
    assert torch.linspace(2.9, 9.5, 1, dtype=dtype).tolist() == [2]
    powers = torch.logspace(4.3, 0, 3, 2.0, dtype=dtype)
    assert powers.tolist() == [16, 4, 1]


def test_a_mask_of_more_axes_stretches_what_it_writes() -> None:
    mask = np.array([[True, False], [False, True]])
    found = torch.tensor([1, 2]).masked_scatter(torch.tensor(mask), torch.tensor([7, 8]))
    assert found.tolist() == [[7, 2], [1, 8]]


def test_indices_of_nothing_are_filled() -> None:
    found = torch.zeros(5, 0, 3).nonzero_static(size=2, fill_value=-7)
    assert found.tolist() == [[-7, -7, -7]] * 2


def test_differences_of_none_are_the_values_alone() -> None:
    ends = torch.tensor([9])
    assert torch.tensor([1, 5]).diff(0, prepend=ends, append=ends).tolist() == [1, 5]


def test_one_class_for_one_row_of_scores() -> None:
    loss = torch.nn.functional.multi_margin_loss
    scores = torch.tensor([0.5, 1.0, 0.0])
    # (1 - 1 + 0.5) / 3 + 0 for the last.
    assert loss(scores, torch.tensor([1])).item() == pytest.approx(0.5 / 3)


def test_powers_of_truth_values_are_integers() -> None:
    truths = torch.tensor([True, False])
    for found in (truths**2, truths.square(), torch.square(truths), truths.pow(2)):
        assert found.dtype == torch.int64 and found.tolist() == [1, 0]


def test_a_number_of_slices_in_a_tensor() -> None:
    first, second = torch.arange(5).tensor_split(torch.tensor(2))
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4])


def test_what_is_taken_along_an_axis_counts_from_its_end() -> None:
    values = np.arange(6).reshape(2, 3)
    index = np.array([[-1, 0], [1, -3]])
    found = torch.tensor(values).take_along_dim(torch.tensor(index), 1)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(values, index, 1))
    flat = torch.take_along_dim(torch.tensor(values), torch.tensor([-1, 2]))
    assert flat.tolist() == [5, 2]


@pytest.mark.parametrize(
    ("left", "right", "axes"),
    [
        ((2, 1, 3), (3, 4), ([1], [0])),
        ((2, 5, 3), (1, 4), ([1], [0])),
        ((2, 3), (1, 1), ([0, 1], [0, 1])),
        ((2, 3, 4), (3, 1), ([1, 2], [0, -1])),
    ],
)
def test_an_axis_of_size_1_stretches_in_tensordot(left: Any, right: Any, axes: Any) -> None:
    a, b = np.arange(np.prod(left)).reshape(left), np.arange(np.prod(right)).reshape(right) + 1
    found = torch.tensordot(torch.tensor(a), torch.tensor(b), dims=axes)
    # Both stretched, then NumPy's.
    wide, other = list(left), list(right)
    for mine, theirs in zip(*axes, strict=True):
        wide[mine] = other[theirs] = max(left[mine], right[theirs])
    expected = np.tensordot(np.broadcast_to(a, wide), np.broadcast_to(b, other), axes)
    assert found.dtype is torch.int64
    np.testing.assert_array_equal(found.numpy(), expected)


def test_sums_beside_nan_have_the_dtype_that_was_asked_for() -> None:
    values = np.array([[1.0, np.nan, 2.5], [np.nan, np.nan, 4.0]], np.float32)
    x = torch.tensor(values)
    for dtype, kind in ((torch.float64, np.float64), (torch.float16, np.float16)):
        for name in ("nansum", "nanmean"):
            found = getattr(torch, name)(x, dim=1, dtype=dtype)
            assert found.dtype is dtype
            expected = getattr(np, name)(values.astype(kind), axis=1)
            np.testing.assert_allclose(found.numpy(), expected)
    assert torch.tensor([1, 2]).nansum(0, True, dtype=torch.float32).tolist() == [3.0]


def test_cosines_of_numbers_whose_squares_leave_the_dtype() -> None:
    similarity = torch.nn.functional.cosine_similarity
    zeros = torch.zeros(2, 3, dtype=torch.float16)
    assert similarity(zeros, zeros).tolist() == [0.0, 0.0]
    large = torch.full((2, 3), 300.0, dtype=torch.float16)
    assert similarity(large, large).dtype is torch.float16
    np.testing.assert_allclose(similarity(large, -large).numpy(), [-1.0, -1.0], rtol=1e-3)
    x = torch.tensor([[3e17, -4e17]]), torch.tensor([[4e18, 3e18]])
    # (12 - 12) / (5 * 5), and (12 + 16) / (5 * 5).
    np.testing.assert_allclose(similarity(*x).numpy(), [0.0], atol=1e-6)
    np.testing.assert_allclose(similarity(x[0], x[1] * torch.tensor([1, -1])).numpy(), [0.96], 1e-6)


def test_matrices_without_elements() -> None:
    none = torch.zeros(2, 0, 0)
    assert torch.matrix_exp(none).shape == (2, 0, 0)
    assert torch.linalg.cond(none).tolist() == [0.0, 0.0]
    a = np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    q, r = torch.linalg.qr(torch.tensor(a), mode="r")
    assert q.shape == (0,)
    np.testing.assert_allclose(np.abs(r.numpy()), np.abs(np.linalg.qr(a, "r")), rtol=1e-12)


def test_a_matrix_with_infinity_has_no_eigenvalues_and_leaves_the_others() -> None:
    a = np.array([[[2.0, 1.0], [1.0, 2.0]], [[np.inf, 1.0], [1.0, 2.0]], [[np.nan, 1], [1, 2]]])
    found = torch.linalg.eigvals(torch.tensor(a)).numpy()
    np.testing.assert_allclose(np.sort(found[0].real), [1.0, 3.0], rtol=1e-12)
    assert np.isnan(found[1:].real).all() and np.isnan(found[1:].imag).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients_of_eigenvalues_are_those_of_differences(dtype: Any) -> None:
    draw = np.random.default_rng(7)
    a = draw.normal(size=(3, 3)) + (1j * draw.normal(size=(3, 3)) if dtype is np.complex128 else 0)
    weights = np.array([0.5, -1.0, 2.0])

    def loss(matrix: Any) -> float:
        values, vectors = np.linalg.eig(matrix)
        order = np.argsort(np.abs(values))
        shares = np.abs(vectors[:, order]) ** 2
        return float((np.abs(values[order]) * weights).sum() + (shares.T @ weights) @ weights)

    x = torch.tensor(a.astype(dtype), requires_grad=True)
    values, vectors = torch.linalg.eig(x)
    order = torch.tensor(np.argsort(np.abs(values.detach().numpy())))
    shares = vectors[:, order].abs().square()
    w = torch.tensor(weights)
    ((values[order].abs() * w).sum() + (shares.T @ w) @ w).backward()
    step, expected = 1e-6, np.zeros((3, 3), dtype)
    for at in np.ndindex(3, 3):
        for unit in (1, 1j) if dtype is np.complex128 else (1,):
            moved = np.zeros((3, 3), dtype)
            moved[at] = step * unit
            expected[at] += unit * (loss(a + moved) - loss(a - moved)) / (2 * step)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_a_copy_of_nothing_is_a_tensor_of_its_own() -> None:
    x = torch.zeros(0, 3, requires_grad=True)
    y = x.clone()
    assert not y.is_leaf and y.mul_(2) is y
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)


def test_transforms_of_real_numbers_refuse_complex_ones() -> None:
    z = torch.tensor([[1j, 2.0]])
    for name in ("rfft", "rfft2", "rfftn", "ihfft"):
        with pytest.raises(TypeError, match="a transform of real numbers"):
            getattr(torch.fft, name)(z)


def test_strides_in_place() -> None:
    x = torch.arange(9.0)
    y = x[3:]
    assert y.as_strided_((2,), (3,)) is y and y.tolist() == [3.0, 6.0]
    y.mul_(2)
    assert x.tolist() == [0.0, 1.0, 2.0, 6.0, 4.0, 5.0, 12.0, 7.0, 8.0]
    w = torch.arange(6.0, requires_grad=True)
    v = w * 2
    v.as_strided_((2, 2), (2, 1)).square().sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 8.0, 16.0, 24.0, 0.0, 0.0]
    assert x.narrow_copy(0, 1, 2).tolist() == [1.0, 2.0]
    assert torch.tensor([[-1.0, 2.0]]).prelu(torch.tensor([0.25, 0.5])).tolist() == [[-0.25, 2.0]]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("add", 1 + 3 * 100), ("sub", 1 - 3 * 100), ("rsub", 100 - 3), ("addcmul", 1 + 3 * 100 * 100)],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_factor_multiplies_in_the_dtype_of_the_result(name: str, wanted: int, dtype: Any) -> None:
    """3 * 100 is no int8, and 3 * 60000 no float16."""
    wide, narrow = torch.tensor([1], dtype=dtype), torch.tensor([100], dtype=torch.int8)
    if name == "addcmul":
        found = torch.addcmul(wide, narrow, narrow, value=3)
    else:
        found = getattr(torch, name)(wide, narrow, alpha=3)
    assert found.dtype is dtype and found.tolist() == [wanted]


def test_an_update_in_half_precision_does_not_overflow_before_it_is_added() -> None:
    total, update = torch.tensor([1.0]), torch.tensor([60000.0]).half()
    assert total.add_(update, alpha=-2).tolist() == [1.0 - 2 * 60000.0]
    assert torch.rsub(update, total, alpha=2).tolist() == [1.0 - 4 * 60000.0]
