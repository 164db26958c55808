"""Closed sets of named values."""

from __future__ import annotations

import copy
import pickle

import pytest

from tilegrad.base.members import Members
from tilegrad.ir.op import Axis, Ops


class Shade(Members):
    DARK = ("dark", 1)
    LIGHT = ("light", 2)

    def __init__(self, word: str, number: int):
        self.word, self.number = word, number

    def louder(self) -> str:
        return self.word.upper()


def test_members_are_found_by_name_and_by_value() -> None:
    assert [shade.name for shade in Shade] == ["DARK", "LIGHT"] and len(Shade) == 2
    assert Shade["LIGHT"] is Shade.LIGHT and Axis("loop") is Axis.LOOP
    assert (Shade.LIGHT.number, Shade.LIGHT.louder(), repr(Shade.LIGHT)) == (
        2,
        "LIGHT",
        "Shade.LIGHT",
    )
    with pytest.raises(ValueError, match="no Axis"):
        Axis("blue")


def test_a_copied_member_is_the_same() -> None:
    for member in (Ops.ADD, Axis.REDUCE):
        assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is member
        assert member in type(member) and isinstance(member, type(member))
