"""Every switch, in one dataclass, read in one place.

A switch is set by an environment variable of its name with `TILEGRAD_` before it, or for a block by
`Context(NOOPT=1)`. Some are also read without the prefix (`DEBUG=2`); the others have names that
other programs use too, and a variable of such a name draws a warning. Contexts belong to the
running thread. A value that a switch does not know is refused, and so is an unknown `TILEGRAD_*`
variable. docs/switches.md lists all of them.
"""

from __future__ import annotations

import contextvars
import functools
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ParamSpec, TypeVar

from tilegrad.base.errors import ConfigError

__all__ = [
    "Config", "Context", "Switch", "config", "current_config", "getenv", "gradients",
    "set_switches", "switches", "training",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


def _switch(default: Any, doc: str, *, high: int | None = None, shapes_code: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "high": high, "shapes_code": shapes_code})


@dataclass(frozen=True)
class Config:
    """The switches. Those marked `shapes_code` are part of every cache key."""

    DEBUG: int = _switch(
        0,
        "1 devices, captures and what is planned anew, 2 a row per kernel, 3 kernel trees, "
        "4 source, 5 instructions",
        high=5,
    )
    VIZ: int = _switch(
        0,
        "1: at the program's end a page for a browser shows every rewrite of its graphs and "
        "kernels, on port 8000; a larger number is another port",
        high=65_535,
    )
    NOOPT: int = _switch(0, "1: the plain plan and no Opts", high=1, shapes_code=True)
    BEAM: int = _switch(0, "search width; 0 takes the heuristic", high=64, shapes_code=True)
    IGNORE_BEAM_CACHE: int = _switch(
        0, "1: search again, whatever was found before", high=1, shapes_code=True
    )
    BEAM_FILE: str = _switch(
        "", "a text file of findings, read before a search and added to after", shapes_code=True
    )
    BEAM_SECONDS: int = _switch(30, "about how long a kernel is searched; 0: no limit", high=86_400)
    SEARCH: str = _switch("beam", "the strategy of a search, by name", shapes_code=True)
    JIT: int = _switch(1, "0 off, 1 on, 2 capture without the graph runner", high=2)
    TC: int = _switch(1, "matrix units: 0 off, 1 on, 2 their shape only", high=2, shapes_code=True)
    TF32: int = _switch(
        0,
        "1: products of float32 matrices may round their factors to 10 binary digits behind the "
        "point, where a matrix unit then multiplies them (NV from sm_80 on)",
        high=1,
        shapes_code=True,
    )
    EMULATED_DTYPES: str = _switch(
        "",
        "short floats to hold in float32 also where a device has them: 'half,bfloat16'",
        shapes_code=True,
    )
    VERIFY: int = _switch(
        1,
        "0 skips the checks between stages; 2 checks after each pass of a kernel",
        high=2,
    )
    CHECK: int = _switch(
        0, "1: indices found in data must lie inside; 2: a kernel that makes NaN is named", high=2
    )
    EXPAND_SSA: int = _switch(0, "1: C-like renderers name every value", high=1, shapes_code=True)
    DISABLE_COMPILER_CACHE: int = _switch(
        0, "1: neither read nor write compiled code on disk", high=1
    )
    PARALLEL: int = _switch(
        1, "0: every kernel is compiled in this process; 1: by helper processes as well", high=1
    )
    THREADS: int = _switch(
        0, "CPU threads, as the first kernel finds it; 0: one per core", high=1024
    )
    SPIN_US: int = _switch(
        100, "how long an idle pool thread spins before it sleeps, in microseconds", high=10_000_000
    )
    NO_COLOR: int = _switch(0, "any value: no ANSI colours (https://no-color.org)", high=1)
    DEVICE: str = _switch("CPU", "the default device")
    DEVICES: str = _switch(
        "", "files of devices that are not tilegrad's own, with `:` between them (on Windows `;`)"
    )
    CACHE: str = _switch("", "the cache folder; empty: the user's cache folder")
    CACHE_MEGABYTES: int = _switch(
        1024,
        "what the cache folder may take; what was used longest ago goes; 0: no limit",
        high=1 << 30,
    )
    KEEP_KERNELS: int = _switch(
        4096, "how many kernels, plans and loaded programs a process keeps for reuse", high=1 << 30
    )
    PROGRESS: int = _switch(
        1, "0: no note at a terminal how many kernels are compiled yet, after 2 seconds", high=1
    )
    TEMPLATES: int = _switch(
        1,
        "0: every method makes its nodes itself; 1: from templates, the third time; 2: both, and "
        "compares",
        high=2,
    )
    SEGMENTS: int = _switch(
        1,
        "1: calls of methods wait, and what equal calls led to once is run again without making "
        "nodes; 2: the nodes run as well, and the values are compared",
        high=2,
    )
    SIZES: int = _switch(
        1,
        "0: a plan for each size; 1: sizes that change become variables of a plan; 2: such a plan "
        "is run beside one for the size, and the values are compared",
        high=2,
    )
    SHORT: int = _switch(
        1,
        "1: a kernel that has shapes of much text is compiled in a short one first, and in its "
        "best one by a helper process once its plan has run for as long as that takes; 0: at once "
        "in its best one",
        high=1,
    )
    KEEP_SECONDS: int = _switch(
        30, "after how long unused memory goes back to the system; 0: never", high=86_400
    )
    HANG_SECONDS: int = _switch(
        120,
        "how long a GPU may make no progress before its kernel is an error; 0: for ever",
        high=86_400,
    )
    CPU_TARGET: str = _switch(
        "",
        "'scalar', 'sse', 'avx2' or 'avx512': limits the CPU's vectors; empty: the machine's own",
        shapes_code=True,
    )

    def __post_init__(self) -> None:
        # Part of the key of every graph that runs: its hash is not worked out anew each time.
        object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]


_FIELDS = {item.name: item for item in fields(Config)}
_PREFIX = "TILEGRAD_"
# Read with the prefix only: other programs have variables of these names.
_PREFIXED = frozenset(
    {
        "DEVICE",
        "DEVICES",
        "CACHE",
        "CACHE_MEGABYTES",
        "KEEP_KERNELS",
        "KEEP_SECONDS",
        "HANG_SECONDS",
        "PROGRESS",
        "TEMPLATES",
        "SEGMENTS",
        "SIZES",
        "SHORT",
        "PARALLEL",
        "THREADS",
        "SPIN_US",
        "CPU_TARGET",
        "VERIFY",
        "BEAM_FILE",
        "BEAM_SECONDS",
        "SEARCH",
    }
)
# Read once: a block has no other processor than the one that was used first, and its rewrites are
# recorded by `recording()`.
_READ_ONCE = {
    "CPU_TARGET": "when the CPU is first used",
    "VIZ": "when tilegrad is imported; `tilegrad.viz` shows what a block records",
}
_CHOICES = {"CPU_TARGET": ("", "scalar", "sse", "avx2", "avx512")}


def _parse(name: str, value: object) -> Any:
    item = _FIELDS[name]
    if isinstance(item.default, str):
        if not isinstance(value, str) or value not in _CHOICES.get(name, (value,)):
            raise ConfigError(
                f"{name}: unknown value {value!r}", allowed=_CHOICES.get(name, "a string")
            )
        return value
    if name == "NO_COLOR":
        return int(value not in ("", 0))
    high = item.metadata["high"]
    try:
        number = int(value) if isinstance(value, bool) else int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number <= high:
        raise ConfigError(
            f"{name}: unknown value {value!r}",
            allowed=f"0 to {high}",
            meaning=item.metadata["doc"],
        )
    return number


def _from_environment(environment: Mapping[str, str]) -> Config:
    found: dict[str, Any] = {}
    for key, value in environment.items():
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX)
            if name not in _FIELDS:
                known = ", ".join(f"{_PREFIX}{each}" for each in _FIELDS)
                raise ConfigError(f"{key}: unknown switch in the environment", known=known)
            if value != "":
                found[name] = _parse(name, value)
    for name in _FIELDS.keys() - found.keys() - _PREFIXED:
        if environment.get(name, "") != "":
            found[name] = _parse(name, environment[name])
    for key in environment:
        meant = _meant(key, environment[key])
        if meant:
            text = f"{key}={environment[key]} in the environment is not read: {meant}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    if found.get("VIZ"):
        # Entries on disk were rewritten in another process.
        found["DISABLE_COMPILER_CACHE"] = 1
    return Config(**found)


def _meant(key: str, value: str) -> str:
    """The spelling to recommend for a variable that looks like a switch and is none; empty if it
    does not look like one.
    """
    if value == "" or key in _FIELDS.keys() - _PREFIXED or not key.isupper():
        return ""
    if key in _PREFIXED:
        # A folder or a name may be meant for any program.
        return "" if key in ("CACHE", "SEARCH") else f"write {_PREFIX}{key}={value}"
    if key == "DEV" and value.partition(":")[0].isupper():
        return f"write {_PREFIX}DEVICE={value}"
    near = [name for name in _FIELDS if name not in _PREFIXED and _is_near(key, name)]
    return f"did you mean {near[0]}?" if near else ""


def _is_near(key: str, name: str) -> bool:
    """Whether one letter more, one less, or two letters exchanged make `name` of `key`."""
    if len(name) < 4 or abs(len(key) - len(name)) > 1 or key[0] != name[0]:
        return False
    longer, shorter = (key, name) if len(key) > len(name) else (name, key)
    if len(longer) == len(shorter):
        return sorted(key) == sorted(name)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


@dataclass(frozen=True)
class Switch:
    """One row of docs/switches.md: a switch's settings, default and effect."""

    name: str
    variables: tuple[str, ...]
    default: str
    meaning: str


def switches() -> list[Switch]:
    """Every switch, in the order of `Config`."""
    return [
        Switch(
            name,
            (f"{_PREFIX}{name}",) if name in _PREFIXED else (name, f"{_PREFIX}{name}"),
            str(item.default) or "empty",
            item.metadata["doc"],
        )
        for name, item in _FIELDS.items()
    ]


_DEFAULT = _from_environment(os.environ)
_current: contextvars.ContextVar[Config] = contextvars.ContextVar(
    "tilegrad_config", default=_DEFAULT
)

current_config = _current.get

# Whether the running thread trains, which is so until it is said otherwise. No switch of the
# machine: `Tensor.training` writes it, and `Context(TRAINING=0)` sets it for a block.
training: contextvars.ContextVar[bool] = contextvars.ContextVar("tilegrad_training", default=True)

# Whether the running thread records gradients: not inside `tilegrad.no_grad()`.
gradients: contextvars.ContextVar[bool] = contextvars.ContextVar("tilegrad_gradients", default=True)


class _Reader:
    """Attribute access to the running thread's switches: `config.DEBUG`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(_current.get(), name)

    def current(self) -> Config:
        """All switches as one value; the same object as long as no context is entered or left."""
        return _current.get()

    def environment(self, **values: object) -> dict[str, str]:
        """The running thread's switches as environment variables, for a process of our own, which
        has no page of its rewrites; `values` are set otherwise.

        Raises ConfigError for an unknown value.
        """
        given = {"VIZ": 0, **values}
        current = replace(
            _current.get(), **{name: _parse(name, value) for name, value in given.items()}
        )
        return {
            f"{_PREFIX}{name}": str(getattr(current, name) or "")
            if name == "NO_COLOR" or isinstance(item.default, str)
            else str(getattr(current, name))
            for name, item in _FIELDS.items()
        }

    def code_key(self) -> tuple[object, ...]:
        """The values of all switches that shape generated code."""
        current = _current.get()
        return tuple(
            getattr(current, name) for name, item in _FIELDS.items() if item.metadata["shapes_code"]
        )


config = _Reader()


class Context:
    """Set switches for a block, in this thread: `with Context(DEBUG=2, NOOPT=1): ...`. Before a
    function, `@Context(NOOPT=1)`, it sets them for each call. `TRAINING=1` is `Tensor.train()`.

    Raises ConfigError for an unknown name or value, and for `CPU_TARGET` and `VIZ`, which are read
    once: they are set in the environment.

    >>> with Context(DEBUG=0, NOOPT=1):
    ...     print(Tensor([1, 2]).sum().item())
    3
    """

    def __init__(self, **values: object):
        for name in values:
            if name not in _FIELDS and name != "TRAINING":
                known = ", ".join([*_FIELDS, "TRAINING"])
                raise ConfigError(f"Context: unknown switch {name!r}", known=known)
        given = dict(values)
        self._training = given.pop("TRAINING", None)
        if self._training not in (None, 0, 1):
            raise ConfigError(f"TRAINING: unknown value {self._training!r}", allowed="0 or 1")
        self._values = {name: _parse(name, value) for name, value in given.items()}
        for name in _READ_ONCE.keys() & self._values.keys():
            if self._values[name] != getattr(_DEFAULT, name):
                raise ConfigError(
                    f"Context: {name} is read once, {_READ_ONCE[name]}",
                    remedy=f"start the program with {_PREFIX}{name}={given[name]}",
                )
        self._tokens: list[tuple[contextvars.Token[Config], contextvars.Token[bool]]] = []

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, with each call under these switches."""
        values = dict(self._values)
        if self._training is not None:
            values["TRAINING"] = self._training

        @functools.wraps(function)
        def under(*args: P.args, **kwargs: P.kwargs) -> R:
            with Context(**values):
                return function(*args, **kwargs)

        return under

    def __enter__(self) -> Context:
        mode = training.get() if self._training is None else bool(self._training)
        switches = _current.set(replace(_current.get(), **self._values))
        self._tokens.append((switches, training.set(mode)))
        return self

    def __exit__(self, *error: object) -> None:
        switches, mode = self._tokens.pop()
        _current.reset(switches)
        if self._training is not None:
            training.reset(mode)


def set_switches(**values: object) -> None:
    """Set switches in this thread for all that follows, or until a block of switches around it is
    left.

    Raises ConfigError for an unknown value.
    """
    parsed = {name: _parse(name, value) for name, value in values.items()}
    _current.set(replace(_current.get(), **parsed))


def getenv(name: str, default: int | str = 0) -> int | str:
    """The environment variable `name` for a user's own script, read as the type of `default`.

    >>> getenv("STEPS_OF_MINE", 10)
    10
    """
    value = os.environ.get(name, "")
    return default if value == "" else type(default)(value)
