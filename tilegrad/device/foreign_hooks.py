"""Hooks of devices that others write: the methods of a runtime, a renderer, a compiler. One
that is missing, raises or gives nothing usable becomes an error that names the device, the hook,
the line in the device's file, and what the hook is to do.

Devices of this package are not looked at, and pay nothing.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import CompileError, DeviceError, TilegradError
from tilegrad.device import foreign_threads
from tilegrad.device.backend import Backend
from tilegrad.device.foreign_threads import Threads
from tilegrad.ir.op import Ops
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["guarded", "raised_in"]

_PAGE = "docs/adding-a-device.md"
_RULES = {
    "allocate": "allocate(nbytes) gives a handle, or raises MemoryError where there is no room",
    "free": "free(handle, nbytes) takes back what allocate(nbytes) gave",
    "copy_in": "copy_in(handle, data) writes the data.nbytes bytes of data at the start of the "
    "handle's memory, which may be longer",
    "copy_out": "copy_out(data, handle) writes the first data.nbytes bytes of the handle's memory, "
    "which may be longer, into data, once all launches before have ended",
    "view": "view(handle, offset, nbytes) gives a handle to a slice of the memory; offsets are "
    "multiples of Target.view_bytes",
    "load": "load(name, binary) gives the program of what `compile` made, for launch",
    "launch": "launch(program, handles, variables, global_size, local_size, wait=False) runs a "
    "program; with wait it gives the seconds, or None",
    "synchronize": "synchronize() returns when all launches and copies have ended",
}
_WAITING = ("copy_out", "synchronize")
_REQUIRED = ("allocate", "free", "copy_in", "copy_out", "load", "launch")
_SETS = {
    "missing": "a frozenset of Ops, as frozenset({Ops.EXP2})",
    "missing_dtypes": "a frozenset of dtypes, as frozenset({dtypes.bfloat16})",
}
_RENDERED = (
    "render(name, program) gives the source text; an op that it does not know belongs in "
    "Target.missing, a dtype in Target.missing_dtypes"
)
_COMPILED = "compile(source) gives the binary as bytes, or raises CompileError"


def guarded(name: str, backend: Any) -> Backend:
    """A back end that others wrote, with hooks that say what is wrong with them.

    Raises DeviceError where it is none, or a required hook is missing or takes other arguments.
    """
    if not isinstance(backend, Backend):
        raise DeviceError(
            f"device: {name}: what opens it gives {type(backend).__name__}, not a Backend",
            rule=f"backend(name, runtime=None) gives a Backend; see {_PAGE}",
        )
    found: Backend = backend
    _check_target(name, found.target)
    if not _is_own(type(found.runtime)):
        _check_runtime(name, found.runtime)
        _guard_runtime(name, found.runtime)
    if not _is_own(found.render):
        found = replace(found, render=_rendering(name, found.render))
    if not _is_own(found.compile):
        found = replace(found, compile=_compiling(name, found.compile))
    return found


def raised_in(error: BaseException) -> str:
    """The file and line of a hook that raised: the last one of the file that was called first."""
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if Path(each.filename) not in (Path(__file__), Path(foreign_threads.__file__))
    ]
    if not frames:
        return ""
    last = [each for each in frames if each.filename == frames[0].filename][-1]
    return f"{last.filename}:{last.lineno}, {last.line}"


def _is_own(thing: Any) -> bool:
    """Whether a class or function is of this package."""
    of = getattr(thing, "func", thing)
    return str(getattr(of, "__module__", "")).startswith("tilegrad.")


def _check_target(kind: str, target: Target) -> None:
    """Raises DeviceError for a fact that cannot be one."""
    for name, of in (("missing", Ops), ("missing_dtypes", DType)):
        given = getattr(target, name)
        wrong = [] if isinstance(given, (str, bytes)) else [x for x in given if type(x) is not of]
        if wrong or not isinstance(given, frozenset):
            found = (
                f"no set of {of.__name__}: {wrong[0]!r} is in it"
                if wrong
                else f"a {type(given).__name__}"
            )
            raise DeviceError(f"device: {kind}: Target.{name} is {found}", rule=_SETS[name])
    for name in ("view_bytes", "vector_bytes"):
        value = getattr(target, name)
        if value & (value - 1) or (not value and name == "view_bytes"):
            raise DeviceError(
                f"device: {kind}: Target.{name} is {value}", rule="it is a power of two"
            )
    for each in fields(target):
        value = getattr(target, each.name)
        if isinstance(value, int) and value < 0:
            raise DeviceError(
                f"device: {kind}: Target.{each.name} is {value}", rule="it is 0 or more"
            )
    if target.block_lanes > 1 and not target.has_locals:
        raise DeviceError(
            f"device: {kind}: Target.block_lanes is {target.block_lanes}, and has_locals is False",
            rule="a device whose launches have blocks of lanes has has_locals=True",
        )


def _check_runtime(kind: str, runtime: Any) -> None:
    if isinstance(runtime, type):
        raise DeviceError(
            f"device: {kind}: the runtime is the class {runtime.__name__}, and no object of it",
            remedy=f"Backend(name, target, render, compile, runtime or {runtime.__name__}())",
        )
    name = type(runtime).__name__
    for hook in _RULES:
        found = getattr(runtime, hook, None)
        is_default = getattr(type(runtime), hook, None) is getattr(Runtime, hook)
        if not callable(found) or (hook in _REQUIRED and is_default and not _is_set(runtime, hook)):
            raise DeviceError(
                f"device: {kind}: {name} has no {hook}", rule=_RULES[hook], remedy=f"see {_PAGE}"
            )
        _check_arguments(kind, name, hook, found)


def _is_set(runtime: Any, hook: str) -> bool:
    """Whether an object has a hook of its own, which its class has not."""
    return hook in getattr(runtime, "__dict__", {})


def _check_arguments(kind: str, name: str, hook: str, found: Callable[..., Any]) -> None:
    """Raises DeviceError where a hook cannot be called as it will be."""
    given = list(inspect.signature(getattr(Runtime, hook)).parameters)[1:]
    named = {"wait": False} if "wait" in given else {}
    try:
        signature = inspect.signature(found)
        signature.bind(*[each for each in given if each not in named], **named)
    except TypeError as error:
        raise DeviceError(
            f"device: {kind}: {name}.{hook} takes {signature}: {error}", rule=_RULES[hook]
        ) from None
    except ValueError:
        # A function of C, which does not tell.
        return


def _guard_runtime(kind: str, runtime: Any) -> None:
    """Set hooks on the object that call its own."""
    if not hasattr(runtime, "__dict__"):
        return
    threads = Threads(kind, runtime)
    for hook in _RULES:
        found = getattr(runtime, hook)
        if not hasattr(found, "is_guarded"):
            check = _CHECKS.get(hook, lambda kind, result, given: result)
            setattr(runtime, hook, _hook(kind, hook, found, check, threads))


def _hook(
    kind: str,
    hook: str,
    found: Callable[..., Any],
    check: Callable[..., Any],
    threads: Threads,
) -> Callable[..., Any]:
    @functools.wraps(found)
    def called(*given: Any, **named: Any) -> Any:
        try:
            if hook in _WAITING or named.get("wait") or given[5:6] == (True,):
                result = threads.wait(hook, functools.partial(found, *given, **named))
            else:
                threads.check(hook)
                result = found(*given, **named)
                threads.note()
        except (TilegradError, MemoryError):
            raise
        except Exception as error:
            # Code of others: the error says whose.
            raise DeviceError(
                f"{kind}: {hook} raised {type(error).__name__}: {error}",
                raised_in=raised_in(error),
                given=_described(hook, given),
                rule=_RULES[hook],
            ) from error
        return check(kind, result, given)

    called.is_guarded = True  # type: ignore[attr-defined]
    return called


def _described(hook: str, given: tuple[Any, ...]) -> str:
    """Arguments of a hook, in short."""
    if hook == "launch":
        program, handles, variables, blocks, lanes = given[:5]
        name = getattr(program, "name", type(program).__name__)
        return (
            f"program {name}, {len(handles)} handles, variables {list(variables)}, "
            f"blocks {tuple(blocks)}, lanes {tuple(lanes)}"
        )
    return ", ".join(_shortly(each) for each in given) or "nothing"


def _shortly(value: Any) -> str:
    if isinstance(value, (memoryview, bytes, bytearray)):
        return f"{memoryview(value).nbytes} bytes"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _checked_handle(hook: str) -> Callable[..., Any]:
    def check(kind: str, handle: Any, given: tuple[Any, ...]) -> Any:
        if handle is None:
            raise DeviceError(
                f"{kind}: {hook} gave None, which is no handle",
                given=_described(hook, given),
                rule=_RULES[hook],
            )
        return handle

    return check


def _checked_seconds(kind: str, seconds: Any, given: tuple[Any, ...]) -> Any:
    if seconds is not None and not isinstance(seconds, (int, float)):
        raise DeviceError(
            f"{kind}: launch gave {type(seconds).__name__}, and no seconds", rule=_RULES["launch"]
        )
    return seconds


_CHECKS: dict[str, Callable[..., Any]] = {
    "allocate": _checked_handle("allocate"),
    "view": _checked_handle("view"),
    "launch": _checked_seconds,
}


def _rendering(kind: str, render: Callable[..., Any]) -> Callable[..., str]:
    @functools.wraps(render)
    def rendered(name: str, program: Any) -> str:
        try:
            found = render(name, program)
        except TilegradError:
            raise
        except Exception as error:
            # Code of others, as above.
            raise CompileError(
                f"{kind}: render raised {type(error).__name__}: {error}",
                kernel=name,
                raised_in=raised_in(error),
                rule=_RENDERED,
            ) from error
        if not isinstance(found, str):
            raise CompileError(
                f"{kind}: render gave {type(found).__name__}, and no text",
                kernel=name,
                rule=_RENDERED,
            )
        return found

    return rendered


def _compiling(kind: str, compile_text: Callable[[str], Any]) -> Callable[[str], bytes]:
    @functools.wraps(compile_text)
    def compiled(source: str) -> bytes:
        try:
            found = compile_text(source)
        except TilegradError:
            raise
        except Exception as error:
            # Code of others, as above.
            raise CompileError(
                f"{kind}: compile raised {type(error).__name__}: {error}",
                raised_in=raised_in(error),
                rule=_COMPILED,
            ) from error
        if not isinstance(found, bytes):
            raise CompileError(
                f"{kind}: compile gave {type(found).__name__}, and no bytes", rule=_COMPILED
            )
        return found

    return compiled
