"""Errors name the op, both values and the user's own line, when the node is made; nodes remember
the lines.
"""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from tilegrad import Tensor, Variable, nn
from tilegrad.base.errors import DeviceError, ShapeError
from tilegrad.base.origin import method_names, user_expression, user_line, user_lines
from tilegrad.tensor.handle.core import live


def line_of(text: str) -> str:
    """The place in this file of the first line that holds `text`."""
    with open(__file__) as file:
        number = next(
            at for at, line in enumerate(file, 1) if text in line and "line_of" not in line
        )
    return f"test_errors.py:{number}"


def test_the_layout_of_an_error() -> None:
    x = Tensor.rand(32, 28, 28)
    head = Tensor.rand(512, 10) + 1
    with pytest.raises(ShapeError) as error:
        (x * 2).flatten(1) @ head
    lines = str(error.value).splitlines()
    assert lines[0] == "matmul: inner sizes differ: 784 and 512"
    assert lines[1] == f"  left:  (32, 784)  float32  x * 2  {line_of('(x * 2).flatten(1) @ head')}"
    assert (
        lines[2]
        == f"  right: (512, 10)  float32  Tensor.rand(512, 10) + 1  {line_of('head = Tensor.rand')}"
    )
    assert lines[3] == f"  line:  {line_of('(x * 2).flatten(1) @ head')}"
    assert lines[4] == "  rule:  the last axis of left must equal the second-to-last of right"


def test_two_devices_in_one_op() -> None:
    a, b = Tensor([1.0]), Tensor([1.0], device="CPU:1")
    with pytest.raises(
        DeviceError, match="add: operands are on two devices: CPU and CPU:1"
    ) as error:
        a + b
    assert "remedy: move one with .to('CPU')" in str(error.value)
    with pytest.raises(DeviceError, match="where: operands"):
        (a > 0).where(b, 0)
    with pytest.raises(DeviceError, match="cat: operands"):
        a.cat(b)
    assert (a + b.to("CPU")).device == "CPU"
    assert (b + Tensor(2.0)).device == "CPU:1"


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ShapeError, match=r"mul: shapes do not broadcast: \(2, 3\) and \(2,\)"):
        Tensor.zeros(2, 3) * Tensor.zeros(2)


@pytest.mark.row("S1.4")
def test_a_node_knows_the_line_and_the_method() -> None:
    x = Tensor([1.0, 2.0])
    y = x + 1234.5
    assert user_line(y.uop.origin) == line_of("y = x + 1234.5")
    assert user_expression(y.uop.origin) == "x + 1234.5"
    assert method_names(y.uop.origin) == ["__add__"]
    total = x.softmax()
    assert {name for node in total.uop.toposort() for name in method_names(node.origin)} >= {
        "softmax"
    }


def test_a_node_made_on_several_lines_lists_at_most_four() -> None:
    x = Tensor([1.0, 2.0])
    nodes = [
        x + 77.25,
        x + 77.25,
        x + 77.25,
        x + 77.25,
        x + 77.25,
    ]
    assert len({id(node.uop) for node in nodes}) == 1
    assert len(user_lines(nodes[0].uop.origin)) == 4
    again = [x * 88.5 for _ in range(3)]
    assert len(again[0].uop.origin) == 1


def test_lines_inside_tilegrad_are_not_the_users() -> None:
    # A size that nobody else uses: equal nodes are one, and bear the lines of all who made them.
    x = Tensor.ones(1, 1009).contiguous()
    loss = x.cross_entropy(Tensor([1]))
    lines = [
        (user_line(node.origin), node.op, node.is_constant)
        for node in loss.uop.toposort()
        if node.origin
    ]
    # Another test may have made an equal constant, which then bears that line too.
    assert [each for each in lines if not each[0].startswith("test_")] == []
    assert any(each[0].startswith("test_errors.py:") for each in lines)


def test_bound_values_that_differ_raise() -> None:
    n = Variable("n", 1, 8)
    with pytest.raises(ShapeError, match="variable 'n' has two values in one graph: 3 and 4"):
        Tensor.zeros(8).shrink(((0, n.bind(3)),)) + Tensor.zeros(8).shrink(((0, n.bind(4)),))


def test_dead_tensors_are_forgotten() -> None:
    gc.collect()
    before = len(list(live()))
    kept = [Tensor([1.0]) + 1 for _ in range(10)]
    assert len(list(live())) >= before + 10
    del kept
    gc.collect()
    assert len(list(live())) <= before


def test_importing_is_cheap() -> None:
    """`import tilegrad` loads neither NumPy nor the compiler."""
    code = (
        "import sys, tilegrad\n"
        "print(sorted({'numpy', 'llvmlite', 'tilegrad.engine'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = (
        "import sys; from tilegrad import Tensor\n"
        "Tensor([1.0]) + 1; print('numpy' in sys.modules, 'llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_public_names() -> None:
    import tilegrad

    assert nn is tilegrad.nn
    assert {"Tensor", "dtypes", "Variable", "Device", "Context"} <= set(dir(tilegrad))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tilegrad.nothing  # type: ignore[attr-defined]
