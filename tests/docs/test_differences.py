"""The page of differences: what it says is refused is not there, and it is not much."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tilegrad import Tensor


def test_refused_names_are_few_and_do_not_exist() -> None:
    page = (ROOT / "docs" / "differences.md").read_text()
    table = page[page.index("## Refused") : page.index("## Indexing")]
    names = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert 0 < len(names) <= 12
    assert [name for name in names if hasattr(Tensor, name)] == []
