"""The policy of a search, with a measure that makes its times up: nothing runs, no clock
decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from tests.optimize.kernels import buffer, kernel, matmul, permute, reduce
from tilegrad.base.errors import ConfigError, DataError, OptError
from tilegrad.engine.build.kernel import Kernel
from tilegrad.hardware import cuda_target
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.text import parse
from tilegrad.ir.uop import UOp
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side
from tilegrad.optimize.opts.opts import apply_opts, start
from tilegrad.optimize.search import search as module
from tilegrad.optimize.search.actions import actions, canonical, edits
from tilegrad.optimize.search.findings import Finding, line_of, parse_findings, parse_opts
from tilegrad.optimize.search.search import Built, Found, Option, Opts, Shapes, Task, search
from tilegrad.target import Target

CPU = Target(
    "cpu",
    vector_bytes=64,
    registers=32,
    threads=8,
    has_mask=True,
    cache_bytes=(48 << 10, 1 << 20, 32 << 20),
)
UPCAST, UNROLL, THREAD, SWAP, PADTO = (
    OptOps.UPCAST, OptOps.UNROLL, OptOps.THREAD, OptOps.SWAP, OptOps.PADTO,
)  # fmt: skip


def of_cpu(value: UOp) -> UOp:
    return kernel(value, target=CPU)


SUM = of_cpu(buffer(0, 64) + buffer(1, 64))
MATMUL = of_cpu(matmul(buffer(0, 48, 40), buffer(1, 40, 64)))
DEFAULT = (Opt(UPCAST, 0, 16),)
OTHER = (Opt(UPCAST, 0, 32),)
SLOW = (Opt(UPCAST, 0, 2),)


class Made:
    """A measure: times by list, programs that differ unless told, all of it remembered."""

    def __init__(
        self,
        seconds: Callable[[Opts], float | None],
        *,
        text: Callable[[Opts], str] = repr,
        spills: Callable[[Opts], int] = lambda opts: 0,
        in_turns: Callable[[Opts], list[float]] | None = None,
        refuses: Callable[[Opts], bool] = lambda opts: False,
        graph: UOp = SUM,
    ):
        self.of, self.text, self.spills, self.refuses = seconds, text, spills, refuses
        self.in_turns = in_turns or (lambda opts: [seconds(opts) or math.inf] * 5)
        self.shapes = Shapes(graph, CPU)
        # What else the machine does: more and more.
        self.load = 0.5
        self.built: list[Opts] = []
        self.timed: list[Opts] = []
        self.turned: list[Opts] = []

    def expand(self, lists: Sequence[Opts]) -> list[list[Option]]:
        return [self.shapes.expand(opts) for opts in lists]

    def build(self, lists: Sequence[Opts]) -> list[Built | None]:
        self.built += lists
        return [
            None if self.refuses(opts) else Built(opts, self.text(opts), self.spills(opts))
            for opts in lists
        ]

    def seconds(self, built: Built, rival: Built | None) -> tuple[float, float] | None:
        self.timed.append(built.opts)
        taken = self.of(built.opts)
        other = taken if rival is None else self.of(rival.opts)
        self.load *= 2
        return None if taken is None or other is None else (taken * self.load, other * self.load)

    def rounds(self, kernels: Sequence[Built], rounds: int) -> list[list[float]]:
        self.turned = [each.opts for each in kernels]
        return [self.in_turns(each.opts) for each in kernels]


def only(*lists: Opts) -> Callable[[Task], None]:
    """A strategy that tries these and no more."""

    def strategy(task: Task) -> None:
        task.evaluate(lists)

    return strategy


def run(measure: Made, *lists: Opts) -> Found:
    return search(SUM, CPU, measure, DEFAULT, strategy=only(*lists))


# what is kept


@pytest.mark.row("P.13")
@pytest.mark.row("R4.11")
def test_a_list_that_is_faster_replaces_the_default() -> None:
    found = run(Made(lambda opts: 1.0 if opts == OTHER else 2.0), OTHER)
    assert (found.opts, found.default_seconds, found.seconds, found.gain) == (OTHER, 2.0, 1.0, 2.0)
    assert (found.built, found.timed, found.refused) == (2, 2, 0)


@pytest.mark.row("P.13")
@pytest.mark.row("R4.11")
@pytest.mark.parametrize("share", [0.98, 1.0, 1.5])
def test_the_default_stays_where_nothing_beats_it_by_a_margin(share: float) -> None:
    found = run(Made(lambda opts: 1.0 if opts == DEFAULT else share), OTHER)
    assert found.opts == DEFAULT and found.seconds == found.default_seconds == 1.0


@pytest.mark.row("R4.11")
def test_a_lucky_sample_is_not_kept() -> None:
    """Fast when timed alone; in turns with the default it is not."""
    measure = Made(lambda opts: 0.5 if opts == OTHER else 1.0, in_turns=lambda opts: [1.0] * 5)
    assert run(measure, OTHER).opts == DEFAULT
    assert measure.turned == [DEFAULT, OTHER]


def test_a_median_without_the_least_time_is_noise() -> None:
    def rounds(opts: Opts) -> list[float]:
        return [0.9] * 5 if opts == OTHER else [0.8, 1.0, 1.0, 1.0, 1.0]

    assert run(Made(lambda opts: 1.0 - (opts == OTHER) / 2, in_turns=rounds), OTHER).opts == DEFAULT


@pytest.mark.row("R4.11")
def test_what_is_wrong_or_does_not_compile_is_never_kept() -> None:
    """Wrong values, crashes and hangs are all None to the policy."""
    measure = Made(lambda opts: None if opts == OTHER else 1.0 if opts == DEFAULT else 0.5)
    measure.refuses = lambda opts: opts == SLOW
    found = run(measure, OTHER, SLOW)
    assert (found.opts, found.refused) == (DEFAULT, 2)
    assert SLOW not in measure.timed and measure.turned == []


def test_a_candidate_that_fails_in_the_last_run_is_not_kept() -> None:
    measure = Made(lambda opts: 1.0 if opts == DEFAULT else 0.5)
    measure.in_turns = lambda opts: [1.0] * 5 if opts == DEFAULT else []
    assert run(measure, OTHER).opts == DEFAULT
    measure.in_turns = lambda opts: []
    assert run(measure, OTHER).opts == DEFAULT


def test_a_default_that_cannot_be_timed_ends_the_search() -> None:
    measure = Made(lambda opts: None)
    found = run(measure, OTHER)
    assert found.opts == DEFAULT and measure.timed == [DEFAULT]


@pytest.mark.row("P.13")
def test_most_rounds_must_agree() -> None:
    def rounds(opts: Opts) -> list[float]:
        return [0.5, 0.9, 0.9, 1.1, 1.1] if opts == OTHER else [1.0] * 5

    assert run(Made(lambda opts: 1.0 - (opts == OTHER) / 2, in_turns=rounds), OTHER).opts == DEFAULT


# what is not tried


def test_spills_in_the_inner_loop_reject_a_list_unless_the_default_has_as_many() -> None:
    measure = Made(
        lambda opts: 1.0 if opts == DEFAULT else 0.5, spills=lambda opts: 4 * (opts == OTHER)
    )
    assert run(measure, OTHER).opts == DEFAULT and OTHER not in measure.timed
    measure.spills = lambda opts: 4
    assert run(measure, OTHER).opts == OTHER


def test_equal_programs_are_timed_once() -> None:
    measure = Made(lambda opts: 1.0, text=lambda opts: "the same")
    found = run(measure, OTHER, SLOW)
    assert measure.timed == [DEFAULT] and found.opts == DEFAULT and measure.turned == []


def test_equal_shapes_are_built_once() -> None:
    """Two splits in either order are one shape."""
    one = (Opt(UPCAST, 0, 8), Opt(UPCAST, 1, 16))
    other = (Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 8))
    third = (Opt(UPCAST, 0, 8), Opt(UPCAST, 1, 32))
    keys = {opts: canonical(apply_opts(MATMUL, opts, CPU)) for opts in (one, other, third)}
    assert keys[one] != keys[third]
    swaps = (Opt(SWAP, 0, 1), Opt(SWAP, 0, 1))
    assert canonical(apply_opts(MATMUL, swaps, CPU)) == canonical(MATMUL)
    measure = Made(lambda opts: 1.0, graph=MATMUL)
    search(MATMUL, CPU, measure, (), strategy=only(swaps, one))
    assert measure.built == [(), one]


def test_illegal_lists_are_not_built() -> None:
    measure = Made(lambda opts: 1.0)
    run(measure, (Opt(UPCAST, 0, 7),), (Opt(UPCAST, 9, 2),), (Opt(OptOps.LOCAL, 0, 4),))
    assert measure.built == [DEFAULT]


def test_a_search_ends_with_its_time() -> None:
    measure = Made(lambda opts: 1.0)
    search(SUM, CPU, measure, DEFAULT, seconds=-1.0)
    assert set(measure.built) == {DEFAULT, ()}


# strategies


@pytest.mark.row("R4.11")
def test_beam_follows_the_times_to_the_best_list() -> None:
    """The time falls with each part that is right, so each round must build on the one before."""

    def seconds(opts: Opts) -> float:
        amounts = {(opt.op, opt.arg) for opt in opts}
        wanted = [(UPCAST, 32), (UPCAST, 6)]
        return 8.0 * 0.5 ** sum(each in amounts for each in wanted) + 0.01 * len(opts)

    measure = Made(seconds, graph=MATMUL)
    found = search(MATMUL, CPU, measure, (), width=4)
    assert found.seconds == pytest.approx(2.02) and found.default_seconds == 8.0
    assert found.timed == len(measure.timed) < found.options


def test_a_strategy_is_found_by_name() -> None:
    module.register_strategy("one", only(OTHER))
    try:
        assert "one" in module.strategies() and "beam" in module.strategies()
        measure = Made(lambda opts: 1.0 if opts == OTHER else 2.0)
        strategy = module.strategy_of("one")
        assert search(SUM, CPU, measure, DEFAULT, strategy=strategy).opts == OTHER
    finally:
        del module._strategies["one"]
    with pytest.raises(ConfigError, match=r"unknown strategy 'one'[\s\S]*known:.*beam"):
        module.strategy_of("one")


def test_a_strategy_sees_the_task_and_reports() -> None:
    said: list[str] = []

    def strategy(task: Task) -> None:
        assert (task.kernel, task.default, task.width) == (SUM, DEFAULT, 3)
        assert task.evaluate([OTHER, OTHER]) == [2.0, 2.0]
        assert task.best(2) == [DEFAULT, OTHER] and task.times[OTHER] == 2.0
        near = task.neighbours([DEFAULT])
        assert near and OTHER not in near and task.neighbours([DEFAULT]) == near
        task.evaluate(near[:1])
        assert task.neighbours([]) == near[1:]

    measure = Made(lambda opts: 1.0 if opts == DEFAULT else 2.0)
    search(SUM, CPU, measure, DEFAULT, width=3, strategy=strategy, report=said.append)
    assert len(said) == 3 and repr(list(OTHER)) in said[1]


# moves


@pytest.mark.row("R4.10")
@pytest.mark.parametrize("graph", [SUM, MATMUL])
def test_actions_are_all_legal_and_of_every_kind(graph: UOp) -> None:
    found = actions(graph, CPU)
    assert len(set(found)) == len(found)
    for opt in found:
        apply_opts(graph, [opt], CPU)
    kinds = {opt.op for opt in found}
    assert {UPCAST, THREAD, OptOps.TILE} <= kinds
    assert not kinds & {OptOps.LOCAL, OptOps.GROUP, OptOps.TC}
    if graph is MATMUL:
        assert {UNROLL, SWAP, OptOps.STAGE} <= kinds
        assert Opt(UPCAST, 1, 16) in found and Opt(UPCAST, 1, 7) not in found


@pytest.mark.row("R4.10")
def test_actions_of_a_target_with_blocks() -> None:
    cuda = cuda_target("sm_80")
    graph = kernel(reduce(Ops.ADD, buffer(0, 32, 64), 1), target=cuda)
    kinds = {opt.op for opt in actions(start(graph, cuda), cuda)}
    assert {OptOps.GROUP, OptOps.GROUPTOP, UNROLL} <= kinds
    assert THREAD not in kinds and OptOps.STAGE not in kinds


@pytest.mark.row("R4.10")
def test_a_kernel_by_hand_lists_its_actions() -> None:
    shaper = Kernel(SUM, CPU)
    assert shaper.actions() == actions(SUM, CPU)
    shaper.apply_opt(Opt(UPCAST, 0, 16))
    assert Opt(UPCAST, 0, 16) not in shaper.actions() and Opt(THREAD, 0, 2) in shaper.actions()


def test_edits_leave_out_change_exchange_and_add() -> None:
    opts = (Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 8), Opt(THREAD, 0, 6))
    found = set(edits(opts, Shapes(MATMUL, CPU).shaped, CPU))
    assert opts[1:] in found and opts[:2] in found
    assert (Opt(UPCAST, 1, 32), *opts[1:]) in found
    assert (opts[1], opts[0], opts[2]) in found
    assert (*opts, Opt(UNROLL, 0, 4)) in found
    assert (*opts[:2], Opt(OptOps.STAGE, -1, 2), opts[2]) in found
    padded = (Opt(PADTO, 0, 6), Opt(UPCAST, 0, 6))
    assert (Opt(PADTO, 0, 12), Opt(UPCAST, 0, 12)) in set(
        edits(padded, Shapes(SUM, CPU).shaped, CPU)
    )


# the cost model


def test_vectors_cost_fewer_instructions() -> None:
    plain, wide = estimate(SUM, CPU), estimate(apply_opts(SUM, [Opt(UPCAST, 0, 16)], CPU), CPU)
    assert plain.flops == wide.flops == 64
    assert (plain.vector_use, wide.vector_use) == (0.0, 1.0)
    assert wide.instructions == plain.instructions / 16 and wide.cycles < plain.cycles


def test_bytes_are_counted_by_the_cache_they_come_from() -> None:
    """A matmul without tiles reads an operand again for every row; with tiles that fit, from the
    nearer cache.
    """
    graph = of_cpu(matmul(buffer(0, 1024, 1024), buffer(1, 1024, 1024)))
    small = Target("cpu", vector_bytes=64, cache_bytes=(32 << 10, 256 << 10, 1 << 20))
    plain = estimate(graph, small)
    tiled = estimate(
        apply_opts(graph, [Opt(OptOps.TILE, axis, 64) for axis in (0, 2, 4)], small), small
    )
    once = 3 * 4 << 20
    assert plain.traffic[2] > 100 * once > 8 * tiled.traffic[2] > 8 * once
    assert sorted(plain.traffic, reverse=True) == list(plain.traffic)


def test_a_tile_of_a_transpose_is_cheaper_than_single_elements() -> None:
    """Vectors along one axis for loads and along the other for stores, turned in registers."""
    graph = of_cpu(permute(buffer(0, 128, 128), 1, 0) * 2.0)
    lists = ([], [Opt(UPCAST, 1, 16)], [Opt(UPCAST, 0, 16), Opt(UPCAST, 1, 16)])
    plain, one, tile = (estimate(apply_opts(graph, opts, CPU), CPU) for opts in lists)
    assert tile.cycles < one.cycles < plain.cycles
    assert 3 * tile.instructions < one.instructions <= plain.instructions


def test_accumulators_beyond_the_registers_cost() -> None:
    """64 vectors of partial sums where there are 32 registers."""
    fits = apply_opts(MATMUL, [Opt(UPCAST, 1, 32), Opt(UPCAST, 0, 8)], CPU)
    spills = apply_opts(MATMUL, [Opt(UPCAST, 1, 64), Opt(UPCAST, 0, 16)], CPU)
    assert estimate(fits, CPU).registers <= 32 < estimate(spills, CPU).registers
    assert estimate(fits, CPU).cycles < estimate(spills, CPU).cycles


def test_a_fold_with_one_accumulator_waits_for_itself() -> None:
    one, four = ([Opt(UPCAST, 1, 16)], [Opt(UPCAST, 1, 16), Opt(UPCAST, 0, 4)])
    alone, together = (estimate(apply_opts(MATMUL, opts, CPU), CPU) for opts in (one, four))
    assert alone.flops == together.flops and together.cycles < 0.4 * alone.cycles


# findings as text

FINDING = Finding(
    "ab12", "r_64_16", (Opt(OptOps.STAGE, -1, (2, (1, 0))), Opt(UPCAST, 1, 16)), 3.5e-6, 1.25e-6
)
OPERANDS = (
    ReduceOperand(Side.LEFT),
    ReduceOperand(Side.RIGHT, is_cast=False),
    ReduceOperand(Side.LEFT, reduction=1),
)


def test_a_finding_is_a_line_that_reads_back() -> None:
    line = line_of(FINDING)
    assert "[Opt(op=OptOps.STAGE, axis=-1, arg=(2, (1, 0))), Opt(op=OptOps.UPCAST, axis=1," in line
    later = line_of(Finding("ab12", "r_64_16", (), 3e-6, 3e-6))
    assert parse_findings(["# heading", "", line]) == {"ab12": FINDING}
    assert parse_findings([line, later])["ab12"].opts == ()


@pytest.mark.parametrize("operand", OPERANDS, ids=repr)
def test_operands_of_reductions_read_back(operand: ReduceOperand) -> None:
    opts = (Opt(OptOps.STAGE, 0, operand), Opt(OptOps.STAGE, 1, (operand, (1, 0), 4)))
    assert parse_opts(repr(list(opts))) == opts
    sink = UOp.sink(arg=KernelInfo("E", (0,), opts))
    assert parse(repr(sink)) is sink


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[__import__('os').system('true')]",
        "[Opt(op=OptOps.UPCAST, axis=(lambda: 0)(), arg=4)]",
        "[Opt(op=OptOps.NOTHING, axis=0, arg=4)]",
        "[Opt(axis=0, arg=4)]",
        "[Other(op=OptOps.UPCAST, axis=0, arg=4)]",
        "[Opt(op=OptOps.UPCAST, axis=0, many=4)]",
        "[Opt(OptOps.UPCAST, 0, 4)]",
        "[Opt(op=OptOps.STAGE, axis=0, arg=ReduceOperand(0))]",
        "[Opt(op=OptOps.STAGE, axis=0, arg=ReduceOperand(Side.NOTHING))]",
        "[Opt(op=OptOps.STAGE, axis=0, arg=Other(Side.LEFT))]",
        "[" * 5000,
        "",
    ],
)
def test_opts_are_read_as_data(text: str) -> None:
    with pytest.raises(DataError, match="no list of Opts"):
        parse_opts(text)


def test_a_line_that_does_not_read_is_named() -> None:
    with pytest.raises(DataError, match="line 2 does not read"):
        parse_findings([line_of(FINDING), "ab12 and so on"])
    with pytest.raises(DataError, match="line 1 does not read"):
        parse_findings([line_of(FINDING).replace("1.250", "fast")])


@pytest.mark.parametrize("name", ["apply_opt", "canonical", "estimate"])
def test_a_defect_ends_a_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> UOp:
        raise KeyError("a defect")

    monkeypatch.setattr(module, name, broken)
    with pytest.raises(KeyError, match="a defect"):
        Shapes(SUM, CPU).option((Opt(UPCAST, 0, 16),))


def test_a_move_that_is_not_legal_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> UOp:
        raise OptError("upcast: no")

    monkeypatch.setattr(module, "apply_opt", refused)
    assert Shapes(SUM, CPU).option((Opt(UPCAST, 0, 16),)) is None


@pytest.mark.parametrize(
    "op",
    [
        Ops.EXP, Ops.COS, Ops.SIN, Ops.EXP2, Ops.LOG2, Ops.RECIP, Ops.SQRT, Ops.TANH, Ops.SIGMOID,
    ],
)  # fmt: skip
def test_a_function_costs_more_than_a_negation(op: Ops) -> None:
    x = buffer(0, 64)
    cheap = estimate(of_cpu(x * -1.0), CPU).cycles
    dear = estimate(of_cpu(UOp(op, x.dtype, (x,))), CPU).cycles
    assert dear > 1.1 * cheap
