"""Limits the size of each tool result in the model's context, and the total size of the results of a step.

If a result is shortened, the whole result is stored as an artifact. The log stores the shortened text, so that every
later request contains the same bytes.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Log, Redact
from bot.contracts.model import ShownFile
from bot.contracts.provenance import ANYBODYS, Provenance
from bot.contracts.tools import Omission, ToolCall, ToolResult
from bot.picture_head import MOST_BYTES, SIDE, picture_of
from bot.sizes import fair_cap
from bot.storage.artifacts import ArtifactStore
from bot.tools import context, excerpt
from bot.tools.registry import Registry

# Token estimates are in units of `excerpt.weight`.
LASTING_ROOM = 4 * excerpt.ROOM
"""Max token estimate of a result that is never masked later, such as instructions, which must stay whole."""
STEP_ROOM = 4 * excerpt.ROOM
"""Max token estimate of all results of one step together."""
MOST_PICTURES, TOGETHER = 5, 10_000_000
"""Max pictures in one result, and max bytes of these pictures together. A person's message has the same limits."""
SHORT = 50 * excerpt.TOKEN
"""Max token estimate of a result that is never shortened. For an error, the limit is ten times as large."""
NO_ROOM = (
    f"Not shown: the results of one step together are too large. Call {excerpt.READER} again in the next step, with "
    "fewer calls at once."
)


class ResultLimits:
    """Limits the results of one step."""

    def __init__(self, registry: Registry, artifacts: ArtifactStore | None, log: Log) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._log = log
        self.kept: dict[str, str] = {}
        """Id of the artifact with the whole result, by call id."""

    async def one(
        self, call: ToolCall, content: str, origin: Provenance = ANYBODYS
    ) -> tuple[str, Omission | None]:
        """Shorten one result if it is too large. Return the text, and a record of the omission if there is one."""
        room = excerpt.ROOM if self._ages(call) else LASTING_ROOM
        # `read_artifact` pages its own results. The rest of such a result is on the next page.
        if call.name == excerpt.READER or excerpt.weight(content) <= room:
            return content, None
        kept = self.kept.get(call.id) or await self._keep(call, content, origin)
        return excerpt.excerpt(content, room, kept).shown

    async def pointer(self, call: ToolCall, whole: str, origin: Provenance = ANYBODYS) -> str:
        """Store the whole output. Return a line that names the artifact; "" if the output could not be stored."""
        kept = await self._keep(call, whole, origin)
        return f"\n[whole output: artifact {kept}, read it with {excerpt.READER}]" if kept is not None else ""

    async def pictures(self, call: ToolCall, found: Sequence[str], redact: Redact) -> tuple[list[Json], str]:
        """Store those pictures (base64) of a result that can be shown. Return the stored pictures, and lines of text
        about the others.
        """
        kept, room, notes = list[ShownFile](), TOGETHER, ""
        for number, data in enumerate(found, 1):
            shown = await asyncio.to_thread(_shown, data, room, redact) if len(kept) < MOST_PICTURES else None
            if shown is not None and (artifact := await self._keep(call, data, ANYBODYS)) is not None:
                kept.append(replace(shown, artifact=artifact))
                room -= shown.size
            else:
                notes += f"\n[image {number} is not shown: it is none, too large, or one too many]"
        return [asdict(one) for one in kept], notes

    async def step(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult]:
        """Shorten the results of a step if they are too large together. The largest results are shortened first,
        results that are never masked last. Short results, errors and tool definitions stay unchanged. A definition is
        useful only as a whole.
        """
        shown = list(results)
        loads = [
            excerpt.weight(
                one if isinstance(one := result.content, str) else json.dumps(one, ensure_ascii=False)
            )
            for result in shown
        ]
        room = STEP_ROOM - sum(loads)
        if room >= 0:
            return shown
        groups: dict[str, list[int]] = {"pages": [], "aging": [], "lasting": []}
        for at, (call, result) in enumerate(zip(calls, shown, strict=True)):
            if isinstance(result.content, str) and loads[at] > (10 * SHORT if result.failed else SHORT):
                kind = "aging" if self._ages(call) else "lasting"
                groups["pages" if call.name == excerpt.READER else kind].append(at)
                room += loads[at]
        for at in groups["pages"]:
            if loads[at] > room:
                shown[at] = replace(shown[at], content=NO_ROOM, failed=True, omission=None)
                loads[at] = excerpt.weight(NO_ROOM)
            room -= loads[at]
        for kind, other in (("aging", "lasting"), ("lasting", "aging")):
            share = fair_cap(
                [loads[at] for at in groups[kind]], room - sum(loads[at] for at in groups[other])
            )
            for at in groups[kind]:
                if share is not None and loads[at] > max(share, SHORT):
                    shown[at] = await self._smaller(calls[at], shown[at], share)
                    loads[at] = excerpt.weight(str(shown[at].content))
        self._log.write(
            "tool_result", "the results of a step were shortened to fit together", results=len(shown)
        )
        return shown

    async def _smaller(self, call: ToolCall, result: ToolResult, room: int) -> ToolResult:
        content = str(result.content)
        if (found := excerpt.shown_by(content, result.omission)) is not None:
            words, left_out = found.within(room).shown
        else:
            kept = await self._keep(call, content, ANYBODYS if result.origin is None else result.origin)
            words, left_out = excerpt.excerpt(content, room, kept).shown
        return replace(result, content=words, omission=left_out)

    def _ages(self, call: ToolCall) -> bool:
        tool = self._registry.get(call.name)
        return tool is None or tool.ages

    async def _keep(self, call: ToolCall, content: str, origin: Provenance) -> str | None:
        if self._artifacts is None:
            return None
        about: dict[str, Any] = {"tool": call.name, "tool_use_id": call.id}
        try:
            turn = context.current()
            kept = await self._artifacts.put(
                content, chat_key=turn.chat_key, request_id=turn.request_id, origin=origin, **about
            )
        except (errors.StorageError, errors.ToolError) as error:
            words = "a large tool result is not kept whole"
            self._log.write("storage", words, level="error", cause=str(error), **about)
            return None
        self.kept[call.id] = kept
        return kept


def _shown(data: str, room: int, redact: Redact) -> ShownFile | None:
    """Return a decoded picture; None if the data (base64) is no picture, is too large, or contains a secret."""
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    found, words = picture_of(raw), raw.decode("latin-1")
    if found is None or len(raw) > min(room, MOST_BYTES) or max(found.width, found.height) > SIDE:
        return None
    return ShownFile("", found.type, len(raw), found.tokens) if redact(words) == words else None
