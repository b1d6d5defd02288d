"""Reading a session from its end, no farther back than what counts still stands.

A boundary may name what it leaves (`bot.context.checkpoint`): the uuids of messages before it, and of the first line of
a turn that was running. From the newest such boundary on everything is read, before it these lines alone; the others
are passed over without a look inside. Without any boundary the newest turns may be enough, those that are more than a
store can hold.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from bot.contracts.environment import OpenFile
from bot.contracts.transcript import (
    Boundary,
    Event,
    MessageEvent,
    RetainedView,
    TranscriptLine,
    TurnEnd,
    TurnStart,
    messages,
)
from bot.core import jsonl
from bot.history.transcript import chain
from bot.history.transcript.lines import LEAD, parsed

_BOUNDARY = b'"boundary"'
_COMPACTED, _PRESERVED = b'"compact_boundary"', b'"preserved'
_MESSAGE = re.compile(rb'\{"v":\d+,"uuid":"[^"]*","parentUuid":(?:null|"[^"]*"),"type":"(?:user|assistant)"')
_HEAD = re.compile(
    rb'\{"v":\d+,"uuid":"[^"]*","parentUuid":(?:null|"[^"]*"),"type":"([a-z_]+)","ts":-?\d+,"chatKey":"(?:[^"\\]|\\.)*",'
    rb'"sessionId":"[^"]*"(?:,"requestId":"([^"\\]*)")?[,}]'
)
_TS = re.compile(rb'\{"v":\d+,"uuid":"[^"]*","parentUuid":(?:null|"[^"]*"),"type":"[a-z_]+","ts":(-?\d+)')
_TOLD_BY = frozenset({b"turn_start", b"user", b"assistant"})
_MORE = (b'"sources"', b'"adopted"', b"quoted_messages")


@dataclass(slots=True)
class LoadedLines:
    """Lines of a session, in order: all of them, or those from a boundary on that names what it leaves.

    `base` is that boundary, one of `lines`; `segment` holds the messages it names, and before it stand only lines of
    the turn that was running then. `unreadable` are offsets in the file.
    """

    lines: list[TranscriptLine]
    base: TranscriptLine | None = None
    segment: dict[str, TranscriptLine] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)
    circles: list[str] = field(default_factory=list)
    """Circles in the parent chain of lines that another program wrote."""

    @property
    def messages(self) -> dict[str, MessageEvent]:
        """The messages of the segment, by uuid."""
        return messages(self.segment.values())


def newest(file: OpenFile) -> LoadedLines:
    """Read the effective lines of a session. All lines where no boundary tells, where one that tells names lines that are not there,
    and where lines of another making come before it is found.
    """
    after: list[TranscriptLine] = []
    unreadable: list[int] = []
    found = _backwards(file)
    for offset, raw in found:
        line = parsed(raw)
        if line is None and jsonl.loads(raw) is None:
            unreadable.append(offset)
            continue
        if line is None or _is_foreign(line):
            return whole(file, _compacted(raw, offset, found))
        after.append(line)
        kept = _kept(line)
        if kept is None:
            continue
        if any(one.uuid <= line.uuid for one in after[:-1]):
            break  # a line from before the boundary, written once more; or ids of another making
        segment, running = _before(found, kept)
        if segment is None:
            break
        lines = [*running, *_once(after)]
        return LoadedLines(lines, line, segment, unreadable[::-1])
    else:
        return LoadedLines(_once(after), unreadable=unreadable[::-1])
    return whole(file)


def _has_boundary(file: OpenFile, size: int) -> bool:
    """True if there may be a boundary in the first `size` bytes, which are not parsed for that."""
    overlap = len(_BOUNDARY)
    starts = range(0, size, jsonl.PIECE)
    return any(_BOUNDARY in file.read(at, min(jsonl.PIECE + overlap, size - at)) for at in starts)


def whole(file: OpenFile, start: int = 0) -> LoadedLines:
    """All lines, each uuid once: where it stands first. What is of another making stands before what is ours. What
    stands in the first `start` bytes is left out.
    """
    lines: dict[str, TranscriptLine] = {}
    foreign: list[chain.Node] = []
    unreadable: list[int] = []
    before: str | None = None
    end = start
    for raw in jsonl.lines(file, start):
        offset, end = end, end + len(raw) + 1
        if not raw.strip():
            continue
        line = parsed(raw)
        if line is not None and not _is_foreign(line):
            lines.setdefault(line.uuid, line)
            continue
        node = chain.node(jsonl.loads(raw) or {}, offset, before)
        if node is None:
            unreadable.append(offset)
            continue
        foreign.append(node)
        before = node.uuid if node.message is not None else before
    if not foreign:
        return LoadedLines(list(lines.values()), unreadable=unreadable)
    uuids = {one.uuid for one in foreign}
    if start and any(one.parent is not None and one.parent not in uuids for one in foreign):
        return whole(file)  # somebody went back to before that
    found = chain.chain(foreign)
    return LoadedLines(
        [*_in_turns(found.nodes), *lines.values()], unreadable=unreadable, circles=found.circles
    )


def _compacted(raw: bytes, offset: int, found: Iterator[tuple[int, bytes]]) -> int:
    """Return the offset of the line at which a session of another making was compacted last; 0 if no line tells. It breaks the
    chain: nothing follows from what stands before. `found` are the lines before `raw`, backwards.
    """
    for at, one in itertools.chain([(offset, raw)], found):
        if one.startswith(LEAD):
            return 0  # a line of ours
        if _COMPACTED in one:
            value = jsonl.loads(one) or {}
            if value.get("subtype") == "compact_boundary" and value.get("type") == "system":
                # One that keeps messages before it relinks them.
                return at if value.get("parentUuid") is None and _PRESERVED not in one else 0
    return 0


def _is_foreign(line: TranscriptLine) -> bool:
    """True if a line is none of ours: our messages tell their turn."""
    return line.message is not None and "role" in line.message and line.request_id is None


def _in_turns(nodes: Iterable[chain.Node]) -> Iterator[TranscriptLine]:
    """Messages of another making with turns around them, as we would have written them."""
    for turn in chain.turns(nodes):
        first, last = turn[0], turn[-1]
        told: list[tuple[str, int, Event, str | None]] = [(f"{first.uuid}<", first.ts, TurnStart(), None)]
        for node in turn:
            said = MessageEvent(role=node.role or "user", message=node.message or {})
            told.append((node.uuid, node.ts, said, node.parent))
        told.append((f"{first.uuid}>", last.ts, TurnEnd(), None))
        for uuid, ts, event, parent in told:
            yield TranscriptLine(uuid=uuid, ts=ts, event=event, request_id=first.uuid, parent_uuid=parent)


def turn_end(file: OpenFile, request_id: str) -> TurnEnd | None:
    """Return the newest end of a turn; None if it did not end."""
    needle = request_id.encode("utf-8", "replace")
    for _, raw in _backwards(file):
        if needle in raw and b'"turn_end"' in raw:
            line = parsed(raw)
            if line is not None and isinstance(line.event, TurnEnd) and line.request_id == request_id:
                return line.event
    return None


def telling(
    file: OpenFile, requests: Collection[str], counts: Callable[[TranscriptLine], bool]
) -> list[TranscriptLine] | None:
    """The lines of a session that may tell of these turns, or of messages at all: boundaries, the messages of the turns, and
    others that have sources or quote something, if they count. What is left out is not kept in memory. None where the
    session has lines of another making.
    """
    wanted = {request.encode("utf-8", "replace") for request in requests}
    found: list[TranscriptLine] = []
    for raw in jsonl.lines(file):
        head = _HEAD.match(raw)
        if head is None:
            if raw.strip() and jsonl.loads(raw) is not None:
                return None
            continue
        kind, request = head.groups()
        asked = kind in _TOLD_BY and (request in wanted or any(one in raw for one in _MORE))
        if kind == b"boundary" or asked:
            line = parsed(raw)
            if line is not None and counts(line):
                found.append(line)
    return found


def expired(file: OpenFile, before: int) -> list[tuple[int, int]]:
    """Return the ranges of the lines that are older than a time (ms), stand before the newest boundary that tells what it leaves, and are
    not named by it: without them `newest` returns the same. [] where no boundary tells.
    """
    if not _has_boundary(file, file.size) or (loaded := newest(file)).base is None:
        return []
    needed = {line.uuid for line in loaded.lines} | loaded.segment.keys()
    found: list[tuple[int, int]] = []
    end, goes = 0, True
    for raw in jsonl.lines(file):
        begin, end = end, end + len(raw) + 1
        uuid = uuid_of(raw)
        if uuid == loaded.base.uuid:
            break
        if (ts := _TS.match(raw)) is not None:  # one that cannot be read goes with those before it
            goes = int(ts[1]) < before and uuid not in needed
        if goes:
            begin = found.pop()[0] if found and found[-1][1] == begin else begin
            found.append((begin, end))
    return found


def is_message(raw: bytes) -> bool:
    """True if a line of ours is a message, by its beginning alone."""
    return _MESSAGE.match(raw) is not None


def uuid_of(raw: bytes) -> str:
    """The uuid of a line, without a look at the rest where it is one of ours; "" where it has none."""
    if raw.startswith(LEAD):
        begin = len(LEAD)
        return raw[begin : raw.find(b'"', begin)].decode("utf-8", "replace")
    return str((jsonl.loads(raw) or {}).get("uuid", ""))


def _before(
    found: Iterator[tuple[int, bytes]], kept: RetainedView
) -> tuple[dict[str, TranscriptLine] | None, list[TranscriptLine]]:
    """The lines before a boundary that it names: messages by uuid, None where one is missing, and those from the
    beginning of the running turn on.
    """
    segment: dict[str, TranscriptLine] = {}
    running: list[TranscriptLine] = []
    wanted, since = {uuid for turn in kept.turns for uuid in turn.uuids}, kept.since
    looking = since is not None
    while wanted or looking:
        raw = next(found, (0, None))[1]
        if raw is None:
            return None, []
        uuid = uuid_of(raw)
        if uuid not in wanted and not looking:
            continue
        line = parsed(raw)
        if line is None:
            continue
        if uuid in wanted:
            wanted.discard(uuid)
            segment[uuid] = line
        if looking:
            running.append(line)
            looking = uuid != since
    return segment, _once(running)


def _kept(line: TranscriptLine) -> RetainedView | None:
    """Return what a boundary leaves; None if it does not say."""
    return line.event.kept if isinstance(line.event, Boundary) else None


def _once(backwards: list[TranscriptLine]) -> list[TranscriptLine]:
    """Lines that were read from the end, in order, each uuid once."""
    lines: dict[str, TranscriptLine] = {}
    for line in reversed(backwards):
        lines.setdefault(line.uuid, line)
    return list(lines.values())


def _backwards(file: OpenFile) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, last to first, with its offset in the file."""
    at = file.size
    for raw in jsonl.lines_backwards(file):
        offset = at - len(raw)
        if raw.strip():
            yield offset, raw
        at = offset - 1
