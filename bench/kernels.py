"""What two revisions make of the same programs: kernels, Opts, text, bytes and estimates.

    python bench/kernels.py REV                         this tree beside a revision
    python bench/kernels.py REV --rows 'conv|softmax'   the rows that match
    python bench/kernels.py --keep FILE                 the kernels of this tree, for `--with FILE`

The programs are the rows of the benchmark (rows.py), networks among them. Each row is planned,
shaped, lowered and rendered as for the CPU of this machine (TILEGRAD_CPU_TARGET names another) in a
process of its own; nothing is compiled or run, so all of it takes a minute or two. Kernels are
paired by their graphs: of a pair, the Opts may differ, or with equal Opts the text.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rows import Row, rows

# The first runs as it is, the second is captured.
_CALLS = 3
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Made:
    """One kernel.

    Attributes:
        graph: a digest of the kernel graph before its Opts.
        text: a digest of the source, without its name.
        ops, nbytes: what one launch computes and touches.
        cycles: the estimate; 0 where the revision has none.
    """

    graph: str
    name: str
    opts: tuple[str, ...]
    text: str
    lines: int
    ops: int
    nbytes: int
    cycles: int = 0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _numbered(source: str) -> str:
    """LLVM IR whose values are numbered as they appear: what they are called does not count."""
    numbers: dict[str, str] = {}
    return re.sub(
        r"%[\w.]+", lambda found: numbers.setdefault(found[0], f"%{len(numbers)}"), source
    )


def record(row: Row) -> dict[str, Any]:
    """The kernels that a row makes in this process, in the order in which they are made, and how
    many run in a captured call.
    """
    # Of the tree on the path, whichever revision it is.
    pipeline: Any = importlib.import_module("tilegrad.engine.build.pipeline")
    tilegrad: Any = importlib.import_module("tilegrad")
    backend: Any = importlib.import_module("tilegrad.device.backend")
    null: Any = importlib.import_module("tilegrad.device.null")
    cpu = tilegrad.Device["CPU"]
    estimate = _estimate()

    def device(name: str) -> Any:
        return backend.Backend(name, cpu.target, cpu.render, str.encode, null.NullRuntime())

    found: list[Made] = []
    # Its name in older revisions.
    name = "render_kernel" if hasattr(pipeline, "render_kernel") else "finish_kernel"
    finish = getattr(pipeline, name)

    def finished(shaped: Any, program: Any, device: Any, key: str, costs: Any, *rest: Any) -> Any:
        made = finish(shaped, program, device, key, costs, *rest)
        source = device.render("kernel", program)
        graph = next((each for each in rest if isinstance(each, str)), "")
        opts = tuple(f"{opt.op.name}({opt.axis}, {opt.arg})" for opt in shaped.ast.arg.opts)
        lines = source.count("\n")
        found.append(
            Made(
                *(_digest(graph), shaped.names[0], opts, _digest(_numbered(source)), lines),
                *costs,
                round(estimate(shaped.ast, cpu.target).cycles),
            )
        )
        return made

    setattr(pipeline, name, finished)
    tilegrad.Device.register("KERNELS", device)
    from models.inputs import inputs
    from models.with_tilegrad import Tilegrad

    with tilegrad.Context(DEVICE="KERNELS", PARALLEL=0):
        made = Tilegrad(row.threads).make(row.kind, inputs(row.kind, row.sizes), row.sizes, "")
        # What prepares the row is not its work.
        found.clear()
        for _ in range(_CALLS):
            made.run()
        facts = made.facts()
    return {
        "kernels": [asdict(each) for each in found],
        **{f"call {k}": v for k, v in facts.items()},
    }


def recorded(chosen: Sequence[Row]) -> dict[str, Any]:
    """The kernels of each row, each in a process that knows nothing of the others."""
    found: dict[str, Any] = {}
    for row in chosen:
        gc.collect()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(reader)
                with (
                    os.fdopen(writer, "w") as out,
                    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache,
                ):
                    os.environ["TILEGRAD_CACHE"] = cache
                    json.dump(record(row), out)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader) as given:
            text = given.read()
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{row.name}: the kernels could not be made")
        found[row.name] = json.loads(text)
    return found


def of_revision(revision: str, pattern: str) -> dict[str, Any]:
    """The kernels of a revision, made by this script with that revision's package and rows."""
    # Not of the revision, whose script this is as well.
    from common import tree_of

    with tree_of(revision) as tree, tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "kernels.json")
        # -P: the revision's own rows, not those beside this file.
        command = [sys.executable, "-P", __file__, "--keep", str(kept), "--rows", pattern]
        paths = os.pathsep.join([str(tree), str(tree / "bench")])
        if subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}).returncode:
            raise SystemExit(f"kernels.py: {revision} cannot make these rows")
        found: dict[str, Any] = json.loads(kept.read_text())
    return found


def compared(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Lines of what differs; none if nothing does."""
    before, after = _read(old), _read(new)
    same = Counter((each.graph, each.opts, each.text) for each in before)
    same &= Counter((each.graph, each.opts, each.text) for each in after)
    gone, fresh = _without(before, same), _without(after, same)
    if not gone and not fresh and _total(old) == _total(new):
        return
    yield f"{name}: {_total(old)} -> {_total(new)}"
    for each in fresh:
        pair = next((other for other in gone if other.graph == each.graph), None)
        if pair is None:
            yield f"  new     {_shown(each)}"
            continue
        gone.remove(pair)
        if pair.opts != each.opts:
            yield f"  opts    {pair.name} -> {each.name}{_cycles(pair, each)}"
            yield f"          {' '.join(pair.opts)}"
            yield f"          {' '.join(each.opts)}"
        else:
            lines = f"{pair.lines} -> {each.lines} lines"
            yield f"  text    {each.name}: {lines}{_cycles(pair, each)}"
    for each in gone:
        yield f"  gone    {_shown(each)}"


def _without(kernels: list[Made], same: Counter[Any]) -> list[Made]:
    left, found = Counter(same), []
    for each in kernels:
        key = each.graph, each.opts, each.text
        if left[key]:
            left[key] -= 1
        else:
            found.append(each)
    return found


def _estimate() -> Any:
    """The package's estimate, by the name that its revision has for it."""
    for module, name in (("model.model", "estimate"), ("model", "estimate"), ("cost", "cost_of")):
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(f"tilegrad.optimize.{module}"), name)
    raise SystemExit("kernels.py: this revision has no estimate")


def _cycles(old: Made, new: Made) -> str:
    """The estimates, which two revisions may make in two ways."""
    return f", estimate {old.cycles:,} -> {new.cycles:,} cycles"


def _total(row: dict[str, Any]) -> str:
    return f"{row['call kernels']} kernels, {row['call bytes'] / 1e6:.1f} MB a captured call"


def _shown(kernel: Made) -> str:
    size = f"{kernel.lines} lines  {kernel.nbytes / 1e6:.2f} MB"
    return f"{kernel.name}  {size}  {kernel.cycles:,} cycles"


def _read(row: dict[str, Any]) -> list[Made]:
    return [Made(**{**each, "opts": tuple(each["opts"])}) for each in row["kernels"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", nargs="?", help="what this tree is compared with")
    parser.add_argument("--rows", default="", help="rows whose names match")
    parser.add_argument("--keep", type=Path, help="write the kernels of the package on the path")
    parser.add_argument("--with", dest="other", type=Path, help="compare with a file of --keep")
    parser.add_argument("--scale", type=int, default=1, help="divide the sizes of all rows")
    given = parser.parse_args()
    if not hasattr(os, "fork"):
        raise SystemExit("kernels.py: needs a system that forks")
    chosen = [row for row in rows(given.scale) if re.search(given.rows, row.name)]
    if not chosen:
        raise SystemExit(f"kernels.py: no row matches {given.rows!r}")
    if given.keep is None and given.other is None and given.revision is None:
        parser.error("name a revision, or a file by --with or --keep")
    mine = recorded(chosen)
    if given.keep is not None:
        given.keep.write_text(json.dumps(mine))
        return
    if given.other is not None:
        other = json.loads(given.other.read_text())
    else:
        other = of_revision(given.revision, given.rows)
    count = 0
    for name, made in mine.items():
        if name in other:
            lines = list(compared(name, other[name], made))
            count += bool(lines)
            print("\n".join(lines) if lines else f"{name}: the same")
    print(f"{count} of {len(mine)} rows differ")


if __name__ == "__main__":
    main()
