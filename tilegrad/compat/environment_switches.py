"""tinygrad's switches: those that tilegrad has, those that it calls otherwise, and the rest.

`DEBUG`, `BEAM`, `NOOPT` and the like are tilegrad's own. `TRAINING`, `DEV`, `DEFAULT_FLOAT` and
`DEFAULT_INT` are settings elsewhere. All others choose how tinygrad's compiler works, never what is
computed: they are kept, can be read, and do nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

from tilegrad.base import config as ours
from tilegrad.base.dtype import DType
from tilegrad.base.errors import ConfigError
from tilegrad.compat.numbers import dtypes
from tilegrad.device.registry import Device
from tilegrad.tensor.tensor import Tensor

__all__ = ["OTHERS", "Context", "ContextVar", "restored_declarations", "switch"]

_OURS = frozenset(ours.Config.__dataclass_fields__)
_DEFAULTS = {"DEFAULT_FLOAT": "default_float", "DEFAULT_INT": "default_int"}

# Switches of tinygrad's compiler.
OTHERS = frozenset([
    "ALL2ALL", "ALLOW_DEVICE_USAGE", "ALLOW_TF32", "ALLREDUCE_CAST", "CACHELEVEL",
    "CAPTURE_PROCESS_REPLAY", "CAPTURING", "CCACHE", "CHECK_OOB", "DEBUG_RANGEIFY",
    "DISABLE_FAST_IDIV", "DISALLOW_BROADCAST", "FLOAT16", "FUSE_ARANGE", "FUSE_CONV_BW",
    "FUSE_OPTIM", "GRAPH", "HCQ_RUNTIME_DEV", "IMAGE", "JITBEAM", "JIT_BATCH_SIZE", "LRU",
    "MAX_BUFFER_SIZE", "MAX_KERNEL_BUFFERS", "NOLOCALS", "NO_MEMORY_PLANNER",
    "NULL_ALLOW_COPYOUT", "NUM_CPU_THREADS", "OPENPILOT_HACKS", "PCONTIG", "PMA", "PMC",
    "PROFILE", "RANGEIFY", "REWRITE_STACK_LIMIT", "RING", "SCACHE", "SPEC", "SPLIT_REDUCEOP",
    "SQTT", "SQTT_ITRACE_SE_MASK", "SQTT_LIMIT_SE", "SQTT_SIMD_SEL", "SQTT_TOKEN_EXCLUDE",
    "TC_OPT", "TC_SELECT", "TRACEMETA", "TRACK_MATCH_STATS", "TRANSCENDENTAL", "TUPLE_ORDER",
    "USE_ATOMICS", "VALIDATE_WITH_CPU", "WINO",
])  # fmt: skip

_values: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "tilegrad_compat_switches", default=MappingProxyType({})
)
# Switches that scripts declared, with the values that they begin with.
_declared: dict[str, Any] = {}


def _read(name: str) -> Any:
    if name in _OURS:
        return getattr(ours.config, name)
    if name == "TRAINING":
        return int(Tensor.training)
    if name == "DEV":
        return Device.DEFAULT
    if name in _DEFAULTS:
        return getattr(dtypes, _DEFAULTS[name]).alias.upper()
    found = _values.get()
    return found[name] if name in found else ours.getenv(name, _declared.get(name, 0))


class Context(contextlib.ContextDecorator):
    """Switches for a block, or as a decorator for a function: `with Context(TRAINING=1): ...`.

    Raises ConfigError for a name that neither library knows, or a value that makes no sense.
    """

    def __init__(self, **values: Any):
        for name in values:
            if name not in _OURS | OTHERS | {*_DEFAULTS, "TRAINING", "DEV"} | _declared.keys():
                raise ConfigError(
                    f"Context: unknown switch {name!r}",
                    remedy=f"declare it: {name} = ContextVar({name!r}, 0)",
                )
        self._given = values
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            own = {name: value for name, value in self._given.items() if name in _OURS}
            if "DEBUG" in own:
                own["DEBUG"] = min(own["DEBUG"], 5)
            if "DEV" in self._given:
                own["DEVICE"] = Device.canonical(self._given["DEV"])
            stack.enter_context(ours.Context(**own))
            if "TRAINING" in self._given:
                stack.enter_context(Tensor.train(bool(self._given["TRAINING"])))
            for name in _DEFAULTS.keys() & self._given.keys():
                attribute = _DEFAULTS[name]
                stack.callback(setattr, dtypes, attribute, getattr(dtypes, attribute))
                given = self._given[name]
                dtype = given if isinstance(given, DType) else dtypes.from_name(str(given).lower())
                setattr(dtypes, attribute, dtype)
            rest = {name: value for name, value in self._given.items() if name not in _OURS}
            stack.callback(_values.reset, _values.set({**_values.get(), **rest}))
            self._open.append(stack.pop_all())
        return self

    def __exit__(self, *error: object) -> None:
        self._open.pop().close()


class ContextVar:
    """A switch by name: a number (or text) that compares, is true or false, and has `value`."""

    def __init__(self, key: str, default_value: Any = 0):
        self.key = key
        _declared.setdefault(key, default_value)

    @property
    def value(self) -> Any:
        """The present value; to assign is to set it from here on, in this thread."""
        return _read(self.key)

    @value.setter
    def value(self, value: Any) -> None:
        Context(**{self.key: value}).__enter__()

    def __repr__(self) -> str:
        return f"ContextVar({self.key!r}, {self.value!r})"

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.key)

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > other)

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= other)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)


@contextlib.contextmanager
def restored_declarations() -> Iterator[None]:
    """A block after which the switches that scripts declared in it are unknown again."""
    before = dict(_declared)
    try:
        yield
    finally:
        _declared.clear()
        _declared.update(before)


def switch(name: str) -> ContextVar:
    """The switch `name`, as `tinygrad.helpers` exports it.

    Raises KeyError if neither library has it.
    """
    if name not in _OURS | OTHERS | {*_DEFAULTS, "TRAINING", "DEV"}:
        raise KeyError(name)
    return ContextVar(name)
