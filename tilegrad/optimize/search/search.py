"""A better list of Opts by measuring.

Measuring is a function that is passed in, as this stage knows no device: a `Measure` compiles
lists, times them and says which are wrong. Proposals come from a strategy, a function registered by
name or passed. In between stands `Task`, which proves legality, prevents that equal shapes are
tried twice, orders proposals by the estimate, and remembers measurements. So a strategy can be slow
or foolish but not wrong: the heuristic's list is always among those tried, and only a list that
beats it by a margin, run alternately with it, replaces it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilegrad.base.errors import ConfigError, OptError
from tilegrad.ir.uop import UOp
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import Opt
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.optimize.search.actions import canonical, edits
from tilegrad.target import Target

__all__ = [
    "VERSION", "Built", "Found", "Measure", "Option", "Opts", "Shapes", "Strategy", "Task",
    "register_strategy", "search", "strategies", "strategy_of",
]  # fmt: skip

VERSION = 1
"""The version of the Opts' text and of the stored findings; findings of another one are ignored."""

Opts = tuple[Opt, ...]

# Limits of a search, `bench/search.py`.
# The largest ratio of times at which a list replaces the default.
_MARGIN = 0.97
# The share of rounds in which it must be faster.
_SURE = 0.8
_FINALISTS = 3
_ROUNDS = 25
# The ratio of a proposal's estimate to the best one's from which it is not built.
_HOPELESS = 4.0
# Limits of a round of the search: the lists whose neighbours it looks at, its trials as a multiple
# of the width, the ratio of times that counts as progress, and the rounds without progress before
# it ends.
_EXPANDED, _TRIED, _GAIN, _PATIENCE = 3, 2, 0.98, 3


@dataclass(frozen=True)
class Option:
    """A legal list of Opts: a key that equal shapes share, and the estimate's cycles."""

    opts: Opts
    key: bytes
    cycles: float


@dataclass(frozen=True)
class Built:
    """A compiled list. Equal `text`, equal program; `spills` are vectors that its innermost loops
    move to the stack and back; `handle` is the measure's name for it.
    """

    opts: Opts
    text: str
    spills: int
    handle: Any = None


class Measure(Protocol):
    """The measurements that a search needs of a device."""

    def expand(self, lists: Sequence[Opts]) -> list[list[Option]]:
        """`Shapes.expand` for each list."""
        ...

    def build(self, lists: Sequence[Opts]) -> list[Built | None]:
        """Each list compiled; None where the compiler refused, crashed or took too long."""
        ...

    def seconds(self, built: Built, rival: Built | None) -> tuple[float, float] | None:
        """The time of a launch, and of one of `rival`, taken alternately; of few if the rival is
        far ahead. Without a rival both are the same. None where the kernel crashed, hung, or
        computed other values than the plain one.
        """
        ...

    def rounds(self, kernels: Sequence[Built], rounds: int) -> list[list[float]]:
        """Times of all kernels, launched alternately; a list is empty where that failed."""
        ...


@dataclass(frozen=True)
class Found:
    """Result of a search: the list to take, its time and the default's, and counts of the
    trials.
    """

    opts: Opts
    default_seconds: float
    seconds: float
    options: int = 0
    built: int = 0
    timed: int = 0
    refused: int = 0

    @property
    def gain(self) -> float:
        """How many times as fast as the default."""
        return self.default_seconds / self.seconds if self.seconds else 1.0


class Task:
    """One kernel to be searched, as a strategy sees it.

    Attributes:
        kernel: the graph before any Opt.
        target: what the hardware can do.
        default: the heuristic's list.
        width: how many lists to keep, as in `BEAM=width`.
    """

    def __init__(
        self,
        kernel: UOp,
        target: Target,
        measure: Measure,
        default: Sequence[Opt],
        width: int,
        seconds: float,
        report: Callable[[str], None] | None = None,
    ):
        self.kernel, self.target, self.width = kernel, target, width
        self.default: Opts = tuple(default)
        self._measure = measure
        self._end = time.monotonic() + seconds
        self._report = report
        self._shapes = Shapes(kernel, target)
        self._options: dict[Opts, Option] = {}
        self._keys: dict[bytes, Opts] = {}
        self._texts: dict[str, Opts] = {}
        self._times: dict[Opts, float] = {}
        self._built: dict[Opts, Built] = {}
        self._expanded: set[Opts] = set()
        self._promise: dict[Opts, float] = {}
        self.num_built = self.num_timed = self.num_refused = 0

    @property
    def is_over(self) -> bool:
        """Whether the time for this kernel is used up."""
        return time.monotonic() >= self._end

    @property
    def times(self) -> dict[Opts, float]:
        """The seconds of every list that was timed and is right."""
        return {opts: taken for opts, taken in self._times.items() if taken < math.inf}

    def best(self, count: int = 1) -> list[Opts]:
        """The fastest lists so far, fastest first; the first was built."""
        return sorted(self.times, key=self._rank)[:count]

    def _rank(self, opts: Opts) -> tuple[float, bool, str]:
        return self._times[opts], opts not in self._built, repr(opts)

    def neighbours(self, lists: Iterable[Opts], most: int | None = None) -> list[Opts]:
        """Legal lists that were not tried yet, one change away from the first `most` of `lists`
        that were not asked for before, or found so earlier; the most promising first, equal shapes
        once.

        The model says by which factor a change helps; the start is measured.
        """
        fresh = [opts for opts in dict.fromkeys(lists) if opts not in self._expanded][:most]
        self._expanded.update(fresh)
        promise = self._promise
        for opts, options in zip(fresh, self._measure.expand(fresh)):
            own = self._options.get(opts)
            scale = self._times.get(opts, math.inf) / own.cycles if own is not None else math.inf
            for option in options:
                if self._keys.setdefault(option.key, option.opts) == option.opts:
                    self._options[option.opts] = option
                    before = promise.get(option.opts, math.inf)
                    promise[option.opts] = min(before, scale * option.cycles)
        limit = _HOPELESS * min(self._times.values(), default=math.inf)
        promising = [opts for opts in promise if promise[opts] <= limit and opts not in self._times]
        return sorted(promising, key=lambda opts: (promise[opts], repr(opts)))

    def evaluate(self, lists: Iterable[Sequence[Opt]]) -> list[float]:
        """The seconds of each list; inf for one that is not legal, does not compile, spills in its
        innermost loops where the default does not, or computes other values.
        """
        wanted = [tuple(opts) for opts in lists]
        fresh = []
        for opts in dict.fromkeys(wanted):
            if opts in self._times:
                continue
            option = self._options.get(opts) or self._shapes.option(opts)
            if option is None:
                self._times[opts] = math.inf
                continue
            self._options[opts] = option
            same = self._keys.setdefault(option.key, opts)
            if same != opts and same in self._times:
                self._times[opts] = self._times[same]
            else:
                fresh.append(opts)
        for opts, built in zip(fresh, self._measure.build(fresh)):
            self._times[opts] = self._time(opts, built)
        return [self._times[opts] for opts in wanted]

    def _time(self, opts: Opts, built: Built | None) -> float:
        if built is None:
            self.num_refused += 1
            return math.inf
        self.num_built += 1
        self._built[opts] = built
        same = self._texts.setdefault(built.text, opts)
        if same in self._times:
            return self._times[same]
        default = self._built.get(self.default)
        if built.spills > (default.spills if default is not None else 0) and opts != self.default:
            self.num_refused += 1
            return math.inf
        self.num_timed += 1
        best = next(iter(self.best()), None)
        times = self._measure.seconds(built, None if best is None else self._built[best])
        if times is None:
            self.num_refused += 1
            return math.inf
        # Other work of the machine slows both: the share counts, not the time.
        taken = times[0] if best is None else self._times[best] * times[0] / times[1]
        self.say(f"{taken * 1e6:10.1f} us  {list(opts)}")
        return taken

    def say(self, text: str) -> None:
        """Show progress to who asked for it."""
        if self._report is not None:
            self._report(text)

    def finish(self) -> Found:
        """The fastest list, if it still beats the default when both run alternately."""
        default = self._times.get(self.default, math.inf)
        if default == math.inf:
            return self._found(self.default, 0.0, 0.0)
        # Lists whose program is that of another gain nothing.
        others = [
            opts
            for opts in self.best(len(self._times))
            if self._times[opts] < default and self._is_own_program(opts)
        ][:_FINALISTS]
        if not others:
            return self._found(self.default, default, default)
        kernels = [self._built[opts] for opts in (self.default, *others)]
        base, *rest = self._measure.rounds(kernels, _ROUNDS)
        if not base:
            return self._found(self.default, default, default)
        chosen, share, default = self.default, _MARGIN, statistics.median(base)
        taken = default
        for opts, samples in zip(others, rest):
            if len(samples) != len(base):
                continue
            shares = sorted(one / other for one, other in zip(samples, base))
            ratio = statistics.median(shares)
            # Noise moves a median; seldom also the least times, and most of the rounds.
            is_sure = shares[int(_SURE * (len(shares) - 1))] < 1 and min(samples) < min(base)
            if ratio < share and is_sure:
                chosen, share, taken = opts, ratio, default * ratio
        return self._found(chosen, default, taken)

    def _is_own_program(self, opts: Opts) -> bool:
        built = self._built.get(opts)
        return opts != self.default and built is not None and self._texts[built.text] == opts

    def _found(self, opts: Opts, default: float, taken: float) -> Found:
        options, counts = len(self._options), (self.num_built, self.num_timed, self.num_refused)
        return Found(opts, default, taken, options, *counts)


Strategy = Callable[[Task], None]
"""Calls `task.evaluate` with lists until it has no more, or `task.is_over`."""


class Shapes:
    """The shapes of one kernel by their lists of Opts. Lists that begin alike share the work."""

    def __init__(self, kernel: UOp, target: Target):
        self.kernel, self.target = kernel, target
        self._shaped: dict[Opts, UOp | None] = {(): kernel}

    def shaped(self, opts: Opts) -> UOp | None:
        """The kernel after `opts`, or None where they are not legal. An error other than OptError
        is a defect, and ends the search.
        """
        known = len(opts)
        while opts[:known] not in self._shaped:
            known -= 1
        found = self._shaped[opts[:known]]
        for position in range(known, len(opts)):
            if found is not None:
                try:
                    found = apply_opt(found, opts[position], self.target)
                except OptError:
                    found = None
            self._shaped[opts[: position + 1]] = found
        return found

    def option(self, opts: Opts) -> Option | None:
        """`opts` as an option, or None where they are not legal."""
        found = self.shaped(opts)
        if found is None:
            return None
        return Option(opts, canonical(found), estimate(found, self.target).cycles)

    def expand(self, opts: Opts) -> list[Option]:
        """The legal lists one change away from `opts`, one for each shape."""
        found: dict[bytes, Option] = {}
        for changed in dict.fromkeys(edits(opts, self.shaped, self.target)):
            option = self.option(changed)
            if option is not None:
                found.setdefault(option.key, option)
        return list(found.values())


def beam(task: Task) -> None:
    """Keep the `width` fastest lists, and try lists one change away from the best of them that were
    not looked at, until nothing has been gained for some rounds.
    """
    idle, best = 0, min(task.evaluate([task.default, ()]))
    while not task.is_over and idle < _PATIENCE:
        fresh = task.neighbours(task.best(task.width), most=_EXPANDED)
        if not fresh:
            return
        for start in range(0, _TRIED * task.width, task.width):
            if task.is_over:
                break
            task.evaluate(fresh[start : start + task.width])
        now = min(task.times.values(), default=math.inf)
        idle = 0 if now < _GAIN * best else idle + 1
        best = min(now, best)
        task.say(f"best of {len(task.times)}: {best * 1e6:.1f} us")


_strategies: dict[str, Strategy] = {"beam": beam}


def register_strategy(name: str, strategy: Strategy) -> None:
    """Make `strategy` known as `name`, for the switch SEARCH; a known name is replaced.

    >>> def only_plain(task):
    ...     task.evaluate([()])
    >>> register_strategy("only_plain", only_plain)
    >>> "only_plain" in strategies()
    True
    """
    _strategies[name] = strategy


def strategies() -> list[str]:
    """The names that SEARCH may take."""
    return sorted(_strategies)


def strategy_of(name: str) -> Strategy:
    """The strategy called `name`.

    Raises ConfigError for an unknown name.
    """
    found = _strategies.get(name)
    if found is None:
        raise ConfigError(f"SEARCH: unknown strategy {name!r}", known=", ".join(strategies()))
    return found


def search(
    kernel: UOp,
    target: Target,
    measure: Measure,
    default: Sequence[Opt],
    *,
    width: int = 4,
    seconds: float = 60.0,
    strategy: Strategy = beam,
    report: Callable[[str], None] | None = None,
) -> Found:
    """The fastest list of Opts that `strategy` finds for a kernel graph, at least as good as
    `default`.

    The kernel is as `optimize.opts.opts.start` left it. The search ends after about `seconds`.
    """
    task = Task(kernel, target, measure, default, width, seconds, report)
    task.evaluate([task.default])
    if task.times:
        strategy(task)
    return task.finish()
