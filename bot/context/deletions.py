"""Applies user deletions to the model's view: message blocks stay (tool-call pairing), their text becomes `[message removed]`.

Reading is pure; the change itself is a boundary with `blank`, the uuids of the messages (`bot.context.replay`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.base import Message
from bot.contracts.transcript import UNCHANGED, Boundary, MessageEvent, TranscriptLine, TurnStart
from bot.core import blocks, quotes
from bot.core.removal import REMOVED


@dataclass(frozen=True, slots=True)
class Deletions:
    """The targets of removals: messages of people by their requestIds, answers by those of their turns, and what was
    taken from an archive by role and id of the message. `turns` are all those that had to do with it, each with the ids
    of its messages that are gone. `ids` are those of all messages that are gone, by which others quote them, and of their
    turns, by which notes name them. `spans` are
    the ULIDs between which each of them may have been shown to the model: from its first turn to the wish itself.
    """

    words: frozenset[str]
    answers: frozenset[str]
    messages: frozenset[tuple[str, str]]
    turns: dict[str, frozenset[str]]
    ids: frozenset[str] = frozenset()
    spans: tuple[tuple[str, str], ...] = ()

    def names(self, said: MessageEvent, sources: Iterable[str]) -> bool:
        """True if a message is meant that came from these, and from what it says itself."""
        wanted = self.words if said.role == "user" else self.answers
        return self.names_line(said.adopted) or not wanted.isdisjoint([*sources, *said.sources])

    def names_line(self, key: ArchiveKey | None) -> bool:
        """True if a line of the archive of this chat is meant."""
        return key is not None and key.chat is None and (key.role, key.message) in self.messages


def read_deletions(removals: Iterable[ArchiveLine]) -> Deletions:
    """Return the targets of an archive's removals."""
    words, answers, messages, ids = set[str](), set[str](), set[tuple[str, str]](), set[str]()
    turns: dict[str, frozenset[str]] = {}
    spans: list[tuple[str, str]] = []
    for line in removals:
        meta = line.meta or {}
        role, of = str(meta.get("ofRole", "user")), [str(one) for one in meta.get("of", ())]
        (answers if role == "assistant" else words).update(of)
        for turn in map(str, meta.get("turns", of)):
            turns[turn] = turns.get(turn, frozenset()) | {str(line.message_id)}
        messages.add((role, str(line.message_id)))
        ids.update(ids_of(line))
        if shown := [*of, *map(str, meta.get("turns", ()))]:
            ids.update(shown)
            spans.append((min(shown), line.request_id))
    return Deletions(
        frozenset(words), frozenset(answers), frozenset(messages), turns, frozenset(ids), tuple(spans)
    )


def ids_of(removal: ArchiveLine) -> set[str]:
    """The ids of what is gone with a removal: an answer may be several messages, and so may an album."""
    return {str(removal.message_id), *map(str, (removal.meta or {}).get("messageIds", ()))}


def shown_between(lines: Iterable[TranscriptLine], wanted: Deletions) -> list[tuple[str, str]]:
    """The ULIDs between which what is gone was shown to the model: to the wish itself, and where the view still had it then,
    to the line that took it out.
    """
    found = list(wanted.spans)
    for line in lines:
        event = line.event
        if isinstance(event, Boundary):
            unquoted = frozenset(event.unquoted)
            shown = [*event.blank, *(turn for turn, gone in wanted.turns.items() if gone & unquoted)]
            if shown:
                found.append((min(shown), line.uuid))
    return found


def tells(wanted: Deletions, line: TranscriptLine) -> bool:
    """True if a line has to be looked at for these removals: `with_quotes`, `ids_to_redact`, `quoted` and `summed_up` find in the
    others nothing.
    """
    event = line.event
    if isinstance(event, Boundary):
        return bool(event.blank or event.unquoted or event.head is not UNCHANGED)
    if line.request_id in wanted.words | wanted.answers:
        return True
    if not isinstance(event, MessageEvent):
        return False
    return bool(event.sources or event.adopted or quotes.ids(event.message) & wanted.ids)


def with_quotes(lines: Iterable[TranscriptLine], wanted: Deletions) -> Deletions:
    """The same with the turns in which somebody quoted what is gone: what they made may tell of it too."""
    turns = dict(wanted.turns)
    for line in lines:
        gone = quotes.ids(line.message) & wanted.ids if line.message is not None else frozenset()
        if gone and line.request_id is not None:
            turns[line.request_id] = turns.get(line.request_id, frozenset()) | gone
    return replace(wanted, turns=turns)


def quoted(lines: Iterable[TranscriptLine], wanted: Deletions) -> tuple[list[str], int]:
    """The ids of messages that are gone and still quoted, and when the first of them was (ms)."""
    found: dict[str, int] = {}
    for line in lines:
        if isinstance(line.event, Boundary):
            for one in line.event.unquoted:
                found.pop(one, None)
        elif isinstance(line.event, MessageEvent):
            for one in (quotes.ids(line.event.message) & wanted.ids).difference(line.event.unquoted):
                found.setdefault(one, line.ts)
    return sorted(found), min(found.values(), default=0)


def ids_to_redact(lines: Iterable[TranscriptLine], wanted: Deletions) -> tuple[list[str], int]:
    """The uuids of the messages that have to be blanked and are not yet, and when the first of them was written (ms)."""
    found: dict[str, int] = {}
    first = False
    for line in lines:
        event = line.event
        if isinstance(event, TurnStart):
            first = True
        elif isinstance(event, Boundary):
            for uuid in event.blank:
                found.pop(uuid, None)
        elif isinstance(event, MessageEvent) and not blocks.is_results(event.message):
            own = [line.request_id or ""] if first or event.role == "assistant" else []
            if wanted.names(event, own):
                found[line.uuid] = line.ts
            first = first and event.role != "user"
    return list(found), min(found.values(), default=0)


def summed_up(lines: Iterable[TranscriptLine], since: int) -> bool:
    """True if the newest summary was written at that time (ms) or later: it may tell of what was said then. One that was
    only put in other words (`again`) is as old as it was.
    """
    found = ((line.ts, line.event) for line in lines if isinstance(line.event, Boundary))
    told = [ts for ts, one in found if one.head is not UNCHANGED and not one.again]
    return bool(told) and told[-1] >= since


def unquoted(message: Message, ids: Collection[str]) -> Message:
    """A message without the words of those that it quotes and that have these ids."""
    return quotes.without(message, ids, REMOVED)
