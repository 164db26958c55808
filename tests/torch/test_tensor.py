"""Where PyTorch's tensors differ from tilegrad's: pairs, dtypes, modes, memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad
import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tilegrad.base.errors import TilegradError
from tilegrad.torch import nn

ROWS = np.array([[1.0, 5.0, 3.0], [7.0, 2.0, 7.0]], np.float32)


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_of_one_axis_is_a_named_pair(name: str) -> None:
    found = getattr(torch.tensor(ROWS), name)(dim=1)
    values, indices = found
    assert found.values.tolist() == getattr(ROWS, name)(1).tolist() == values.tolist()
    assert indices.tolist() == getattr(ROWS, f"arg{name}")(1).tolist()
    assert found.indices.dtype is torch.int64


def test_an_extreme_of_two_tensors_is_that_of_each_two_elements() -> None:
    assert torch.max(torch.tensor([1, 5]), torch.tensor([3, 2])).tolist() == [3, 5]


@pytest.mark.parametrize("name", ["sort", "topk", "kthvalue", "median", "mode", "cummax", "cummin"])
def test_what_orders_gives_values_and_int64_indices_by_name(name: str) -> None:
    x = torch.tensor(ROWS)
    given = {"topk": (2,), "kthvalue": (2,)}.get(name, ())
    found = getattr(x, name)(*given, dim=1)
    assert found.indices.dtype is torch.int64
    assert found.values.tolist() == x.gather(1, _whole(found.indices)).reshape(
        found.values.shape
    ).tolist()  # fmt: skip


def _whole(indices: torch.Tensor) -> torch.Tensor:
    return indices if indices.ndim == 2 else indices.unsqueeze(1)


def test_running_extremes_point_at_the_last_equal_element() -> None:
    found = torch.tensor([3, 1, 3, 4, 1]).cummax(0)
    assert (found.values.tolist(), found.indices.tolist()) == ([3, 3, 3, 4, 4], [0, 0, 2, 3, 3])


def test_integers_are_int64_and_floats_float32() -> None:
    made = [torch.tensor([1, 2]), torch.arange(3), torch.full((2,), 7), torch.randint(3, (2,))]
    assert {each.dtype for each in made} == {torch.int64}
    assert torch.tensor([1, 2.0]).dtype is torch.arange(0.0, 1.0, 0.5).dtype is torch.float32
    assert torch.argmax(torch.tensor(ROWS)).dtype is torch.int64


def test_the_class_makes_float32_of_a_list_and_memory_of_sizes() -> None:
    assert torch.Tensor([1, 2]).dtype is torch.float32
    assert torch.Tensor(2, 3).shape == torch.Size([2, 3])


def test_an_operand_without_axes_gives_way_in_dtype() -> None:
    half, number = torch.ones(2, dtype=torch.float16), torch.tensor(2.0)
    assert (half * number).dtype is torch.float16
    assert (torch.tensor([1, 2]) * torch.tensor(1.5)).dtype is torch.float32
    assert (torch.tensor([1, 2], dtype=torch.int32) + torch.tensor(3)).dtype is torch.int32


def test_what_is_made_without_gradients_passes_none_on_later() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    with torch.no_grad():
        y = x * 2
    loss = (x * y).sum()
    loss.backward()
    assert not y.requires_grad
    assert x.grad.tolist() == [6.0]


def test_an_equal_graph_outside_of_no_grad_keeps_its_gradient() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    with torch.no_grad():
        frozen = x * x
    (x * x - frozen).sum().backward()
    assert x.grad.tolist() == [6.0]


def test_no_grad_decorates_functions_and_generators_and_nests() -> None:
    x = torch.ones(1, requires_grad=True)

    @torch.no_grad()
    def plain() -> torch.Tensor:
        with torch.enable_grad():
            assert (x * 2).requires_grad
        return x * 2

    @torch.no_grad
    def items() -> object:
        yield x * 2

    assert not plain().requires_grad
    assert not next(items()).requires_grad
    assert torch.is_grad_enabled()


def test_no_grad_holds_however_often_a_call_came() -> None:
    """From the third call on its nodes come from a template."""
    for _ in range(6):
        x = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            y = x * 2 + x.exp().sum()
        (y * x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == y.tolist()


def test_set_grad_enabled_holds_from_the_call_on() -> None:
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False):
        assert not (torch.ones(1, requires_grad=True) * 2).requires_grad
    assert torch.is_grad_enabled()


def test_a_leaf_is_changed_in_place_only_without_gradients() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(TilegradError, match="in place"):
        w += 1
    with torch.no_grad():
        w += 1
        w[0] = 5.0
    w.data.mul_(2)
    w.data -= 1
    assert w.tolist() == [9.0, 3.0]
    assert w.requires_grad
    assert w.is_leaf
    (w * w).sum().backward()
    assert w.grad.tolist() == [18.0, 6.0]


def test_data_takes_another_tensors_values() -> None:
    w = torch.ones(2, requires_grad=True)
    w.data = torch.tensor([3.0, 4.0])
    (w * w).sum().backward()
    assert (w.tolist(), w.grad.tolist()) == ([3.0, 4.0], [6.0, 8.0])


def test_a_loss_may_have_axes_of_size_1() -> None:
    x = torch.tensor([[2.0]], requires_grad=True)
    assert (x * x).backward() is None
    assert x.grad.tolist() == [[4.0]]


def test_gradients_of_a_moved_parameter_are_those_of_gradient_descent() -> None:
    target, w = np.array([1.0, -2.0]), np.zeros(2)
    moving = torch.zeros(2, requires_grad=True)
    for _ in range(4):
        loss = ((moving - torch.tensor(target, dtype=torch.float32)) ** 2).sum()
        loss.backward()
        moving.data.sub_(0.1 * moving.grad)
        moving.grad = None
        w -= 0.1 * 2 * (w - target)
    np.testing.assert_allclose(moving.detach().numpy(), w, rtol=1e-6)


def test_to_takes_devices_dtypes_and_both() -> None:
    x = torch.ones(2)
    assert x.to(torch.float64).dtype is torch.float64
    assert x.to("cpu", torch.int64, non_blocking=True).dtype is torch.int64
    assert x.to(device=torch.device("cpu"), dtype=torch.float16).dtype is torch.float16
    assert x.to(torch.ones(1, dtype=torch.int8)).dtype is torch.int8
    assert (x.device.type, str(x.device), x.type()) == ("cpu", "cpu", "torch.FloatTensor")


def test_a_gpu_that_is_not_there_is_refused_with_what_to_write() -> None:
    assert not torch.cuda.is_available()
    for move in (torch.ones(1).cuda, lambda: torch.ones(1, device="cuda"), torch.nn.ReLU().cuda):
        with pytest.raises(TilegradError, match="is_available"):
            move()


def test_tensors_print_as_pytorchs() -> None:
    w = torch.tensor([[1.5, 2.0]], requires_grad=True)
    assert repr(w) == "tensor([[1.5000, 2.0000]], requires_grad=True)"
    assert str(torch.tensor([1, 2])) == "tensor([1, 2])"
    assert str(torch.zeros(2, dtype=torch.float64)) == "tensor([0., 0.], dtype=torch.float64)"
    assert str(torch.zeros(2, 3).shape) == "torch.Size([2, 3])"


def test_numbers_and_tilegrads_tensors_on_the_left_give_tensors_of_torch() -> None:
    x, plain = torch.ones(2), tilegrad.Tensor([1.0, 2.0])
    for made in (2 * x, 1 - x, 2**x, 1 / x, plain * x, plain + x, plain - x, plain / x):
        assert type(made) is torch.Tensor


def test_a_deep_copy_shares_no_memory_and_stays_a_parameter() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.note = "kept"
    other = copy.deepcopy(weight)
    with torch.no_grad():
        other.zero_()
    assert isinstance(other, torch.nn.Parameter)
    assert (weight.tolist(), other.tolist(), other.note) == ([1.0, 1.0], [0.0, 0.0], "kept")


def test_a_generator_has_a_stream_of_its_own() -> None:
    torch.manual_seed(1)
    first = torch.rand(2).tolist()
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(7)
    torch.rand(5, generator=generator)
    assert torch.rand(2).tolist() == first
    again = torch.Generator().manual_seed(7)
    assert torch.randn(3, generator=again).tolist() != first


def test_autocast_computes_products_in_bfloat16() -> None:
    x = torch.tensor(ROWS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = x @ x.T
        assert torch.nn.Linear(3, 2)(x).dtype is torch.bfloat16
    assert made.dtype is torch.bfloat16
    np.testing.assert_allclose(made.float().numpy(), ROWS @ ROWS.T, rtol=1e-2)
    assert (x @ x.T).dtype is torch.float32


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("torch.fx.Interpreter", "torch.compile"),
        ("torch.zeroes", "did you mean torch.zeros"),
        ("torch.nn.Relu", "did you mean torch.nn.ReLU"),
        ("torch.nn.functional.relux", "did you mean torch.nn.functional.relu"),
        ("torch.optim.Adan", "did you mean torch.optim.Adam"),
        ("torch.sparse_bsr_tensor", "COO or CSR"),
        ("torch.Tensor.resize_as", "reshape"),
        ("torch.Tensor.q_scale", "no quantized tensors"),
        ("torch.Tensor.softmx", "did you mean softmax"),
        ("torch.row_indices_copy", "without _copy"),
        ("torch.quantize_per_channel", "no quantized tensors"),
        ("torch.package", "torch.save"),
        ("torch.utils.data.IterDataPipe", "IterableDataset"),
        ("torch.flaot32", "did you mean torch.float32"),
        ("torch.utils.data.DataLoder", "did you mean torch.utils.data.DataLoader"),
        ("torch.nn.utils.rnn.pad_sequences", "did you mean torch.nn.utils.rnn.pad_sequence"),
        ("torch.random.manual_sed", "did you mean torch.random.manual_seed"),
        ("torch.jit.scrpt", "did you mean torch.jit.script"),
        ("torch.jit.freeze", "torch.save"),
        ("torch.amp.GradScalr", "did you mean torch.amp.GradScaler"),
        ("torch.utils.tensorboard", "write a file"),
    ],
)
def test_a_name_that_is_absent_says_what_to_do(name: str, hint: str) -> None:
    place: object = torch
    *parents, last = name.split(".")[1:]
    for each in parents:
        place = getattr(place, each)
    with pytest.raises(AttributeError, match=hint):
        getattr(place, last)


def test_what_is_said_of_a_gpu_where_there_is_none() -> None:
    """As PyTorch on a machine without one."""
    assert not torch.cuda.is_available() and not torch.cuda.is_initialized()
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.memory_stats() == {} and torch.cuda.get_rng_state_all() == []
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    assert torch.Generator().device == torch.device("cpu")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda: torch.zeros(2, dtype="flaot32"), "did you mean 'float32'"),
        (lambda: torch.tensor([1]).to("flaot32"), "float32 is a dtype"),
        (lambda: torch.tensor([1]).to("cpuu"), "did you mean 'cpu'"),
        (lambda: torch.device("cudda"), "did you mean 'cuda'"),
        (lambda: torch.tensor([1]).type("torch.FlaotTensor"), "did you mean torch.FloatTensor"),
        (lambda: torch.set_default_dtype("flaot32"), "remedy: torch.float32"),  # type: ignore[arg-type]
        (lambda: torch.finfo("float32"), "remedy: torch.float32"),  # type: ignore[arg-type]
        (lambda: torch.iinfo("int8"), "remedy: torch.int8"),  # type: ignore[arg-type]
    ],
)
def test_misspelt_dtypes_and_devices_say_what_was_meant(wrong: Any, hint: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError), match=hint):
        wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: torch.ones(2, 3).t().view(6),
        lambda: torch.ones(2, 3) @ torch.ones(3, 2, dtype=torch.float64),
        lambda: F.linear(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)),
        lambda: torch.arange(3).mean(),
        lambda: -torch.tensor([True]),
        lambda: torch.tensor([True]) - torch.tensor([True]),
        lambda: torch.arange(5, 1),
        lambda: torch.device("nonsense"),
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: torch.linalg.cholesky(-torch.eye(2)),
        lambda: setattr(torch.ones(2, requires_grad=True), "grad", torch.ones(3)),
    ],
)
def test_what_pytorch_refuses_is_a_runtime_error(wrong: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError):
        wrong()


def test_a_text_among_numbers_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="str is no number"):
        torch.tensor([1, "a"])


def test_factors_say_where_they_failed() -> None:
    both = torch.stack([torch.eye(2), -torch.eye(2)])
    assert torch.linalg.cholesky_ex(both).info.tolist() == [0, 1]
    assert torch.linalg.inv_ex(torch.zeros(2, 2)).info.item() == 1


def test_integers_take_the_dtype_of_floats_beside_them() -> None:
    half, number = torch.ones(2, dtype=torch.float16), torch.tensor(2.0, dtype=torch.float64)
    counts = torch.arange(2)
    assert (counts / half).dtype is torch.float16 and (counts * number).dtype is torch.float64


def test_bits_are_read_as_another_dtype() -> None:
    assert torch.tensor([1.0]).view(torch.int32).tolist() == [0x3F800000]


def test_old_classes_of_tensors_are_asked_for_a_dtype() -> None:
    assert isinstance(torch.arange(2), torch.LongTensor)
    assert not isinstance(torch.ones(2), torch.LongTensor)
    assert torch.ones(2).type(torch.IntTensor).dtype is torch.int32


def test_einsum_takes_labels_as_lists() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.einsum(x, [0, 1], x, [2, 1], [0, 2]).tolist() == [[5.0, 14.0], [14.0, 50.0]]


def test_a_shrunk_image_weighs_all_it_covers() -> None:
    ramp = torch.arange(8.0).reshape(1, 1, 1, 8)
    found = F.interpolate(ramp, size=(1, 4), mode="bilinear", antialias=True)
    # A triangle of four elements' width: weights 1, 3, 3, 1 of 8, cut and scaled at the ends.
    assert found.flatten().tolist() == pytest.approx([5 / 7, 2.5, 4.5, 44 / 7], abs=1e-5)


def test_what_a_tensor_of_one_number_picks_is_a_view() -> None:
    x = torch.zeros(3, 4)
    for row in torch.arange(1, 3):
        x[row].add_(row)
    x[0, torch.tensor(2)].fill_(7)
    x[..., (x[0] > 5).int().argmax() + 1][1:].mul_(3)
    assert x.tolist() == [[0, 0, 7, 0], [1, 1, 1, 3], [2, 2, 2, 6]]
    w = torch.ones(2, 3, requires_grad=True)
    y = w * 1
    y[torch.tensor(-1)].mul_(4)
    y.sum().backward()
    assert w.grad.tolist() == [[1, 1, 1], [4, 4, 4]]
    assert torch.vmap(lambda at: x[at].sum())(torch.arange(3)).tolist() == [7, 6, 12]


@pytest.mark.parametrize(
    ("view", "size", "stride"),
    [
        (lambda x: x.t(), (2, 2), (1, 6)),
        (lambda x: x[1], (2,), (3,)),
        (lambda x: x[:, 1], (3,), (2,)),
        (lambda x: x[1:, 2:], (2, 2), (7, 1)),
        (lambda x: x.reshape(-1)[5:].reshape(19), (3, 2), (6, 1)),
        (lambda x: x[::2].t()[1:], (2, 3), (6, 2)),
    ],
)
def test_strides_of_a_view_are_those_of_its_memory(view: Any, size: Any, stride: Any) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    viewed = view(x)
    start = viewed.storage_offset()
    expected = start + sum(np.indices(size)[axis] * step for axis, step in enumerate(stride))
    found = viewed.as_strided(size, stride)
    assert found.tolist() == expected.tolist()
    assert torch.as_strided(viewed, size, stride, 1).tolist() == (expected - start + 1).tolist()
    found.fill_(-1)
    assert sorted(np.flatnonzero(x.numpy() == -1)) == sorted({*expected.reshape(-1).astype(int)})
    with pytest.raises(IndexError):
        viewed.as_strided((25,), (1,))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:],
        lambda x: x[...],
        lambda x: x.reshape(2, 2),
        lambda x: x.view(2, 2),
        lambda x: x.expand(2, 2),
        lambda x: x.broadcast_to((2, 2)),
        lambda x: x.permute(0, 1),
        lambda x: x.squeeze(),
        lambda x: x.narrow(0, 0, 2),
        lambda x: x.chunk(1)[0],
        lambda x: x.unflatten(0, (2,)),
        lambda x: x.transpose(1, 1),
        lambda x: x.diagonal(),
        lambda x: x[[0, 1]],
    ],
)
def test_a_view_of_the_same_shape_under_no_grad_has_no_gradient(view: Any) -> None:
    """It is no step back to what it views, as a view of another shape is not."""
    for _ in range(3):
        leaf = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        x = leaf * 3
        with torch.no_grad():
            y = view(x)
        assert not y.requires_grad
        (x.sum() * y.sum()).backward()
        np.testing.assert_array_equal(leaf.grad.numpy(), np.full((2, 2), 3 * y.sum().item()))


def test_what_is_given_back_as_it_is_keeps_its_gradient_under_no_grad() -> None:
    x = torch.tensor([[1.0, 2.0]], requires_grad=True) * 3
    with torch.no_grad():
        for same in (
            torch.atleast_1d(x),
            torch.atleast_2d(x),
            torch.broadcast_tensors(x, x)[0],
            x.contiguous(),
        ):
            assert same is x


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("bfloat16", lambda a, b: torch.einsum("ij,jk->ik", a, b)),
        ("bfloat16", lambda a, b: torch.tensordot(a, b, dims=1)),
        ("bfloat16", lambda a, b: torch.linalg.vecdot(a, b)),
        ("bfloat16", lambda a, b: torch.addbmm(a, a[None], b[None])),
        ("bfloat16", lambda a, b: a @ b[0]),
        ("float32", lambda a, b: torch.dot(a[0], b[0])),
        ("float32", lambda a, b: torch.mv(a, b[0])),
        ("float32", lambda a, b: torch.addmv(a[0], a, b[0])),
    ],
)
def test_products_in_autocast_have_the_dtypes_of_pytorch(name: str, product: Any) -> None:
    a, b = torch.ones(4, 4), torch.full((4, 4), 0.5)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = product(a, b)
        assert found.dtype.name == name and found.float().max().item() in (2.0, 9.0, 3.0)
        assert product(a, b).dtype.name == "float32"


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        "x.cumsum(0)", "x[:, i]", "x[..., i]", "x.index_select(1, i)", "x.logcumsumexp(0)",
        "x.index_add(1, i, x[:, :2])", "F.interpolate(x, 8)", "torch.zeros(2, 3, 4).cumsum(0)",
        "F.grid_sample(x[None], torch.zeros(1, 2, 2, 2))",
    ],
)  # fmt: skip
def test_results_have_an_order_that_can_be_viewed(call: str, *, is_read: bool) -> None:
    """Though a permute stands at their end; a write through the view is one to the result."""
    peer = pytest.importorskip("torch")
    array = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    found: list[list[Any]] = []
    for library in (peer, torch):
        seen: list[Any] = []
        for number in range(4):
            names = {"torch": library, "F": library.nn.functional, "i": library.tensor([1, 0])}
            made = eval(call, {**names, "x": library.tensor(array + number)})
            if is_read:
                seen.append(made.tolist())
            flat = made.view(-1)
            flat[1] = 5.0
            made.add_(1)
            seen += [flat.tolist(), made.tolist()]
        found.append(seen)
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_what_attention_gives_can_be_viewed() -> None:
    x = torch.ones(3, 2, 4)
    made, _ = nn.MultiheadAttention(4, 2)(x, x, x)
    assert made.is_contiguous()
    made.view(6, 4)[1] = 7.0
    assert made[0, 1].tolist() == [7.0] * 4


def test_all_of_a_view_that_was_computed_is_a_view() -> None:
    """In steps that are known at any size, where the view was read by itself before."""
    for number in [*range(4, 16), *range(4, 16)]:
        values = np.arange(4 * number, dtype=np.float32).reshape(number, 4)
        x = torch.tensor(values)
        with torch.no_grad():
            x.detach().mul_(0.5)
        y = x.swapaxes(0, -1)
        y.tolist()
        z, w = y[:], y.detach()
        z[0, 1] = 7.0
        values /= 2
        values[1, 0] = 7.0
        assert x.tolist() == values.tolist()
        assert y.tolist() == z.tolist() == w.tolist() == values.T.tolist()


def test_contiguous_is_the_tensor_itself_where_it_is_in_order() -> None:
    x = torch.tensor([1.0, 2.0]) * 2
    y = x.contiguous()
    y.data = y.data * 3
    assert y is x and x.tolist() == [6.0, 12.0]
    assert torch.ones(2, 3).t().contiguous().is_contiguous()
