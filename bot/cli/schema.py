"""`python -m bot.cli.schema` writes the schemas in this folder's `.ship/schema` and the tables in
docs/logs.md again.
"""

from __future__ import annotations

from pathlib import Path

from bot import config, discovery
from bot.contracts import log_kinds
from bot.system import SystemDisk

DOCUMENT = Path("docs/logs.md")
BEGIN, END = "<!-- kinds: made by `make schema` -->\n", "<!-- end of kinds -->\n"


def with_tables(document: str) -> str:
    """Return the document with new tables of log kinds between its two marks."""
    before, _, rest = document.partition(BEGIN)
    return before + BEGIN + "\n" + log_kinds.tables() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    config.write_schema(Path(".ship/schema"), discovery.manifests(), SystemDisk())
    if DOCUMENT.exists():  # the document exists only in the source tree
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
