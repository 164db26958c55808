"""Names that libraries written for PyTorch ask for, beyond those of programs."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.nn.attention import flex_attention as flex
from tilegrad.torch.utils import _pytree as tree

WAVE = np.sin(np.arange(2 * 4 * 6 * 8) * 1.3).astype(np.float32).reshape(2, 4, 6, 8)


class Point(NamedTuple):
    x: Any
    y: Any


TREE = {
    "a": [1, (2, 3)], "b": Point(4, deque([5], maxlen=2)),
    "c": OrderedDict(d=6), "e": defaultdict(list, f=7), "g": (),
}  # fmt: skip


def test_a_tree_comes_apart_and_together() -> None:
    leaves, spec = tree.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5, 6, 7]
    assert (spec.num_leaves, spec.num_nodes) == (7, 15)
    again = tree.tree_unflatten(leaves, spec)
    assert again == TREE and type(again["b"]) is Point and again["b"].y.maxlen == 2
    assert again["e"].default_factory is list
    assert tree.tree_structure(again) == spec != tree.tree_structure([1, 2])
    assert tree.tree_map(lambda one, other: one * other, TREE, again)["b"].x == 16
    assert tree.tree_map_only(int, str, [1, "x", 2.0]) == ["1", "x", 2.0]
    assert tree.tree_leaves([1, (2, 3)], is_leaf=lambda node: isinstance(node, tuple)) == [
        1,
        (2, 3),
    ]
    assert tree.tree_any(lambda leaf: leaf == 7, TREE)
    assert not tree.tree_all(lambda leaf: leaf < 7, TREE)


def test_paths_to_leaves() -> None:
    pairs, _ = tree.tree_flatten_with_path(TREE)
    assert [tree.keystr(path) for path, _ in pairs] == [
        "['a'][0]", "['a'][1][0]", "['a'][1][1]", "['b'].x", "['b'].y[0]", "['c']['d']",
        "['e']['f']",
    ]  # fmt: skip
    found = tree.tree_map_with_path(lambda path, leaf: (len(path), leaf), [1, [2]])
    assert found == [(1, 1), [(2, 2)]]


def test_a_class_of_the_programs_own_is_a_node() -> None:
    class Pair:
        def __init__(self, first: Any, second: Any):
            self.first, self.second = first, second

    tree.register_pytree_node(
        Pair, lambda pair: ([pair.first, pair.second], "c"), lambda leaves, _: Pair(*leaves)
    )
    doubled = tree.tree_map(lambda leaf: leaf * 2, [Pair(1, [2])])
    assert (doubled[0].first, doubled[0].second) == (2, [4])
    with pytest.raises(ValueError, match="without flatten_with_keys_fn"):
        tree.tree_flatten_with_path(Pair(1, 2))


def test_wrong_trees() -> None:
    _, spec = tree.tree_flatten([1, {"a": 2}])
    with pytest.raises(ValueError, match="3 leaves given for 2"):
        tree.tree_unflatten([1, 2, 3], spec)
    with pytest.raises(TypeError, match="a TreeSpec expected"):
        tree.tree_unflatten([1], [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected, given dict"):
        tree.tree_map(max, [1, {"a": 2}], [1, {"b": 2}])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        tree.tree_flatten(endless)


ARRAYS = [np.array([1.0, 4.0]), np.array([[2.0], [0.5], [3.0]])]
FOREACH: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "clamp_min": np.maximum,
    "clamp_max": np.minimum,
}  # fmt: skip


def _tensors() -> list[Any]:
    return [torch.tensor(each) for each in ARRAYS]


@pytest.mark.parametrize("name", FOREACH)
def test_arithmetic_of_lists(name: str) -> None:
    exact, given = FOREACH[name], [2.0, 3.0]
    function, in_place = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
    for others, wanted in (
        ((2.0,), [exact(each, 2.0) for each in ARRAYS]),
        ((given,), [exact(each, number) for each, number in zip(ARRAYS, given)]),
        (([torch.tensor(each[:1]) for each in ARRAYS],), [exact(e, e[:1]) for e in ARRAYS]),
    ):
        found = function(_tensors(), *others)
        written = _tensors()
        assert isinstance(found, tuple) and in_place(written, *others) is written
        for one, other, each in zip(found, written, wanted):
            np.testing.assert_allclose(one.numpy(), each, rtol=1e-12)
            np.testing.assert_allclose(other.numpy(), each, rtol=1e-12)


def test_other_functions_of_lists() -> None:
    xs = _tensors()
    for found, wanted in (
        (torch._foreach_add(xs, xs, alpha=3), lambda x: 4 * x),
        (torch._foreach_addcmul(xs, xs, xs, value=2.0), lambda x: x + 2 * x * x),
        (torch._foreach_addcmul(xs, xs, xs, [2.0, 2.0]), lambda x: x + 2 * x * x),
        (torch._foreach_addcdiv(xs, xs, xs, 5.0), lambda x: x + 5),
        (torch._foreach_lerp(xs, [x * 3 for x in xs], 0.5), lambda x: 2 * x),
        (torch._foreach_pow(2.0, xs), lambda x: 2.0**x),
        (torch._foreach_sqrt(xs), np.sqrt),
        (torch._foreach_norm(xs), lambda x: np.sqrt((x**2).sum())),
        (torch._foreach_norm(xs, 1), lambda x: np.abs(x).sum()),
        (torch._foreach_norm(xs, ord=math.inf), lambda x: np.abs(x).max()),
        (torch._foreach_max(xs), np.max),
    ):
        for one, each in zip(found, ARRAYS):
            np.testing.assert_allclose(one.numpy(), wanted(each), rtol=1e-12)
    torch._foreach_copy_(xs, [torch.zeros(2), torch.ones(3, 1)])
    assert xs[0].tolist() == [0, 0] and xs[1].tolist() == [[1]] * 3
    torch._foreach_zero_(xs)
    assert xs[1].tolist() == [[0]] * 3
    with pytest.raises(RuntimeError, match="lists of 2 and 1"):
        torch._foreach_add(xs, [1.0])
    with pytest.raises(AttributeError, match="_foreach_nothing"):
        torch._foreach_nothing(xs)


def _softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_scores_that_a_program_changes() -> None:
    """By tables and positions, with a mask, and groups of heads; beside NumPy in float64."""
    q, k, v = WAVE, WAVE[:, :2, ::-1] * 0.7, WAVE[:, 2:] * 1.1
    bias, table = np.cos(np.arange(4.0)), np.cos(np.arange(2 * 4 * 6.0)).reshape(2, 4, 6)
    bias_of, table_of = torch.tensor(bias), torch.tensor(table)
    document = torch.tensor([0, 0, 0, 1, 1, 1])

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s * 1.5 + bias_of[h] * (i - j) + table_of[b][h][i]

    mask = flex.create_block_mask(
        lambda b, h, i, j: (document[i] == document[j]) & (i >= j), None, None, 6, 6, BLOCK_SIZE=3
    )
    inputs = [torch.tensor(each.copy(), requires_grad=True) for each in (q, k, v)]
    found, sums = flex.flex_attention(
        *inputs, score_mod=score, block_mask=mask, enable_gqa=True, return_lse=True
    )
    i, j = np.arange(6)[:, None], np.arange(6)
    wide_k, wide_v = (np.repeat(each.astype(np.float64), 2, 1) for each in (k, v))
    scores = q.astype(np.float64) @ wide_k.swapaxes(-1, -2) / math.sqrt(8) * 1.5
    scores += bias[:, None, None] * (i - j) + table[..., None]
    scores = np.where((i // 3 == j // 3) & (i >= j), scores, -np.inf)
    exact = _softmax(scores) @ wide_v
    np.testing.assert_allclose(found.detach().numpy(), exact, rtol=2e-5, atol=1e-6)
    wanted = np.log(np.exp(scores).sum(-1))
    np.testing.assert_allclose(sums.detach().numpy(), wanted, rtol=2e-5, atol=1e-5)
    assert mask.to_dense().tolist() == [[[[1, 0], [0, 1]]]] and mask.sparsity() == 50
    # What a mask leaves out has no gradient: the first value goes to queries 0 to 2 alone.
    found[:, :, 3:].sum().backward()
    assert inputs[2].grad[:, :, :3].abs().sum().item() == 0
    assert inputs[2].grad[:, :, 3:].abs().sum().item() > 0


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    mask = flex.create_block_mask(lambda b, h, i, j: i > j, None, None, 4, 4)
    x = torch.ones(1, 1, 4, 2)
    found = flex.flex_attention(x, x, x, block_mask=mask)
    assert found[0, 0].tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
    both = flex.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 2)
    assert flex.create_mask(both, 1, 1, 3, 3)[0, 0].int().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [0, 1, 1],
    ]
    one = flex.or_masks(lambda b, h, i, j: i == j, lambda b, h, i, j: j == 0)
    assert flex.create_mask(one, 1, 1, 3, 3)[0, 0].int().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 0, 1],
    ]
    with pytest.raises(ValueError, match="2 heads of query and 1 of key"):
        flex.flex_attention(torch.ones(1, 2, 4, 2), x, x)
    y = torch.ones(1, 1, 5, 2)
    with pytest.raises(ValueError, match="4 queries and 4 keys, given 5 and 5"):
        flex.flex_attention(y, y, y, block_mask=mask)


def test_an_operation_of_the_programs_own() -> None:
    @torch.library.custom_op("tests::cube", mutates_args=())
    def cube(x: Any, factor: float) -> Any:
        return x**3 * factor

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert torch.ops.tests.cube(x, 2.0).tolist() == torch.ops.tests.cube.default(x, 2.0).tolist()
    cube(x, 2.0).sum().backward()
    assert x.grad.tolist() == [6, 24]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    # A gradient that is told apart from the right one.
    cube.register_autograd(
        lambda ctx, gradient: (gradient * ctx.saved_tensors[0] * 100, None), setup_context=keep
    )
    x.grad = None
    torch.ops.tests.cube(x, factor=2.0).sum().backward()
    assert x.grad.tolist() == [100, 200]
    # Defined anew, it has the gradient of what it does.
    again = torch.library.custom_op("tests::cube", lambda x: x * 5, mutates_args=())
    x.grad = None
    again(x).sum().backward()
    assert x.grad.tolist() == [5, 5] and torch.ops.tests.cube is again
    with pytest.raises(RuntimeError, match="no operation tests::absent"):
        torch.library.register_autograd("tests::absent", lambda ctx, gradient: gradient)
    with pytest.raises(AttributeError, match=r"torch\.ops\.tests\.absent"):
        _ = torch.ops.tests.absent
    library = torch.library.Library("tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="tests::twice has no function"):
        torch.ops.tests.twice(x)
    library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.tests.twice(x).tolist() == [2, 4]
    assert torch.ops.aten.add.Tensor(x, x).tolist() == [2, 4]
    with pytest.raises(OSError, match="PyTorch's own memory"):
        torch.ops.load_library("some.so")


@pytest.fixture
def group() -> Any:
    torch.distributed.init_process_group("gloo", world_size=1, rank=0)
    yield torch.distributed
    torch.distributed.destroy_process_group()


def test_a_group_of_this_process(group: Any) -> None:
    assert group.is_initialized() and (group.get_rank(), group.get_world_size()) == (0, 1)
    x, other = torch.ones(2), torch.zeros(2)
    group.all_reduce(x)
    group.all_gather([other], x)
    assert x.tolist() == other.tolist() == [1, 1]
    held = [None]
    group.all_gather_object(held, "y")
    assert held == ["y"]
    with pytest.raises(ValueError, match="src 1 in a group of 1"):
        group.broadcast(x, src=1)
    with pytest.raises(ValueError, match="a list of 2 for 1 process"):
        group.all_gather([other, other], x)
    weight = torch.ones(2, requires_grad=True)
    group.nn.all_reduce(weight * 3).sum().backward()
    assert weight.grad.tolist() == [3, 3]
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    with model.no_sync():
        model(torch.ones(1, 2)).sum().backward()
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert model.module.weight.grad.tolist() == [[1, 1]]


def test_no_other_group() -> None:
    distributed = torch.distributed
    with pytest.raises(NotImplementedError, match="a group of 2 processes"):
        distributed.init_process_group("gloo", world_size=2, rank=0)
    with pytest.raises(ValueError, match="there is no group of processes"):
        distributed.all_reduce(torch.ones(1))
    with pytest.raises(ValueError, match="there is no group of processes"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    with pytest.raises(AttributeError, match=r"torch\.distributed\.nn\.all_sum: not in"):
        getattr(distributed.nn, "all_sum")  # noqa: B009
    assert not distributed.is_initialized()


def test_weights_come_from_an_address_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    torch.save({"weight": torch.ones(2)}, tmp_path / "given.pth")
    digest = hashlib.sha256((tmp_path / "given.pth").read_bytes()).hexdigest()
    named = tmp_path / f"model-{digest[:8]}.pth"
    (tmp_path / "given.pth").rename(named)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    for _ in range(2):
        found = torch.hub.load_state_dict_from_url(named.as_uri(), check_hash=True)
        assert found["weight"].tolist() == [1, 1]
        # The second comes from the folder.
        named.unlink(missing_ok=True)
    assert os.listdir(Path(torch.hub.get_dir()) / "checkpoints") == [named.name]
    wrong = tmp_path / "other-00000000.pth"
    torch.save({}, wrong)
    with pytest.raises(RuntimeError, match="does not begin with 00000000"):
        torch.hub.load_state_dict_from_url(wrong.as_uri(), check_hash=True)
    assert os.listdir(Path(torch.hub.get_dir()) / "checkpoints") == [named.name]


def test_what_only_a_tracer_makes_is_refused() -> None:
    @torch.fx.wrap
    def double(x: Any) -> Any:
        return x * 2

    assert double(3) == 6 and not isinstance(nn.Linear(1, 1), torch.jit.ScriptModule)
    for make in (torch.fx.GraphModule, torch.fx.Graph, torch.jit.ScriptModule, torch._C.Graph):
        with pytest.raises(NotImplementedError, match=r"torch\.compile is what there is"):
            make()
    with pytest.raises(NotImplementedError, match="sizes are numbers of Python"):
        torch.SymInt(3)


@pytest.mark.parametrize("name", ["current_device", "get_device_name", "Stream", "CUDAGraph"])
def test_a_gpu_is_missed_when_it_is_used(name: str) -> None:
    found = getattr(torch.cuda, name)
    with pytest.raises(AssertionError, match=f"torch.cuda.{name}: there is no GPU"):
        found()
    with pytest.raises(RuntimeError):
        found()


def test_statements_are_checked() -> None:
    torch._check(True, lambda: "never")
    torch._assert(torch.tensor(True), "never")
    with pytest.raises(RuntimeError, match="why"):
        torch._check(False, lambda: "why")
    with pytest.raises(ValueError, match="expected"):
        torch._check_value(torch.tensor(False), "expected")
    with pytest.raises(RuntimeError):
        torch._check_is_size(-1)
    assert torch.sym_max(2, 3.0) == 3.0 and torch.sym_int(2.7) == 2 and torch.sym_not(0)
    assert torch.torch is torch


@pytest.mark.parametrize(
    "text",
    [
        "torch.baddbmm(a, batch1=a, batch2=a)", "a.baddbmm(batch1=a, batch2=a)", "a.bmm(mat2=a)",
        "a[0].addmm(mat1=a[0], mat2=a[0])", "torch.mm(a[0], mat2=a[0])", "a[0].mm(mat2=a[0])",
    ],
)  # fmt: skip
def test_products_take_pytorchs_names(text: str) -> None:
    a = torch.ones(1, 2, 2)
    total = 4 * (2 + ("add" in text))
    assert eval(text, {"torch": torch, "a": a}).sum().item() == total


def test_other_names_of_arguments() -> None:
    assert torch.zeros(2, 2).fill_diagonal_(fill_value=3).tolist() == [[3, 0], [0, 3]]
    assert (torch.zeros(99).random_(to=5) < 5).all() and (torch.zeros(99).uniform_(to=2) < 2).all()


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_of_what_is_a_number(method: str) -> None:
    array = np.array([[1.0, np.nan, 3.0, 7.0, 2.0], [4.0, 5.0, np.nan, np.nan, 9.0]])
    shares = [0.0, 0.3, 0.5, 0.77, 1.0]
    found = torch.nanquantile(torch.tensor(array), torch.tensor(shares).double(), dim=1,
                              interpolation=method)  # fmt: skip
    wanted = np.nanquantile(array, shares, axis=1, method=method)  # type: ignore[call-overload]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-7)


def test_complex_numbers_of_halves() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex32)
    assert z.dtype is torch.complex32 is torch.chalf is torch.half.to_complex()
    assert (z * z).dtype is torch.complex32 and (z * torch.ones(2)).dtype is torch.complex64
    assert z.real.dtype is torch.half and z.real.tolist() == [1, 3]


def test_triangles_and_vectors() -> None:
    utils = importlib.import_module("tilegrad.torch.distributions").utils
    for diagonal, count, size in ((0, 6, 3), (-1, 6, 4), (1, 8, 3)):
        vector = torch.arange(1.0, count + 1)
        matrix = utils.vec_to_tril_matrix(vector, diagonal)
        wanted = np.zeros((size, size))
        wanted[np.tril_indices(size, diagonal)] = np.arange(1.0, count + 1)
        assert matrix.tolist() == wanted.tolist()
        assert utils.tril_matrix_to_vec(matrix, diagonal).tolist() == vector.tolist()
    with pytest.raises(ValueError, match="5 elements"):
        utils.vec_to_tril_matrix(torch.ones(5))


class Doubling(nn.Module):
    """A class whose calls do something around `forward`."""

    def __call__(self, x: Any, times: int = 2) -> Any:
        return super().__call__(x) * times

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


class Shifted(Doubling):
    def forward(self, x: Any) -> Any:
        return x + 1


class Logged(nn.Module):
    """One that has a `__call__` alone, above a `forward` of a base class."""

    def forward(self, x: Any) -> Any:
        return x * 10


class Counting(Logged):
    calls = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return super().__call__(*args, **options)


class Last(Counting):
    def forward(self, x: Any) -> Any:
        return x * 100


def test_a_call_around_forward_stays() -> None:
    shifted = Shifted()
    assert shifted(3) == 8 and shifted(3, times=3) == 12
    seen: list[Any] = []
    shifted.register_forward_hook(lambda module, args, output: seen.append(output))
    assert shifted(3) == 8 and seen == [4]
    for module, wanted in ((Counting(), 30), (Last(), 300)):
        assert module(3) == wanted and module(3) == wanted and module.calls == 2


def test_libraries_find_pytorch_installed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib.metadata, importlib.util\n"
        "found = importlib.util.find_spec('torch') is not None\n"
        "print(importlib.metadata.version('torch'), found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tilegrad.compat.torch", str(script)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [torch.__version__, "True"]


def test_other_packages_are_found_as_before() -> None:
    from tilegrad.compat.torch import installed

    with installed():
        assert importlib.metadata.version("numpy") == np.__version__
        assert importlib.metadata.version("torch") == torch.__version__


class Adapter:
    """What stands beside a layer among the bases, and begins when it is told to."""

    def __init__(self, size: int):
        self.size = size


class Adapted(nn.Module, Adapter):
    def __init__(self) -> None:
        super().__init__()
        Adapter.__init__(self, 3)


class Begun(nn.Module, Adapter):
    call_super_init = True

    def __init__(self) -> None:
        super().__init__(4)


def test_a_base_beside_a_module_begins_when_it_is_told_to() -> None:
    assert Adapted().size == 3 and Begun().size == 4
    with pytest.raises(TypeError, match=r"takes no arguments, given \[3\]"):
        nn.Module(3)


def test_a_mask_of_no_axes_picks_all_or_nothing() -> None:
    for holds in (True, False):
        array = np.arange(6.0).reshape(2, 3)
        x, mask = torch.tensor(array), torch.tensor(1.0 if holds else -1.0) > 0
        for key in (mask, holds):
            assert x[key].tolist() == array[holds].tolist()
            assert x[key].shape == array[holds].shape
            x[key] = 7.0
            array[holds] = 7.0
            assert x.tolist() == array.tolist()
            x[key] = torch.tensor([1.0, 2.0, 3.0]).double()
            array[holds] = [1.0, 2.0, 3.0]
            assert x.tolist() == array.tolist()


def test_what_no_tensor_holds_is_refused() -> None:
    x = torch.tensor([1.0, 2.0])
    assert 2.0 in x and 3 not in x and torch.tensor(1.0) in x
    with pytest.raises(RuntimeError, match="not a str"):
        "a" in x  # noqa: B015


class Saving(torch.autograd.Function):
    """Saves a leaf under `no_grad`, and asks for its gradient in `backward`."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        with torch.no_grad():
            ctx.save_for_backward(x, weight)
            return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            value = x.detach() * weight
            (found,) = torch.autograd.grad(value, (weight,), gradient)
        return None, found * 10


def test_what_is_saved_under_no_grad_is_the_leaf() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    Saving.apply(x, weight).sum().backward()
    assert weight.grad.tolist() == [30, 40]


def test_a_mode_of_functions_is_refused_when_it_is_entered() -> None:
    mode = torch.overrides.TorchFunctionMode()
    with pytest.raises(NotImplementedError, match=r"torch\.overrides\.TorchFunctionMode"):
        mode.__enter__()
    assert torch.overrides.is_tensor_like(torch.ones(1)) and not torch.overrides.is_tensor_like(1)
    with pytest.raises(NotImplementedError, match="one process computes"):
        torch.distributed.device_mesh.DeviceMesh("cpu", [0])


@pytest.mark.parametrize(("size", "reverse"), [(1, False), (2, True), (5, True), (8, False)])
def test_a_scan_by_an_operation_of_the_programs_own(size: int, reverse: bool) -> None:
    """The recurrence h = a h + b, whose pairs combine; beside a loop in NumPy."""
    from tilegrad.torch._higher_order_ops.associative_scan import associative_scan

    a, b = np.cos(np.arange(3.0 * size)).reshape(3, size), np.sin(np.arange(3.0 * size) * 2)
    b = b.reshape(3, size)
    given = {"a": torch.tensor(a, requires_grad=True), "b": torch.tensor(b)}

    def combine(left: Any, right: Any) -> Any:
        return {"a": left["a"] * right["a"], "b": left["b"] * right["a"] + right["b"]}

    found = associative_scan(combine, given, 1, reverse=reverse)
    h, wanted = np.zeros(3), np.zeros((3, size))
    for at in reversed(range(size)) if reverse else range(size):
        h = wanted[:, at] = a[:, at] * h + b[:, at]
    np.testing.assert_allclose(found["b"].detach().numpy(), wanted, rtol=1e-12, atol=1e-12)
    if size == 1:
        return
    # The last h of a row is linear in its own a: the h before it is the gradient.
    last, before = (0, 1) if reverse else (size - 1, size - 2)
    found["b"][:, last].sum().backward()
    slope = given["a"].grad[:, last].numpy()
    np.testing.assert_allclose(slope, wanted[:, before], rtol=1e-12, atol=1e-12)


def test_a_scan_of_no_one_size_is_refused() -> None:
    scan = importlib.import_module("tilegrad.torch._higher_order_ops").associative_scan
    with pytest.raises(ValueError, match=r"sizes \[2, 3\] along axis 0"):
        scan(lambda one, other: one, [torch.ones(2), torch.ones(3)], 0)
    with pytest.raises(ValueError, match="gave 2 tensors for 1"):
        scan(lambda one, other: (one, other), torch.ones(3), 0)
