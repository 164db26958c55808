"""Description of a captured function, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilegrad.capture.entry import Entry
from tilegrad.tensor.handle.size_arguments import show_shape

__all__ = ["explain"]

_MOST = 40


def explain(name: str, entries: Sequence[Entry]) -> str:
    """The captures of the function `name`, the last used first."""
    if not entries:
        return f"jit of {name}: nothing captured yet (the second call captures)"
    texts = [f"jit of {name}: {len(entries)} captured"]
    for number, entry in enumerate(entries):
        texts.append(f"capture {number}:")
        texts.extend(f"  {line}" for line in _lines(entry))
    return "\n".join(texts)


def _lines(entry: Entry) -> list[str]:
    steps = entry.program.steps
    devices = ", ".join(dict.fromkeys(step.device for step in steps))
    lines = [f"kernels: {len(steps)} on {devices}"]
    lines += _listed(
        [f"{count} x {step}" for step, count in Counter(step.name for step in steps).items()]
    )
    lines.append(f"inputs: {len(entry.inputs)}")
    texts = []
    for each in entry.inputs:
        kind = "argument" if each.is_argument else "state"
        written = ", written in place" if each.is_written else ""
        unused = (
            ""
            if each.kind == "memory"
            else ", a constant"
            if each.kind == "graph"
            else ", value not used"
        )
        what = f"{show_shape(each.shape)} {each.signature.dtype.name} on {each.signature.device}"
        texts.append(f"{each.label}: {what}, {kind}{written}{unused}")
    lines += _listed(texts)
    guards = [
        check for check in entry.guards.checks if check.test not in ("tensor", "call", "symbol")
    ]
    lines.append(f"guards: {len(guards)}")
    lines += _listed([check.show() for check in guards])
    if entry.symbols:
        lines.append(f"variables: {', '.join(str(key.name) for key in entry.values)}")
    if entry.vanishing:
        lines.append(f"changed while captured, and no more since: {', '.join(entry.vanishing)}")
    lines.append(f"draws: {entry.draws.words} random words at each replay")
    packs = entry.program.packs
    if packs:
        size = entry.program.packed_bytes
        lines.append(f"packed beforehand: {len(packs)} operands, {size} bytes of copies")
    lines.append(f"memory: {entry.nbytes} bytes held for temporaries, results and copies")
    return lines


def _listed(texts: list[str]) -> list[str]:
    shown = [f"  {text}" for text in texts[:_MOST]]
    return shown if len(texts) <= _MOST else [*shown, f"  and {len(texts) - _MOST} more"]
