"""Graphs as text, and text as graphs.

There are three formats. `show` is constructor text, nested, the format of `print`. `dump` has one
node per line and suits deep graphs and programs. `parse` reads both back to the identical node; it
knows a closed table of names and runs no code. `render` is infix text for people:
`((ridx0*2)+ridx1)`. Nothing here recurses in Python.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.base.errors import DataError
from tilegrad.ir.args import BufferArg, KernelInfo, RandArg, Ties, TileMap
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.placement import GroupBufferArg, Placement
from tilegrad.ir.uop import UOp, toposort
from tilegrad.ir.walks import toposort_over

__all__ = ["dump", "parse", "parse_program", "register", "render"]


# render: infix text

_CHAINS = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR})
_INFIX = frozenset({
    Ops.SUB, Ops.FDIV, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.SHL,
    Ops.SHR,
})  # fmt: skip
# The symbol for C's division, which Python lacks.
_CALLED = {Ops.IDIV: "idiv", Ops.MOD: "imod"}
_LEAVES: dict[Ops, Callable[[UOp], str]] = {
    Ops.CONST: lambda u: str(u.arg),
    Ops.DEFINE_VAR: lambda u: str(u.name),
    Ops.SPECIAL: lambda u: str(u.name),
    Ops.RANGE: lambda u: f"ridx{u.number}",
    Ops.DEFINE_GLOBAL: lambda u: f"data{u.arg}",
    Ops.DEFINE_LOCAL: lambda u: f"local{u.arg}",
    Ops.DEFINE_ACC: lambda u: f"acc{u.arg}",
}
# A shared expression with fewer nodes than this is repeated, a larger one gets a name.
_REPEATED = 64


def render(root: UOp, names: Mapping[UOp, str] | None = None) -> str:
    """`root` as infix text; `names` replace nodes.

    Sums and products of integers are written without inner parentheses. A long expression that
    occurs twice is named once, where it occurs first; text without such names is a Python
    expression.
    """
    known = dict(names or {})
    labelled = _shared_expressions(root, known)
    out: list[str] = []
    work: list[UOp | str] = [root]
    while work:
        item = work.pop()
        if isinstance(item, str):
            out.append(item)
        elif item in known:
            out.append(known[item])
        elif item in labelled:
            known[item] = f"t{len(known) - len(names or ())}"
            work += [")", *reversed(_tokens(item, labelled)), f"({known[item]}:="]
        else:
            work.extend(reversed(_tokens(item, labelled)))
    return "".join(out)


def _shared_expressions(root: UOp, known: Mapping[UOp, str]) -> set[UOp]:
    """The nodes that `render` names: used more than once, and long."""

    sizes: dict[UOp, int] = {}
    uses: dict[UOp, int] = {}
    for node in toposort([root], stop=lambda node: node in known or node.op in _LEAVES):
        src = () if node in known or node.op in _LEAVES else node.src
        sizes[node] = min(1 + sum([sizes[source] for source in src]), 1 << 30)
        for source in src:
            uses[source] = uses.get(source, 0) + 1
    return {node for node, count in uses.items() if count > 1 and sizes[node] > _REPEATED}


def _tokens(node: UOp, labelled: set[UOp]) -> list[UOp | str]:
    """The text of one node, with its sources still to be rendered."""
    op, src = node.op, node.src
    if op in _LEAVES:
        return [_LEAVES[op](node)]
    is_bool = node.dtype.kind == "bool"
    if op is Ops.XOR and is_bool and src[1].op is Ops.CONST and src[1].arg is True:
        return ["(not ", src[0], ")"]
    if op in _CHAINS:
        words = {Ops.AND: " and ", Ops.OR: " or ", Ops.XOR: "!="} if is_bool else {}
        return ["(", *_joined(_operands(node, labelled), words.get(op, op.definition.symbol)), ")"]
    if op in _INFIX:
        return ["(", src[0], op.definition.symbol, src[1], ")"]
    if op is Ops.NEG:
        return ["(-", src[0], ")"]
    if op is Ops.RECIP:
        return ["(1/", src[0], ")"]
    if op is Ops.WHERE:
        return ["(", src[1], " if ", src[0], " else ", src[2], ")"]
    if op is Ops.MULACC:
        return ["((", src[0], "*", src[1], ")+", src[2], ")"]
    if op is Ops.LOAD:
        element: list[UOp | str] = [src[0], "[", src[1], "]"]
        return ["(", *element, " if ", src[3], " else ", src[2], ")"] if len(src) == 4 else element
    if op is Ops.STORE:
        sign = f" {op.definition.symbol}" if node.arg is None else f" {node.arg.definition.symbol}"
        gate: list[UOp | str] = [" if ", src[3]] if len(src) == 4 else []
        return [src[0], "[", src[1], "]", f"{sign}= ", src[2], *gate]
    if op is Ops.AFTER:
        return [src[0]]
    if op is Ops.CAST or op is Ops.BITCAST:
        name = repr(node.dtype).removeprefix("dtypes.")
        return [name if op is Ops.CAST else f"bitcast[{name}]", "(", src[0], ")"]
    if op is Ops.GEP:
        return [src[0], f"[{', '.join(str(lane) for lane in node.arg)}]"]
    if op is Ops.VECTORIZE:
        return ["[", *_joined(list(src), ", "), "]"]
    name = _CALLED.get(op) or (op.definition.symbol if op.is_alu else op.name.lower())
    argument = [] if node.arg is None else [f"{node.arg!r}"]
    operands = _joined(list(src), ", ")
    return [name, "(", *operands, *([", "] if operands and argument else []), *argument, ")"]


def _joined(tokens: Sequence[UOp | str], separator: str) -> list[UOp | str]:
    out: list[UOp | str] = []
    for token in tokens:
        out += [separator, token]
    return out[1:]


def _operands(node: UOp, labelled: set[UOp]) -> list[UOp | str]:
    """The operands of a chain. Float sums are ordered, so their right side is one operand."""
    found: list[UOp | str] = []
    stack = list(reversed(node.src))
    first = True
    while stack:
        inner = stack.pop()
        is_inner = inner.op is node.op and inner.dtype is node.dtype and inner not in labelled
        if is_inner and (first or not node.dtype.is_float):
            stack.extend(reversed(inner.src))
        else:
            found.append(inner)
            first = False
    return found


# dump: one node per line

# Begins the names of nodes that are no part of a program.
_APART = "%a"


def dump(graph: UOp | Sequence[UOp], names: dict[UOp, str] | None = None) -> str:
    """`%2 = ADD(%0, %1) : float`: a line per node, sources first; a program keeps its order. Nodes
    of a symbolic size, which only an argument names, come before it, as `%a0`.

    With `names`, nodes that have one there keep it, and others get the next number and are added:
    so a node has one name in the texts of several graphs.
    """
    nodes = list(_ordered(graph)) if isinstance(graph, UOp) else list(graph)
    if names is not None:
        for node in nodes:
            for each in (
                *(apart for size in _nodes_in(node.arg) for apart in _ordered(size)),
                node,
            ):
                names.setdefault(each, f"%{len(names)}")
        return "\n".join([_line(node, names) for node in nodes])
    names = {node: f"%{number}" for number, node in enumerate(nodes)}
    lines: list[str] = []
    made: set[UOp] = set()
    for number, node in enumerate(nodes):
        for size in _nodes_in(node.arg):
            for each in _ordered(size):
                if each not in made:
                    names[each] = f"{_APART}{len(lines)}"
                    lines.append(_line(each, names))
                    made.add(each)
        names[node] = f"%{number}"
        lines.append(_line(node, names))
        made.add(node)
    return "\n".join(lines)


def _line(node: UOp, names: Mapping[UOp, str]) -> str:
    sources = f"({', '.join([names[source] for source in node.src])})" if node.src else ""
    argument = "" if node.arg is None else f" arg={_argument(node.arg, names)}"
    dtype = repr(node.dtype).removeprefix("dtypes.")
    return f"{names[node]} = {node.op.name}{sources} : {dtype}{argument}"


def _argument(value: Any, names: Mapping[UOp, str]) -> str:
    if isinstance(value, UOp):
        return names[value]
    if value.__class__ is tuple:
        inside = ", ".join([_argument(item, names) for item in value])
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, BufferArg):
        slot, device, size = (_argument(field, names) for field in value)
        return f"BufferArg(slot={slot}, device={device}, size={size})"
    if isinstance(value, RandArg):
        rest = f"seed={value.seed}, offset={value.offset}, device={value.device!r}"
        return f"RandArg(shape={_argument(value.shape, names)}, {rest})"
    return repr(value)


def _nodes_in(value: Any) -> Iterator[UOp]:
    """The nodes in an argument: symbolic sizes."""
    if isinstance(value, UOp):
        yield value
    elif isinstance(value, RandArg):
        yield from _nodes_in(value.shape)
    elif value.__class__ is tuple or isinstance(value, BufferArg):
        for item in value:
            yield from _nodes_in(item)


def _ordered(root: UOp) -> dict[UOp, None]:
    """The nodes that `root` needs, also in its arguments, sources first."""
    return toposort_over([root], lambda node: [*node.src, *_nodes_in(node.arg)])


# parse


class _Constructor:
    """A name that may be called."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function


class _NameSpace:
    """A name with a closed set of attributes."""

    def __init__(self, members: Mapping[str, Any]):
        self.members = members


def _uop(op: Any, dtype: Any = dtypes.void, src: Any = (), arg: Any = None) -> UOp:
    is_sources = isinstance(src, tuple) and all(isinstance(source, UOp) for source in src)
    if not (isinstance(op, Ops) and isinstance(dtype, DType) and is_sources):
        raise TypeError("UOp takes an op, a dtype, nodes and an argument")
    return UOp(op, dtype, src, arg)


_TABLE: dict[str, Any] = {
    "True": True,
    "False": False,
    "None": None,
    "inf": math.inf,
    "nan": math.nan,
    "UOp": _Constructor(_uop),
    "dtypes": _NameSpace(
        {name: value for name, value in vars(dtypes).items() if isinstance(value, DType)}
    ),
}


def register(name: str, constructor: Callable[..., Any]) -> None:
    """Let `parse` read `name(...)` by calling `constructor`; `name.MEMBER` of an enum."""
    if hasattr(constructor, "__members__"):
        _TABLE[name] = _NameSpace(constructor.__members__)
    else:
        _TABLE[name] = _Constructor(constructor)


for _known in (
    Ops, Axis, Ties, AddressSpace, BufferArg, GroupBufferArg, RandArg, KernelInfo, Placement,
    TileMap,
):  # fmt: skip
    register(_known.__name__, _known)

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<reference>%\w+)
    | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    | (?P<sign>:=|[-().,=])
    | (?P<end>\Z))""",
    re.VERBOSE,
)


class _Frame:
    """A bracket not yet closed: the arguments of `call`, or a tuple where it is None."""

    __slots__ = ("call", "has_comma", "items", "key", "keywords", "label", "negative")

    def __init__(self, call: Any, label: str | None, negative: bool):
        self.call, self.label, self.negative = call, label, negative
        self.items: list[Any] = []
        self.keywords: dict[str, Any] = {}
        self.key: str | None = None
        self.has_comma = False


class _ExpressionReader:
    """A reader of one expression of calls, tuples, numbers, strings and known names, on its own
    stack.
    """

    def __init__(self, text: str, references: Mapping[str, UOp]):
        self.text, self.references = text, references
        self.at = 0
        self.frames: list[_Frame] = []
        # Names given by `:=`; an argument's text is a scope of its own.
        self.scopes: list[dict[str, Any]] = [{}]

    def fail(self, fact: str) -> DataError:
        line = self.text.count("\n", 0, self.at) + 1
        return DataError(
            f"parse: {fact}", line=line, near=repr(self.text[max(0, self.at - 30) : self.at + 30])
        )

    def token(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            raise self.fail("unknown text")
        self.at = match.end()
        return match.lastgroup, match[match.lastgroup]

    def accept(self, sign: str) -> bool:
        """Skip `sign` if it comes next."""
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["sign"] != sign:
            return False
        self.at = match.end()
        return True

    def read(self) -> Any:
        label: str | None = None
        negative = False
        while True:
            # A value begins here, or a bracket closes after a comma.
            kind, text = self.token()
            if kind == "sign" and text == "-" and not negative:
                negative = True
                continue
            if kind == "sign" and text == "(":
                self.frames.append(_Frame(None, label, negative))
                label, negative = None, False
                continue
            if kind == "sign" and text == ")" and self.frames and label is None and not negative:
                value, label, negative = self.close()
            elif kind == "name" and label is None and self.accept(":="):
                label = text
                continue
            elif kind == "name" and label is None and self.frames and self.accept("="):
                self.open_keyword(text)
                continue
            else:
                value = self.leaf(kind, text)
            # A value ends here: attributes, calls, then a comma or closing brackets.
            while True:
                kind, text = self.token()
                if kind == "sign" and text == ".":
                    value = self.attribute(value)
                elif kind == "sign" and text == "(":
                    if not isinstance(value, _Constructor):
                        raise self.fail("only a known constructor may be called")
                    self.frames.append(_Frame(value, label, negative))
                    label, negative = None, False
                    break
                elif kind == "end" and not self.frames:
                    return self.finish(value, label, negative)
                elif kind == "sign" and text in ",)" and self.frames:
                    self.add(self.finish(value, label, negative))
                    label, negative = None, False
                    if text == ",":
                        self.frames[-1].has_comma = True
                        break
                    value, label, negative = self.close()
                else:
                    raise self.fail(f"unexpected {text!r}" if text else "the text ends early")

    def leaf(self, kind: str, text: str) -> Any:
        if kind == "number":
            return float(text) if re.search("[.eE]", text) else int(text)
        if kind == "string":
            return ast.literal_eval(text)
        table = self.references if kind == "reference" else self.scopes[-1]
        if kind in ("reference", "name"):
            if text in table:
                return table[text]
            if text in _TABLE:
                return _TABLE[text]
            raise self.fail(f"unknown name {text!r}")
        raise self.fail(f"unexpected {text!r}" if text else "the text ends early")

    def attribute(self, value: Any) -> Any:
        kind, name = self.token()
        if kind == "name" and isinstance(value, _NameSpace) and name in value.members:
            return value.members[name]
        if isinstance(value, DType) and name in ("vec", "ptr"):
            return _Constructor(getattr(value, name))
        raise self.fail(f"unknown attribute {name!r}")

    def open_keyword(self, key: str) -> None:
        frame = self.frames[-1]
        if frame.call is None or frame.key is not None or key in frame.keywords:
            raise self.fail(f"unexpected {key}=")
        frame.key = key
        if key == "arg":
            self.scopes.append({})

    def add(self, value: Any) -> None:
        frame = self.frames[-1]
        if frame.key is None:
            frame.items.append(value)
            return
        if frame.key == "arg":
            self.scopes.pop()
        frame.keywords[frame.key] = value
        frame.key = None

    def close(self) -> tuple[Any, str | None, bool]:
        """The value of the innermost bracket, and the label and sign before it."""
        frame = self.frames.pop()
        if frame.key is not None:
            raise self.fail(f"{frame.key}= has no value")
        if frame.call is None:
            value = tuple(frame.items) if frame.has_comma or not frame.items else frame.items[0]
            return value, frame.label, frame.negative
        try:
            value = frame.call.function(*frame.items, **frame.keywords)
        except Exception as error:
            # Whatever a constructor refuses of a text that somebody has edited.
            raise self.fail(f"these arguments do not fit: {error}") from error
        return value, frame.label, frame.negative

    def finish(self, value: Any, label: str | None, negative: bool) -> Any:
        if negative:
            if value.__class__ not in (int, float):
                raise self.fail("a minus stands before no number")
            value = -value
        if isinstance(value, (_Constructor, _NameSpace)):
            raise self.fail("a name alone is no value")
        if label is not None:
            self.scopes[-1][label] = value
        return value


def parse(text: str) -> UOp:
    """The node of a text by `show` or `dump`.

    Raises DataError for other text.
    """
    if text.lstrip().startswith(("%", "#")):
        nodes = parse_program(text)
        if not nodes:
            raise DataError("parse: the text holds no node")
        return nodes[-1]
    found = _ExpressionReader(text, {}).read()
    if not isinstance(found, UOp):
        raise DataError(f"parse: the text is no node but {found!r}")
    return found


_LINE = re.compile(r"(%\w+) = (\w+)(?:\(([^()]*)\))? : (.*?)(?: arg=(.*))?", re.DOTALL)


def parse_program(text: str) -> list[UOp]:
    """The nodes of a `dump`, in order; empty lines and those that begin with `#` are skipped.

    Raises DataError if a line is no node, or uses one that no line above it makes.
    """
    known: dict[str, UOp] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None or found[2] not in Ops.__members__:
            raise DataError(f"parse: line {number} is no node", line=line.strip()[:200])
        name, op, sources, dtype, argument = found.groups()
        src = [source.strip() for source in sources.split(",")] if sources else []
        absent = [source for source in src if source not in known]
        if absent:
            raise DataError(
                f"parse: line {number} uses {absent[0]} before it is made", line=line.strip()[:200]
            )
        known[name] = _uop(
            Ops[op],
            _ExpressionReader(f"dtypes.{dtype}", {}).read(),
            tuple(known[source] for source in src),
            None if argument is None else _ExpressionReader(argument, known).read(),
        )
    return [node for name, node in known.items() if not name.startswith(_APART)]
