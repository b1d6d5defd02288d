"""Deletion of data. A person removes a message: by a deletion on the platform, or by the command `/forget`. Retention deletes
data older than the retention time of its chat. Both kinds of deletion change the log and everything derived from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from bot import errors
from bot.contracts.base import Json, Role
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.archive_files import ArchiveFiles
from bot.core.chats import TITLE, Fact
from bot.core.events import Event
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.removal import Gone, blanked
from bot.storage import jsonl
from bot.storage.notes import MemoryOwner
from bot.system import ULID, JumpSafeClock, ulid_time
from bot.words import say

LAST = "last"
INTERVAL_SECONDS = 3_600.0
SLICE = 5_000  # max events deleted per transaction, because new events wait until the transaction ends
_DAY = 86_400.0
_FILE = ".bin"


@dataclass(frozen=True, slots=True)
class Target:
    """A message to remove. `person` is the author, who may remove it. `gone` names the data to erase in the log. `related`
    are the turns that answered the message or a message that quotes it.
    """

    message: str
    role: Role
    person: str
    gone: Gone
    related: frozenset[str] = frozenset()


@dataclass(eq=False)
class Removal:
    run: Runtime

    async def deleted(self, deletion: Inbound) -> Done:
        """Remove a message that its author deleted on the platform."""
        message = deletion.message_id or ""
        target = await self._target(deletion.chat_key, message) or await self._quoted(deletion, message)
        if target is None or target.role != "user" or target.person != deletion.user_id:
            return Done()
        return Done(facts=await self._removed(deletion, [target]))

    async def forget(self, inbound: Inbound) -> Done:
        """Run `/forget`, in reply to the message to remove. `/forget last` removes the person's last message and its answer."""
        words = inbound.args.split()
        asked = inbound.answers or next((word for word in words if word != LAST), None)
        manifest = self.run.manifests[inbound.channel]
        if asked is not None:
            target = await self._target(inbound.chat_key, asked)
            if target is None:
                return Done(say("forget.unknown"))
            if target.person != inbound.user_id and not self.run.access.is_operator(inbound.person):
                return Done(say("forget.not_yours"))
            targets = [target]
        elif LAST in words or manifest.access == "local":
            targets = await self._last(inbound)
            if not targets:
                return Done(say("forget.nothing"))
        else:
            return Done(say("forget.how", prefix=manifest.command_prefix))
        return Done(say("forget.done"), await self._removed(inbound, targets))

    async def _last(self, inbound: Inbound) -> list[Target]:
        own = (one.inbound for one in _received(await self.run.event_log.read(inbound.chat_key)))
        said = [one for one in own if one.person == inbound.person and one.command is None and one.has_text]
        target = await self._target(inbound.chat_key, said[-1].message_id or "") if said else None
        if target is None:
            return []
        related = target.related
        return [Target(target.message, "assistant", target.person, Gone(turns=related), related), target]

    async def _target(self, chat: ChatKey, message: str) -> Target | None:
        """Return the message with this platform id; None if there is none. Any message of a split answer can be named."""
        naming, names = self.run.event_log.naming, frozenset({message})
        found = [one for one in await naming(chat, names) if one.chat == chat]
        received = (
            one.data.inbound for one in found if isinstance(one.data, events.Received | events.Edited)
        )
        if said := [one for one in received if one.message_id == message]:
            requests = frozenset(one.request_id for one in said)
            # Related turns answered these messages, or messages that quote them.
            known = requests | names
            asked = [
                one.inbound for one in _received(await naming(chat, known)) if one.inbound.command is None
            ]
            about = {
                one.request_id for one in asked if one.request_id in known or any(map(one.quotes, known))
            }
            related = frozenset(
                one.turn
                for one in await naming(chat, about)
                if isinstance(one.data, events.TurnStarted | events.Joined)
                and one.turn is not None
                and not about.isdisjoint(one.data.members)
            )
            return Target(message, "user", said[0].user_id, Gone(requests, messages=names), related)
        # If an answer was regenerated, the new answer replaced the text of an earlier turn. Remove the earlier turn too.
        turns = frozenset(await self.run.event_log.senders(chat, message))
        if not turns:
            return None
        person = next((one.inbound.user_id for one in _received(await naming(chat, turns))), "")
        return Target(message, "assistant", person, Gone(turns=turns, messages=names), turns)

    async def _quoted(self, deletion: Inbound, message: str) -> Target | None:
        """Return a message that the bot never received, but that was quoted to the model."""
        gone = Gone(messages=frozenset({message}))
        found = await self.run.event_log.naming(deletion.chat_key.chat, gone.names)
        told = [one for one in found if blanked(one, gone) != one.data]
        turns = frozenset(one.turn for one in told if one.turn is not None)
        return Target(message, "user", deletion.user_id, gone, turns) if told else None

    async def _removed(self, inbound: Inbound, targets: Sequence[Target]) -> list[Fact]:
        facts = list[Fact]()
        for target in targets:
            found = await self._facts(inbound, target)
            facts += found
            made = [*target.related, *target.gone.requests]
            person = UserRef(inbound.channel, target.person)
            owners = (MemoryOwner("chat", str(inbound.chat_key)), MemoryOwner("person", str(person)))
            notes = sum([await self.run.notes.forget(owner, made) for owner in owners])
            artifacts = await self.run.artifacts.forget(inbound.chat_key, made)
            for chat in dict.fromkeys([inbound.chat_key, *(one.chat for one in found)]):
                derived = (artifacts, notes) if chat == inbound.chat_key else (0, 0)
                told: Json = dict(zip(("artifacts", "notes"), derived, strict=True))
                told |= {"chat_key": chat, "request_id": inbound.request_id, "message_id": target.message}
                told |= {"role": target.role, "by": inbound.user_id}
                self.run.log.write("removal", "a message was removed", **told)
        return facts

    async def _facts(self, inbound: Inbound, target: Target) -> list[Fact]:
        # A quote of a turn's notes has the turn's id as its message id, so the ids of turns are also removed as message ids.
        gone = replace(target.gone, messages=target.gone.messages | target.related)
        found = await self.run.event_log.naming(inbound.chat_key.chat, gone.names)
        facts = list[Fact]()
        for key, some in groupby(sorted(found, key=lambda one: str(one.chat)), key=lambda one: one.chat):
            blanks = [replace(one, data=data) for one in some if (data := blanked(one, gone)) != one.data]
            set_by = {(one.data.of, one.data.key) for one in blanks if isinstance(one.data, events.FactSet)}
            facts += [Fact(key, events.FactSet(of, name, None)) for of, name in sorted(set_by)]
            head = (await self.run.chats.get(key)).context.head is not None
            own, told = key == inbound.chat_key, inbound.kind == "delete"
            if not (blanks or own):
                continue
            # Deletions on the platform are archived already.
            message = target.message if own and not told else ""
            sets = (gone.requests, gone.turns, gone.messages, target.related)
            requests, turns, messages, related = (tuple(sorted(one)) for one in sets)
            removed = events.Removed(
                requests, turns, messages, head, message, target.role, related, inbound.request_id
            )
            # A summary may repeat the removed message, so it is removed too.
            blanks += [
                replace(one, data=replace(one.data, head=None))
                for one in (await self.run.event_log.naming(key, {"head"}) if head else ())
                if one.chat == key and isinstance(one.data, events.Cut | events.SessionMoved)
            ]
            facts.append(Fact(key, removed, blanks=tuple(blanks)))
        return facts


def _received(found: Iterable[Event]) -> Iterator[events.Received]:
    return (one.data for one in found if isinstance(one.data, events.Received))


class Retention:
    """Deletes expired data. A chat's retention time applies to its threads too, except to a thread with its own retention time."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._settings = runtime.settings.history
        self._archives = ArchiveFiles(runtime.settings.home / "chats", runtime.disk)
        self._of_page = [runtime.settings.home / name for name in ("sent", "received")]
        """Folders of the web page's files. Each folder has a subfolder for each chat."""
        self._steady = JumpSafeClock(runtime.clock)

    async def watch(self) -> None:
        while True:
            try:
                await self._run_once()
            except errors.StorageError as error:
                words = "what is too old cannot be removed now"
                self._run.log.write("retention", words, level="warn", cause=str(error))
            await self._run.clock.sleep(INTERVAL_SECONDS)

    async def _run_once(self) -> None:
        with errors.as_storage_error("the archive cannot be read"):
            on_disk = await asyncio.to_thread(lambda: set(self._on_disk()))
        for chat in sorted({*on_disk, *await self._run.event_log.chats()}, key=str):
            days = self._settings.days(chat)
            if days is None:
                continue
            since = self._steady.now() - days * _DAY
            gone = await self._expire_events(chat, since)
            title = self._run.chats.facts[TITLE].get(str(chat))
            if title and chat not in await self._run.event_log.spoken_in(chat):
                # The log has no message of the conversation any more, so delete the name that a person gave it.
                await self._run.chats.get(chat)
                self._run.chats.append(Fact(chat, events.FactSet(TITLE, str(chat), None)))
            with errors.as_storage_error("the archive cannot be written"):
                lines, files = await asyncio.to_thread(self._expire_files, chat, int(since * 1000))
            if gone or lines or files:
                words = f"what is older than {days} days is gone"
                counts: Json = {"days": days, "events": gone, "lines": lines, "files": files}
                self._run.log.write("retention", words, level="action", chat_key=chat, **counts)

    async def _expire_events(self, key: ChatKey, since: float) -> int:
        """Delete expired events of finished turns from the beginning of a chat's log; return their number. The newest event stays."""
        log, chats = self._run.event_log, self._run.chats
        first, end = await log.older(key, since)
        if first >= end:
            return 0
        chat = await chats.get(key)
        waits = chat.turn is not None or (chat.open_since is not None and chat.open_since <= first)
        if waits or chat.seq == first:
            return 0
        chats.append(Fact(key, events.Expired(end, since)))
        chats.append(*(Fact(key, one) for one in chat.context.out_of_reach))
        await log.committed(patient=False)
        end = min(end, chat.position.first)
        for at in range(first, end, SLICE):
            await log.delete_before(key, min(at + SLICE, end))
        return end - first

    def _on_disk(self) -> Iterator[ChatKey]:
        """Yield the chats that have files on disk, including chats that have no events in the log any more."""
        names = {name for one in self._of_page for name in self._run.disk.names(one)}
        for name in {*self._archives.chats(), *names}:
            with contextlib.suppress(errors.IdentityInvalid):  # the file name is no chatKey
                yield ChatKey.parse(self._archives.chat_key(name) or "")

    def _expire_files(self, chat: ChatKey, before: int) -> tuple[int, int]:
        """Delete archive lines and web files older than `before` (epoch ms). Return the numbers of deleted lines and files."""
        name, disk = jsonl.file_name(chat), self._run.disk
        with jsonl.locked(self._archives.folder):
            self._archives.recover(name)
            lines = sum(self._expire_lines(path, before) for path in self._archives.of(name))
        old = [
            home / name / file
            for home in self._of_page
            for file in disk.names(home / name)
            if file.endswith(_FILE) and ULID.fullmatch(stem := file.partition(".")[0])
            if ulid_time(stem) * 1000 < before
        ]
        for path in old:
            disk.remove(path)
        return lines, len(old)

    def _expire_lines(self, path: Path, before: int) -> int:
        gone, lines = 0, self._run.disk.read(path).splitlines(keepends=True)
        for number, raw in enumerate(lines, 1):
            ts = (jsonl.loads(raw) or {}).get("ts")
            if isinstance(ts, int | float):
                if ts >= before:
                    break
                gone = number
        else:
            gone = len(lines) if gone else 0
        if 0 < gone < len(lines):
            self._run.disk.replace(path, b"".join(lines[gone:]))
        elif gone:
            self._run.disk.remove(path)
        return gone


def _build(runtime: Runtime) -> Hooks:
    removal = Removal(runtime)
    return Hooks(
        commands={"forget": Command(removal.forget, queued=True)},
        signals={"delete": Command(removal.deleted)},
        serves=(Retention(runtime).watch,) if runtime.settings.history.keep_days else (),
    )


FEATURE = Feature("removal", _build)
