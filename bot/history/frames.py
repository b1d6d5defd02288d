"""Stores the parts of a request before its messages (system prompt, tool definitions), each once under its digest: the same
parts stand before thousands of requests. A part that only one chat has is kept in its transcript.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bot.contracts.environment import Disk
from bot.history import jsonl

FOLDER = "frames"
"""Beside the folders of the chats."""


def digest(part: Any) -> str:
    """The name of a part."""
    dumped = json.dumps(part, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:32]


def path(folder: Path, name: str) -> Path:
    """Return the path of a part that many chats share; `folder` is that of the transcripts."""
    return folder / FOLDER / f"{name}.json"


def dumps(part: Any) -> bytes:
    """A part as it is kept."""
    return jsonl.dumps({"v": 1, "part": part})


def read(disk: Disk, folder: Path, name: str) -> Any:
    """A part that many chats share; None where it is not there. Raises OSError."""
    return (jsonl.loads(disk.read(path(folder, name))) or {}).get("part")
