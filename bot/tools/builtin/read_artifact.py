"""`read_artifact`: reads a large tool result or a file by pages, or searches in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot import errors
from bot.storage.artifacts import ArtifactMatches
from bot.tools import context, result_limits
from bot.tools.builtin import ToolPorts, tool

PAGE = 8_000  # Max characters of one page
ROOM = result_limits.ROOM - 3_000
"""Max token estimate of a page, in units of `result_limits.weight`. The rest of `result_limits.ROOM` is for the line above the page."""


@tool("Read or search a tool result or file that was put away as an artifact.")
async def read_artifact(
    ports: ToolPorts,
    *,
    id: Annotated[str, Field(min_length=1, max_length=100)],  # noqa: A002 - the name is fixed
    offset: Annotated[int, Field(ge=0, description="Character to begin at.")] = 0,
    limit: Annotated[int, Field(ge=1, le=PAGE, description="Characters.")] = PAGE,
    grep: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Lines with this text, any case.")
    ] = None,
) -> str:
    """Read an artifact of the current chat. The result is a page that fits the context, so it never becomes an artifact."""
    artifact_id, chat_key = id.strip().upper(), context.current().chat_key
    if grep is not None:
        if "\n" in grep:
            raise errors.ToolError("One line is searched at a time. Give a text without line breaks.")
        matches = await ports.artifacts.grep(artifact_id, chat_key, grep, offset=offset, limit=limit)
        context.report_provenance(matches.origin)
        return _found(matches)
    page = await ports.artifacts.read(artifact_id, chat_key, offset=offset, limit=limit)
    context.report_provenance(page.origin)
    if not page.text:
        raise errors.ToolError(f"The artifact ends at character {page.characters}. Use a smaller offset.")
    if (fits := result_limits.fitting(page.text, ROOM)) < len(page.text):
        page = await ports.artifacts.read(artifact_id, chat_key, offset=offset, limit=fits)
    rest = f"go on with offset {page.end}" if page.end < page.characters else "this is the end"
    return (
        f"[characters {page.offset} to {page.end} of {page.characters}, lines {page.line} to {page.last} of "
        f"{page.lines}; {rest}]\n{page.text}"
    )


def _found(matches: ArtifactMatches) -> str:
    if not matches.found:
        return "No line from there on holds this text."
    rows = [f"line {match.line}, offset {match.offset}: {match.text}" for match in matches.found]
    lines = result_limits.fitting_rows(rows, ROOM, len(rows))[0] or rows[:1]
    following = matches.next if lines == rows else matches.found[len(lines)].offset
    rest = f"; for the others go on with offset {following}" if following is not None else ""
    return "\n".join([f"[{len(lines)} of {matches.total} lines{rest}]", *lines])


TOOLS = (read_artifact,)
