"""Loads the table of log kinds (`log_kinds.toml`), which lists the details that a log line of each kind may have. `make schema`
generates `docs/logs.md` and the schema of a log line from this table.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

TEXTS = frozenset({"messages", "payload", "input", "result", "stopDetails"})
"""Names of details that contain text of people, of the model or of tools, unless the value is a number."""
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
NULLABLE = {
    (kind, detail)
    for kind, section in TABLE.items()
    for detail, line in (
        section | {one: TABLE["shared"][one] for one in section.get("shared", "").split()}
    ).items()
    if "null" in line.partition(": ")[0].split("|")
}
"""Pairs (log kind, detail): details that are written even if null. Any other detail is left out if null."""
