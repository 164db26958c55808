"""A call of a captured function, compiled to one flat function: checks, memory, launches, results.

    def serve(a, k):
        switches = current_config()
        if switches is not modes.switches and not modes.admits(switches): return OTHER
        ...                                             # the checks of checker.py
        for c0 in P0:
            t0 = c0.tensor
            if getrefcount(t0) == 3 and ...: break      # a result without other references
        else:
            c0 = O0.another(slots)
            ...
        if call is None: program.run(switches)
        else: call(program.address)
        ...
        return t0

A small kernel takes less time than a function of Python, so none is called on the way of a usual
call; rare cases are left to `Entry`, `Output` and `Replay`.
"""

from __future__ import annotations

from sys import getrefcount
from time import perf_counter
from weakref import getweakrefcount

from tilegrad.base.config import current_config, gradients, training
from tilegrad.base.dtype import dtypes
from tilegrad.base.flat_code import row_of
from tilegrad.base.references import ONE_ATTRIBUTE_AND_LOCAL
from tilegrad.base.trace import GlobalCounters
from tilegrad.capture.checker import CheckerSource
from tilegrad.capture.entry import Entry, Mismatch, Server, SetGradient, SetMemory
from tilegrad.capture.modes import others
from tilegrad.capture.objects import is_own_code
from tilegrad.capture.results import Build, InputTensor, Items, MadeTensor, Output, Same
from tilegrad.device.registry import Device
from tilegrad.engine.realize.realize import exclusive
from tilegrad.engine.run.leaf_memory import stale_slots
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.aliases import Storage
from tilegrad.tensor.handle.living import with_gradient

__all__ = ["compile_call"]

_OTHER = Mismatch(is_of_modes=True)


# The fields that are reset in a tensor that is given again: its last user may have set them.
_RESET = {"_gradient": "None", "_previous": "()", "_is_shared": "False", "_alias": "None"}


class _CallSource(CheckerSource):
    """The text of one call, and the values that it names."""

    def __init__(self, entry: Entry):
        super().__init__(entry.guards)
        self.entry = entry
        self.names |= {
            "current_config": current_config, "training": training.get, "others": others,
            "gradients": gradients.get, "Device": Device, "dtypes": dtypes, "Buffer": Buffer,
            "counters": GlobalCounters, "getrefcount": getrefcount, "clock": perf_counter,
            "getweakrefcount": getweakrefcount, "stale": stale_slots, "Storage": Storage,
            "with_gradient": with_gradient,
            "exclusive": exclusive(), "entry": entry, "modes": entry.modes, "OTHER": _OTHER,
            "program": entry.program, "seen": entry.seen, "slots": entry.slots,
        }  # fmt: skip

    def check_modes(self) -> None:
        """Leave where a call is made in other modes."""
        shown = ["training()", "gradients()", "Device._default", "Device.renewals"]
        *values, default_float = self.entry.modes.values[:5]
        wrong = [
            f"{text} is not {self.name(value)}" if "()" in text else f"{text} != {value!r}"
            for text, value in zip(shown, values, strict=True)
        ]
        wrong.append(f"dtypes.default_float is not {self.name(default_float)}")
        others = self.entry.modes.values[5:]
        wrong.append(f"len(others) != {len(others)}")
        wrong += [
            f"others[{number}]() != {self.name(value)}" for number, value in enumerate(others)
        ]
        self.lines += [
            "switches = current_config()",
            "if switches is not modes.switches and not modes.admits(switches): return OTHER",
            f"if {' or '.join(wrong)}: return OTHER",
        ]

    def bind(self, given: str) -> None:
        """Take the memory and the values that this call brings."""
        entry = self.entry
        self.lines += [
            "if changed:",
            f"    missed = entry.bind({given}, changed)",
            "    if missed is not None: return missed",
        ]
        if self.symbols or entry.symbolic:
            self.lines += [
                f"missed = entry.bind_variables({given}, {row_of(self.symbols)})",
                "if missed is not None: return missed",
            ]
        if entry.leftovers:
            self.lines.append("if entry.leftovers: entry.give_up_leftovers()")
        if entry.draws.words:
            self.lines.append("entry.draw()")
        for number in entry.cleared:
            self.lines.append(f"{self.inputs[number]}.{self._gradient_of(number)} = None")

    def run(self, given: str) -> None:
        """Choose memory for the results, and launch."""
        lines = self.lines
        if self.entry.written:
            self.lines = [f"entry.open({given})"]
        for number, output in enumerate(self.entry.outputs):
            self._take(number, output)
        self._launch()
        if self.entry.written:
            lines += ["with exclusive:", *[f"    {line}" for line in self.lines]]
            self.lines = lines

    def _take(self, number: int, output: Output) -> None:
        cell, tensor, name = f"c{number}", f"t{self._tensor_of(number)}", f"O{number}"
        self.names[name], self.names[f"P{number}"] = output, output.pool
        if self._is_plain(number):
            free = [
                f"getrefcount({tensor}) == {ONE_ATTRIBUTE_AND_LOCAL}",
                # One that waits has no node.
                f"{tensor}._call is None",
                f"{tensor}._node is {cell}.node",
                f"getrefcount({cell}.leaf) == {cell}.leaf_count",
                f"{cell}.slot not in stale",
                f"{cell}.buffer._holder is None",
                f"getweakrefcount({tensor}) == 1",
            ]
            if output.signatures[0].kind.__dictoffset__:
                # Users may have left something there.
                free.append(f"not {tensor}.__dict__")
            if output.signatures[0].steps:
                free.append(f"getrefcount({cell}.node) == {cell}.node_count")
            self.lines += [
                f"for {cell} in P{number}:",
                f"    {tensor} = {cell}.tensor",
                f"    if {' and '.join(free)}: break",
                "else:",
                # One more who holds a tensor that might be free.
                f"    {tensor} = None",
                f"    {cell} = {name}.another(slots)",
                f"    {tensor} = {cell}.tensor",
            ]
        else:
            self.lines.append(f"{cell} = {name}.take(slots)")
        self.lines += [
            f"b = {cell}.buffer",
            "if b.is_watched or b.is_counted or b._holder is not None: b.before_write()",
            f"if {cell} is not {name}.current: entry.write({number}, {cell})",
        ]

    def _tensor_of(self, output: int) -> int:
        """The number of the first tensor that stands on an output."""
        return next(n for n, (_, number, _) in enumerate(self.entry.made) if number == output)

    def _is_plain(self, output: int) -> bool:
        shared = {number for group in self.entry.aliases for number, _ in group}
        return self.entry.outputs[output].is_plain and self._tensor_of(output) not in shared

    def _launch(self) -> None:
        steps = self.entry.program.steps
        if self.entry.program.packs:
            self.lines.append("program.run(switches)")
            return
        kernels = [step.kernel for step in steps if step.kernel is not None]
        count = "" if len(steps) == 1 else f", {len(steps)}"
        self.lines += [
            "call = program.call",
            "if call is None or not modes.is_plain or program.moves != Buffer.moves:",
            "    program.run(switches)",
            "else:",
            "    start = clock()",
            f"    call(program.address{count})",
            "    counters.time_sum_s += clock() - start",
            f"    counters.kernel_count += {len(kernels)}",
            f"    counters.global_ops += {sum(kernel.ops for kernel in kernels)}",
            f"    counters.global_mem += {sum(kernel.mem for kernel in kernels)}",
        ]

    def make(self) -> None:
        """Make the tensors that the call gives or leaves."""
        entry = self.entry
        for made, (signature, output, number) in enumerate(entry.made):
            if self._is_plain(output):
                values = {
                    **_RESET, "_is_leaf": repr(signature.is_leaf),
                    "_requires_grad": repr(signature.requires_grad),
                }  # fmt: skip
                self.lines += [f"t{made}.{name} = {value}" for name, value in values.items()]
            else:
                maker = self.name(signature)
                self.lines.append(
                    f"t{made} = {maker}.tensor(c{output}.nodes[{number}], entry.values)"
                )
        for group in entry.aliases:
            self.lines.append("storage = Storage()")
            self.lines += [f"t{n}._alias = storage, {self.name(path)}" for n, path in group]

    def finish(self, given: str) -> None:
        """Put tensors where the function did, and give its result."""
        entry = self.entry
        made = row_of([f"t{number}" for number in range(len(entry.made))])
        for effect in entry.effects:
            if isinstance(effect, SetGradient):
                tensor, name = self.inputs[effect.number], self._gradient_of(effect.number)
                self.lines.append(f"{tensor}.{name} = {self._text(effect.build, made, given)}")
                if name != "grad":
                    self.lines.append(f"with_gradient.add({tensor})")
            elif not isinstance(effect, SetMemory):
                self.lines.append(f"{self.name(effect)}({made}, {given})")
        result = self._text(entry.build, made, given)
        moved = [effect for effect in entry.effects if isinstance(effect, SetMemory)]
        if moved:
            values = [self._text(effect.build, made, given) for effect in moved]
            self.lines.append(f"result, *values = {', '.join([result, *values])}")
            result = "result"
        for number, effect in enumerate(moved):
            self.lines.append(f"{self.inputs[effect.number]}.replace(values[{number}])")
        self.lines.append(f"return {result}")

    def _gradient_of(self, number: int) -> str:
        """The attribute that takes the gradient of an input: of a class of tilegrad's, the slot
        itself, as the shape is that of the input.
        """
        found = getattr(self.entry.inputs[number].signature.kind, "grad", None)
        setter = getattr(found, "fset", None)
        return "_gradient" if is_own_code(setter) else "grad"

    def _text(self, build: Build, made: str, given: str) -> str:
        """The expression that makes a value."""
        if isinstance(build, MadeTensor):
            return f"t{build.number}"
        if isinstance(build, InputTensor):
            return self.inputs[build.number]
        if isinstance(build, Same):
            return self.name(build.value)
        if isinstance(build, Items) and build.kind in (list, tuple):
            items = ", ".join(self._text(each, made, given) for each in build.items)
            if build.kind is list:
                return f"[{items}]"
            return f"({items},)" if items else "()"
        return f"{self.name(build)}({made}, {given})"


def compile_call(entry: Entry) -> Server:
    """The function of a call's arguments that gives the call's result, or a Mismatch."""
    source = _CallSource(entry)
    source.check_modes()
    source.check_all()
    given = row_of([source.inputs[number] for number in range(len(entry.inputs))])
    source.bind(given)
    source.run(given)
    source.make()
    source.finish(given)
    found: Server = source.function("serve(a, k)", "jit call")
    return found
