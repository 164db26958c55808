"""The server of the page, on this machine only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.base.trace import PassRecord
from tilegrad.viz.pass_states import code_at, count_of_states, state_of
from tilegrad.viz.sections import Row, Section, in_package, sections_of

__all__ = ["Page", "PageServer", "serve"]

_HERE = "127.0.0.1"
# How many further ports are tried where one is taken.
_TRIES = 20
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/graph.js": ("graph.js", "text/javascript"),
    "/layout.js": ("layout.js", "text/javascript"),
    "/dagre.min.js": ("dagre.min.js", "text/javascript"),
}


class Page:
    """Requests that the page may make."""

    def __init__(self, sections: Sequence[Section]):
        self.sections = sections
        self.rows: list[Row] = [row for section in sections for row in section.rows]

    def answer(self, path: str) -> Any:
        """`/sections`, `/row/3`, or `/state/3/1`: a row, and a state of it, by number.

        Raises KeyError, ValueError or IndexError where there is nothing of the kind.
        """
        name, *numbers = path.strip("/").split("/")
        if name == "sections" and not numbers:
            return self._listed()
        first = int(numbers[0])
        if first < 0:
            raise IndexError(first)
        row = self.rows[first]
        if name == "row" and len(numbers) == 1:
            return self._row(row)
        if name == "state" and len(numbers) == 2:
            found = state_of(row, int(numbers[1]))
            if found["code"] is not None:
                found["code"] = asdict(found["code"])
            return found
        raise KeyError(path)

    def _listed(self) -> list[dict[str, Any]]:
        number = iter(range(len(self.rows)))
        return [
            {
                "kind": section.kind,
                "name": section.name,
                "calls": section.calls,
                "source": section.source,
                "rows": [
                    {
                        "id": next(number),
                        "name": row.name,
                        "location": _position(row.location),
                        "depth": row.depth,
                        "changes": row.changes,
                        "isByRules": row.is_by_rules,
                    }
                    for row in section.rows
                ],
            }
            for section in self.sections
        ]

    def _row(self, row: Row) -> dict[str, Any]:
        code = code_at(row.location)
        return {
            "states": count_of_states(row),
            "rules": [step.rule for step in row.record.steps] if row.is_by_rules else [row.name],
            "code": None if code is None else asdict(code),
        }


def _position(location: tuple[str, int]) -> str:
    return f"{in_package(location[0])}:{location[1]}" if location[0] else ""


class PageServer(HTTPServer):
    """Serves a `Page` on a port of this machine, and to no other. Threads are not needed, and could
    not be started any more when the program has ended.

    Raises DeviceError where neither the port nor the next ones are free.
    """

    def __init__(self, page: Page, port: int):
        self.page = page
        for number in range(port, min(port + _TRIES, 65_536)):
            try:
                super().__init__((_HERE, number), _Handler)
                return
            except OSError:
                # Taken, perhaps by another program's page.
                continue
        raise DeviceError(
            f"viz: no port from {port} to {port + _TRIES - 1} is free", remedy="VIZ=9000: another"
        )

    @property
    def address(self) -> str:
        return f"http://{_HERE}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """Answer with a file of the page or with JSON."""
        # A page of another site, whose name leads here, gets nothing.
        if (self.headers.get("Host") or "").rpartition(":")[0] not in (_HERE, "localhost"):
            self.send_error(403)
            return
        if self.path in _FILES:
            name, kind = _FILES[self.path]
            self._send((Path(__file__).with_name("page") / name).read_bytes(), kind)
            return
        try:
            found = self.server.page.answer(self.path)
        except (KeyError, ValueError, IndexError):
            self.send_error(404)
            return
        self._send(json.dumps(found).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the program's."""


def serve(record: Sequence[PassRecord], port: int = 8000) -> None:
    """Serve the page of a record on 127.0.0.1, at `port` or the next that is free, until Ctrl-C.

    Raises DeviceError where none is free.
    """
    start = time.perf_counter()
    count = sum(len(entry.steps) for entry in record)
    _say(f"{len(record)} passes with {count} rewrites")
    page = Page(sections_of(record))
    left_out = getattr(record, "left_out", 0)
    _say(f"loaded in {_ms(start)} ms" + (f"; {left_out} later passes left out" if left_out else ""))
    with PageServer(page, port) as server:
        _say(f"ready in {_ms(start)} ms at {server.address}; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _say("ended")


def _ms(start: float) -> int:
    return round((time.perf_counter() - start) * 1000)


def _say(text: str) -> None:
    print(f"viz: {text}", file=sys.stderr, flush=True)
