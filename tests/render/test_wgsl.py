"""The text of WGSL kernels: what WGSL lacks, said with what it has."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from tests.render import programs
from tests.render.programs import BOOL, INT, const, data, load, special
from tilegrad import Context, Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.base.trace import recording
from tilegrad.hardware import webgpu_target
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.lower import lower
from tilegrad.render.wgsl import WGSLRenderer
from tilegrad.render.wgsl_loops import repetitions
from tilegrad.render.wgsl_walk import launch_shape

FULL = WGSLRenderer(webgpu_target(has_half=True, has_double=True))
LEAST = WGSLRenderer()


def lines(program: list[UOp], renderer: WGSLRenderer = FULL) -> list[str]:
    """The statements of a kernel."""
    text = renderer.render(program)
    return [line.strip() for line in text.rpartition("{\n")[2].splitlines()[:-1]]


def stored(value: UOp, dtype: DType | None = None) -> str:
    """What a kernel that stores `value` writes last."""
    zero, out = const(0), data(0, dtype or value.dtype)
    text = FULL.render([UOp.sink(UOp(Ops.STORE, dtypes.void, (out, zero, value)))])
    return text.splitlines()[-2].strip()


def test_a_kernel_names_its_memory_its_lanes_and_its_position() -> None:
    text = FULL.render("E_", programs.single_add_cast())
    head, first, second, third, stage, function, *_ = text.splitlines()
    assert head == "// E_: 0 1 2 | -1"
    assert first == "@group(0) @binding(0) var<storage, read_write> data0: array<f32>;"
    assert second.endswith("data1: array<i32>;") and third.endswith("data2: array<i32>;")
    assert stage == "@compute @workgroup_size(1, 1, 1)"
    assert function.startswith("fn E_(@builtin(workgroup_id) gid: vec3<u32>, ")


@pytest.mark.parametrize("name", ["let", "vec3", "fn", "f32", "sin", "main"])
def test_a_kernel_with_a_name_of_the_language_gets_another(name: str) -> None:
    assert f"fn {name}_(" in FULL.render(name, programs.single_add_cast())


@pytest.mark.parametrize(
    ("most", "head"),
    [
        (8, "0@0:1024 0@1024: 1@0:1024 1@1024:2048 1@2048:"),
        # Not all slices can be bound: of what has few, all.
        (4, "0@0:1024 0@1024: 1@0:1024 1@1024:"),
        (2, "0 1"),
    ],
)
def test_a_buffer_larger_than_a_binding_is_bound_in_slices(most: int, head: str) -> None:
    """500 and 700 floats, where a binding has 256; each load and store chooses its slice."""
    narrow = replace(webgpu_target(), most_buffers=most, bound_bytes=1024)
    lane = special("lidx0", 500)
    first, second = (
        UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(size), (), slot)
        for slot, size in enumerate((500, 700))
    )
    store = UOp(Ops.STORE, dtypes.void, (first, lane, load(second, lane + 200)))
    text = WGSLRenderer(narrow).render("E_500", [UOp.sink(store)])
    assert text.splitlines()[0] == f"// E_500: {head} | -1"
    assert ("write_data0(u32(" in text) is (most > 2)
    for name in ("data0_1", "data1_2"):
        assert (f"{name}: array<f32>;" in text) is (f"{name[4]}@{1024 * int(name[-1])}:" in head)


def test_half_needs_a_directive_before_all_else() -> None:
    value = load(data(1, dtypes.half), const(0))
    zero, out = const(0), data(0, dtypes.half)
    text = FULL.render([UOp.sink(UOp(Ops.STORE, dtypes.void, (out, zero, value)))])
    assert text.splitlines()[1] == "enable f16;"
    assert "enable" not in FULL.render(programs.single_add_cast())


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.double, dtypes.bfloat16])
def test_a_dtype_that_an_adapter_lacks_is_refused_by_name(dtype: DType) -> None:
    zero, value = const(0), load(data(1, dtype), const(0))
    sink = UOp.sink(UOp(Ops.STORE, dtypes.void, (data(0, dtype), zero, value)))
    with pytest.raises(CompileError, match=f"WEBGPU has no .*{dtype.name}"):
        LEAST.render([sink])


def test_what_is_not_finite_is_no_constant_of_the_language() -> None:
    """WGSL refuses a constant expression that is NaN or infinite."""
    a = load(data(1), const(0))
    text = FULL.render([UOp.sink(data(0).store(const(0), a * float("nan") + float("-inf")))])
    assert "var<private> nan_bits: u32 = 0x7fc00000u;" in text
    assert "bitcast<f32>(nan_bits)" in text and "(-bitcast<f32>(infinity_bits))" in text


def test_narrow_integers_wrap_around_in_words() -> None:
    a = load(data(1, dtypes.uchar), const(0))
    b = load(data(1, dtypes.char), const(0))
    assert stored((a + 1).cast(INT)) == "data0[0i] = i32((val0+1u)&255u);"
    assert stored((b + 1).cast(INT)) == "data0[0i] = ((val0+1i)<<24u)>>24u;"


def test_a_part_of_a_word_is_stored_atomically_and_whole_words_are_not() -> None:
    one = load(data(1, dtypes.uchar), special("gidx0", 8))
    text = FULL.render([UOp.sink(data(0, dtypes.uchar).store(special("gidx0", 8), one))])
    assert "data0: array<atomic<u32>>" in text and "put_data0(u32(gidx0), val0);" in text
    assert "data1: array<u32>" in text
    four = load(data(1, dtypes.uchar), const(4), lanes=4)
    text = FULL.render([UOp.sink(data(0, dtypes.uchar).store(const(4), four))])
    assert "atomic" not in text and "data0[1u] = (" in text and "data1[1u]" in text


def test_memory_that_is_always_taken_four_at_a_time_is_of_vectors() -> None:
    index = special("gidx0", 4) * 4
    four = load(data(1), index, lanes=4)
    text = FULL.render([UOp.sink(data(0).store(index, four))])
    assert "data0: array<vec4<f32>>" in text and "data1: array<vec4<f32>>" in text
    mixed = UOp.sink(data(0).store(index, four), data(2).store(const(0), load(data(1), const(3))))
    assert "data1: array<f32>" in FULL.render([mixed])


def test_integers_of_64_bits_are_pairs_of_words() -> None:
    a = load(data(1, dtypes.long), const(0))
    text = FULL.render([UOp.sink(data(0, dtypes.long).store(const(0), a * a + -2))])
    assert "data1: array<vec2<u32>>" in text and "fn long_multiply(" in text
    assert "vec2<u32>(4294967294u,4294967295u)" in text
    assert "fn long_divide" not in text


@pytest.mark.parametrize(
    ("value", "seal"),
    [
        (lambda a, b: (a + b) - a, True),
        (lambda a, b: (a + 12582912.0) - 12582912.0, True),
        (lambda a, b: a * 0.0, True),
        (lambda a, b: a + 0.0, True),
        (lambda a, b: a - a, True),
        (lambda a, b: (a + b).alu(Ops.CMPLT, a), True),
        (lambda a, b: a.alu(Ops.CMPLT, b).cast(dtypes.float) * b, True),
        (lambda a, b: a * b + a, False),
        (lambda a, b: (a - b) * (a + b), False),
        (lambda a, b: a * 0.5 + 1.0, False),
    ],
)  # fmt: skip
def test_what_a_driver_could_cancel_is_sealed(value: object, seal: bool) -> None:
    a, b = (load(data(1), const(number)) for number in range(2))
    made: UOp = value(a, b)  # type: ignore[operator]
    text = FULL.render([UOp.sink(data(0, made.dtype).store(const(0), made))])
    assert ("variables.zero" in text) is seal


def test_not_equal_is_true_of_nan() -> None:
    a, b = (load(data(1), const(number)) for number in range(2))
    assert stored(a.ne(b)).endswith("u32(!(val0==val1)));")
    assert stored(load(data(1, BOOL), const(0))) == "put_data0(u32(0i), u32(val0));"


def test_more_buffers_than_a_kernel_may_have_are_refused_with_both_numbers() -> None:
    total = load(data(1), const(0))
    for slot in range(2, 10):
        total = total + load(data(slot), const(0))
    with pytest.raises(CompileError, match="no kernel of 10 buffers") as caught:
        LEAST.render([UOp.sink(data(0).store(const(0), total))])
    assert "8 in one kernel" in str(caught.value)


@pytest.mark.parametrize(
    ("blocks", "shape"),
    [
        ((5, 6, 7), (5, 6, 7)),
        ((65535, 1, 1), (65535, 1, 1)),
        ((65536, 1, 1), (65535, 2, 1)),
        ((70000, 3, 1), (65535, 4, 1)),
        ((1 << 24, 1, 1), (65535, 257, 1)),
    ],
)
def test_blocks_fit_into_the_axes_of_a_dispatch(
    blocks: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    assert launch_shape(blocks) == shape


def test_every_block_of_a_launch_in_rows_finds_its_position() -> None:
    """The text is Python's own arithmetic but for the letter that marks a word as unsigned."""
    positions = [special("gidx0", 70000), special("gidx1", 3), special("gidx2", 2)]
    total = positions[0] + positions[1] * 70000 + positions[2] * 210000
    texts = lines([UOp.sink(data(0, INT).store(total, positions[0]))])
    found = {line.split(":")[0].removeprefix("let "): line for line in texts if "gidx" in line[:9]}
    for block in (0, 69999, 70000, 209999, 210000, 419999):
        scope = {"block": block, "i32": int}
        wanted = (block % 70000, block // 70000 % 3, block // 210000)
        for axis, position in enumerate(wanted):
            text = found[f"gidx{axis}"].partition("= ")[2].partition(";")[0]
            expression = text.replace("u", "").replace("/", "//").replace("blocks", "block")
            assert eval(expression, scope) == position


def test_an_ordinary_tensor_is_compiled_without_wgpu() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0], device="NULL:WEBGPU").realize()
    with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
        (x * 2).realize()
    text = next(str(each.after) for each in record if each.name == "render")
    assert "@compute @workgroup_size" in text and "vec4<f32>" in text


def test_the_end_of_a_loop_is_no_template() -> None:
    """In WGSL, `x < (n+3i) >> 2u` begins as the template `x<(n+3i)>`, and has no meaning."""
    length = UOp(Ops.DEFINE_VAR, INT, (), ("n", 1, 4096))
    end = UOp(Ops.SHR, INT, (length + 3, const(2)))
    position = UOp(Ops.RANGE, INT, (end,), (0, Axis.LOOP))
    store = data(0, INT).store(position, position)
    text = FULL.render([UOp.sink(UOp(Ops.END, dtypes.void, (store, position)))])
    assert re.search(r"; ridx0 < \(\(.*\+3i\)>>2u\); ridx0\+\+\) \{", text)


# loops of few iterations


def looped(*extents: int, division: bool = False) -> list[UOp]:
    """A sum over loops in each other, of as many elements, or of their quotients."""
    memory = UOp(Ops.DEFINE_GLOBAL, dtypes.int64.ptr(math.prod(extents)), (), 0)
    loops = [UOp.range(extent, number, Axis.REDUCE) for number, extent in enumerate(extents)]
    at = UOp.const(dtypes.index, 0)
    for loop, extent in zip(loops, extents, strict=True):
        at = at * extent + loop
    value = memory.load(at)
    if division:
        value = value.alu(Ops.IDIV, value)
    total = UOp(Ops.REDUCE, dtypes.int64, (value, *loops), Ops.ADD)
    store = UOp(Ops.DEFINE_GLOBAL, dtypes.int64.ptr(1), (), 1).store(
        UOp.const(dtypes.index, 0), total
    )
    info = KernelInfo("k", tuple(range(len(extents))))
    return lower(UOp.sink(store, arg=info), webgpu_target())


@pytest.mark.parametrize("extents", [(999,), (1001,), (40, 64), (64, 40), (30, 30, 30), (2, 5000)])
def test_a_text_has_no_more_iterations_than_it_may(extents: tuple[int, ...]) -> None:
    found = repetitions(looped(*extents), 1000)
    assert bool(found) == (math.prod(extents) > 999)
    names = [node for node in looped(*extents) if node.op is Ops.RANGE]
    trips = [-(-int(loop.extent.vmax) // found.get(loop, 1)) for loop in names]
    nests = [math.prod(trips[: depth + 1]) for depth in range(len(trips))]
    # With the test that ends each loop.
    assert sum(nests) + 1 + sum(nests[:-1]) <= 1000


def test_a_text_that_would_be_too_long_is_refused_with_the_numbers() -> None:
    with pytest.raises(CompileError, match=r"a lane of this kernel has \d+ iterations") as caught:
        repetitions(looped(1_000_000), 100)
    assert "100" in str(caught.value.details["limit"])
    with pytest.raises(CompileError, match="iterations of its loops"):
        repetitions(looped(900, division=True), 1000)
    assert not repetitions(looped(900), 1000)
