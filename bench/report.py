"""A result of `bench/peers.py` as a table and as a picture, and the change from one to another.

python bench/report.py                  the last two results of this machine
python bench/report.py OLD NEW          two files
python bench/report.py --write FILE     table and picture again
python bench/report.py --readme FILE    the README's sentence and table
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

__all__ = ["OWN", "best_peer", "changes", "mean_ratio", "readme", "summary", "table", "write"]

OWN = "tilegrad"
# The README's part between these lines is written from a result.
_BEGIN, _END = "<!-- from bench/results -->", "<!-- to here -->"
# What a user has without choosing: the first way of each library in a row.
_LIBRARIES = {
    "torch": "PyTorch's time as written",
    "jax": "JAX's",
    "onnxruntime": "onnxruntime's",
    "tinygrad": "tinygrad's",
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


def summary(record: dict[str, Any]) -> str:
    """A sentence and a table for readers who look for their own work in it, in Markdown."""
    rows = record["figures"]
    parts = []
    for peer, words in _LIBRARIES.items():
        times = _times_to(rows, peer)
        if times:
            where = "" if len(times) == len(rows) else f" ({len(times)} rows)"
            parts.append(f"1/{_geometric_mean(times):.2g} of {words}{where}")
    lines = [
        f"Over the {len(rows)} rows, in geometric means, tilegrad takes {', '.join(parts)},",
        f"and 1/{mean_ratio(rows):.2f} of the time of the best of all of them, row by row.",
        "",
        "| work | tilegrad, ms | of the limit | best of the others | ratio to it "
        "| to PyTorch as written |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
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


def readme(record: dict[str, Any], page: Path) -> None:
    """Writes the summary into a page, between the two lines that stand for it there."""
    text = page.read_text()
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise SystemExit(f"{page} needs the lines {_BEGIN!r} and {_END!r}, each once")
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    page.write_text(f"{before}{_BEGIN}\n{summary(record)}\n{_END}{after}")


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
    parser.add_argument("--readme", action="store_true", help="the README's part from a file")
    options = parser.parse_args()
    if options.write:
        for path in options.files:
            write(path)
        return
    if options.readme:
        for path in options.files:
            readme(json.loads(path.read_text()), ROOT.parent / "README.md")
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
