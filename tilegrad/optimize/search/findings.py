"""Results of searches, as text: a file that one can read, review, edit and ship.

One kernel a line, fields between tabs: key, name, the Opts as they are written, microseconds of the
default and of these Opts. A line for a key stands for all earlier ones; lines that begin with `#`
are comments. Reading runs nothing: Opts are read as data.

    1b0c...  r_512_512_512  [Opt(op=OptOps.UPCAST, axis=1, arg=32)]  1520.4  1311.0
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilegrad.base.errors import DataError
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side
from tilegrad.optimize.search.search import Opts

__all__ = ["Finding", "line_of", "parse_findings", "parse_opts"]


@dataclass(frozen=True)
class Finding:
    """A kernel's best Opts: under which key, its name, and the seconds of the default's and of
    these.
    """

    key: str
    name: str
    opts: Opts
    default_seconds: float
    seconds: float


def line_of(finding: Finding) -> str:
    """The line of a finding, without its end.

    >>> line_of(Finding("ab12", "E_16", (Opt(OptOps.UPCAST, 0, 4),), 2e-6, 1e-6))
    'ab12\\tE_16\\t[Opt(op=OptOps.UPCAST, axis=0, arg=4)]\\t2.000\\t1.000'
    """
    times = f"{finding.default_seconds * 1e6:.3f}\t{finding.seconds * 1e6:.3f}"
    return f"{finding.key}\t{finding.name}\t{list(finding.opts)!r}\t{times}"


def parse_opts(text: str) -> Opts:
    """The Opts that `text` lists.

    Raises DataError if it is no list of Opts.

    >>> parse_opts("[Opt(op=OptOps.STAGE, axis=-1, arg=(2, (1, 0)))]")
    (Opt(op=OptOps.STAGE, axis=-1, arg=(2, (1, 0))),)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.List):
            raise ValueError("no list")
        return tuple(_opt(node) for node in tree.elts)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise DataError(f"findings: no list of Opts: {text[:80]!r}", reason=str(error)) from None


def _opt(node: ast.expr) -> Opt:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args):
        raise ValueError(f"{ast.unparse(node)[:40]} is no Opt by keywords")
    fields: dict[str, Any] = {}
    for keyword in node.keywords:
        value = keyword.value
        if keyword.arg == "op" and isinstance(value, ast.Attribute):
            fields["op"] = OptOps[value.attr]
        elif keyword.arg in ("axis", "arg"):
            fields[keyword.arg] = _argument(value)
        else:
            raise ValueError(f"{keyword.arg} is no field of an Opt")
    if node.func.id != "Opt" or "op" not in fields:
        raise ValueError(f"{node.func.id} is no Opt")
    return Opt(**fields)


def _argument(node: ast.expr) -> Any:
    """An axis, an amount, or an argument of STAGE."""
    if isinstance(node, ast.Tuple):
        return tuple(map(_operand, node.elts))
    return _operand(node)


def _operand(node: ast.expr) -> Any:
    """An operand of a reduction, or a literal."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "ReduceOperand":
        (side,) = node.args
        if not isinstance(side, ast.Attribute):
            raise ValueError(f"{ast.unparse(side)} is no side of a reduction")
        more = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        return ReduceOperand(Side[side.attr], **more)
    return ast.literal_eval(node)


def parse_findings(lines: Iterable[str]) -> dict[str, Finding]:
    """The findings of a file by key.

    Raises DataError with the line's number where one does not read.
    """
    found: dict[str, Finding] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        fields = text.split("\t")
        try:
            key, name, opts, default, best = fields
            found[key] = Finding(
                key, name, parse_opts(opts), float(default) / 1e6, float(best) / 1e6
            )
        except (ValueError, DataError) as error:
            raise DataError(
                f"findings: line {number} does not read: {text[:60]!r}",
                fields="key, name, Opts, microseconds of the default, microseconds; tabs between",
                reason=str(error).splitlines()[0],
            ) from None
    return found
