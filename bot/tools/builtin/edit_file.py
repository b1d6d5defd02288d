"""`edit_file`: replaces one passage in a text file of the project."""

from __future__ import annotations

import asyncio
import os

from pydantic import Field

from bot import errors
from bot.contracts.tools import WRITES, ToolInput
from bot.documents import encoding
from bot.tools import context
from bot.tools.file_provenance import provenance_in_view
from bot.tools.project import ProjectPath, stamp
from bot.tools.registry import ToolPorts

LARGEST = 4 * 1024 * 1024
"""Max bytes of a file."""


class EditFileInput(ToolInput):
    path: str
    old_str: str = Field(min_length=1, description="Occurs once.")
    new_str: str


class EditFile:
    """Replaces a text that occurs exactly once in a file. The file keeps its encoding, line ends and mode."""

    name = "edit_file"
    description = "Replace a passage of a text file of the project."
    input = EditFileInput
    effects = WRITES
    timeout_seconds = 30.0
    ages = True
    eager = True

    def __init__(self, ports: ToolPorts) -> None:
        self._project = ports.project
        self._origins = ports.origins
        self._vetting = ports.vetting

    async def run(self, args: EditFileInput) -> str:
        place, line = await asyncio.to_thread(self._edit, args)
        context.touch(self._project.root.joinpath(*place.parts))
        return f"{place} is changed, at line {line}."

    def _edit(self, args: EditFileInput) -> tuple[ProjectPath, int]:
        place = self._project.place(args.path)
        with os.fdopen(self._project.open(place), "rb") as file:
            known, raw = stamp(os.fstat(file.fileno())), file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise errors.ToolError(f"{place} has more than {LARGEST} bytes and cannot be edited.")
        if (kind := encoding.binary_kind(raw[: encoding.SNIFF])) is not None:
            raise errors.ToolError(f"{place} is a {kind}. Only text can be edited.")
        name = encoding.bom_encoding(raw) or "utf-8"
        try:
            words = raw.decode(name)
        except UnicodeDecodeError:
            raise errors.ToolError(f"{place} is not UTF-8 and cannot be edited without harm.") from None
        changed, line = replaced(words, args.old_str, args.new_str)
        data, real = changed.encode(name), self._project.root.joinpath(*place.parts)
        with (
            self._vetting.writing(real, whole=False),
            self._origins.writing(str(place), provenance_in_view(), context.channel(), whole=False),
        ):
            self._project.write(place, data, known=known)
        return place, line


def replaced(words: str, old: str, new: str) -> tuple[str, int]:
    """Return the text with one passage replaced, and the line number of the passage. The text keeps its line
    ends. Raises `errors.ToolError`.
    """
    windows = "\r\n" in words and words.count("\n") == words.count("\r\n")
    if windows:
        words, old, new = (one.replace("\r\n", "\n") for one in (words, old, new))
    if old == new:
        raise errors.ToolError("old_str and new_str are the same. Nothing was changed.")
    count = words.count(old)
    if count != 1:
        first = old.strip("\n").split("\n")[0].strip()
        lines = [f"{at}" for at, line in enumerate(words.split("\n"), 1) if first and first in line][:10]
        where = f" Its first line is in the lines {', '.join(lines)}." if lines else ""
        raise errors.ToolError(
            f"old_str has to occur exactly once; it occurs {count} times.{where} Nothing was changed."
        )
    at = words.index(old)
    changed = words[:at] + new + words[at + len(old) :]
    return changed.replace("\n", "\r\n") if windows else changed, words.count("\n", 0, at) + 1


def build(ports: ToolPorts) -> EditFile:
    return EditFile(ports)
