"""PTX run on NumPy arrays: a register is an array with an element per lane of the launch.

Lanes that are at the same instruction do it together; the ones at the smallest address go first, so
lanes that took different branches meet again. An access outside memory, an access that races, lanes
that do not meet at a barrier, and a matrix instruction without its whole warp are PTXErrors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.device.ptx import matrix, numbers, tensor_memory, tiles, wgmma
from tests.device.ptx.memory import FAR, MOST_LANES, GlobalMemory, SharedMemory
from tests.device.ptx.numbers import TYPES
from tests.device.ptx.parse import MAP, WIDTHS, Entry, Instruction, PTXError

__all__ = ["Launch", "run"]

Array = np.ndarray[Any, Any]
_RAW = {"pred": np.bool_, "b16": np.uint16, "b32": np.uint32, "f32": np.uint32,
        "b64": np.uint64, "f64": np.uint64}  # fmt: skip
_FLOATS = ("f16", "bf16", "f32", "f64")
_WARP = 32
# Lanes that run at once; more blocks run after them.
_MOST = 1 << 17
_LONGEST = 5_000_000
# Addresses of parameters in their own space, and where this begins among all addresses.
_PASSED, _PARAMETERS = 0x100, 0x600000000000
# Bytes of shared memory that a kernel may declare.
_STATIC = 48 << 10
# Where the shared memory of the blocks of a cluster begins among its addresses: of each from a
# multiple of this on. A block's own has small addresses, too.
_OF_CLUSTER = 1 << 24


def run(
    entry: Entry,
    memory: GlobalMemory,
    arguments: Sequence[int],
    grid: Sequence[int],
    block: Sequence[int],
    asked: int = 0,
) -> None:
    """One launch. `arguments` are the parameters as unsigned numbers, `asked` the bytes of shared
    memory beside those that the kernel declares.
    """
    lanes = int(np.prod(block))
    if lanes > entry.most_lanes:
        raise PTXError(f"{lanes} lanes in a block, .maxntid is {entry.most_lanes}")
    blocks, together = int(np.prod(grid)), entry.together
    if grid[0] % together:
        raise PTXError(f"{grid[0]} blocks along x in clusters of {together}")
    if together > 1 and (_capability(entry) < 90 or entry.version < (7, 8)):
        raise PTXError(f"no clusters on {entry.target} in PTX {entry.version}")
    step = max(1, _MOST // lanes // together) * together
    # By byte of memory: whether an access that stores begins there, or one that reads a constant.
    stored, constant = memory.marks(), memory.marks()
    for first in range(0, blocks, step):
        launch = Launch(
            entry, memory, arguments, grid, block, range(first, min(first + step, blocks)), asked
        )
        launch.run()
        stored |= launch.stored
        constant |= launch.constant
    if (stored & constant).any():
        raise PTXError("what is read as constant is memory that the same launch writes")


@dataclass
class _UnitRead:
    """What a matrix unit reads for a warpgroup: by which lanes, at which addresses, what was there,
    the registers that it adds to and those that it reads, and how many groups of units were closed
    since.
    """

    readers: Array
    addresses: Array
    values: Array
    what: str
    names: tuple[str, ...]
    taken: tuple[str, ...] = ()
    closed: int = 0


class Launch:
    """Some blocks of a launch."""

    def __init__(
        self,
        entry: Entry,
        memory: GlobalMemory,
        arguments: Sequence[int],
        grid: Sequence[int],
        block: Sequence[int],
        numbers_of_blocks: range,
        asked: int = 0,
    ):
        self.entry, self.memory = entry, memory
        if len(arguments) != len(entry.parameters):
            raise PTXError(f"{len(arguments)} arguments for {len(entry.parameters)} parameters")
        self.arguments = {name: value for (name, _), value in zip(entry.parameters, arguments)}
        self.lanes = int(np.prod(block))
        self.count = self.lanes * len(numbers_of_blocks)
        serial = np.arange(self.count)
        self.lane, self.block = serial % self.lanes, serial // self.lanes
        self.special = self._specials(grid, block, numbers_of_blocks)
        self.registers: dict[str, Array] = {}
        self.places: dict[str, int] = {}
        sizes = {"shared": 0, "local": 0}
        for name, (space, alignment, nbytes) in entry.arrays.items():
            self.places[name] = -(-sizes[space] // alignment) * alignment
            sizes[space] = self.places[name] + nbytes
        if sizes["shared"] > _STATIC:
            raise PTXError(f"{sizes['shared']} bytes of shared memory that no launch asks for")
        if entry.asked:
            # At a multiple of 16 and of nothing more.
            self.places[entry.asked] = -(-sizes["shared"] // 32) * 32 + 16
            sizes["shared"] = self.places[entry.asked] + asked
        self.shared = SharedMemory(len(numbers_of_blocks), sizes["shared"], entry.together)
        # Lanes that have come to barrier.cluster.arrive, and not to the wait.
        self.arrived = np.zeros(self.count, bool)
        self.barriers = tiles.Barriers(self.shared)
        # Where parameters are that are passed by their address, in their own space.
        maps = [name for name, kind in entry.parameters if kind == MAP]
        self.passed = {name: _PASSED * (number + 1) for number, name in enumerate(maps)}
        # Registers that a matrix unit adds to, with the lanes for which it does; those that were
        # written since the last wgmma.fence; and what the units still read.
        self.busy: dict[str, Array] = {}
        self.unfenced: set[str] | None = set() if _has_groups(entry) else None
        self.reads: list[_UnitRead] = []
        # The same for loads from tensor memory, which is there where the kernel speaks of it.
        self.loading: dict[str, Array] = {}
        self.tensor: tensor_memory.TensorMemory | None = None
        if any(each.parts[0] == "tcgen05" for each in entry.instructions):
            self.tensor = tensor_memory.TensorMemory(len(numbers_of_blocks), self.lanes)
            _one_size_of_group(entry)
        # Lane by lane, so that no other can reach it.
        self.local = SharedMemory(self.count, sizes["local"])
        self.stored, self.constant = memory.marks(), memory.marks()

    def _specials(
        self, grid: Sequence[int], block: Sequence[int], numbers_of: range
    ) -> dict[str, Array]:
        number = self.block + numbers_of.start
        found = {}
        for name, place, sizes in (("ctaid", number, grid), ("tid", self.lane, block)):
            x, y = sizes[0], sizes[1]
            parts = (place % x, place // x % y, place // (x * y))
            found |= {f"%{name}.{axis}": part.astype(np.uint32) for axis, part in zip("xyz", parts)}
        for name, sizes in (("ntid", block), ("nctaid", grid)):
            for axis, size in zip("xyz", sizes):
                found[f"%{name}.{axis}"] = np.full(self.count, size, np.uint32)
        found["%laneid"] = (self.lane % _WARP).astype(np.uint32)
        found["%cluster_ctarank"] = (self.block % self.entry.together).astype(np.uint32)
        return found

    # the walk

    def run(self) -> None:
        entry = self.entry
        steps = [_compiled(entry, each) for each in entry.instructions]
        groups: dict[int, Array] = {0: np.ones(self.count, bool)}
        waiting: dict[int, Array] = {}
        for _ in range(_LONGEST):
            if not groups:
                if waiting:
                    raise self._apart(waiting)
                return
            place = min(groups)
            mask = groups.pop(place)
            if place >= len(steps):
                raise PTXError("the kernel has no ret")
            instruction = entry.instructions[place]
            try:
                active = self._active(instruction, mask)
                head = instruction.parts[0]
                if head == "bra":
                    target = entry.labels[instruction.operands[0]]
                    _join(groups, target, mask & active)
                    _join(groups, place + 1, mask & ~active)
                elif head in ("ret", "exit"):
                    if self.busy:
                        raise PTXError("a kernel ends while a matrix unit works")
                    if self.arrived.any():
                        raise PTXError("a kernel ends between arrive and wait")
                    if any(lanes.any() for lanes in self.loading.values()):
                        raise PTXError("a kernel ends while a lane loads from tensor memory")
                    if self.tensor is not None and (mask & active).all():
                        self.tensor.close()
                    self.barriers.close()
                    _join(groups, place + 1, mask & ~active)
                elif head in ("bar", "barrier"):
                    if not active.all() and (mask & ~active).any():
                        raise PTXError("a barrier with a gate")
                    if instruction.parts[1] == "cluster":
                        self._meet_cluster(groups, waiting, place, mask)
                    else:
                        self._meet(groups, waiting, place, mask)
                else:
                    if active.any():
                        self.active = active
                        steps[place](self, active)
                    _join(groups, place + 1, mask)
            except PTXError as error:
                raise PTXError(f"{error}\n  in {instruction.text}\n  of {entry.name}") from None
        raise PTXError(f"{entry.name} does not end")

    def _active(self, instruction: Instruction, mask: Array) -> Array:
        if not instruction.gate:
            return mask
        gate = self.registers[instruction.gate]
        return mask & (~gate if instruction.negated else gate)

    def _meet(
        self, groups: dict[int, Array], waiting: dict[int, Array], place: int, mask: Array
    ) -> None:
        come = mask | waiting.pop(place, np.zeros(self.count, bool))
        whole = come.reshape(-1, self.lanes).all(1)
        self.shared.meet(whole)
        self.barriers.meet(whole)
        if self.tensor is not None:
            self.tensor.meet(whole)
        free = np.repeat(whole, self.lanes)
        _join(groups, place + 1, come & free)
        if (come & ~free).any():
            waiting[place] = come & ~free

    def _meet_cluster(
        self, groups: dict[int, Array], waiting: dict[int, Array], place: int, mask: Array
    ) -> None:
        """PTX ISA, "barrier.cluster": lanes arrive once, and then wait until all lanes of the
        cluster have arrived.
        """
        parts = self.entry.instructions[place].parts[2:]
        if parts in (("arrive", "release", "aligned"), ("arrive", "relaxed", "aligned")):
            if parts[1] == "relaxed" and self.shared.has_stored(self.block[mask]):
                raise PTXError("lanes arrive without .release, and have stored to shared memory")
            if (self.arrived & mask).any():
                raise PTXError("a lane arrives twice at the barrier of the cluster")
            self.arrived |= mask
            _join(groups, place + 1, mask)
            return
        before = self.entry.instructions[place - 1].parts
        if parts != ("wait", "acquire", "aligned") or "arrive" not in before:
            raise PTXError("a barrier of the cluster that is not written")
        if (mask & ~self.arrived).any():
            raise PTXError("a lane waits for the cluster without having arrived")
        come = mask | waiting.pop(place, np.zeros(self.count, bool))
        together = self.entry.together
        whole = come.reshape(-1, self.lanes * together).all(1)
        blocks = np.repeat(whole, together)
        self.shared.meet(blocks)
        self.shared.meet_all(blocks)
        self.barriers.meet(blocks)
        self.barriers.meet_all(blocks)
        if self.tensor is not None:
            self.tensor.meet(blocks)
        free = np.repeat(whole, self.lanes * together)
        self.arrived &= ~free
        _join(groups, place + 1, come & free)
        if (come & ~free).any():
            waiting[place] = come & ~free

    def _apart(self, waiting: dict[int, Array]) -> PTXError:
        texts = [
            f"{int(mask.sum())} lanes wait at instruction {place}"
            for place, mask in waiting.items()
        ]
        return PTXError(f"{self.entry.name}: the lanes of a block do not meet: {'; '.join(texts)}")

    # registers

    def touch(self, name: str, active: Array) -> None:
        """An error where a matrix unit adds to the register."""
        if name in self.busy and (self.busy[name] & active).any():
            raise PTXError(f"{name} is touched while a matrix unit adds to it")
        if name in self.loading and (self.loading[name] & active).any():
            raise PTXError(f"{name} is touched before tcgen05.wait::ld")

    def put(self, name: str, raw: Array, active: Array) -> None:
        if self.unfenced is not None or self.loading:
            self.touch(name, active)
        if self.unfenced is not None:
            self.unfenced.add(name)
        for each in self.reads:
            if name in each.taken and active[each.readers].any():
                raise PTXError(f"{name} is written while a matrix unit reads it")
        self.set(name, raw, active)

    def set(self, name: str, raw: Array, active: Array) -> None:
        old = self.registers.get(name)
        if old is None:
            old = self.registers[name] = np.full(self.count, ~np.zeros((), raw.dtype), raw.dtype)
        self.registers[name] = raw if active.all() else np.where(active, raw, old)


def _join(groups: dict[int, Array], place: int, mask: Array) -> None:
    if mask.any():
        groups[place] = groups[place] | mask if place in groups else mask


# operands

Fetch = Callable[[Launch], Array]
Step = Callable[[Launch, Array], None]


def _immediate(text: str, kind: str) -> Array:
    if text[:2].lower() in ("0f", "0d") and kind in ("f32", "f64", "b32", "b64"):
        raw = np.array([int(text[2:], 16)], np.uint32 if text[1] in "fF" else np.uint64)
        if (raw.itemsize == 4) != (kind[1:] == "32"):
            raise PTXError(f"{text} is no {kind}")
        return raw.view(TYPES[kind])
    if kind in _FLOATS:
        raise PTXError(f"{text} is no number of {kind}")
    number = int(text, 0)
    size = np.dtype(TYPES[kind]).itemsize
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise PTXError(f"{text} does not fit {kind}")
    return np.array([number & (1 << 8 * size) - 1], f"u{size}").view(TYPES[kind])


def _width(kind: str) -> int:
    return 1 if kind == "pred" else int(kind.lstrip("bfsu"))


def _source(entry: Entry, text: str, kind: str, loose: bool = False) -> Fetch:
    """How to read an operand as `kind`. Where it is `loose`, a register may be wider."""
    if text.startswith("%") and ("." in text or text in ("%laneid", "%cluster_ctarank")):
        return lambda launch: launch.special[text].view(TYPES[kind])
    if text.startswith("%"):
        if text not in entry.registers:
            raise PTXError(f"{text} is not declared")
        held = entry.registers[text]
        if (held == "pred") != (kind == "pred"):
            raise PTXError(f"{text} is a {held}, not {kind}")
        wide = WIDTHS[held]
        if wide != _width(kind) and not (loose and wide > _width(kind)):
            raise PTXError(f"{text} has {wide} bits, {kind} is asked")
        if held[0] == "f" and kind[0] in "su":
            raise PTXError(f"{text} is a float, {kind} is asked")
        if kind == "pred":
            return lambda launch: launch.registers[text]
        narrow = np.dtype(f"u{_width(kind) // 8}")
        target = TYPES[kind]

        def fetch(launch: Launch) -> Array:
            if text not in launch.registers:
                raise PTXError(f"{text} is read before it is set")
            if launch.busy or launch.loading:
                launch.touch(text, launch.active)
            return launch.registers[text].astype(narrow, copy=False).view(target)

        return fetch
    value = _immediate(text, kind)
    return lambda launch: np.broadcast_to(value, (launch.count,))


def _target(
    entry: Entry, text: str, kind: str, loose: bool = False
) -> Callable[[Launch, Array, Array], None]:
    """How to set a register from an array of `kind`. Where it is `loose` it may be wider, and is
    filled with the sign or zeros.
    """
    if text not in entry.registers:
        raise PTXError(f"{text} is not declared")
    held = entry.registers[text]
    raw = _RAW[held]
    if held == "pred" or kind == "pred":
        if held != kind:
            raise PTXError(f"{text} is a {held}, not {kind}")
        return lambda launch, value, active: launch.put(text, value, active)
    if WIDTHS[held] != _width(kind) and not (loose and WIDTHS[held] > _width(kind)):
        raise PTXError(f"{text} has {WIDTHS[held]} bits, the result has {kind}")
    same = WIDTHS[held] == _width(kind)
    wide = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{WIDTHS[held] // 8}")

    def put(launch: Launch, value: Array, active: Array) -> None:
        value = np.ascontiguousarray(value)
        launch.put(text, value.view(raw) if same else value.astype(wide).view(raw), active)

    return put


# instructions


def _compiled(entry: Entry, instruction: Instruction) -> Step:
    if instruction.gate and entry.registers.get(instruction.gate) != "pred":
        raise PTXError(f"{instruction.gate} is no predicate: {instruction.text}")
    head = instruction.parts[0]
    if head in ("bra", "ret", "exit", "bar", "barrier"):
        return lambda launch, active: None
    maker = _MAKERS.get(head)
    if maker is None:
        raise PTXError(f"unknown instruction: {instruction.text}")
    try:
        return maker(entry, instruction)
    except PTXError as error:
        raise PTXError(f"{error}\n  in {instruction.text}\n  of {entry.name}") from None


def _plain(
    entry: Entry,
    instruction: Instruction,
    kinds: Sequence[str],
    target: str,
    function: Callable[..., Array],
) -> Step:
    """Sources of `kinds`, one result."""
    name, *operands = instruction.operands
    if len(operands) != len(kinds):
        raise PTXError(f"{len(operands)} operands, not {len(kinds)}")
    fetches = [_source(entry, text, kind) for text, kind in zip(operands, kinds)]
    put = _target(entry, name, target)

    def step(launch: Launch, active: Array) -> None:
        with np.errstate(all="ignore"):
            put(launch, function(*[fetch(launch) for fetch in fetches]), active)

    return step


def _is_float(kind: str) -> bool:
    return kind in _FLOATS


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Entry, Instruction], Step]:
    """add, sub, mul, div, min, max."""

    def make(entry: Entry, instruction: Instruction) -> Step:
        head, *options, kind = instruction.parts
        if not _is_float(kind):
            if head == "mul" and options != ["lo"]:
                raise PTXError("mul of integers says which half")
            return _plain(entry, instruction, (kind, kind), kind, _wrapped(head, function, kind))
        if head in ("add", "sub", "mul", "div") and "rn" not in options:
            raise PTXError("a float instruction must say how it rounds")
        if head in ("min", "max"):
            return _plain(entry, instruction, (kind, kind), kind, _extreme(head, "NaN" in options))

        def rounded(a: Array, b: Array) -> Array:
            if kind == "f64":
                return function(a, b)
            if kind == "f32":
                return function(a, b)
            wide = function(numbers.as_type(a, kind), numbers.as_type(b, kind))
            return numbers.round_to(wide, kind)

        return _plain(entry, instruction, (kind, kind), kind, rounded)

    return make


def _wrapped(
    head: str, function: Callable[[Array, Array], Array], kind: str
) -> Callable[..., Array]:
    if head not in ("div", "rem"):
        return function

    def divide(a: Array, b: Array) -> Array:
        """Toward zero. What PTX leaves open becomes a value that shows."""
        safe = np.where(b == 0, b.dtype.type(1), b)
        least = np.iinfo(a.dtype).min if kind[0] == "s" else None
        open_ = b == 0
        if least is not None:
            worst = (a == least) & (b == -1)
            open_ = open_ | worst
            safe = np.where(worst, a.dtype.type(1), safe)
        quotient = a // safe
        rest = a - quotient * safe
        quotient = quotient + ((rest != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
        found = quotient if head == "div" else a - quotient * safe
        return np.where(open_, a.dtype.type(0x5A), found)

    return divide


def _extreme(head: str, keeps_nan: bool) -> Callable[[Array, Array], Array]:
    def choose(a: Array, b: Array) -> Array:
        # +0.0 is more than -0.0.
        sign = np.signbit(a).astype(np.int8) - np.signbit(b).astype(np.int8)
        first = (
            (a > b) | ((a == b) & (sign <= 0))
            if head == "max"
            else (a < b) | ((a == b) & (sign >= 0))
        )
        found = np.where(first, a, b)
        both = np.isnan(a) | np.isnan(b)
        if keeps_nan:
            return np.where(both, a.dtype.type(np.nan), found)
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))

    return choose


def _fma(entry: Entry, instruction: Instruction) -> Step:
    if instruction.parts[1] != "rn":
        raise PTXError("fma must say how it rounds")
    kind = instruction.parts[-1]
    return _plain(entry, instruction, (kind,) * 3, kind, lambda a, b, c: numbers.fma(a, b, c, kind))


def _mad(entry: Entry, instruction: Instruction) -> Step:
    _, mode, kind = instruction.parts
    if mode == "lo":
        return _plain(entry, instruction, (kind,) * 3, kind, lambda a, b, c: a * b + c)
    wide = f"{kind[0]}{2 * _width(kind)}"
    if mode != "wide":
        raise PTXError(f"mad.{mode}")
    return _plain(
        entry, instruction, (kind, kind, wide), wide,
        lambda a, b, c: a.astype(TYPES[wide]) * b.astype(TYPES[wide]) + c,
    )  # fmt: skip


def _one(function: Callable[[Array], Array]) -> Callable[[Entry, Instruction], Step]:
    """neg, sqrt, rcp."""

    def make(entry: Entry, instruction: Instruction) -> Step:
        head, *options, kind = instruction.parts
        if head in ("sqrt", "rcp") and options != ["rn"]:
            raise PTXError("a float instruction must say how it rounds")
        return _plain(entry, instruction, (kind,), kind, function)

    return make


def _exp2(entry: Entry, instruction: Instruction) -> Step:
    """Off by as much as the manual allows, so that nobody relies on more."""
    if instruction.parts[1] != "approx" or instruction.parts[-1] != "f32":
        raise PTXError("ex2.approx.f32")

    def off(x: Array) -> Array:
        return (np.exp2(x.astype(np.float64)) * (1 + 2.0**-22)).astype(np.float32)

    return _plain(entry, instruction, ("f32",), "f32", off)


def _shift(entry: Entry, instruction: Instruction) -> Step:
    head, kind = instruction.parts
    bits = _width(kind)

    def shift(value: Array, count: Array) -> Array:
        """An amount of the width or more shifts all out."""
        few = np.minimum(count, bits - 1).astype(value.dtype)
        beyond = count >= bits
        if head == "shl":
            return np.where(beyond, value.dtype.type(0), value << few)
        out = (
            np.where(value < 0, value.dtype.type(-1), value.dtype.type(0))
            if kind[0] == "s"
            else value.dtype.type(0)
        )
        return np.where(beyond, out, value >> few)

    return _plain(entry, instruction, (kind, "u32"), kind, shift)


def _logic(function: Callable[..., Array]) -> Callable[[Entry, Instruction], Step]:
    def make(entry: Entry, instruction: Instruction) -> Step:
        _, kind = instruction.parts
        if kind != "pred" and kind[0] != "b":
            raise PTXError("bits are of type .b or .pred")
        count = len(instruction.operands) - 1
        return _plain(entry, instruction, (kind,) * count, kind, function)

    return make


def _lop3(entry: Entry, instruction: Instruction) -> Step:
    *rest, byte = instruction.operands
    table = int(byte, 0)
    if not 0 <= table < 256:
        raise PTXError("the table of lop3 is a byte")

    def look(a: Array, b: Array, c: Array) -> Array:
        found = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                found = found | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (
                    c if row & 1 else ~c
                )
        return found

    short = Instruction(instruction.text, instruction.parts, tuple(rest))
    return _plain(entry, short, ("b32",) * 3, "b32", look)


def _prmt(entry: Entry, instruction: Instruction) -> Step:
    """Four bytes of two registers, each by a number in a hexadecimal digit of the selector."""
    *rest, selector = instruction.operands
    digits = [int(selector, 0) >> 4 * digit & 15 for digit in range(4)]
    if instruction.parts != ("prmt", "b32") or any(digit > 7 for digit in digits):
        raise PTXError("prmt of what is not written")

    def pick(a: Array, b: Array) -> Array:
        found = np.zeros_like(a)
        for place, digit in enumerate(digits):
            byte = (b if digit > 3 else a) >> a.dtype.type(8 * (digit & 3)) & a.dtype.type(0xFF)
            found = found | byte << a.dtype.type(8 * place)
        return found

    short = Instruction(instruction.text, instruction.parts, tuple(rest))
    return _plain(entry, short, ("b32",) * 2, "b32", pick)


_RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "lo": np.less, "hi": np.greater,
}  # fmt: skip


def _related(relation: str, kind: str) -> Callable[[Array, Array], Array]:
    def compare(a: Array, b: Array) -> Array:
        if kind == "bf16":
            a, b = numbers.from_bfloat(a), numbers.from_bfloat(b)
        if not _is_float(kind):
            return _RELATIONS[relation](a, b)
        odd = np.isnan(a) | np.isnan(b)
        if relation == "num":
            return ~odd
        if relation == "nan":
            return odd
        if relation in ("ltu", "leu", "gtu", "geu", "equ", "neu"):
            return odd | _RELATIONS[relation[:2]](a, b)
        return ~odd & _RELATIONS[relation](a, b)

    return compare


def _setp(entry: Entry, instruction: Instruction) -> Step:
    _, relation, *joined, kind = instruction.parts
    compare = _related(relation, kind)
    if not joined:
        return _plain(entry, instruction, (kind, kind), "pred", compare)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[joined[0]]
    return _plain(
        entry, instruction, (kind, kind, "pred"), "pred", lambda a, b, c: join(compare(a, b), c)
    )


def _selp(entry: Entry, instruction: Instruction) -> Step:
    kind = instruction.parts[1]
    return _plain(entry, instruction, (kind, kind, "pred"), kind, lambda a, b, c: np.where(c, a, b))


def _mov(entry: Entry, instruction: Instruction) -> Step:
    kind, (name, source) = instruction.parts[1], instruction.operands
    if source.startswith("{"):
        half, bits, whole = ("b32", 32, np.uint64) if kind == "b64" else ("b16", 16, np.uint32)
        low, high = (_source(entry, part.strip(), half) for part in source[1:-1].split(","))
        put = _target(entry, name, kind)
        return lambda launch, active: put(
            launch,
            low(launch).astype(whole) | high(launch).astype(whole) << whole(bits),
            active,
        )
    if name.startswith("{"):
        first, second = (_target(entry, part.strip(), "b16") for part in name[1:-1].split(","))
        fetch = _source(entry, source, "b32")

        def split(launch: Launch, active: Array) -> None:
            word = fetch(launch)
            first(launch, word.astype(np.uint16), active)
            second(launch, (word >> np.uint32(16)).astype(np.uint16), active)

        return split
    if source in entry.arrays or (source and source == entry.asked):
        put = _target(entry, name, kind)
        return lambda launch, active: put(
            launch, np.full(launch.count, launch.places[source], TYPES[kind]), active
        )
    if any(source == each for each, of in entry.parameters if of == MAP):
        put = _target(entry, name, kind)
        return lambda launch, active: put(
            launch, np.full(launch.count, launch.passed[source], TYPES[kind]), active
        )
    return _plain(entry, instruction, (kind,), kind, lambda value: value)


def _cvt(entry: Entry, instruction: Instruction) -> Step:
    _, *options, target, source = instruction.parts
    rounding = next((each for each in options if each[0] == "r"), "")
    if set(options) - {rounding}:
        raise PTXError(f"unknown options of cvt: {options}")
    must = (_is_float(target) and not _is_float(source)) or (
        _is_float(source) and not _is_float(target)
    )
    narrows = _is_float(source) and _is_float(target) and _width(target) < _width(source)
    if (must or narrows) != bool(rounding) and source != target:
        raise PTXError("cvt says how it rounds where it has to, and only there")
    _check_bfloat(entry, source, target)
    name, operand = instruction.operands
    fetch = _source(entry, operand, source, loose=True)
    if not operand.startswith("%"):
        raise PTXError("cvt of a number")
    put = _target(entry, name, target, loose=True)
    return lambda launch, active: put(
        launch, numbers.convert(fetch(launch), source, target, rounding), active
    )


def _capability(entry: Entry) -> int:
    return int("".join(letter for letter in entry.target if letter.isdigit()))


def _check_bfloat(entry: Entry, source: str, target: str) -> None:
    """bf16 converts from f32 on sm_80, and with all else from sm_90 on."""
    pair = (source, target)
    number = _capability(entry)
    if "bf16" in pair and (number < 80 or (number < 90 and pair != ("f32", "bf16"))):
        raise PTXError(f"no cvt.{target}.{source} on {entry.target}")


# memory


def _place(entry: Entry, text: str, kind: str) -> Callable[[Launch], Array]:
    """The address in brackets, as 64 bits."""
    inner = text[1:-1]
    base, _, offset = inner.partition("+")
    more = int(offset, 0) if offset else 0
    if base.startswith("%"):
        held = entry.registers.get(base, "")
        if held != kind:
            raise PTXError(f"the address {base} is a {held or 'register that is not declared'}")
        fetch = _source(entry, base, kind)
        return lambda launch: (fetch(launch).astype(np.int64) + more).astype(np.uint64)
    return lambda launch: np.full(launch.count, launch.places[base] + more, np.uint64)


def _access(
    entry: Entry, instruction: Instruction, where: str, what: str
) -> tuple[str, str, list[str], Callable[[Launch], Array]]:
    """Space, type, registers and address of a load or store."""
    _, space, *options, kind = instruction.parts
    count = next((int(each[1:]) for each in options if each[0] == "v" and each[1:].isdigit()), 1)
    names = [part.strip() for part in what.strip("{}").split(",")]
    if len(names) != count or count not in (1, 2, 4) or count * _width(kind) > 128:
        raise PTXError(f"a vector of {len(names)} {kind}")
    return space, kind, names, _place(entry, where, "b32" if space == "shared" else "b64")


def _ld(entry: Entry, instruction: Instruction) -> Step:
    what, where = instruction.operands
    if instruction.parts[1] == "param":
        return _ld_param(entry, instruction)
    space, kind, names, place = _access(entry, instruction, where, what)
    puts = [_target(entry, name, kind, loose=True) for name in names]
    size, raw = _width(kind) // 8, np.dtype(f"u{_width(kind) // 8}")
    is_constant = "nc" in instruction.parts
    if is_constant and space != "global":
        raise PTXError(".nc is of global memory")

    def step(launch: Launch, active: Array) -> None:
        starts = place(launch)[active]
        _whole_vector(starts, size * len(names), instruction.text)
        for number, put in enumerate(puts):
            addresses = starts + np.uint64(number * size)
            found = _read(launch, space, active, addresses, raw, is_constant, instruction.text)
            full = np.zeros(launch.count, raw)
            full[active] = found
            put(launch, full.view(TYPES[kind]), active)

    return step


def _whole_vector(starts: Array, size: int, what: str) -> None:
    if (starts % np.uint64(size)).any():
        raise PTXError(f"{what}: it begins at no multiple of its {size} bytes")


def _read(
    launch: Launch,
    space: str,
    active: Array,
    addresses: Array,
    raw: Any,
    is_constant: bool,
    what: str,
) -> Array:
    size = np.dtype(raw).itemsize
    if space == "global":
        offsets = launch.memory.offsets(addresses, size, what)
        if is_constant:
            launch.constant[offsets] = True
        return launch.memory.read(offsets, raw)
    if space == "shared":
        return launch.shared.read(launch.block[active], launch.lane[active], addresses, raw, what)
    serial = np.flatnonzero(active)
    return launch.local.read(serial, serial, addresses, raw, what)


def _ld_param(entry: Entry, instruction: Instruction) -> Step:
    name, where = instruction.operands
    kind, parameter = instruction.parts[2], where[1:-1]
    known = dict(entry.parameters)
    if known.get(parameter) != kind:
        raise PTXError(f"the parameter {parameter} is {known.get(parameter)}")
    put = _target(entry, name, kind)

    def step(launch: Launch, active: Array) -> None:
        bits = launch.arguments[parameter] & ((1 << _width(kind)) - 1)
        word = np.array([bits], f"u{_width(kind) // 8}").view(TYPES[kind])
        put(launch, np.broadcast_to(word, (launch.count,)), active)

    return step


def _st(entry: Entry, instruction: Instruction) -> Step:
    where, what = instruction.operands
    space, kind, names, place = _access(entry, instruction, where, what)
    fetches = [_source(entry, name, kind, loose=True) for name in names]
    size = _width(kind) // 8

    def step(launch: Launch, active: Array) -> None:
        starts = place(launch)[active]
        _whole_vector(starts, size * len(names), instruction.text)
        for number, fetch in enumerate(fetches):
            values = np.ascontiguousarray(fetch(launch)[active]).view(f"u{size}")
            _write(
                launch, space, active, starts + np.uint64(number * size), values, instruction.text
            )

    return step


def _write(
    launch: Launch, space: str, active: Array, addresses: Array, values: Array, what: str
) -> None:
    if space == "global":
        offsets = launch.memory.offsets(addresses, values.itemsize, what)
        launch.stored[offsets] = True
        _same_where_they_meet(offsets, values, what)
        launch.memory.write(offsets, values)
    elif space == "shared":
        block, lane = launch.block[active], launch.lane[active]
        launch.shared.write(block, lane, addresses, values, what)
    else:
        serial = np.flatnonzero(active)
        launch.local.write(serial, serial, addresses, values, what)


def _same_where_they_meet(offsets: Array, values: Array, what: str) -> None:
    order = np.argsort(offsets, kind="stable")
    near, words = offsets[order], values[order]
    if ((near[1:] == near[:-1]) & (words[1:] != words[:-1])).any():
        raise PTXError(f"{what}: two lanes store different values at one address")


def _red(entry: Entry, instruction: Instruction) -> Step:
    """Lane by lane."""
    _, space, op, *_, kind = instruction.parts
    where, name = instruction.operands
    if space != "global" or op not in ("add", "max"):
        raise PTXError("red of what is not written")
    fetch, place = _source(entry, name, kind), _place(entry, where, "b64")

    def step(launch: Launch, active: Array) -> None:
        offsets = launch.memory.offsets(place(launch)[active], _width(kind) // 8, instruction.text)
        launch.stored[offsets] = True
        with np.errstate(all="ignore"):
            for offset, value in zip(offsets, fetch(launch)[active]):
                at = np.array([offset])
                old = launch.memory.read(at, TYPES[kind])
                if kind == "bf16":
                    made = numbers.to_bfloat(
                        numbers.from_bfloat(old) + numbers.from_bfloat(value[None])
                    )
                else:
                    made = old + value if op == "add" else np.maximum(old, value)
                launch.memory.write(at, made)

    return step


def _cvta(entry: Entry, instruction: Instruction) -> Step:
    if instruction.parts == ("cvta", "param", "u64"):
        base = np.uint64(_PARAMETERS)
        return _plain(entry, instruction, ("u64",), "u64", lambda value: value + base)
    if instruction.parts != ("cvta", "to", "global", "u64"):
        raise PTXError("cvta of what is not written")
    return _plain(entry, instruction, ("u64",), "u64", lambda value: value)


def _mapa(entry: Entry, instruction: Instruction) -> Step:
    """The address in the window of the cluster of what another block has at the same place."""
    if instruction.parts != ("mapa", "shared::cluster", "u32"):
        raise PTXError("mapa of what is not written")
    *operands, rank = instruction.operands
    number = int(rank, 0)
    if not 0 <= number < entry.together:
        raise PTXError(f"block {number} of a cluster of {entry.together}")
    name, source = operands
    fetch, put = _source(entry, source, "u32"), _target(entry, name, "u32")

    def step(launch: Launch, active: Array) -> None:
        address = fetch(launch)
        if (address[active] >= _OF_CLUSTER).any():
            raise PTXError("mapa of an address that is mapped already")
        put(launch, address + np.uint32((number + 1) * _OF_CLUSTER), active)

    return step


def _mma(entry: Entry, instruction: Instruction) -> Step:
    _, sync, aligned, shape, left, right, out, a_kind, b_kind, c_kind = instruction.parts
    if (sync, aligned, left, right) != ("sync", "aligned", "row", "col") or (a_kind, out) != (
        b_kind,
        c_kind,
    ):
        raise PTXError("mma of what is not written")
    known = matrix.shape_of(shape, a_kind, out)
    least = {"tf32": 80, "e4m3": 89, "e5m2": 89}.get(a_kind, 75)
    if _capability(entry) < least or (least == 89 and entry.version < (8, 4)):
        raise PTXError(f"no mma of {a_kind} on {entry.target} in PTX {entry.version}")
    groups = [[part.strip() for part in group[1:-1].split(",")] for group in instruction.operands]
    word = "f32" if out == "f32" else "b32"
    sizes = [len(group) for group in groups]
    if sizes != [
        known.words(out, "c"),
        known.words(a_kind, "a"),
        known.words(a_kind, "b"),
        known.words(out, "c"),
    ]:
        raise PTXError(f"{sizes} registers for {shape}")
    puts = [_target(entry, name, word) for name in groups[0]]
    a, b = ([_source(entry, name, "b32") for name in group] for group in groups[1:3])
    c = [_source(entry, name, word) for name in groups[3]]

    def step(launch: Launch, active: Array) -> None:
        _whole_warps(launch, active)
        parts = [
            np.stack([np.ascontiguousarray(fetch(launch)).view(np.uint32) for fetch in group], -1)
            for group in (a, b, c)
        ]
        made = matrix.multiply(
            known, a_kind, out, *(part.reshape(-1, _WARP, part.shape[-1]) for part in parts)
        )
        for number, put in enumerate(puts):
            put(launch, made[..., number].reshape(-1).view(TYPES[word]), active)

    return step


def _ldmatrix(entry: Entry, instruction: Instruction) -> Step:
    """Threads 0-7 give the rows of the first matrix, 8-15 of the second, and so on."""
    _, sync, aligned, shape, count, *options = instruction.parts
    is_transposed = options[0] == "trans"
    if (sync, aligned, shape) != ("sync", "aligned", "m8n8") or options[-2:] != ["shared", "b16"]:
        raise PTXError("ldmatrix of what is not written")
    names = [part.strip() for part in instruction.operands[0][1:-1].split(",")]
    if count not in ("x1", "x2", "x4") or len(names) != int(count[1:]):
        raise PTXError(f"{len(names)} registers for {count}")
    place = _place(entry, instruction.operands[1], "b32")
    puts = [_target(entry, name, "b32") for name in names]

    def step(launch: Launch, active: Array) -> None:
        _whole_warps(launch, active)
        used = active & (launch.lane % _WARP < 8 * len(names))
        starts = place(launch)[used]
        _whole_vector(starts, 16, instruction.text)
        rows = np.zeros((launch.count, 8), np.uint16)
        for column in range(8):
            addresses = starts + np.uint64(2 * column)
            rows[used, column] = _read(
                launch, "shared", used, addresses, np.dtype("u2"), False, instruction.text
            )
        for number, put in enumerate(puts):
            found = matrix.eighths(rows.reshape(-1, _WARP, 8), number, is_transposed)
            put(launch, found.reshape(-1), active)

    return step


def _cp(entry: Entry, instruction: Instruction) -> Step:
    """`cp.async` of 4, 8 or 16 bytes (`.cg`: 16), `cp.async.wait_all`, and groups: what was begun
    before `cp.async.commit_group`, and `cp.async.wait_group N`, for all but the latest N. A fourth
    operand of a copy is the number of bytes copied; the bytes behind them become zero.
    """
    if instruction.parts[1:4] == ("async", "bulk", "tensor"):
        return _bulk_tensor(entry, instruction)
    if instruction.parts[1:] == ("async", "wait_all"):
        return lambda launch, active: launch.shared.land(
            launch.block[active], launch.lane[active], instruction.text
        )
    if instruction.parts[1:] == ("async", "commit_group"):
        return lambda launch, active: launch.shared.commit(
            launch.block[active], launch.lane[active]
        )
    if instruction.parts[1:] == ("async", "wait_group"):
        (most,) = map(int, instruction.operands)
        return lambda launch, active: launch.shared.land(
            launch.block[active], launch.lane[active], instruction.text, most
        )
    if instruction.parts[1:] not in (
        ("async", "ca", "shared", "global"),
        ("async", "cg", "shared", "global"),
    ):
        raise PTXError("cp of what is not written")
    to, source, count, *part = instruction.operands
    size = int(count)
    if size not in ((16,) if instruction.parts[2] == "cg" else (4, 8, 16)):
        raise PTXError(f"a copy of {size} bytes")
    target, origin = _place(entry, to, "b32"), _place(entry, source, "b64")
    given = _source(entry, part[0], "b32") if part else None

    def step(launch: Launch, active: Array) -> None:
        starts, ends = origin(launch)[active], target(launch)[active]
        _whole_vector(starts, size, instruction.text)
        _whole_vector(ends, size, instruction.text)
        sizes = given(launch)[active] if given is not None else np.full(starts.size, size)
        found = np.zeros((starts.size, size), np.uint8)
        for byte in range(size):
            taken = sizes > byte
            if taken.any():
                offsets = launch.memory.offsets(
                    starts[taken] + np.uint64(byte), 1, instruction.text
                )
                found[taken, byte] = launch.memory.read(offsets, np.dtype("u1"))
        launch.shared.copy(launch.block[active], launch.lane[active], ends, found, instruction.text)

    return step


def _bulk_tensor(entry: Entry, instruction: Instruction) -> Step:
    """A box of a matrix: `[to], [tensor map, {coordinates}], [mbarrier]`; with
    `.multicast::cluster` to the blocks of a cluster whose bits are set in a fourth operand, in each
    to the same place. With `.cta_group::2` the barrier may be that of the other block of the pair.
    """
    rank, to_space, of_space, ends, *more = instruction.parts[4:]
    known = ("shared::cluster", "global", "mbarrier::complete_tx::bytes")
    if (to_space, of_space, ends) != known or rank[-1] != "d":
        raise PTXError("a copy of a box that is not written")
    is_paired = more[-1:] == ["cta_group::2"]
    more = more[: len(more) - is_paired]
    if more not in ([], ["multicast::cluster"]) or len(instruction.operands) != 3 + len(more):
        raise PTXError("a copy of a box that is not written")
    if is_paired and (more or entry.together % 2 or entry.target != "sm_100a"):
        raise PTXError("a copy of a pair of blocks that is not written")
    ranks = [0]
    if more:
        mask = int(instruction.operands[3], 0)
        ranks = [rank for rank in range(16) if mask >> rank & 1]
        if not ranks or ranks[-1] >= entry.together:
            raise PTXError(f"blocks {ranks} of a cluster of {entry.together}")
    if _capability(entry) < 90 or entry.version < (8, 0):
        raise PTXError(f"no copies of boxes on {entry.target} in PTX {entry.version}")
    to, origin, barrier = instruction.operands[:3]
    address, _, begin = origin[1:-1].partition(",")
    names = [part.strip() for part in begin.strip()[1:-1].split(",")]
    if len(names) != int(rank[:-1]):
        raise PTXError(f"{len(names)} coordinates in {rank}")
    fetch, target = _source(entry, address.strip(), "u64"), _place(entry, to, "b32")
    at, begins = _place(entry, barrier, "b32"), [_source(entry, name, "s32") for name in names]

    def step(launch: Launch, active: Array) -> None:
        what = instruction.text
        rows = [each(launch)[active] for each in (fetch, target, at, *begins)]
        maps = {_PARAMETERS + place: name for name, place in launch.passed.items()}
        owners = zip(launch.block[active].tolist(), launch.lane[active].tolist())
        for (block, lane), passed, start, word, *begin in zip(
            owners, *(row.tolist() for row in rows)
        ):
            if passed not in maps:
                raise PTXError(f"{what}: {passed:#x} is no tensor map")
            data = launch.arguments[maps[passed]].to_bytes(tiles.MAP_BYTES, "little")
            matrix = tiles.TensorMap.unpacked(data)
            if len(begin) != len(matrix.sizes):
                raise PTXError(f"{what}: a matrix of {len(matrix.sizes)} dimensions")
            values = matrix.elements(launch.memory, tuple(begin), what)
            inside, addresses = matrix.places(tuple(begin))
            read = launch.memory.offsets(addresses[inside], matrix.itemsize, what)
            launch.constant[read] = True
            first = block - block % entry.together if more else block
            counts, word = _block_of(launch, block, word)
            if counts != block and not (is_paired and counts // 2 == block // 2):
                raise PTXError(f"{what}: bytes count for a barrier of another block")
            for rank in ranks:
                owner = lane if first + rank == block else lane + FAR
                of = counts if is_paired else first + rank
                launch.barriers.copy(first + rank, owner, of, word, start, matrix, values, what)

    return step


def _block_of(launch: Launch, block: int, address: int) -> tuple[int, int]:
    """Which block an address is of, that a lane of `block` has, and where it is there."""
    rank, place = divmod(address, _OF_CLUSTER)
    together = launch.entry.together
    return (block - block % together + rank - 1 if rank else block), place


def _mbarrier(entry: Entry, instruction: Instruction) -> Step:
    """An object of 64 bits in shared memory: made, arrived at, and waited for."""
    parts, operands = instruction.parts[1:], instruction.operands
    if _capability(entry) < 90 or entry.version < (8, 0):
        raise PTXError(f"no such mbarrier on {entry.target} in PTX {entry.version}")
    if parts == ("init", "shared::cta", "b64"):
        where, count = operands
        place, many = _place(entry, where, "b32"), int(count)

        def init(launch: Launch, active: Array) -> None:
            for serial in np.flatnonzero(active):
                block, lane = int(launch.block[serial]), int(launch.lane[serial])
                launch.barriers.init(block, lane, int(place(launch)[serial]), many)

        return init
    if parts == ("arrive", "expect_tx", "shared::cta", "b64"):
        state, where, count = operands
        if state != "_":
            raise PTXError("a state that is not looked at is _")
        place, size = _place(entry, where, "b32"), _source(entry, count, "u32")

        def arrive(launch: Launch, active: Array) -> None:
            for serial in np.flatnonzero(active):
                block, lane = int(launch.block[serial]), int(launch.lane[serial])
                nbytes = int(size(launch)[serial])
                launch.barriers.arrive(block, lane, int(place(launch)[serial]), nbytes)

        return arrive
    if parts != ("try_wait", "parity", "shared::cta", "b64"):
        raise PTXError("mbarrier of what is not written")
    name, where, odd = operands
    place, parity, put = (
        _place(entry, where, "b32"),
        _source(entry, odd, "u32"),
        _target(entry, name, "pred"),
    )

    def wait(launch: Launch, active: Array) -> None:
        keys = np.stack([launch.block, place(launch).astype(np.int64), parity(launch)], -1)
        for block, address, wanted in np.unique(keys[active], axis=0).tolist():
            if wanted not in (0, 1):
                raise PTXError(f"a phase of parity {wanted}")
            own = active & (keys == (block, address, wanted)).all(1)
            lanes = launch.lane[own]
            ended = launch.barriers.wait(block, lanes, address, wanted, partial(_come, launch))
            if launch.tensor is not None:
                launch.tensor.know(block, ended, lanes)
                _free_reads(launch, block, ended, lanes)
        put(launch, np.ones(launch.count, bool), active)

    return wait


def _elect(entry: Entry, instruction: Instruction) -> Step:
    """One lane of a warp, whose members all come here."""
    name, members = instruction.operands
    state, _, predicate = name.partition("|")
    if instruction.parts != ("elect", "sync") or state != "_" or int(members, 0) != 0xFFFFFFFF:
        raise PTXError("elect of what is not written")
    put = _target(entry, predicate, "pred")

    def step(launch: Launch, active: Array) -> None:
        _whole_warps(launch, active, "a lane of the members of an election is not there")
        put(launch, launch.lane % _WARP == tiles.ELECTED, active)

    return step


def _has_groups(entry: Entry) -> bool:
    return any(each.parts[0] == "wgmma" for each in entry.instructions)


def _fence(entry: Entry, instruction: Instruction) -> Step:
    """What a lane has written to shared memory is there for units that read it by themselves."""
    if instruction.parts == ("fence", "mbarrier_init", "release", "cluster"):
        return lambda launch, active: launch.barriers.publish(
            launch.block[active], launch.lane[active]
        )
    if instruction.parts not in (
        ("fence", "proxy", "async"),
        ("fence", "proxy", "async", "shared::cta"),
    ):
        raise PTXError("fence of what is not written")

    def step(launch: Launch, active: Array) -> None:
        block, lane = launch.block[active], launch.lane[active]
        launch.shared.publish(block, lane)
        launch.barriers.fence(block, lane)

    return step


def _wgmma(entry: Entry, instruction: Instruction) -> Step:
    if entry.target != "sm_90a":
        raise PTXError(f"no wgmma on {entry.target}")
    _, what, sync, aligned, *rest = instruction.parts
    if (sync, aligned) != ("sync", "aligned"):
        raise PTXError("wgmma of what is not written")
    if what == "fence":
        return _group_fence
    if what == "commit_group":
        return _commit_group
    if what == "wait_group":
        (most,) = map(int, instruction.operands)
        return lambda launch, active: _wait_group(launch, active, most)
    if what != "mma_async":
        raise PTXError("wgmma of what is not written")
    shape = wgmma.shape_of(rest[0], tuple(rest[1:]))
    group, *operands = instruction.operands
    names = [part.strip() for part in group[1:-1].split(",")]
    if len(names) != shape.n // 2 or any(entry.registers.get(each) != shape.word for each in names):
        raise PTXError(f"{len(names)} registers for {rest[0]}")
    if len(set(names)) != len(names):
        raise PTXError("one register twice")
    held: tuple[str, ...] = ()
    if operands[0].startswith("{"):
        held = tuple(part.strip() for part in operands.pop(0)[1:-1].split(","))
    count = 1 if held else 2
    constants = shape.constants(count)
    if len(operands) != count + len(constants) or any(
        given not in allowed for given, allowed in zip(operands[count:], constants)
    ):
        raise PTXError("wgmma that scales")
    is_added = operands[count] == "1"
    words = [_source(entry, text, "b32") for text in held]
    descriptors = [_source(entry, text, "b64") for text in operands[:count]]
    across = [False] * count
    if shape.itemsize == 2:
        across = [text == "1" for text in operands[-count:]]

    def step(launch: Launch, active: Array) -> None:
        _whole_groups(launch, active)
        assert launch.unfenced is not None
        for name in (*names, *held):
            if name in launch.unfenced:
                raise PTXError(f"{name} was written since the last wgmma.fence")
        registers = [np.ascontiguousarray(fetch(launch)).view(np.uint32) for fetch in words]
        if not is_added:
            for name in names:
                launch.set(name, np.zeros(launch.count, np.uint32), active)
        first = np.flatnonzero(active)[:: wgmma.GROUP]
        found = [np.ascontiguousarray(fetch(launch)).view(np.uint64) for fetch in descriptors]
        made = np.stack([launch.registers[name] for name in names], -1)
        for start in first:
            lanes = np.arange(start, start + wgmma.GROUP)
            sides = [shape.left([each[lanes] for each in registers])] if held else []
            for bits, size, is_across in zip(found, (64, shape.n)[-count:], across):
                if (bits[lanes] != bits[start]).any():
                    raise PTXError("lanes of one warpgroup have different descriptors")
                found_at = wgmma.decode(int(bits[start]))
                places = found_at.addresses(size, is_across, shape.itemsize)
                found_there = _read_by_unit(
                    launch, lanes, places, shape.itemsize, instruction.text, tuple(names), held
                )
                sides.append(found_there)
            made[lanes] = shape.multiply(*sides, made[lanes].view(np.uint32)).view(made.dtype)
        for number, name in enumerate(names):
            launch.set(name, made[..., number].copy(), active)
            launch.busy[name] = launch.busy.get(name, np.zeros(launch.count, bool)) | active

    return step


def _read_by_unit(
    launch: Launch,
    lanes: Array,
    places: Array,
    size: int,
    what: str,
    names: tuple[str, ...],
    taken: tuple[str, ...],
) -> Array:
    """The bits at addresses, read for a warpgroup until it waits: each element by one lane."""
    addresses = places.reshape(-1).astype(np.uint64)
    readers = np.resize(lanes, addresses.size)
    block, lane = launch.block[readers], launch.lane[readers]
    launch.shared.published(block, addresses, size, what)
    found = launch.shared.read(block, lane, addresses, np.dtype(f"u{size}"), what)
    launch.reads.append(_UnitRead(readers, addresses, found, what, names, taken))
    return found.reshape(places.shape)


def _whole_groups(launch: Launch, active: Array) -> None:
    groups = active.reshape(-1, wgmma.GROUP) if launch.lanes % wgmma.GROUP == 0 else None
    if groups is None or (groups.any(1) & ~groups.all(1)).any():
        raise PTXError("wgmma takes whole groups of four warps")


def _group_fence(launch: Launch, active: Array) -> None:
    _whole_groups(launch, active)
    if not active.all():
        raise PTXError("warpgroups that are at different fences")
    assert launch.unfenced is not None
    launch.unfenced.clear()


def _commit_group(launch: Launch, active: Array) -> None:
    """What was begun since the last such instruction is a group."""
    _whole_groups(launch, active)
    for each in launch.reads:
        each.closed += bool(active[each.readers[0]])


def _wait_group(launch: Launch, active: Array, most: int) -> None:
    """The results of all groups but the latest are there, and what was read for them may change
    from now on.
    """
    _whole_groups(launch, active)
    left = []
    for each in launch.reads:
        if not active[each.readers].all() or each.closed <= most:
            left.append(each)
            continue
        block, lane = launch.block[each.readers], launch.lane[each.readers]
        now = launch.shared.read(block, lane, each.addresses, each.values.dtype, each.what)
        if (now != each.values).any():
            raise PTXError("what a matrix unit reads changes before it was waited for")
    launch.reads = left
    launch.busy = {}
    for each in left:
        for name in each.names:
            lanes = launch.busy.setdefault(name, np.zeros(launch.count, bool))
            lanes[each.readers] = True


def _tensor(launch: Launch) -> tensor_memory.TensorMemory:
    assert launch.tensor is not None
    return launch.tensor


def _warps(launch: Launch, active: Array) -> list[tuple[int, Array, int]]:
    """The block of each warp, its lanes, and the first of these in the launch."""
    _whole_warps(launch, active, "a lane of a warp is not there")
    first = np.flatnonzero(active)[::_WARP]
    return [(int(launch.block[at]), launch.lane[at : at + _WARP], int(at)) for at in first]


def _one_lane(launch: Launch, active: Array, what: str, blocks: int) -> list[tuple[int, int, int]]:
    """The block of each active lane, its number there, and in the launch."""
    serial = np.flatnonzero(active)
    if np.unique(launch.block[serial] // blocks).size != serial.size:
        raise PTXError(f"{what} by more than one lane of a block" + " or pair" * (blocks > 1))
    return [(int(launch.block[at]), int(launch.lane[at]), int(at)) for at in serial]


def _come(launch: Launch, products: list[tensor_memory.Product]) -> None:
    """Products are there: what was read for them may not have changed until now."""
    for each in products:
        for of, addresses, values in each.reads if not each.is_done else ():
            now = _read_by_block(launch, each.block, each.lane, of, addresses, values.dtype)
            if (now != values).any():
                raise PTXError("what a matrix unit reads changes before it was waited for")
    _tensor(launch).done(products)


def _read_by_block(
    launch: Launch, block: int, lane: int, of: int, addresses: Array, kind: Any
) -> Array:
    """What the unit that a lane of `block` has begun reads in the shared memory of block `of`."""
    many, what = addresses.size, "tcgen05.mma"
    places, readers = np.full(many, of), np.full(many, lane + (FAR if of != block else 0))
    launch.shared.published(places, addresses, np.dtype(kind).itemsize, what)
    home = np.full(many, block * MOST_LANES + lane)
    return launch.shared.read(places, readers, addresses, kind, what, home)


def _free_reads(
    launch: Launch, block: int, products: list[tensor_memory.Product], lanes: Array
) -> None:
    """Lanes of a block have waited for products that another block has begun: what these read in
    its shared memory may change from now on, by the hand of one that waited.
    """
    for each in products:
        if each.block == block or block in each.freed:
            continue
        each.freed.add(block)
        for of, addresses, values in each.reads:
            if of == block:
                launch.shared.free_reads(of, addresses, values.itemsize, each.lane + FAR, lanes)


def _tcgen05(entry: Entry, instruction: Instruction) -> Step:
    if entry.target != "sm_100a" or entry.version < (8, 6):
        raise PTXError(f"no tcgen05 on {entry.target} in PTX {entry.version}")
    parts, operands = instruction.parts[1:], instruction.operands
    maker = _OF_TENSOR_MEMORY.get(parts[0])
    if maker is None:
        raise PTXError("tcgen05 of what is not written")
    return maker(entry, instruction, parts, operands)


Parts = tuple[str, ...]
_GROUPS = {"cta_group::1": 1, "cta_group::2": 2}


def _one_size_of_group(entry: Entry) -> None:
    """All instructions of a kernel name the same group of blocks ("CTA Pair"): pairs of a cluster
    whose ranks differ in the last bit.
    """
    tcgen05 = (each.parts for each in entry.instructions if each.parts[0] == "tcgen05")
    found = {part for parts in tcgen05 for part in parts if part.startswith("cta_group")}
    if len(found) > 1:
        raise PTXError(f"{entry.name}: instructions for different groups of blocks")
    if "cta_group::2" in found and entry.together % 2:
        raise PTXError(f"{entry.name}: no pairs of blocks in a cluster of {entry.together}")


def _both(launch: Launch, active: Array, parts: Parts) -> list[tuple[int, Array, int]]:
    """Warps as in `_warps`; of both blocks of a pair, one each, as they wait for each other."""
    warps = _warps(launch, active)
    blocks = [block for block, _, _ in warps]
    count = _GROUPS[parts[1]]
    if len(set(blocks)) != len(blocks) or any(block ^ count - 1 not in blocks for block in blocks):
        raise PTXError(f"tcgen05.{parts[0]}: a warp of one block waits for ever for the other")
    return warps


def _alloc(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    rest = ("sync", "aligned", "shared::cta", "b32")
    if parts[1] not in _GROUPS or parts[2:] != rest:
        raise PTXError("tcgen05.alloc of what is not written")
    place, count = _place(entry, operands[0], "b32"), _source(entry, operands[1], "u32")

    def step(launch: Launch, active: Array) -> None:
        for block, lanes, at in _both(launch, active, parts):
            found = _tensor(launch).allocate(block, lanes, int(count(launch)[at]))
            launch.shared.write(
                np.array([block]), lanes[:1], place(launch)[at : at + 1],
                np.array([found], np.uint32), instruction.text,
            )  # fmt: skip

    return step


def _give_up(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    if parts[1] not in _GROUPS or parts[2:] != ("sync", "aligned") or operands:
        raise PTXError("tcgen05.relinquish_alloc_permit of what is not written")

    def step(launch: Launch, active: Array) -> None:
        for block, _, _ in _warps(launch, active):
            _tensor(launch).give_up(block)

    return step


def _dealloc(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    if parts[1] not in _GROUPS or parts[2:] != ("sync", "aligned", "b32"):
        raise PTXError("tcgen05.dealloc of what is not written")
    address, count = (_source(entry, text, "b32") for text in operands)

    def step(launch: Launch, active: Array) -> None:
        for block, lanes, at in _both(launch, active, parts):
            first, many = int(address(launch)[at]), int(count(launch)[at])
            _tensor(launch).free(block, lanes, first, many)

    return step


def _tensor_mma(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    """Of a pair, each block has half of the rows of the left operand and of the results, and half
    of the columns of the right operand ("Matrix Shape" and "Data Path Layout Organization").
    """
    _, group, kind = parts
    if group not in _GROUPS or not kind.startswith("kind::") or len(operands) != 5:
        raise PTXError("tcgen05.mma of what is not written")
    count = _GROUPS[group]
    place = _place(entry, operands[0], "b32")
    descriptors = [_source(entry, text, "b64") for text in operands[1:3]]
    bits, adds = _source(entry, operands[3], "b32"), _source(entry, operands[4], "pred")

    def step(launch: Launch, active: Array) -> None:
        for block, lane, at in _one_lane(launch, active, "tcgen05.mma", count):
            number = int(bits(launch)[at])
            shape = tensor_memory.instruction(number, kind.removeprefix("kind::"), count)
            words = [int(np.ascontiguousarray(each(launch)).view(np.uint64)[at])
                     for each in descriptors]  # fmt: skip
            blocks = range(block - block % count, block - block % count + count)
            sides, reads = [], []
            for word, size, is_across in zip(words, (shape.m, shape.n), shape.across):
                matrix = tensor_memory.decode(word)
                found = matrix.addresses(size // count, is_across, shape.itemsize)
                addresses, kind_of = found.reshape(-1).astype(np.uint64), f"u{shape.itemsize}"
                halves = []
                for of in blocks:
                    values = _read_by_block(launch, block, lane, of, addresses, np.dtype(kind_of))
                    reads.append((of, addresses, values))
                    halves.append(values.reshape(found.shape))
                sides.append(halves)
            _tensor(launch).multiply(
                blocks, block, lane, int(place(launch)[at]), shape, sides[0],
                np.concatenate(sides[1]), reads, adds=bool(adds(launch)[at]),
            )  # fmt: skip

    return step


def _commit(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    """With `.multicast::cluster` a phase of the barrier at the same place of each block ends whose
    bit is set in the second operand, a register of 16 bits.
    """
    _, group, *rest = parts
    known = ["mbarrier::arrive::one", "shared::cluster", "b64"]
    more = operands[1:]
    if more:
        known.insert(2, "multicast::cluster")
    if group not in _GROUPS or rest != known or len(more) > 1:
        raise PTXError("tcgen05.commit of what is not written")
    place = _place(entry, operands[0], "b32")
    mask = _source(entry, more[0], "b16") if more else None

    def step(launch: Launch, active: Array) -> None:
        for block, lane, at in _one_lane(launch, active, "tcgen05.commit", _GROUPS[group]):
            products = _tensor(launch).committed(block, lane)
            first, bits = block - block % entry.together, int(mask(launch)[at]) if mask else 0
            ranks = [rank for rank in range(16) if bits >> rank & 1]
            if mask and (not ranks or ranks[-1] >= entry.together):
                raise PTXError(f"blocks {ranks} of a cluster of {entry.together}")
            for of in [first + rank for rank in ranks] or [block]:
                owner = lane if of == block else lane + FAR
                launch.barriers.commit(of, owner, int(place(launch)[at]), products)

    return step


def _tensor_ld(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    _, sync, aligned, shape, times, kind = parts
    count = int(times.removeprefix("x"))
    if (sync, aligned, kind) != ("sync", "aligned", "b32") or count not in (1, 2, 4, 8, 16, 32, 64):
        raise PTXError("tcgen05.ld of what is not written")
    names = [part.strip() for part in operands[0][1:-1].split(",")]
    if len(names) != tensor_memory.fragment(shape, count)[0].shape[1] or len(names) > 128:
        raise PTXError(f"{len(names)} registers for {shape}.{times}")
    place, puts = _place(entry, operands[1], "b32"), [_target(entry, n, "b32") for n in names]

    def step(launch: Launch, active: Array) -> None:
        made = np.zeros((launch.count, len(names)), np.uint32)
        for block, lanes, at in _warps(launch, active):
            own = place(launch)[at : at + _WARP]
            if (own != own[0]).any():
                raise PTXError("lanes of one warp load from different addresses")
            made[at : at + _WARP] = _tensor(launch).load(block, lanes, int(own[0]), shape, count)
        for number, (name, put) in enumerate(zip(names, puts)):
            put(launch, made[:, number].copy(), active)
            launch.loading[name] = launch.loading.get(name, np.zeros(launch.count, bool)) | active

    return step


def _wait_for_loads(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    if parts != ("wait::ld", "sync", "aligned") or operands:
        raise PTXError("tcgen05.wait of what is not written")

    def step(launch: Launch, active: Array) -> None:
        for block, lanes, _ in _warps(launch, active):
            _tensor(launch).waited(block, lanes)
        launch.loading = {
            name: left for name, lanes in launch.loading.items() if (left := lanes & ~active).any()
        }

    return step


def _tensor_fence(entry: Entry, instruction: Instruction, parts: Parts, operands: Parts) -> Step:
    if len(parts) > 1 or operands:
        raise PTXError("tcgen05.fence of what is not written")
    is_before = parts[0] == "fence::before_thread_sync"

    def step(launch: Launch, active: Array) -> None:
        tensor = _tensor(launch)
        for block in np.unique(launch.block[active]).tolist():
            lanes = launch.lane[active & (launch.block == block)]
            (tensor.fence_before if is_before else tensor.fence_after)(block, lanes)

    return step


_OF_TENSOR_MEMORY: dict[str, Callable[[Entry, Instruction, Parts, Parts], Step]] = {
    "alloc": _alloc,
    "relinquish_alloc_permit": _give_up,
    "dealloc": _dealloc,
    "mma": _tensor_mma,
    "commit": _commit,
    "ld": _tensor_ld,
    "wait::ld": _wait_for_loads,
    "fence::before_thread_sync": _tensor_fence,
    "fence::after_thread_sync": _tensor_fence,
}


def _shfl(entry: Entry, instruction: Instruction) -> Step:
    """PTX ISA, "shfl.sync": in mode bfly, lane i reads lane i ^ b of its segment, in mode idx lane
    b of it. The third operand holds the clamp in bits 0 to 4 and the segment mask in bits 8 to 12.
    """
    if instruction.parts not in (("shfl", "sync", "bfly", "b32"), ("shfl", "sync", "idx", "b32")):
        raise PTXError("shfl of what is not written")
    name, source, *rest = instruction.operands
    mask, clamp, members = (int(text, 0) for text in rest)
    if members != 0xFFFFFFFF or not 0 <= mask < _WARP:
        raise PTXError("a shuffle of what is no whole warp")
    fetch, put = _source(entry, source, "b32"), _target(entry, name, "b32")
    lanes = np.arange(_WARP)
    segment, limit = clamp >> 8 & 31, clamp & 31
    most = (lanes & segment) | (limit & ~segment)
    wanted = lanes ^ mask if instruction.parts[2] == "bfly" else lanes & segment | mask & ~segment
    other = np.where(wanted <= most, wanted, lanes)

    def step(launch: Launch, active: Array) -> None:
        _whole_warps(launch, active, "a lane of the members of a shuffle is not there")
        values = np.ascontiguousarray(fetch(launch)).reshape(-1, _WARP)[:, other]
        put(launch, values.reshape(-1), active)

    return step


def _whole_warps(
    launch: Launch, active: Array, what: str = "a matrix instruction takes whole warps"
) -> None:
    warps = active.reshape(-1, _WARP) if launch.lanes % _WARP == 0 else None
    if warps is None or (warps.any(1) & ~warps.all(1)).any():
        raise PTXError(what)


_MAKERS: dict[str, Callable[[Entry, Instruction], Step]] = {
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "rem": _binary(np.remainder),
    "min": _binary(np.minimum),
    "max": _binary(np.maximum),
    "fma": _fma,
    "mad": _mad,
    "neg": _one(np.negative),
    "sqrt": _one(np.sqrt),
    "rcp": _one(lambda x: x.dtype.type(1) / x),
    "ex2": _exp2,
    "shl": _shift,
    "shr": _shift,
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _logic(np.invert),
    "lop3": _lop3,
    "prmt": _prmt,
    "setp": _setp,
    "selp": _selp,
    "mov": _mov,
    "cvt": _cvt,
    "ld": _ld,
    "st": _st,
    "red": _red,
    "cvta": _cvta,
    "mapa": _mapa,
    "mma": _mma,
    "ldmatrix": _ldmatrix,
    "cp": _cp,
    "mbarrier": _mbarrier,
    "elect": _elect,
    "shfl": _shfl,
    "fence": _fence,
    "wgmma": _wgmma,
    "tcgen05": _tcgen05,
}
