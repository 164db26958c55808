"""A linear program as Python source, one function that a single lane runs: what the emulator
executes.

    bind    called once per launch with the memories and variables; it returns `run`
    run     called once per lane with its position. It is a generator if lanes must meet: it
            yields a number at a barrier, and its operands at a matrix unit, whose result it is
            then sent

Above them stand the facts that a launch needs, as constants. A vector is one Python variable per
lane, so that picking and joining lanes costs nothing; the text of values is python_values.py.
Memory is reached through objects that check every access (runtime.simt).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below, loads_of
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.render.inline import loads_inside
from tilegrad.render.python_values import (
    Lanes,
    cast_text,
    elements,
    expression,
    lane_names,
    literal,
    spread,
    table,
    unit_text,
    variable_name,
    widened,
)
from tilegrad.render.tile_maps import blocks_together, maps_of
from tilegrad.target import MatrixUnit

__all__ = ["render_python"]

# Python refuses to nest more loops than this.
_MAX_LOOPS = 20

# Python's operators on integers, for positive divisors.
_WHOLE = {Ops.FLOORDIV: "//", Ops.IDIV: "//", Ops.FLOORMOD: "%", Ops.MOD: "%"}


def render_python(name: str, program: Sequence[UOp]) -> str:
    """The source of the program `name`."""
    return _Writer(name, program).text()


class _Writer:
    """The state of one rendering: the lines so far, and for each node the names of its lanes."""

    def __init__(self, name: str, program: Sequence[UOp]):
        self.name = name
        self.program = program
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[UOp, Lanes] = {}
        self.variables_set: set[str] = set()
        self.units: list[MatrixUnit] = []
        # Results of units that have to be waited for.
        self.late: dict[UOp, str] = {}
        # Loads that a matrix unit does by itself.
        self.of_units = {
            load
            for node in program
            if node.op is Ops.DESCRIPTOR
            for load in loads_of(node.src[0])
            if load.src[0] is node.src[1]
        }
        # Loads that a copy does, if its gate is open.
        inside = loads_inside(program)
        copied = [node.src[2] for node in program if node.op is Ops.COPY_ASYNC]
        self.of_copies = {load for load in copied if load in inside}
        self.barriers = {self.root(node.src[0]) for node in self.nodes(Ops.ARRIVE)}
        self.maps = [matrix for _, matrix in maps_of(program)]
        self.blocks = blocks_together(program)
        self.meets = False
        # How many lanes exchange values among themselves.
        self.group = 1

    def text(self) -> str:
        for position, node in enumerate(self.program):
            handler = _HANDLERS.get(node.op, _Writer.compute if node.op.is_alu else None)
            if handler is None:
                raise CompileError(
                    f"render.python: a {node.op} node in a program", kernel=self.name
                )
            handler(self, node, f"v{position}")
        return "\n".join([*self.facts(), *self.head(), *self.lines, "    return run", ""])

    # the parts around the body

    def nodes(self, op: Ops) -> list[UOp]:
        return [node for node in self.program if node.op is op]

    def facts(self) -> list[str]:
        stored = {self.root(node.src[0]) for node in self.nodes(Ops.STORE)}
        loaded = {self.root(node.src[0]) for node in self.nodes(Ops.LOAD)}
        loaded |= {node.src[2] for node in self.nodes(Ops.COPY_TILE)}
        loaded |= {self.root(node.src[0]) for node in self.nodes(Ops.STORE) if node.arg is not None}
        buffers = [
            (node.arg, pointer_of(node).base.scalar, elements(node), node in stored, node in loaded)
            for node in self.nodes(Ops.DEFINE_GLOBAL)
        ]
        shared = [
            (node.arg, pointer_of(node).base.scalar, elements(node)) for node in self.shared()
        ]
        barriers = [
            (node.arg, elements(node))
            for node in self.nodes(Ops.DEFINE_LOCAL)
            if node in self.barriers
        ]
        lanes = max([self.group, *(unit.lanes for unit in self.units)])
        return [
            f"# {self.name}",
            f"BUFFERS = {table(sorted(buffers, key=lambda row: row[0]))}",
            f"SHARED = {table(shared)}",
            f"BARRIERS = {table(barriers)}",
            f"VARIABLES = {table([node.arg for node in self.nodes(Ops.DEFINE_VAR)])}",
            f"POSITIONS = {table([node.name for node in self.nodes(Ops.SPECIAL)])}",
            f"MEETS = {self.meets}",
            f"GROUP = {lanes}",
            f"BLOCKS = {self.blocks}",
            f"OVERLAPS = {any(_overlaps(node) for node in self.nodes(Ops.SINK))}",
            f"MAPS = {table(self.maps)}",
            f"UNITS = {table([unit_text(unit) for unit in self.units], raw=True)}",
            "",
        ]

    def head(self) -> list[str]:
        slots = sorted(node.arg for node in self.nodes(Ops.DEFINE_GLOBAL))
        bound = [f"data{slot}" for slot in slots]
        bound += [f"shared{node.arg}" for node in self.shared()]
        bound += [f"shared{n.arg}" for n in self.nodes(Ops.DEFINE_LOCAL) if n in self.barriers]
        bound += [variable_name(node) for node in self.nodes(Ops.DEFINE_VAR)]
        positions = [node.name for node in self.nodes(Ops.SPECIAL)]
        return [
            "",
            f"def bind({', '.join(bound)}):",
            f"    def run({', '.join(positions)}):",
            *([] if self.lines else ["        pass"]),
        ]

    def shared(self) -> list[UOp]:
        arrays = (n for n in self.nodes(Ops.DEFINE_LOCAL) if n not in self.barriers)
        return [n for n in arrays if pointer_of(n).space is AddressSpace.SHARED]

    # writing

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def lanes(self, node: UOp) -> Lanes:
        return self.names[node]

    def set(self, node: UOp, name: str, texts: Sequence[str]) -> None:
        """Give each lane of `node` a variable of its own."""
        made = self.names[node] = lane_names(name, len(texts))
        for variable, text in zip(made, texts, strict=True):
            self.line(f"{variable} = {text}")

    def share(self, node: UOp, name: str, lanes: Lanes) -> None:
        """Let `node` stand for existing names, or for a copy where an accumulator may change
        under it.
        """
        if any(lane in self.variables_set for lane in lanes):
            self.set(node, name, lanes)
        else:
            self.names[node] = lanes

    @staticmethod
    def root(node: UOp) -> UOp:
        return below(node, (Ops.AFTER, Ops.ASSIGN))

    # a method for each kind of node; `name` may be the name of its result

    def nothing(self, node: UOp, name: str) -> None:
        self.names[node] = ()

    def leaf(self, node: UOp, name: str) -> None:
        self.names[node] = (_LEAVES[node.op](node),) * node.dtype.lanes

    def local(self, node: UOp, name: str) -> None:
        pointer = pointer_of(node)
        if pointer.space is AddressSpace.SHARED:
            self.names[node] = (f"shared{node.arg}",)
            return
        made = f"scratch{node.arg}"
        self.line(f"{made} = scratch({made!r}, {pointer.base.scalar!r}, {elements(node)})")
        self.names[node] = (made,)

    def accumulator(self, node: UOp, name: str) -> None:
        self.set(node, name, widened(self.lanes(node.src[0]), node.dtype.lanes))
        self.variables_set.update(self.names[node])

    def assign(self, node: UOp, name: str) -> None:
        target = self.lanes(self.root(node))
        values = self.lanes(node.src[1])
        self.line(f"{', '.join(target)} = {', '.join(values)}")
        self.names[node] = target

    def after(self, node: UOp, name: str) -> None:
        self.share(node, name, self.lanes(node.src[0]))

    def loop(self, node: UOp, name: str) -> None:
        self.line(f"for {name} in range({self.lanes(node.src[0])[0]}):")
        self.depth += 1
        if self.depth > _MAX_LOOPS:
            raise CompileError(f"render.python: {self.depth} nested loops", kernel=self.name)
        self.names[node] = (name,)

    def end(self, node: UOp, name: str) -> None:
        if self.lines[-1].lstrip().startswith("for "):
            self.line("pass")
        self.depth -= 1
        self.names[node] = ()

    def barrier(self, node: UOp, name: str) -> None:
        self.meets = True
        self.line(f"yield {name[1:]}")
        self.names[node] = ()

    def vectorize(self, node: UOp, name: str) -> None:
        self.share(node, name, tuple(lane for source in node.src for lane in self.lanes(source)))

    def pick(self, node: UOp, name: str) -> None:
        lanes = self.lanes(node.src[0])
        self.share(node, name, tuple(lanes[lane] for lane in node.arg))

    def load(self, node: UOp, name: str) -> None:
        if node not in self.of_copies:
            self.read(node, name)

    def read(self, node: UOp, name: str) -> None:
        source, index, *rest = node.src
        memory, base = self.lanes(source)[0], pointer_of(self.root(source)).base
        indices, width = self.lanes(index), node.dtype.lanes
        starts = spread(indices, width, base.lanes)
        other, gate = (widened(self.lanes(each), width) for each in rest) if rest else ((), ())
        if node in self.of_units:
            made = self.names[node] = lane_names(name, width)
            self.line(f"{', '.join(made)}, = {memory}.read_for_unit({starts[0]}, {width})")
            return
        if len(indices) == 1 and width > 1 and len(set(gate)) <= 1:
            closed = f" if {gate[0]} else ({', '.join(other)},)" if gate else ""
            made = self.names[node] = lane_names(name, width)
            self.line(f"{', '.join(made)} = {memory}.read_vector({starts[0]}, {width}){closed}")
            return
        texts = [f"{memory}.read({start})" for start in starts]
        if gate:
            rows = zip(texts, gate, other, strict=True)
            texts = [f"{text} if {on} else {otherwise}" for text, on, otherwise in rows]
        self.set(node, name, texts)

    def store(self, node: UOp, name: str) -> None:
        target, index, value = node.src[:3]
        memory, base = self.lanes(target)[0], pointer_of(self.root(target)).base
        values = self.lanes(value)
        width = len(values)
        indices = spread(self.lanes(index), width, base.lanes)
        gates = [f"if {on}: " for on in self.lanes(node.gate)] if node.is_gated else [""]
        self.names[node] = ()
        is_whole = width > 1 and len(self.lanes(index)) == 1 and len(set(gates)) == 1
        if node.arg is None and is_whole:
            self.line(f"{gates[0]}{memory}.write_vector({indices[0]}, ({', '.join(values)},))")
            return
        for start, text, on in zip(indices, values, widened(tuple(gates), width), strict=True):
            call = f"write({start}, {text})"
            if node.arg is not None:
                new = expression(node.arg, ("old", text), value.dtype, value.dtype, None)
                call = f"combine({start}, lambda old: {new})"
            self.line(f"{on}{memory}.{call}")

    def compute(self, node: UOp, name: str) -> None:
        width = node.dtype.lanes
        rows = [widened(self.lanes(source), width) for source in node.src]
        bounds = node.bounds if node.dtype.is_int else None
        kind, op = node.src[-1].dtype, node.op
        if op in _WHOLE and kind.is_int and node.src[1].vmin > 0:
            # A positive divisor: Python's own operators, which agree with C's from zero up.
            if op in (Ops.FLOORDIV, Ops.FLOORMOD) or node.src[0].vmin >= 0:
                self.set(node, name, [f"{x} {_WHOLE[op]} {y}" for x, y in zip(*rows, strict=True)])
                return
        texts = [expression(op, row, node.dtype, kind, bounds) for row in zip(*rows, strict=True)]
        self.set(node, name, texts)

    def cast(self, node: UOp, name: str) -> None:
        source, target = node.src[0].dtype.scalar, node.dtype.scalar
        texts = [cast_text(text, source, target, node.src[0]) for text in self.lanes(node.src[0])]
        if any(text not in self.lanes(node.src[0]) for text in texts):
            self.set(node, name, texts)
        else:
            self.share(node, name, tuple(texts))

    def bitcast(self, node: UOp, name: str) -> None:
        values = self.lanes(node.src[0])
        source, target = node.src[0].dtype.scalar, node.dtype.scalar
        made = self.names[node] = lane_names(name, node.dtype.lanes)
        given = f"({', '.join(values)},)"
        self.line(f"{', '.join(made)}, = bitcast({given}, {source.name!r}, {target.name!r})")

    def shuffle(self, node: UOp, name: str) -> None:
        """A tuple that begins with the mask in place of a unit's number says what it is."""
        self.meets = True
        self.group = max(self.group, 1 << int(node.arg).bit_length())
        (value,) = self.lanes(node.src[0])
        self.line(f"{name} = yield {name[1:]}, None, {node.arg}, {value}")
        self.names[node] = (name,)

    def matrix(self, node: UOp, name: str) -> None:
        unit: MatrixUnit = node.arg
        if unit not in self.units:
            self.units.append(unit)
        self.names[node] = lane_names(name, node.dtype.lanes)
        made = ", ".join(self.names[node])
        given = ", ".join(
            self.late.get(source) or f"({', '.join(self.lanes(source))},)" for source in node.src
        )
        number = self.units.index(unit)
        if unit.lanes == 1:
            self.line(f"({made},), = multiply(UNITS[{number}], [({given})])")
        elif not unit.synchronous:
            self.meets = True
            self.late[node] = name
            self.names[node] = tuple(f"{name}[{lane}]" for lane in range(node.dtype.lanes))
            self.line(f"{name} = yield {name[1:]}, {number}, {given}")
        else:
            self.meets = True
            self.line(f"{made}, = yield {name[1:]}, {number}, {given}")

    def copy_async(self, node: UOp, name: str) -> None:
        target, index, value, *gate = node.src
        if gate:
            self.line(f"if {self.lanes(gate[0])[0]}:")
            self.depth += 1
        if value in self.of_copies:
            self.read(value, name)
        text = f"copy({self.lanes(index)[0]}, ({', '.join(self.lanes(value))},))"
        self.line(f"{self.lanes(target)[0]}.{text}")
        self.depth -= len(gate)
        self.names[node] = ()

    def wait(self, node: UOp, name: str) -> None:
        if node.dtype is not dtypes.void:
            for memory in self.shared():
                self.line(f"shared{memory.arg}.end_reads({node.arg or 0})")
            if node.arg:
                self.late[node] = self.late[node.src[0]]
                self.names[node] = self.lanes(node.src[0])
                return
            self.names[node] = lane_names(name, node.dtype.lanes)
            self.line(f"{', '.join(self.names[node])}, = {self.late[node.src[0]]}.values")
            return
        for memory in self.shared():
            self.line(f"shared{memory.arg}.land({node.arg or 0})")
        self.names[node] = ()

    def copy_tile(self, node: UOp, name: str) -> None:
        memory, index, source, array, number, gate, *coordinates = (
            self.lanes(each)[0] for each in node.src
        )
        box = f"{source}.read_box(MAPS[{self.maps.index(node.arg)}], ({', '.join(coordinates)},))"
        nbytes = math.prod(node.arg.box) * pointer_of(node.src[2]).base.nbytes
        way = "share" if node.arg.blocks > 1 else "copy"
        call = f"{array}.{way}({number}, {memory}, {index}, {box}, {nbytes})"
        self.line(f"if {gate}: {call}")
        self.names[node] = ()

    def arrive(self, node: UOp, name: str) -> None:
        array, number, gate = (self.lanes(each)[0] for each in node.src)
        self.line(f"if {gate}: {array}.arrive({number}, {node.arg})")
        self.names[node] = ()

    def elect(self, node: UOp, name: str) -> None:
        self.set(node, name, [f"{self.lanes(node.src[0])[0]} == 0"])

    def wait_tile(self, node: UOp, name: str) -> None:
        array, number, parity = (self.lanes(each)[0] for each in node.src)
        if self.blocks > 1:
            # Lanes of other blocks copy too: all go on together, in no order.
            self.meets = True
            self.line(f"yield ~{name[1:]}")
        self.line(f"{array}.wait({number}, {parity})")
        self.names[node] = ()

    def descriptor(self, node: UOp, name: str) -> None:
        """The lane's share."""
        self.names[node] = self.lanes(node.src[0])

    def fragment(self, node: UOp, name: str) -> None:
        self.meets = True
        self.names[node] = lane_names(name, node.dtype.lanes)
        made, rows = (", ".join(self.lanes(each)) for each in (node, node.src[0]))
        self.line(f"{made}, = yield {name[1:]}, {node.arg!r}, ({rows},)")


_LEAVES: dict[Ops, Callable[[UOp], str]] = {
    Ops.CONST: lambda node: literal(node.arg, node.dtype),
    Ops.DEFINE_GLOBAL: lambda node: f"data{node.arg}",
    Ops.DEFINE_VAR: lambda node: variable_name(node),
    Ops.SPECIAL: lambda node: str(node.name),
}
_HANDLERS: dict[Ops, Callable[[_Writer, UOp, str], None]] = {
    **dict.fromkeys(_LEAVES, _Writer.leaf),
    Ops.DEFINE_LOCAL: _Writer.local,
    Ops.DEFINE_ACC: _Writer.accumulator,
    Ops.RANGE: _Writer.loop,
    Ops.END: _Writer.end,
    Ops.LOAD: _Writer.load,
    Ops.STORE: _Writer.store,
    Ops.CAST: _Writer.cast,
    Ops.BITCAST: _Writer.bitcast,
    Ops.VECTORIZE: _Writer.vectorize,
    Ops.GEP: _Writer.pick,
    Ops.ASSIGN: _Writer.assign,
    Ops.AFTER: _Writer.after,
    Ops.BARRIER: _Writer.barrier,
    Ops.SHUFFLE: _Writer.shuffle,
    Ops.WMMA: _Writer.matrix,
    Ops.FRAGMENT: _Writer.fragment,
    Ops.COPY_ASYNC: _Writer.copy_async,
    Ops.WAIT: _Writer.wait,
    Ops.COPY_TILE: _Writer.copy_tile,
    Ops.ARRIVE: _Writer.arrive,
    Ops.ELECT: _Writer.elect,
    Ops.WAIT_TILE: _Writer.wait_tile,
    Ops.DESCRIPTOR: _Writer.descriptor,
    Ops.SINK: _Writer.nothing,
}


def _overlaps(sink: UOp) -> bool:
    return isinstance(sink.arg, KernelInfo) and sink.arg.overlaps
