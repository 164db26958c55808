"""Methods make their nodes from templates: the same nodes, in few calls of Python functions."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor, Variable, dtypes, no_grad
from tilegrad.base.errors import IndexBoundsError, InternalError, ShapeError
from tilegrad.base.origin import method_names, user_lines
from tilegrad.base.trace import counters
from tilegrad.ir import Ops
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls import templates
from tilegrad.tensor.handle.waiting import this_thread

METHODS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "number": lambda x, y: 3 - x * 2.5,
    "relu": lambda x, y: x.relu(),
    "tanh": lambda x, y: x.tanh(),
    "gelu": lambda x, y: x.gelu(),
    "power": lambda x, y: x**3,
    "sum": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(),
    "largest": lambda x, y: x.max(-1),
    "place": lambda x, y: x.argmax(0),
    "softmax": lambda x, y: x.softmax(-1),
    "layernorm": lambda x, y: x.layernorm(),
    "var": lambda x, y: x.var_mean(1),
    "product": lambda x, y: x @ y.transpose(0, 1),
    "linear": lambda x, y: x.linear(y.T, y.sum(1)),
    "convolution": lambda x, y: x.reshape(1, 2, 6, 4).conv2d(y.reshape(4, 2, 3, 2), padding=1),
    "pool": lambda x, y: x.reshape(1, 2, 6, 4).max_pool2d((2, 2)),
    "attention": lambda x, y: x.reshape(1, 6, 8).scaled_dot_product_attention(
        y.reshape(1, 6, 8), y.reshape(1, 6, 8), is_causal=True
    ),
    "cat": lambda x, y: x.cat(y, x, dim=1),
    "where": lambda x, y: (x > 0).where(x, y),
    "clip": lambda x, y: x.clip(-0.5, 0.5),
    "row": lambda x, y: x[3],
    "part": lambda x, y: x[1:5, ::-1],
    "view": lambda x, y: x.reshape(8, 6).permute(1, 0).unsqueeze(0).expand(3, 6, 8),
    "cast": lambda x, y: x.cast(dtypes.float16),
    "loss": lambda x, y: x.mse_loss(y),
    "classes": lambda x, y: x.cross_entropy(y.argmax(1)),
}  # fmt: skip


def _nodes(made: Any) -> list[UOp]:
    return [each.uop for each in (made if isinstance(made, tuple) else (made,))]


def _calls(function: Callable[[], Any]) -> int:
    count = 0

    def see(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count - 1


@pytest.fixture
def operands() -> tuple[Tensor, Tensor]:
    return Tensor(numbers(6, 8)).realize(), Tensor(numbers(6, 8, seed=1)).realize()


@pytest.mark.parametrize("name", METHODS)
def test_a_template_gives_the_nodes_that_the_method_makes(
    name: str, operands: tuple[Tensor, Tensor]
) -> None:
    method = METHODS[name]
    with Context(TEMPLATES=1):
        made = [method(*operands) for _ in range(4)]
    with Context(TEMPLATES=0):
        expected = _nodes(method(*operands))
    assert all(
        node is other for each in made for node, other in zip(_nodes(each), expected, strict=True)
    )


@pytest.mark.parametrize("name", METHODS)
def test_both_ways_are_compared(
    name: str, operands: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    original = templates.compare

    def compare(made: Any, plain: Any, method: str) -> None:
        compared.append(method)
        original(made, plain, method)

    monkeypatch.setattr(templates, "compare", compare)
    with Context(TEMPLATES=2):
        for _ in range(4):
            METHODS[name](*operands)
    assert compared


def test_a_template_that_makes_another_node_is_an_error(
    operands: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = operands
    make = Template.make

    def swapped(self: Template, inputs: Any, origin: Any) -> Any:
        return make(self, inputs[::-1], origin)

    with Context(TEMPLATES=2):
        for _ in range(3):
            assert (x - y).shape == (6, 8)
        monkeypatch.setattr(Template, "make", swapped)
        with pytest.raises(InternalError, match=r"template: .*sub.* gives another node"):
            x - y


def test_an_operand_that_is_assigned_to_between_both_ways_is_no_error(
    operands: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another thread may do."""
    x, y = operands
    other, make = Tensor(numbers(6, 8, seed=7)).realize().uop, Template.make

    def assigned(self: Template, inputs: Any, origin: Any) -> Any:
        made = make(self, inputs, origin)
        x.uop = other
        return made

    with Context(TEMPLATES=2):
        for _ in range(3):
            x - y
        first = x.numpy()
        monkeypatch.setattr(Template, "make", assigned)
        close(x - y, first - y.numpy())


def test_comparing_both_ways_walks_no_graph_below_a_call() -> None:
    """A chain of calls, each of which compares, is work in proportion to its length."""
    x, before = Tensor([0.5, 0.25]).realize(), counters.visits
    with Context(TEMPLATES=2, SEGMENTS=0):
        for _ in range(300):
            x = x.tanh()
    visits = counters.visits - before
    assert visits < 3 * len(x.uop.toposort())


# Calls of Python functions, the methods' own among them: nodes that are new make one each.
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("add", 7), ("relu", 6), ("tanh", 6), ("mean", 6), ("softmax", 6), ("layernorm", 6),
        ("place", 6), ("clip", 7), ("row", 13), ("cast", 6), ("loss", 8),
    ],
)  # fmt: skip
def test_a_method_takes_few_calls(name: str, most: int) -> None:
    method = METHODS[name]
    with Context(TEMPLATES=1):
        for seed in range(4):
            first, other = (Tensor(numbers(6, 8, seed=2 * seed + n)).realize() for n in range(2))
            assert first.shape == other.shape
            calls = _calls(lambda first=first, other=other: method(first, other))
    assert calls <= most


def test_a_product_and_a_convolution_take_few_calls() -> None:
    with Context(TEMPLATES=1):
        for seed in range(4):
            x, y = Tensor(numbers(6, 8, seed=seed)).realize(), Tensor(numbers(8, 5)).realize()
            image = Tensor(numbers(1, 2, 9, 9, seed=seed)).realize()
            weight = Tensor(numbers(4, 2, 3, 3)).realize()
            assert all(each.shape for each in (x, y, image, weight))
            product = _calls(lambda x=x, y=y: x @ y)
            convolution = _calls(lambda x=image, w=weight: x.conv2d(w, padding=1))
    assert product <= 16
    assert convolution <= 26


def test_numbers_of_other_kinds_are_other_signatures() -> None:
    x = Tensor([1, 2, 3]).realize()
    for _ in range(4):
        assert [(x * value).dtype for value in (1, 1.0, True)] == [
            dtypes.int32, dtypes.float32, dtypes.int32,
        ]  # fmt: skip


def test_zeros_of_both_signs_are_two_numbers() -> None:
    x = Tensor([-1.0]).realize()
    for _ in range(4):
        assert math.copysign(1, (x * 0.0).item()) == -1
        assert math.copysign(1, (x * -0.0).item()) == 1


def test_operands_that_are_one_tensor_and_that_are_two() -> None:
    a, b = numbers(4, 4), numbers(4, 4, seed=1)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    for _ in range(4):
        close(x.maximum(x), a)
        close(x.maximum(y), np.maximum(a, b))
        close(x @ x, a @ a, 1e-5)
        close(x @ y, a @ b, 1e-5)


def test_an_operand_that_the_method_makes_inside_is_still_an_operand() -> None:
    """maximum(x, -x) meets a node that it would make itself; for other operands it is another."""
    a, b = numbers(3, 3), numbers(3, 3, seed=1)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    negated = x * -1
    for _ in range(4):
        close(x.minimum(negated), np.minimum(a, -a))
    close(x.minimum(y), np.minimum(a, b))


def test_results_require_a_gradient_as_their_operands_do() -> None:
    x = Tensor([1.0, 2.0]).realize()
    w = Tensor([3.0, 4.0], requires_grad=True)
    for _ in range(4):
        assert not (x * x).softmax().requires_grad
        assert (w * x).softmax().requires_grad
        assert (x * w).argmax().requires_grad is None


def test_gradients_from_templates_are_those_of_the_rules() -> None:
    for seed in range(5):
        a, b = numbers(4, 6, seed=seed), numbers(6, 3, seed=seed + 50)
        with Context(TEMPLATES=2):
            x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
            ((x @ w).tanh() ** 2).sum().backward()
        t = np.tanh(a @ b)
        flow = 2 * t * (1 - t * t)
        close(w.grad, a.T @ flow, 1e-4)
        close(x.grad, flow @ b.T, 1e-4)


def test_a_view_from_a_template_is_an_alias() -> None:
    for _ in range(5):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
        row = x[1]
        x.assign(x + 1)
        assert row.tolist() == [4.0, 5.0]
        row.assign(Tensor([7.0, 8.0]))
        assert x.tolist() == [[2.0, 3.0], [7.0, 8.0]]


def test_a_reshape_that_strides_cannot_say_is_a_copy_as_before() -> None:
    for _ in range(5):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
        whole, turned = x.reshape(4), x.T.reshape(4)
        x.assign(x * 10)
        assert whole.tolist() == [10.0, 20.0, 30.0, 40.0]
        assert turned.tolist() == [1.0, 3.0, 2.0, 4.0]


def test_constants_and_variables_are_made_by_the_method() -> None:
    n = Variable("n", 1, 8)
    for length in (2, 3, 4, 5):
        assert Tensor.ones(n.bind(length), 2).contiguous().sum().item() == 2 * length
        assert Tensor.ones(length).softmax().sum().item() == pytest.approx(1)


def test_an_error_of_a_known_signature_names_the_users_tensors() -> None:
    for _ in range(4):
        x, y = Tensor(numbers(2, 3)), Tensor(numbers(4, 5))
        with pytest.raises(ShapeError, match=r"matmul: inner sizes differ: 3 and 4") as caught:
            _ = x @ y
        assert "test_templates.py" in str(caught.value) and "stand" not in str(caught.value)


def test_classes_are_looked_at_each_time() -> None:
    x = Tensor(numbers(3, 4)).realize()
    for _ in range(4):
        x.cross_entropy(Tensor([0, 1, 2]).realize())
    with pytest.raises(IndexBoundsError, match=r"nll_loss: index 4 is out of range"):
        x.cross_entropy(Tensor([0, 1, 4]).realize())


def test_nodes_bear_the_users_line_and_call() -> None:
    for seed in range(4):
        node = Tensor(numbers(3, 4, seed=seed)).realize().log_softmax(-1).uop  # here
    assert method_names(node.origin) == ["log_softmax"]
    (line,) = user_lines(node.origin)
    with open(__file__, encoding="utf-8") as file:
        assert file.read().splitlines()[int(line.split(":")[1]) - 1].endswith("# here")


def test_a_template_holds_no_operand() -> None:
    import gc
    import weakref

    for seed in range(4):
        x = Tensor(numbers(5, 9, seed=seed)).realize()
        node = weakref.ref(x.uop)
        x.logsumexp(-1)
    del x
    gc.collect()
    assert node() is None


def test_eight_threads_make_the_same_nodes() -> None:
    a, b = numbers(6, 8), numbers(6, 8, seed=1)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    found: list[list[int]] = []

    def work() -> None:
        own = []
        for _ in range(30):
            own += [
                id(node)
                for name in ("gelu", "softmax", "cat", "row", "loss")
                for node in _nodes(METHODS[name](x, y))
            ]
            held.append(METHODS["gelu"](x, y))
        found.append(own[-5:])

    held: list[Any] = []
    kept = [METHODS[name](x, y) for name in ("gelu", "softmax", "cat", "row", "loss")]
    # Held, or another object may have the number of one that is gone.
    nodes = [one.uop for one in kept]
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(each == [id(node) for node in nodes] for each in found)


def test_what_is_made_of_bits_taken_back_is_made_by_the_method() -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(4):
        back = x.bitcast(dtypes.int32).bitcast(dtypes.float32)
        assert back.uop.op is Ops.BUFFER


def test_without_gradients_templates_are_others() -> None:
    a = numbers(3, 4)
    for _ in range(4):
        w, x = Tensor(a, requires_grad=True), Tensor(a).realize()
        with Context(TEMPLATES=2):
            assert (w * x).softmax(-1).requires_grad
            with no_grad():
                inside = (w * x).softmax(-1)
                assert inside.requires_grad is False
            assert not x.softmax(-1).requires_grad
        (inside + w).sum().backward()
        close(w.grad, np.ones_like(a))


def test_values_of_a_pair_know_the_tensor_that_they_are_of() -> None:
    for seed in range(4):
        a = numbers(5, 6, seed=seed)
        x = Tensor(a).realize()
        values = x.max(1)
        close(values.values, a.max(1))
        assert values.indices.tolist() == a.argmax(1).tolist()


def test_gradients_go_on_through_a_target_to_another_one_below_it() -> None:
    for seed in range(5):
        x = Tensor(numbers(3, 4, seed=seed)).realize()
        middle = (x * 3).contiguous()
        with Context(TEMPLATES=2):
            to_x, to_middle = (middle * middle + x).sum().gradient(x, middle)
        close(to_x, 18 * numbers(3, 4, seed=seed) + 1)
        close(to_middle, 6 * numbers(3, 4, seed=seed))


def test_gradients_of_targets_that_hide_other_graphs_are_those_of_each() -> None:
    for seed in range(5):
        x = Tensor(numbers(3, 4, seed=seed)).realize()
        hidden = (x * (seed + 3)).detach().contiguous()
        with Context(TEMPLATES=2):
            (found,) = (hidden * hidden * x).sum().gradient(hidden)
        close(found, 2 * (seed + 3) * numbers(3, 4, seed=seed) ** 2)


def test_what_takes_a_constant_may_be_one_itself() -> None:
    """An equal node, which is known to be a constant, is alive: so is that of the tensor that was
    filled, once it is made.
    """
    zeros = Tensor.zeros(3, 4)
    held = UOp(Ops.CONTIGUOUS, zeros.dtype, (zeros.uop,), zeros.device)
    assert held.is_constant
    try:
        for step in range(12):
            x = Tensor(numbers(3, 4, seed=step))
            is_filled = step >= 8
            x.zero_() if is_filled else x.mul_(2)
            # Calls do not wait for a while after many reads in vain.
            this_thread.pool.pause, this_thread.pool.is_full = 64 * is_filled, is_filled
            expected = (0 if is_filled else 2) * numbers(3, 4, seed=step)
            close(x * (0.7 + step), expected * (0.7 + step))
            assert (x > step * 0.5).tolist() == (expected > step * 0.5).tolist()
    finally:
        this_thread.pool.pause, this_thread.pool.is_full = 0, False


@pytest.mark.parametrize("method", ["sub", "maximum", "mul"])
def test_what_was_recorded_of_a_waiting_constant_serves_other_values(method: str) -> None:
    """As running statistics, which are filled with zeros and then updated. An equal node, which is
    known to be a constant, is alive.
    """
    zeros = Tensor.zeros(7, 5)
    held = UOp(Ops.CONTIGUOUS, zeros.dtype, (zeros.uop,), zeros.device)
    assert held.is_constant
    of_numpy = {"sub": np.subtract, "maximum": np.maximum, "mul": np.multiply}[method]
    for step in range(8):
        given = numbers(7, 5, seed=step)
        mean = Tensor(numbers(7, 5))
        mean.assign(zeros if step < 4 else Tensor(given) * 2)
        expected = of_numpy(given * (0 if step < 4 else 2), given)
        close(getattr(mean, method)(Tensor(given)), expected)
