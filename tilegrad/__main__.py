"""The command line.

    python -m tilegrad devices                        each device: usable, wrong, or not here
    python -m tilegrad ceilings [--renew]             what the default device reaches, measured
    python -m tilegrad cache [--clear]                compiled code: where, how much; remove it
    python -m tilegrad show FILE                      run a script; the kernels that it compiles
    python -m tilegrad show FILE --after lower.expand one state of each, or of --kernel N; --every
    python -m tilegrad show FILE --after schedule.split  each graph after a pass, before its kernels
    python -m tilegrad viz FILE                       run a script; a page of all its rewrites
    python -m tilegrad replay FILE --from optimize    go on from a graph that a failure saved
    python -m tilegrad layout 2x3:1,2 3x2             where the elements of views lie in memory
    python -m tilegrad gpu-report FILE --arch sm_80   its kernels on a GPU, counted without one
    python -m tilegrad fuzz --minutes 5               random programs beside NumPy
    python -m tilegrad layout --index "ridx0*2" 4     where an index expression puts them

`FILE` may be followed by arguments of its own, after `--`. Switches are environment variables, as
for every program that uses tilegrad: `TILEGRAD_DEVICE=EMU python -m tilegrad show ...`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from tilegrad import __version__
from tilegrad.base.config import config
from tilegrad.base.errors import ConfigError, DataError, TilegradError
from tilegrad.device.registry import Device


def devices() -> str:
    """A row per kind of device: what it is, or why it cannot be used, and what to do."""
    rows = []
    width = max(map(len, Device))
    for name in Device:
        mark = "*" if name == Device.DEFAULT else " "
        head = f"{mark} {name:{width}s}"
        if name == "DISK":
            # Not one device: each file is one.
            rows.append(f"{head} usable    a file, as in DISK:weights.bin")
            continue
        why, remedy = Device.refusal(name)
        if why:
            rows.append(f"{head} not here  {why.removeprefix(f'{name}: ')}")
            rows += [f"{'':{len(head) + 11}}{remedy}"] if remedy else []
            continue
        broken = _broken(name)
        rows.append(f"{head} {'wrong ' if broken else 'usable'}    {_described(name)}")
        rows += [f"{'':{len(head) + 11}}{line}" for line in broken]
    like = (
        "  NULL and EMU take the code of another device: NULL:CUDA:sm_90 compiles, EMU:CL runs it"
    )
    return "\n".join([*rows, "", "* the default; TILEGRAD_DEVICE names another", like])


def _broken(name: str) -> list[str]:
    """Promises that a device of others does not keep, a line each."""
    if Device.is_built_in(name):
        return []
    from tilegrad.tools.device_check import broken_promises

    return broken_promises(name)


def _described(name: str) -> str:
    """A line about an open device: its instruction set, vectors, blocks and hardware."""
    backend = Device[name]
    target = backend.target
    what = f"{target.name} {target.isa}".strip()
    if target.has_vectors:
        what += f", vectors of {target.vector_bytes} bytes"
    if target.has_locals:
        what += f", blocks of {target.block_lanes} lanes"
    return f"{what}, {backend.hardware}" if backend.hardware else what


def ceilings(renew: bool) -> str:
    """Measured ceilings of the default device."""
    from tilegrad.device.calibrate import ceilings

    found = ceilings(renew=renew)
    lines = [f"{found.flops / 1e9:8.1f} GFLOP/s  float32 multiply-adds"]
    for size, rate in found.copies[:-1]:
        lines.append(f"{rate / 1e9:8.1f} GB/s     copies within {size >> 10} KiB")
    return "\n".join([*lines, f"{found.memory / 1e9:8.1f} GB/s     copies in memory"])


def cache(clear: bool) -> str:
    """The folder of compiled code, its size, and the limit."""
    from tilegrad.base import cache

    found = cache.clear() if clear else cache.usage()
    count = sum(found.entries.values())
    tables = ", ".join(f"{number} {table}" for table, number in sorted(found.entries.items()))
    listed = f" ({tables})" if tables else ""
    limit = f"{found.limit / 1e6:.0f} MB" if found.limit else "none"
    return "\n".join(
        [
            f"folder   {cache.folder()}",
            f"{'removed' if clear else 'holds':8s} {count} entries{listed}",
            f"size     {found.size / 1e6:.1f} MB",
            f"limit    {limit} (TILEGRAD_CACHE_MEGABYTES; TILEGRAD_CACHE names another folder)",
        ]
    )


def show(options: argparse.Namespace) -> str:
    """The kernels of a script, or states of them, or of its graphs."""
    from tilegrad.tools.show import GRAPH_STATES, STATES, run_recorded, run_scheduled

    if not Path(options.file).is_file():
        raise DataError("show: there is no such file", file=options.file)
    if f"lower.{options.after}" in STATES:
        options.after = f"lower.{options.after}"
    if f"schedule.{options.after}" in GRAPH_STATES:
        options.after = f"schedule.{options.after}"
    if options.after in GRAPH_STATES:
        graphs = run_scheduled(options.file, options.after, options.arguments)
        titles = (f"# graph {number}, after {options.after}" for number in range(len(graphs)))
        return "\n".join(f"{title}\n{text}\n" for title, text in zip(titles, graphs))
    if options.after is not None and options.after not in STATES:
        known = ", ".join((*GRAPH_STATES, *STATES))
        raise ConfigError(f"show: there is no state {options.after!r}", known=known)
    kernels = list(enumerate(run_recorded(options.file, options.arguments)))
    if options.kernel is not None:
        if not 0 <= options.kernel < len(kernels):
            raise ConfigError(
                f"show: there is no kernel {options.kernel}", known=f"0 to {len(kernels) - 1}"
            )
        kernels = [kernels[options.kernel]]
    lines = []
    for number, kernel in kernels:
        title = f"kernel {number}: {kernel.name}"
        if not options.every and options.after is None:
            opts = " ".join(str(opt) for opt in kernel.opts)
            lines.append(f"{title}  {opts}".rstrip())
            lines.append(f"  estimate {kernel.estimate}")
            continue
        for state in STATES[:-1] if options.every else (options.after,):
            is_same = state in kernel.unchanged
            text = "(unchanged)" if options.every and is_same else kernel.after(state)
            lines.append(f"# {title}, after {state}\n{text}\n")
    return "\n".join(lines)


def viz(options: argparse.Namespace) -> NoReturn:
    """Become a process that runs the script, and serves the page at its end."""
    if not Path(options.file).is_file():
        raise DataError("viz: there is no such file", file=options.file)
    environment = os.environ | config.environment() | {"TILEGRAD_VIZ": str(options.port)}
    os.execve(sys.executable, [sys.executable, options.file, *options.arguments], environment)


def replay(file: str, after: str) -> str:
    """Source text of the kernels of a saved graph."""
    from tilegrad.tools.show import replay

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"replay: cannot read the file: {error}", file=file) from error
    return "\n".join(kernel.after("render") for kernel in replay(text, after))


def layout(views: Sequence[str], index: str | None) -> str:
    """The grids of views, or of an index expression over the shape of one view."""
    from tilegrad.tools.layout import grids_of_index, grids_of_views, view_of

    found = [view_of(text) for text in views]
    if index is None:
        return grids_of_views(found)
    if len(found) != 1:
        raise ConfigError(f"layout: an index expression has one shape, not {len(found)}")
    return grids_of_index(index, found[0].shape)


def gpu_report(options: argparse.Namespace) -> str:
    """The kernels of a script on a GPU, counted."""
    from tilegrad.tools.gpu_report import report

    if not Path(options.file).is_file():
        raise DataError("gpu-report: there is no such file", file=options.file)
    return report(
        options.file, options.arguments, options.arch or ["sm_80"], options.blocks, options.device
    )


def fuzz(parser: argparse.ArgumentParser, options: argparse.Namespace) -> bool:
    """Whether a random program failed."""
    from tilegrad.tools.fuzz.loop import fuzz
    from tilegrad.tools.fuzz.modes import MODES

    seed = int(time.time()) * 1000 if options.seed is None else options.seed
    names = options.modes.split(",") if options.modes else list(MODES)
    if unknown := [name for name in names if name not in MODES]:
        parser.error(f"fuzz: no mode {unknown[0]!r}; there are {', '.join(MODES)}")
    most = options.programs
    return bool(fuzz(options.minutes, seed, options.folder, modes=names, programs=most))


def _parser() -> argparse.ArgumentParser:
    """Parser of the commands and their arguments."""
    head, _, usage = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        "python -m tilegrad",
        description=head,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilegrad {__version__}")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("devices")
    commands.add_parser("ceilings").add_argument("--renew", action="store_true")
    commands.add_parser("cache").add_argument("--clear", action="store_true")
    shown = commands.add_parser("show")
    shown.add_argument("--after", metavar="STATE")
    shown.add_argument("--every", action="store_true")
    shown.add_argument("--kernel", type=int, metavar="N")
    replayed = commands.add_parser("replay")
    replayed.add_argument("file")
    replayed.add_argument("--from", dest="after", metavar="PASS", required=True)
    fuzzed = commands.add_parser("fuzz")
    fuzzed.add_argument("--minutes", type=float, default=5.0)
    fuzzed.add_argument("--programs", type=int, help="how many at most, if time is left")
    fuzzed.add_argument("--seed", type=int, help="of the first program; by default the time's")
    fuzzed.add_argument("--folder", type=Path, default=Path("fuzz"))
    fuzzed.add_argument("--modes", help="some modes, by name, with commas; by default all")
    counted = commands.add_parser("gpu-report")
    counted.add_argument("--arch", action="append", help="by default sm_80; may be repeated")
    counted.add_argument("--device", choices=("CUDA", "NV"), default="CUDA", help="whose text")
    counted.add_argument("--blocks", type=int, default=1, help="how many to run; 0: all")
    seen = commands.add_parser("viz")
    seen.add_argument("--port", type=int, default=8000, help="or the next that is free")
    for script in (shown, counted, seen):
        script.add_argument("file")
        script.add_argument("arguments", nargs="*")
    laid = commands.add_parser("layout")
    laid.add_argument("views", nargs="+", metavar="SHAPE[:STRIDES][+OFFSET]")
    laid.add_argument("--index", metavar="EXPRESSION")
    return parser


_PRINTED: dict[str, Callable[[argparse.Namespace], str]] = {
    "devices": lambda options: devices(),
    "ceilings": lambda options: ceilings(options.renew),
    "cache": lambda options: cache(options.clear),
    "show": show,
    "replay": lambda options: replay(options.file, options.after),
    "gpu-report": gpu_report,
    "layout": lambda options: layout(options.views, options.index),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "fuzz":
            return fuzz(parser, options)
        if options.command == "viz":
            viz(options)
        print(_PRINTED[options.command](options))
        sys.stdout.flush()
    except TilegradError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has seen enough (`| head`). The rest of the buffered output goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
