"""The documents name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)\b")
OTHERS = {"brotli.py", "hatch_build.py", "sitecustomize.py"}
"""Files outside of these folders."""


def test_every_module_and_test_that_a_document_names_is_there() -> None:
    there = [path.as_posix() for top in ("bot", "channels", "tests") for path in (ROOT / top).rglob("*.py")]
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = {
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents
        for name in NAMED.findall(document.read_text("utf-8"))
        if name not in OTHERS and not any(path.endswith(f"/{name}") for path in there)
    }
    assert missing == set()
