"""`tqdm` and `trange` of `tinygrad.helpers`: a line that is rewritten while a loop runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, Self, TypeVar

__all__ = ["tqdm", "trange"]

T = TypeVar("T")
_PAUSE_S = 0.1
_WIDTH = 20


class tqdm(Generic[T]):
    """Iterate and show how far it is, on a terminal as one line. Elsewhere the line is written
    once, at the end.
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "",
        disable: bool = False,
        unit: str = "it",
        unit_scale: bool | float = False,
        total: int | None = None,
        rate: int = 100,
        **ignored: Any,
    ):
        self.iterable, self.disable, self.unit = iterable, disable, unit
        self.desc = f"{desc}: " if desc else ""
        self.t = total if total is not None or not isinstance(iterable, Sized) else len(iterable)
        self.n = 0
        self._is_terminal = sys.stderr.isatty()
        self._start = time.perf_counter()
        self._shown = 0.0
        self._is_closed = False

    def __iter__(self) -> Iterator[T]:
        assert self.iterable is not None
        try:
            for item in self.iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def set_description(self, desc: str) -> None:
        """The text in front, from the next update on."""
        self.desc = f"{desc}: " if desc else ""

    def update(self, n: int = 0, close: bool = False) -> None:
        """`n` more are done."""
        self.n += n
        now = time.perf_counter()
        if close:
            self.close()
        elif self._is_terminal and not self.disable and now - self._shown > _PAUSE_S:
            self._shown = now
            sys.stderr.write(f"\r{self._line()}\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        """Write the last state; what comes after has no effect."""
        if not self._is_closed and not self.disable:
            start, end = ("\r", "\x1b[K\n") if self._is_terminal else ("", "\n")
            sys.stderr.write(f"{start}{self._line()}{end}")
            sys.stderr.flush()
        self._is_closed = True

    def _line(self) -> str:
        seconds = time.perf_counter() - self._start
        rate = f"{self.n / seconds if seconds else 0:.2f}{self.unit}/s"
        if not self.t:
            return f"{self.desc}{self.n}{self.unit} {seconds:.1f}s {rate}"
        done = "#" * min(_WIDTH, _WIDTH * self.n // self.t)
        return f"{self.desc}|{done:{_WIDTH}s}| {self.n}/{self.t} {seconds:.1f}s {rate}"

    @staticmethod
    def write(s: str) -> None:
        """Print a line above the bar."""
        sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
        sys.stderr.flush()
        print(s)


def trange(n: int, **options: Any) -> tqdm[int]:
    """`tqdm(range(n))`."""
    return tqdm(range(n), **options)
