"""Limits the size of each tool result in the model's context, and the total size of the results of a step.

A large result is shortened to its beginning, its end, and a note that names the artifact with the whole result. The log
stores the shortened text, so that every later request contains the same bytes. Sizes are token estimates (`weight`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Log, Redact
from bot.contracts.messages import ANYBODYS, Provenance
from bot.contracts.model import ShownFile
from bot.contracts.tools import Omission, ToolCall, ToolResult
from bot.picture_head import MOST_BYTES, SIDE, picture_of
from bot.storage.artifacts import ArtifactStore
from bot.tools import context

if TYPE_CHECKING:
    from bot.tools.dispatch import Registry

READER = "read_artifact"  # Name of the tool that reads artifacts
TOKEN = 33
"""Number of units that make one token in a token estimate. An ASCII character counts as 10 units, a CJK character as 33 units,
any other character as a number of units between these two.
"""
ROOM = 2_500 * TOKEN  # Max token estimate of one tool result in the model's context (2,500 tokens)
LASTING_ROOM = 4 * ROOM
"""Max token estimate of a result that later requests never leave out, such as the instructions of a skill."""
STEP_ROOM = 4 * ROOM  # Max token estimate of all results of one step together
SHORT = 50 * TOKEN
"""Max token estimate of a result that is never shortened. For an error, the limit is ten times as large."""
MOST_PICTURES, TOGETHER = 5, 10_000_000
"""Max pictures in one result, and max bytes of these pictures together. A person's message has the same limits."""
NO_ROOM = (
    f"Not shown: the results of one step together are too large. Call {READER} again in the next step, with "
    "fewer calls at once."
)
_ASCII, _OTHER, _WIDE = 10, 20, TOKEN
_NARROW_BYTES, _WIDE_BYTES = bytes(range(0x80)), bytes(range(0xE3, 0xF5))
_FIRST_WIDE = re.compile(rb"\xe2[\xba-\xbf]")
"""Pattern of the first two UTF-8 bytes of those wide characters (from U+2E80) that begin with the byte E2."""
_HEAD = 0.6  # Share of the available size for the beginning of a text


def weight(words: str) -> int:
    """Return the token estimate of a text, in units of 1/33 token."""
    if words.isascii():
        return len(words) * _ASCII
    # Counting the first bytes of UTF-8 sequences is several times faster than examining characters.
    data = words.encode("utf-8", "surrogatepass")
    narrow = len(data) - len(data.translate(None, _NARROW_BYTES))
    wide = len(data) - len(data.translate(None, _WIDE_BYTES)) + len(_FIRST_WIDE.findall(data))
    return narrow * _ASCII + (len(words) - narrow - wide) * _OTHER + wide * _WIDE


def fitting(words: str, room: int) -> int:
    """Return the number of leading characters of a text whose token estimate is at most `room`."""
    fit, end = 0, min(len(words), max(0, room) // _ASCII)
    while fit < end:
        middle = (fit + end + 1) // 2
        more = weight(words[fit:middle])
        if more <= room:
            fit, room = middle, room - more
        else:
            end = middle - 1
    return fit


def fitting_rows(rows: Iterable[str], room: int, most: int) -> tuple[list[str], bool]:
    """Return the first rows that fit: at most `most` rows, and a total token estimate of at most `room`. Return also True if
    rows are left out.
    """
    shown = list[str]()
    for row in rows:
        room -= weight(row) + _ASCII
        if len(shown) == most or room < 0:
            return shown, True
        shown.append(row)
    return shown, False


def excerpt(words: str, room: int, artifact: str | None) -> tuple[str, Omission | None]:
    """Shorten a text: keep its beginning and its end, with a note between them. The token estimate of the result is at most
    `room`. The note is never shortened. Return also a record of the omission; None if the whole text was not stored in an artifact.
    """
    where = f"whole result: artifact {artifact}, read it with {READER}"
    if artifact is None:
        where = "they are lost, the whole result could not be kept"
    note = f"[… {{}} lines, {{}} characters omitted; {where}]"
    # The numbers that the note will contain have at most as many digits as these.
    room -= weight(note.format(words.count("\n"), len(words))) + 2 * _ASCII
    begin = text.border(words, fitting(words, int(room * _HEAD)))
    most = max(1, room // _ASCII)
    behind = fitting(words[-most:][::-1], room - weight(words[:begin]))
    end = text.border_after(words, len(words) - behind)
    lines, characters = words.count("\n", begin, end), end - begin
    head, tail = words[:begin], words[end:]
    content = "\n".join(part for part in (head, note.format(lines, characters), tail) if part)
    if artifact is None:
        return content, None
    return content, Omission(artifact, lines, characters, len(head), len(content) - len(tail))


@dataclass(eq=False)
class ResultLimits:
    """Limits the results of one step."""

    registry: Registry
    artifacts: ArtifactStore | None
    log: Log
    _whole: dict[str, str] = field(default_factory=dict)  # Shortened results, by call id

    async def one(self, call: ToolCall, content: str, origin: Provenance) -> tuple[str, Omission | None]:
        """Shorten one result if it is too large. Return the text and a record of the omission; None if nothing is omitted."""
        room = ROOM if self._ages(call) else LASTING_ROOM
        # `read_artifact` pages its own results. The rest of the artifact is on the next page.
        if call.name == READER or weight(content) <= room:
            return content, None
        self._whole[call.id] = content
        return excerpt(content, room, await self.keep(call, content, origin))

    async def pictures(self, call: ToolCall, found: Sequence[str], redact: Redact) -> tuple[list[Json], str]:
        """Store those pictures (base64) of a result that can be shown. Return the stored pictures, and lines of text about the
        other pictures.
        """
        kept, room, notes = list[ShownFile](), TOGETHER, ""
        for number, data in enumerate(found, 1):
            shown = await asyncio.to_thread(_shown, data, room, redact) if len(kept) < MOST_PICTURES else None
            if shown is not None and (artifact := await self.keep(call, data, ANYBODYS)) is not None:
                kept.append(replace(shown, artifact=artifact))
                room -= shown.size
            else:
                notes += f"\n[image {number} is not shown: it is none, too large, or one too many]"
        return [asdict(one) for one in kept], notes

    async def step(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult]:
        """Shorten the results of a step if they are too large together. The largest results are shortened first, and results
        that later requests never leave out are shortened last. Short results, errors and tool definitions stay unchanged.
        """
        shown = list(results)
        contents = (one.content for one in shown)
        texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in contents)
        loads = list(map(weight, texts))
        if (room := STEP_ROOM - sum(loads)) >= 0:
            return shown
        groups: dict[str, list[int]] = {"pages": [], "aging": [], "lasting": []}
        for at, (call, result) in enumerate(zip(calls, shown, strict=True)):
            if isinstance(result.content, str) and loads[at] > (10 * SHORT if result.failed else SHORT):
                kind = "aging" if self._ages(call) else "lasting"
                groups["pages" if call.name == READER else kind].append(at)
                room += loads[at]
        for at in groups["pages"]:
            if loads[at] > room:
                shown[at] = replace(shown[at], content=NO_ROOM, failed=True, omission=None)
                loads[at] = weight(NO_ROOM)
            room -= loads[at]
        for kind, other in (("aging", "lasting"), ("lasting", "aging")):
            left = room - sum(loads[at] for at in groups[other])
            share = fair_cap([loads[at] for at in groups[kind]], left)
            for at in groups[kind]:
                if share is not None and loads[at] > max(share, SHORT):
                    shown[at] = await self._smaller(calls[at], shown[at], share)
                    loads[at] = weight(str(shown[at].content))
        words = "the results of a step were shortened to fit together"
        self.log.write("tool_result", words, results=len(shown))
        return shown

    async def _smaller(self, call: ToolCall, result: ToolResult, room: int) -> ToolResult:
        content, kept = str(result.content), None if result.omission is None else result.omission.artifact
        if kept is None:
            kept = await self.keep(call, content, ANYBODYS if result.origin is None else result.origin)
        else:
            content = self._whole.get(call.id, content)
        words, left_out = excerpt(content, room, kept)
        return replace(result, content=words, omission=left_out)

    def _ages(self, call: ToolCall) -> bool:
        tool = self.registry.get(call.name)
        return tool is None or tool.ages

    async def keep(self, call: ToolCall, content: str, origin: Provenance) -> str | None:
        """Store a text as an artifact. Return the artifact's id; None if storing the text failed."""
        if self.artifacts is None:
            return None
        about: dict[str, Any] = {"tool": call.name, "tool_use_id": call.id}
        try:
            turn = context.current()
            return await self.artifacts.put(
                content, chat_key=turn.chat_key, request_id=turn.request_id, origin=origin, **about
            )
        except (errors.StorageError, errors.ToolError) as error:
            words = "a large tool result is not kept whole"
            self.log.write("storage", words, level="error", cause=str(error), **about)
            return None


def _shown(data: str, room: int, redact: Redact) -> ShownFile | None:
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    found, words = picture_of(raw), raw.decode("latin-1")
    if found is None or len(raw) > min(room, MOST_BYTES) or max(found.width, found.height) > SIDE:
        return None
    return ShownFile("", found.type, len(raw), found.tokens) if redact(words) == words else None


def fair_cap(loads: Sequence[int], room: int) -> int | None:
    """Return the size to which larger loads must be cut, so that all loads together fit into `room`. Return None if all loads
    fit uncut.
    """
    if sum(loads) <= room:
        return None
    left, ordered = room, sorted(loads)
    for place, load in enumerate(ordered):
        share = left // (len(ordered) - place)
        if load > share:
            return max(0, share)
        left -= load
    return None
