"""MkDocs hooks. They add documents outside of `docs/` to the site, and turn links between files into links between pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BESIDE = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "deploy").iterdir()))
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")


def _place(path: Path) -> str:
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


def on_files(files: Files, config: Any) -> None:
    """Add the documents of the top level and the files that deploy/README.md links to."""
    for path in BESIDE:
        if path.name != "Agent.md":
            added = File.generated(
                config, _place(path), abs_src_path=str(path), inclusion=InclusionLevel.INCLUDED
            )
            files.append(added)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Replace links to files by links to the pages made of these files."""
    here = Path(page.file.abs_src_path or DOCS / page.file.src_uri).parent
    folder = posixpath.dirname(page.file.src_uri)

    def place(found: re.Match[str]) -> str:
        target = Path(posixpath.normpath(here / found[2]))
        if not target.is_relative_to(ROOT):
            return found[0]
        return found[1] + posixpath.relpath(_place(target), folder or ".")

    return LINK.sub(place, markdown)
