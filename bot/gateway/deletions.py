"""Deletions: what its author has deleted, or somebody wants forgotten. A line in the archive says so, readers hide the
text, and what was derived from it goes; nothing on file is erased for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Role
from bot.contracts.channel import Manifest
from bot.contracts.environment import Clock, Log, ends_within
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import InboxRecord, Journal
from bot.contracts.memory_files import MemoryFiles, MemoryOwner
from bot.contracts.outbound import OutboxRow
from bot.core.access import Access
from bot.features.conversations.earlier import RECENT_SECONDS
from bot.features.jobs.service import JobService
from bot.features.listening.participation import SKEW, UnaddressedMessages
from bot.gateway.background import BackgroundTasks
from bot.gateway.conversation import Turn
from bot.gateway.delivery import Delivery
from bot.words import say, speaking

_R = TypeVar("_R")
LAST = "last"
AGAIN_SECONDS = 5.0
"""Until a removal that the disk refused is tried again."""
PATIENCE = 5.0
"""Seconds that a turn waits for what was edited or deleted before it."""
_DAY = 86_400_000
MOST = 200
"""Lines of one message, or of one turn, that are looked at; and inbounds at a time."""


@dataclass(frozen=True, slots=True)
class _Target:
    """A message: whose words (`role`), who may have it removed, the requestIds of its inbound and of their turns. `ids`
    are those of all messages that it stands for, `quoted` the turns that answered somebody who quoted one of them. `ts`
    is the time of its last line (ms), 0 where none is known.
    """

    message_id: str
    role: Role
    person: str | None
    of: tuple[str, ...]
    turns: tuple[str, ...]
    ids: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()
    ts: int = 0

    @property
    def turns_to_forget(self) -> tuple[str, ...]:
        """The turns that have made something which may tell of it."""
        return tuple(dict.fromkeys((*self.turns, *self.quoted)))


class DeletionService:
    """Removes messages from the archive, from artifacts and from memory files; the agent then forgets them too."""

    def __init__(
        self,
        *,
        journal: Journal,
        archive: Archive,
        artifacts: Artifacts,
        memory_files: MemoryFiles,
        delivery: Delivery,
        agent: Agent,
        access: Access,
        manifests: Mapping[str, Manifest],
        clock: Clock,
        log: Log,
        jobs: JobService,
        tasks: BackgroundTasks,
        heard: UnaddressedMessages,
    ) -> None:
        self._heard = heard
        self._jobs = jobs
        self._tasks = tasks
        self._journal = journal
        self._archive = archive
        self._artifacts = artifacts
        self._memory_files = memory_files
        self._delivery = delivery
        self._agent = agent
        self._access = access
        self._manifests = manifests
        self._clock = clock
        self._log = log
        self._under_way: dict[ChatKey, dict[str, asyncio.Event]] = {}

    async def deleted(self, deletion: Inbound) -> list[ChatKey]:
        """A platform says that the author has deleted a message; the conversations in which there was anything to remove.
        Doing it again changes nothing. Raises `errors.StorageError`.
        """
        message_id = deletion.message_id or ""
        target = await self._target(deletion, message_id)
        if target is None and deletion.opens:
            # What was said while the whole chat was one conversation is there.
            above = deletion.model_copy(update={"chat_key": deletion.chat_key.chat})
            target = await self._target(above, message_id)
            deletion = above if target is not None else deletion
        target = target or await self._unknown(deletion, message_id, deletion.user_id)
        if target is None and deletion.chat_type == "group":
            # No conversation has it; a mention may have brought it along.
            return await self._remove_elsewhere(
                deletion, _target(message_id, deletion.user_id, ts=deletion.ts)
            )
        if target is None or target.role != "user" or target.person != deletion.user_id:
            return []
        places = await self._remove(deletion, target)
        await self._take_back(deletion, target)
        return places

    async def remove(self, deletion: Inbound) -> list[ChatKey] | None:
        """The same where a disk that refuses must not keep anything else from going on: None then, which is told, and what it
        does not take now goes `at_last`.
        """
        try:
            return await self.deleted(deletion)
        except errors.StorageError as error:
            self._log.write("error", "a removal could not be recorded", level="error", cause=str(error))
            return None

    async def at_last(self, deletion: Inbound) -> list[ChatKey]:
        """Do what the disk has refused as soon as it takes that."""
        return await self._again(partial(self.deleted, deletion))

    async def _again(self, work: Callable[[], Awaitable[_R]]) -> _R:
        """Do once more what the disk has refused, until it takes it."""
        while True:
            await self._clock.sleep(AGAIN_SECONDS)
            with contextlib.suppress(errors.StorageError):  # told already
                return await work()

    @contextlib.contextmanager
    def under_way(self, change: Inbound) -> Iterator[None]:
        """While this goes on, `settled` waits for it."""
        going = self._under_way.setdefault(change.chat_key, {})
        done = going[change.request_id] = asyncio.Event()
        try:
            yield
        finally:
            done.set()
            del going[change.request_id]
            if not going:
                self._under_way.pop(change.chat_key, None)

    async def settled(self, chat_key: ChatKey) -> None:
        """Return once what was edited or deleted before is on file, so that a turn that begins knows of it; after
        `PATIENCE` seconds in any case, which nobody has for the same change again.
        """
        going = list(self._under_way.get(chat_key, {}).values())
        if not going:
            return
        all_of_them = asyncio.gather(*[done.wait() for done in going])
        try:
            if not await ends_within(PATIENCE, all_of_them, self._clock):
                for done in going:
                    done.set()
        finally:
            all_of_them.cancel()

    async def command(self, inbound: Inbound) -> str:
        """Carry out `/forget`; what to say of it. Raises `errors.StorageError`; asked again, it goes on."""
        words = inbound.args.split()
        asked = inbound.answers or next((word for word in words if word != LAST), None)
        manifest = self._manifests[inbound.channel]
        if asked is not None:
            answer, places = await self._one(inbound, asked)
        elif LAST in words or manifest.access == "local":
            answer, places = await self._last(inbound)
        else:
            return say("forget.how", prefix=manifest.command_prefix)
        for place in places:
            await self._agent.forget(place)
        return answer

    async def _one(self, inbound: Inbound, message_id: str) -> tuple[str, list[ChatKey]]:
        target = await self._target(inbound, message_id)
        if target is None:
            quoted = (one for one in inbound.quoted if one.message_id == message_id and not one.from_self)
            heard_of = self._heard.author(inbound.chat_key, message_id)
            said_by = next((one.user_id for one in quoted), heard_of)
            target = await self._unknown(inbound, message_id, said_by)
            if target is None and heard_of is not None:
                target = _target(message_id, heard_of)
        if target is None:
            return say("forget.unknown"), []
        if target.person != inbound.user_id and not self._access.is_operator(inbound.person):
            return say("forget.not_yours"), []
        self._heard.forget(inbound.chat_key, message_id)
        return say("forget.done"), await self._remove(inbound, target)

    async def _last(self, inbound: Inbound) -> tuple[str, list[ChatKey]]:
        """The newest message of a person, and what answered it. The message goes last: until then, a crash leaves it
        the newest.
        """
        removals = await self._archive.removals(inbound.chat_key)
        own = (line.meta or {} for line in removals if line.request_id == inbound.request_id)
        if any(meta.get("ofRole") == "user" for meta in own):
            return say("forget.done"), [inbound.chat_key]
        query = HistoryQuery(
            limit=1,
            role="user",
            skip=lambda line: line.user_id != inbound.user_id or line.message_id is None,
        )
        lines = (await self._archive.search(inbound.chat_key, query)).lines
        target = await self._target(inbound, lines[0].message_id or "") if lines else None
        if target is None:
            return say("forget.nothing"), []
        answers = HistoryQuery(
            limit=MOST, role="assistant", skip=lambda line: line.request_id not in target.turns
        )
        for line in (await self._archive.search(inbound.chat_key, answers)).lines:
            if (answer := await self._target(inbound, line.message_id or "")) is not None:
                await self._remove(inbound, answer)
        return say("forget.done"), await self._remove(inbound, target)

    async def _target(self, inbound: Inbound, message_id: str) -> _Target | None:
        """The message of a chat with this id, which may be that of any part of an answer."""
        records = await self._journal.about(inbound.chat_key, message_id)
        said = [one.inbound for one in records if one.inbound.kind in {"message", "edit"}]
        query = HistoryQuery(
            limit=MOST,
            after=await self._since(inbound.chat_key, message_id, said),
            skip=lambda line: message_id not in _ids(line),
            everything=True,
        )
        lines = (await self._archive.search(inbound.chat_key, query)).lines
        answers = [line for line in lines if line.role == "assistant"]
        ids = tuple(sorted({message_id}.union(*map(_ids, lines))))
        quoted = await self._turns(
            [one.inbound.request_id for one in await self._quoting(inbound.chat_key, ids)]
        )
        if answers and not any(line.role == "user" for line in lines):
            request_id = answers[-1].request_id
            asked = await self._journal.inbound(request_id)
            person = asked.inbound.user_id if asked is not None else None
            turns = tuple(filter(None, [request_id]))
            name = answers[-1].message_id or message_id
            return _Target(name, "assistant", person, turns, turns, ids, quoted, answers[-1].ts)
        people = [line.user_id for line in lines] or [one.user_id for one in said]
        if not people:
            return None
        of = tuple(
            dict.fromkeys(
                [*filter(None, (line.request_id for line in lines)), *(one.request_id for one in said)]
            )
        )
        albums = [line.message_id for line in lines if line.message_id and "messageIds" in (line.meta or {})]
        turns = await self._turns(of)
        ts = max([line.ts for line in lines] or [one.ts for one in said])
        return _Target(next(iter(albums), message_id), "user", people[0], of, turns, ids, quoted, ts)

    async def _unknown(self, inbound: Inbound, message_id: str, said_by: str | None) -> _Target | None:
        """A message that the bot was never told, whose author the platform names: its words may have been quoted, by a
        person or as what was said before in a thread. None where nothing was said in that chat yet.
        """
        known = await self._archive.search(
            inbound.chat_key, HistoryQuery(limit=1, everything=True, counted=False)
        )
        if not (message_id and said_by and known.lines):
            return None
        quoting = await self._quoting(inbound.chat_key, (message_id,))
        turns = await self._turns([one.inbound.request_id for one in quoting])
        return _target(message_id, said_by, turns, inbound.ts if inbound.kind == "delete" else 0)

    async def _quoting(self, chat_key: ChatKey, ids: Sequence[str]) -> list[InboxRecord]:
        """The messages of people that answer messages with these ids."""
        found = [one for name in ids for one in await self._journal.quoting(chat_key, name)]
        return [one for one in found if one.inbound.command is None]

    async def _since(self, chat_key: ChatKey, message_id: str, said: Sequence[Inbound]) -> int | None:
        """From when on lines of a message can be in the archive, as far as the journal knows: what is older need not be
        read. Clocks may differ by a day.
        """
        if said:
            return min(one.ts for one in said) - _DAY
        request_id = await self._journal.delivered_as(chat_key, message_id)
        record = await self._journal.inbound(request_id) if request_id is not None else None
        return record.inbound.ts - _DAY if record is not None else None

    async def _turns(self, requests: Sequence[str]) -> tuple[str, ...]:
        """The turns that answered these inbound: what joined a running turn was answered by that."""
        found: dict[str, None] = {}
        for request_id in requests:
            record = await self._journal.inbound(request_id)
            found[(record.turn_id if record is not None else None) or request_id] = None
        return tuple(found)

    async def _remove(self, inbound: Inbound, target: _Target) -> list[ChatKey]:
        """Remove it from its conversation, and from those that began with it in view; returns them. All of it may be done
        again.
        """
        await self._remove_here(inbound, target)
        return [inbound.chat_key, *await self._remove_elsewhere(inbound, target)]

    async def _take_back(self, inbound: Inbound, target: _Target) -> None:
        """Take what the answers to a message repeat of it out of what people see; what is on file of such an answer is removed."""
        about = [one for name in target.ids for one in await self._journal.about(inbound.chat_key, name)]
        said = {one.inbound.text for one in about if one.inbound.kind != "delete"}

        def left(row: OutboxRow) -> str:
            with speaking(row.language):
                answer, gone = row.text, say("marks.removed")
            for words in said:
                answer = without_repetitions(answer, words, gone)
            return answer

        for turn in target.turns:
            for row in await self._journal.deliveries(turn):
                if row.kind != "reply" or row.state != "sent" or row.message_id is None:
                    continue
                if (words := await asyncio.to_thread(left, row)) == row.text:
                    continue
                if await self._journal.delivered_as(row.chat_key, row.message_id) != turn:
                    continue  # another answer stands in its place
                answer = await self._target(inbound, row.message_id)
                if answer is not None and answer.role == "assistant":
                    await self._remove_here(inbound, answer)
                await self._delivery.amend(row.revise(words))

    async def _remove_elsewhere(self, inbound: Inbound, target: _Target) -> list[ChatKey]:
        places = []
        for place, requests in (await self._begun_with(inbound, target)).items():
            turns = await self._turns(requests)
            if inbound.chat_type == "group":
                turns = await self._shown(place, turns, target)
            if turns:
                elsewhere = replace(target, of=(), turns=(), quoted=turns)
                await self._remove_here(inbound.model_copy(update={"chat_key": place}), elsewhere)
                places.append(place)
        return places

    async def _shown(self, place: ChatKey, turns: Sequence[str], target: _Target) -> tuple[str, ...]:
        """Those of these turns of a group that were shown a message. Of one that goes on nobody can tell yet."""
        records = {turn: await self._journal.turn(turn) for turn in turns}
        ended = [turn for turn, one in records.items() if one is None or one.ended_at is not None]
        shown = {turn for name in target.ids for turn in await self._agent.quoting(place, ended, name)}
        return tuple(turn for turn in turns if turn in shown or turn not in ended)

    async def _begun_with(self, inbound: Inbound, target: _Target) -> dict[ChatKey, list[str]]:
        """The other conversations of a chat that may have been shown this message, with the requests that brought it: in a
        direct chat as the last exchange, in a group with a mention.
        """
        direct, found = inbound.chat_type == "direct", dict[ChatKey, list[str]]()
        if not target.ts:
            return found
        until = target.ts + int(SKEW * 1000) + (int(RECENT_SECONDS * 1000) if direct else _DAY)
        since = target.ts / 1000 - SKEW
        async for said in self._said(inbound.chat_key.chat, since, (until + _DAY) / 1000):
            brings = said.opens if direct else said.addressed == "mention"
            if said.kind == "message" and said.chat_key != inbound.chat_key and brings and said.ts <= until:
                found.setdefault(said.chat_key, []).append(said.request_id)
        return found

    async def _said(self, chat: ChatKey, since: float, until: float) -> AsyncIterator[Inbound]:
        """All that was taken in between these times, the newest first, some at a time."""
        seen: set[str] = set()
        while True:
            records = await self._journal.said_in(chat, since=since, until=until, limit=MOST)
            new = [one.inbound for one in records if one.inbound.request_id not in seen]
            for said in new:
                yield said
            if not new or len(records) < MOST:
                return
            seen, until = {one.inbound.request_id for one in records}, records[-1].received_at

    async def _remove_here(self, inbound: Inbound, target: _Target) -> None:
        """Say so in the archive of a conversation, and let go what its turns have made."""
        known = {line.message_id for line in await self._archive.removals(inbound.chat_key)}
        if target.message_id not in known:
            await self._archive.append(self._line(inbound, target))
        # A note of a later turn names the message itself, also where that joined another's turn; so do its files.
        made = tuple(dict.fromkeys((*target.turns_to_forget, *target.of)))
        person = UserRef(inbound.channel, target.person) if target.person is not None else None
        jobs_of = target.turns if target.role == "user" else ()
        artifacts, notes = await self._let_go(inbound.chat_key, person, made, jobs_of)
        self._log.write(
            "removal",
            "a message was removed",
            chat_key=inbound.chat_key,
            request_id=inbound.request_id,
            message_id=target.message_id,
            role=target.role,
            by=inbound.user_id,
            artifacts=artifacts,
            notes=notes,
        )

    async def end(self, turn: Turn) -> None:
        """Let go what a turn has made for messages that were deleted while it ran: what it was at then may have come
        behind their removal.
        """
        made = sorted(turn.withdrawn)
        if not made:
            return
        if not turn.left:
            made.append(turn.first.request_id)
        let_go = partial(
            self._let_go, turn.first.chat_key, turn.first.person, made, () if turn.left else made
        )
        try:
            await let_go()
        except errors.StorageError as error:
            self._log.write("error", "a removed file is still kept", level="error", cause=str(error))
            self._tasks.start(self._again(let_go))

    async def _let_go(
        self, chat_key: ChatKey, person: UserRef | None, made_by: Sequence[str], jobs_of: Sequence[str]
    ) -> tuple[int, int]:
        """Remove artifacts and notes that were made by these messages and turns, and jobs of these turns; how many artifacts
        and lines of notes there were.
        """
        artifacts = await self._artifacts.forget(chat_key, made_by)
        notes = await self._memory_files.forget(MemoryOwner("chat", str(chat_key)), made_by)
        if person is not None:
            notes += await self._memory_files.forget(MemoryOwner("person", str(person)), made_by)
        if jobs_of:
            await self._jobs.forget(frozenset(jobs_of))
        return artifacts, notes

    def _line(self, inbound: Inbound, target: _Target) -> ArchiveLine:
        return ArchiveLine.of(
            inbound,
            ts=int(self._clock.now() * 1000),
            message_id=target.message_id,
            role="system",
            text="",
            meta={
                "deleted": True,
                "requestId": inbound.request_id,
                "of": list(target.of),
                "ofRole": target.role,
                "turns": list(target.turns_to_forget),
            }
            | ({"messageIds": list(target.ids)} if set(target.ids) > {target.message_id} else {}),
        )


def _target(message_id: str, person: str, turns: tuple[str, ...] = (), ts: int = 0) -> _Target:
    """A message that no conversation has as its own."""
    return _Target(message_id, "user", person, (), (), (message_id,), turns, ts)


def _ids(line: ArchiveLine) -> set[str]:
    """The ids of the messages that a line stands for."""
    parts = (line.meta or {}).get("messageIds", ())
    return {str(line.message_id), *map(str, parts)} if line.message_id is not None else set()


RUN = 5
"""Words in a row that are a passage."""
UNSPACED = 8
"""Characters in a row that are one in a writing without spaces."""
SHORTEST = 12
"""Weight of a whole message that is one, as letters; of a writing without spaces each counts as two."""
MOST_WORDS = 2_000
"""Words of a message that are looked at."""
_TELLING = re.compile(r"\S*\d\S*\d\S*")
"""A word with two digits or more, as codes, dates and addresses have."""
_EDGES = ".,;:!?()[]{}<>\"'“”‘’«»、。，！？：；（）「」*_`~"


def without_repetitions(answer: str, message: str, gone: str) -> str:
    """The answer with `gone` in place of what it repeats of a message. May take long for long texts."""
    spans = sorted(_spans(answer, message))
    if not spans:
        return answer
    parts, end = list[str](), 0
    for start, stop in spans:
        if start >= end:
            parts += [answer[end:start], gone]
        end = max(end, stop)
    return re.sub(rf"{re.escape(gone)}(?:\s+{re.escape(gone)})+", gone, "".join([*parts, answer[end:]]))


def _spans(answer: str, message: str) -> Iterator[tuple[int, int]]:
    folded = " ".join(answer.casefold().split())
    for passage in dict.fromkeys(_passages(message)):
        if " ".join(passage.casefold().split()) not in folded:
            continue
        pattern = r"\s+".join(map(re.escape, passage.split()))
        yield from (found.span() for found in re.finditer(pattern, answer, re.IGNORECASE))


def _passages(message: str) -> Iterator[str]:
    words = message.split()[:MOST_WORDS]
    whole = " ".join(words)
    if sum(2 if sign > "\u2e7f" else 1 for sign in whole if sign.isalnum()) >= SHORTEST:
        yield whole
    for at in range(len(words) - RUN + 1):
        yield " ".join(words[at : at + RUN])
    for word in (one.strip(_EDGES) for one in words):
        if len(word) >= 4 and _TELLING.fullmatch(word):
            yield word
        if word[:1] > "\u2e7f":
            yield from (word[at : at + UNSPACED] for at in range(len(word) - UNSPACED + 1))
