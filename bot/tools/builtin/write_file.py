"""`write_file`: writes a whole text file of the project."""

from __future__ import annotations

import asyncio

from pydantic import Field

from bot.contracts.tools import WRITES, ToolInput
from bot.tools import context
from bot.tools.file_provenance import provenance_in_view
from bot.tools.project import ProjectPath
from bot.tools.registry import ToolPorts

MOST = 1_000_000
"""Max characters of a file."""


class WriteFileInput(ToolInput):
    path: str
    content: str = Field(max_length=MOST)


class WriteFile:
    """Writes a file atomically and creates missing folders."""

    name = "write_file"
    description = "Write a text file of the project, whole; what was in it is gone."
    input = WriteFileInput
    effects = WRITES
    timeout_seconds = 30.0
    ages = True
    eager = True

    def __init__(self, ports: ToolPorts) -> None:
        self._project = ports.project
        self._origins = ports.origins
        self._vetting = ports.vetting

    async def run(self, args: WriteFileInput) -> str:
        data = args.content.encode()
        place, replaced = await asyncio.to_thread(self._write, args.path, data)
        context.touch(self._project.root.joinpath(*place.parts))
        return f"{place} is {'replaced' if replaced else 'written'}: {len(data)} bytes."

    def _write(self, path: str, data: bytes) -> tuple[ProjectPath, bool]:
        place = self._project.place(path)
        real = self._project.root.joinpath(*place.parts)
        with (
            self._vetting.writing(real, whole=True),
            self._origins.writing(str(place), provenance_in_view(), context.channel(), whole=True),
        ):
            return place, self._project.write(place, data)


def build(ports: ToolPorts) -> WriteFile:
    return WriteFile(ports)
