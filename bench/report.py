"""A result of `bench/peers.py` as a table and as a picture, and the change from one to another.

python bench/report.py                  the last two results of this machine
python bench/report.py OLD NEW          two files
python bench/report.py --write FILE     table and picture again
python bench/report.py --pages FILE     tables and chart of README.md and docs/speed.md
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ROOT, machine_name

__all__ = [
    "OWN", "best_peer", "changes", "chart", "headline", "insert", "mean_ratio", "selection",
    "summary", "table", "write",
]  # fmt: skip

OWN = "tilegrad"
# The part of a page between these lines is written from a result.
_BEGIN, _END = "<!-- from bench/results -->", "<!-- to here -->"
# What a user has without choosing: the first way of each library in a row.
_LIBRARIES = {
    "torch": "PyTorch as written",
    "jax": "JAX",
    "onnxruntime": "onnxruntime",
    "tinygrad": "tinygrad",
}
# The rows that README.md shows: one of each kind of work.
_SELECTED = {
    "matmul 1024x1024x1024, two threads": "matrix product, 1024 cubed",
    "conv 3x3, 64 to 64, 56x56, batch 32": "convolution 3x3, 64 channels",
    "softmax 4096x4096": "softmax, 4096 x 4096",
    "ResNet-18 step, batch 16, 64x64": "ResNet-18, training step",
    "transformer step, batch 8 of 128, AdamW": "transformer, training step",
    "GPT-2-small, next token, batch 1": "GPT-2, next token",
}
# Less than this is noise.
_NOISE = 0.05


def best_peer(row: dict[str, Any]) -> str | None:
    """The one with the least median."""
    medians = {
        name: found["median_ms"]
        for name, found in row["engines"].items()
        if name != OWN and "median_ms" in found
    }
    return min(medians, key=lambda name: medians[name]) if medians else None


def ratio_of(row: dict[str, Any]) -> float | None:
    """The best peer's time over tilegrad's."""
    own, best = row["engines"].get(OWN, {}), best_peer(row)
    if "median_ms" not in own or best is None:
        return None
    peer = row["engines"][best]
    ratio: float = peer.get("ratio") if not peer.get("kept") else None
    return ratio if ratio is not None else peer["median_ms"] / own["median_ms"]


def is_met(row: dict[str, Any]) -> bool:
    """Whether all that is wanted of the row, and was measured, is so."""
    ratio = ratio_of(row)
    if ratio is None or ratio < row["goal"]:
        return False
    own, found = row["engines"][OWN]["median_ms"], {}
    if row["limit_ms"]:
        found["limit"] = row["limit_ms"] / own
    for name, engine in row["engines"].items():
        if "median_ms" in engine:
            found[name] = engine["median_ms"] / own
    return all(found.get(name, least) >= least for name, least in row["also"].items())


def mean_ratio(rows: Sequence[dict[str, Any]]) -> float:
    """The geometric mean over the rows that have a ratio."""
    return _geometric_mean([ratio for ratio in map(ratio_of, rows) if ratio])


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def _times_to(rows: Sequence[dict[str, Any]], peer: str) -> list[float]:
    """A peer's time over tilegrad's in each row that both have."""
    pairs = [(row["engines"].get(peer, {}), row["engines"].get(OWN, {})) for row in rows]
    return [
        theirs["median_ms"] / own["median_ms"]
        for theirs, own in pairs
        if "median_ms" in theirs and "median_ms" in own
    ]


def table(record: dict[str, Any]) -> str:
    """In Markdown."""
    rows = record["figures"]
    lines = [
        f"{record['machine']}; commit {record['commit'][:9]}; {record['date']}; "
        + ", ".join(f"{name} {number}" for name, number in record["versions"].items()),
        "",
        "| work | tilegrad ms | of limit | best peer | its ms | ratio | wanted | kernels |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        own, best, ratio = row["engines"].get(OWN, {}), best_peer(row), ratio_of(row)
        cells = [row["work"]]
        if "median_ms" in own:
            limit = row["limit_ms"]
            share = f"{limit / own['median_ms']:.0%}" if limit else ""
            cells += [_short(own["median_ms"]), share]
        else:
            cells += [own.get("error", "not measured").splitlines()[0][:60].replace("|", "/"), ""]
        if best is None:
            cells += ["", ""]
        else:
            mark = " (kept)" if row["engines"][best].get("kept") else ""
            cells += [best + mark, _short(row["engines"][best]["median_ms"])]
        shown = "" if ratio is None else f"{ratio:.2f}"
        cells += [f"**{shown}**" if is_met(row) else shown]
        wanted = [f"{row['goal']:.2f}"]
        wanted += [
            f"{least:.0%} of limit" if name == "limit" else f"{name} {least:.2f}"
            for name, least in row["also"].items()
        ]
        cells += [", ".join(wanted), str(own.get("kernels", ""))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Geometric mean of the ratios: {mean_ratio(rows):.2f}. Bold: as wanted.", ""]
    return "\n".join(lines)


def _short(milliseconds: float) -> str:
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1
    return f"{milliseconds:,.{digits}f}"


def headline(record: dict[str, Any]) -> str:
    """How many times faster than each library, in geometric means over the rows it has."""
    rows, parts = record["figures"], []
    for peer, name in _LIBRARIES.items():
        times = _times_to(rows, peer)
        if times:
            where = "" if len(times) == len(rows) else f" ({len(times)} rows)"
            parts.append(f"{_geometric_mean(times):.2g}x faster than {name}{where}")
    return (
        f"Geometric means over {len(rows)} rows: {', '.join(parts)}; {mean_ratio(rows):.2f}x "
        "faster than the best of them, row by row."
    )


def selection(record: dict[str, Any]) -> str:
    """The headline and the selected rows, for README.md."""
    lines = [headline(record), ""]
    lines += ["| work | tilegrad | PyTorch as written | best of the others |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for name, row in _selected(record):
        torch, best = row["engines"]["torch"]["median_ms"], best_peer(row)
        assert best is not None
        cells = [name, f"{_short(row['engines'][OWN]['median_ms'])} ms", f"{_short(torch)} ms"]
        cells += [f"{_short(row['engines'][best]['median_ms'])} ms ({best})"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _selected(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    by_work = {row["work"]: row for row in record["figures"]}
    return [(name, by_work[work]) for work, name in _SELECTED.items() if work in by_work]


def summary(record: dict[str, Any]) -> str:
    """The headline and a table of all rows, for docs/speed.md."""
    lines = [
        headline(record),
        "",
        "| work | tilegrad, ms | of the limit | best of the others | ratio to it "
        "| to PyTorch as written |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in record["figures"]:
        own = row["engines"].get(OWN, {}).get("median_ms")
        ratio, theirs = ratio_of(row), _times_to([row], "torch")
        if own is None or ratio is None:
            continue
        # A measured limit is itself reached within a few percent only.
        share = f"{min(row['limit_ms'] / own, 1):.0%}" if row["limit_ms"] else ""
        cells = [row["work"], _short(own), share, best_peer(row) or "", f"{ratio:.2f}"]
        cells += [f"{theirs[0]:.1f}" if theirs else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def insert(text: str, page: Path) -> None:
    """Writes `text` into a page, between the two lines that stand for it there."""
    old = page.read_text()
    if old.count(_BEGIN) != 1 or old.count(_END) != 1:
        raise SystemExit(f"{page} needs the lines {_BEGIN!r} and {_END!r}, each once")
    before, rest = old.split(_BEGIN)
    after = rest.split(_END)[1]
    page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


def chart(record: dict[str, Any], path: Path) -> None:
    """Speed in the selected rows relative to PyTorch as written, beside the best of the others."""
    import matplotlib

    matplotlib.use("Agg")
    # The same record gives the same file.
    matplotlib.rcParams["svg.hashsalt"] = "tilegrad"
    from matplotlib import pyplot

    rows = _selected(record)
    figure, axis = pyplot.subplots(figsize=(7.6, 0.5 + 0.5 * len(rows)), layout="constrained")
    for place, (_, row) in enumerate(rows):
        times = {name: found.get("median_ms") for name, found in row["engines"].items()}
        best = best_peer(row)
        bars = ((OWN, "tilegrad", "#2a7f62"), (best or "", best or "", "#8c9aa8"))
        for offset, (name, label, colour) in zip((-0.2, 0.2), bars):
            length = times["torch"] / times[name]
            axis.barh(place + offset, length, color=colour, height=0.38)
            axis.text(length, place + offset, f" {length:.1f}x  {label}", va="center", size=7)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], size=8)
    axis.invert_yaxis()
    axis.set_xlim(0, axis.get_xlim()[1] * 1.2)
    axis.set_xlabel("speed relative to PyTorch as written (1 = PyTorch)", size=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def picture(record: dict[str, Any], path: Path) -> None:
    """A bar for each row, from 1 to its ratio, with a mark where it is wanted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in record["figures"] if ratio_of(row)]
    ratios = [ratio_of(row) or 1.0 for row in rows]
    figure, axis = pyplot.subplots(figsize=(9, 1 + 0.26 * len(rows)), layout="constrained")
    places = range(len(rows))
    colours = ["#2a7f62" if is_met(row) else "#c1666b" for row in rows]
    axis.barh(places, [r - 1 for r in ratios], left=1, color=colours, height=0.7)
    axis.plot([row["goal"] for row in rows], places, "|", color="black", markersize=9)
    for place, (ratio, row) in enumerate(zip(ratios, rows)):
        side = "left" if ratio >= 1 else "right"
        text = f" {ratio:.2f} {best_peer(row)} "
        axis.text(ratio, place, text, va="center", ha=side, size=6)
    axis.set_yticks(places, [row["work"] for row in rows], size=7)
    axis.invert_yaxis()
    axis.set_xscale("log", base=2)
    axis.set_xlim(min([0.25, *ratios]) / 2, max([4.0, *ratios]) * 2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("time of the best peer over that of tilegrad; a mark is what is wanted")
    axis.set_title(f"{record['machine']}, commit {record['commit'][:9]}", size=8)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def write(path: Path) -> None:
    """The table and the picture beside a result; no picture without matplotlib."""
    record = json.loads(path.read_text())
    path.with_suffix(".md").write_text(table(record))
    try:
        picture(record, path.with_suffix(".png"))
    except ModuleNotFoundError:
        print("no picture: matplotlib is not installed")


def changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Row by row, what became of tilegrad's time, kernels and bytes, and of the best peer's."""
    before = {row["work"]: row for row in old["figures"]}
    lines = [f"{old['commit'][:9]} of {old['date']} to {new['commit'][:9]} of {new['date']}"]
    quotients = []
    for row in new["figures"]:
        past = before.get(row["work"])
        then, now = (past or {}).get("engines", {}).get(OWN, {}), row["engines"].get(OWN, {})
        if "median_ms" not in then or "median_ms" not in now:
            lines.append(f"{row['work']:46} {'was not measured' if 'median_ms' in now else 'none'}")
            continue
        assert past is not None
        quotient = then["median_ms"] / now["median_ms"]
        quotients.append(quotient)
        word = "" if abs(math.log(quotient)) < _NOISE else "faster" if quotient > 1 else "SLOWER"
        text = f"{_short(then['median_ms']):>10} to {_short(now['median_ms']):>10} ms"
        text += f" {quotient:6.2f}x {word:6}"
        for key in ("kernels", "bytes"):
            if then.get(key) != now.get(key):
                text += f"  {key} {then.get(key)} to {now.get(key)}"
        ratios = ratio_of(past), ratio_of(row)
        if None not in ratios:
            text += f"  ratio {ratios[0]:.2f} to {ratios[1]:.2f}"
        lines.append(f"{row['work']:46} {text}")
    if quotients:
        mean = math.exp(sum(map(math.log, quotients)) / len(quotients))
        lines.append(f"geometric mean {mean:.3f}x over {len(quotients)} rows")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="the older result, the newer one")
    parser.add_argument("--write", action="store_true", help="table and picture of the files")
    parser.add_argument("--pages", action="store_true", help="what pages show, from a file")
    options = parser.parse_args()
    if options.write:
        for path in options.files:
            write(path)
        return
    if options.pages:
        for path in options.files:
            record = json.loads(path.read_text())
            insert(selection(record), ROOT.parent / "README.md")
            insert(summary(record), ROOT.parent / "docs" / "speed.md")
            chart(record, ROOT.parent / "docs" / "speed.svg")
        return
    files = options.files
    if not files:
        found = (ROOT / "results").glob(f"{machine_name()}-*.json")
        files = sorted(found, key=lambda path: path.stat().st_mtime)[-2:]
    if len(files) != 2:
        sys.exit(f"two results are needed, {len(files)} found: run make bench at two commits")
    old, new = (json.loads(path.read_text()) for path in files)
    print(changes(old, new))


if __name__ == "__main__":
    main()
