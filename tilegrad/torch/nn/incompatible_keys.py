"""What `load_state_dict` gives: the names that did not match."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["IncompatibleKeys"]


class IncompatibleKeys(NamedTuple):
    """Names that only the model, or only the dict, has."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys({self.missing_keys=}, {self.unexpected_keys=})".replace(
            "self.", ""
        )
