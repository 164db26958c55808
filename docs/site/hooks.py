"""What mkdocs calls while it builds the site (mkdocs.yml): pages that are made from the code, the
front page from README.md, and a place in the navigation for every page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site import reference  # noqa: E402


def on_config(config: Any) -> Any:
    """The reference's pages, and guides and decisions that mkdocs.yml does not name."""
    pages = [{page.title: page.path} for page in reference.find()]
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    docs = Path(config.docs_dir)
    found = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    for entry in config.nav:
        for title, content in entry.items():
            if title == "Reference":
                entry[title] = pages
            elif title == "Guides":
                content += [path for path in found if "/" not in path and path not in named]
            elif title == "Decisions":
                content += [path for path in found if path.startswith("decisions/")
                            and path not in named]  # fmt: skip
    return config


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "index.md", content=front_page()))
    for page in reference.find():
        files.append(File.generated(config, page.path, content=reference.page(page)))
    return files


def front_page() -> str:
    """README.md, whose links start in the project's folder."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([\w/-]+\.(?:md|svg)(?:#[\w-]+)?)\)", r"](\1)", text)
    return re.sub(r"`docs/([\w/-]+\.md)`", r"[`docs/\1`](\1)", text)
