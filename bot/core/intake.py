"""Intake of all events from channels. It checks access, recognises events that are delivered again, and appends events to the log."""

from __future__ import annotations

import asyncio
import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from bot import text
from bot.contracts.approvals import COMMANDS, Act, OpenLoop, QuestionButtons, ShownQuestion, Viewer
from bot.contracts.channel import HomeSection
from bot.contracts.environment import OperatorNotices
from bot.contracts.identity import CONSOLE, ChatKey, UserRef
from bot.contracts.messages import ArchiveLine, Command, Conversation, HistoryQuery, Inbound
from bot.contracts.model import DEMO, AnsweringModel
from bot.core import events
from bot.core.access import Access, request_of
from bot.core.archive_files import ChatStore
from bot.core.chat import STOPPABLE, Chat, plain
from bot.core.chats import LONGEST_TITLE, NO_CHAT, TITLE, Chats, Fact
from bot.core.event_log import EventLog
from bot.core.feature import Door
from bot.core.locales import Locales
from bot.core.outgoing import is_shown_in
from bot.core.removal import emptied
from bot.core.services import Services
from bot.llm.models import ModelDeps
from bot.tools.context import Recalls
from bot.words import Sentence, say, sentence, speaking

DAY = 24 * 3600.0
MOST_WORDS = 8  # Max words of a search for conversations. Further words are ignored.


@dataclass(eq=False)
class Intake:
    """Implements `contracts.channel.Intake`."""

    services: Services
    chats: Chats
    event_log: EventLog
    access: Access
    door: Door
    alerts: OperatorNotices
    archive: ChatStore
    locales: Locales
    models: Callable[[ChatKey], ModelDeps]

    def __post_init__(self) -> None:
        self._coming: dict[str, asyncio.Event] = {}
        """Platform keys of messages that are being accepted. A key's flag is set once the message is accepted or refused."""

    async def accept(self, inbound: Inbound) -> bool:
        inbound = self.access.cleaned(inbound)
        verdict = self.access.judge(inbound)
        if not verdict.allowed:
            asks = self._refused(inbound, verdict.reason)
            if asks is None:
                return False
            inbound = asks
        while first := next(filter(None, map(self._coming.get, inbound.keys)), None):
            await first.wait()
        over = asyncio.Event()
        self._coming.update(dict.fromkeys(inbound.keys, over))
        try:
            if await self.event_log.known(inbound.keys):
                # Wait until the event is on disk. Only then may the platform get a confirmation.
                await self.event_log.committed(patient=False)
                return False
            quoted = self.access.admitted(inbound, inbound.quoted)
            said = inbound.model_copy(update={"request_id": self.services.ids.ulid(), "quoted": quoted})
            said = self._meant(await self.chats.get(said.chat_key), said)
            found = await self.door.before_intake(said) if verdict.allowed else (said,)
            for one in found:
                await self._take_in(one)
            if found:
                await self.event_log.committed(patient=False)
        finally:
            for key in inbound.keys:
                del self._coming[key]
            over.set()
        return verdict.allowed and bool(found)

    def _refused(self, inbound: Inbound, reason: str) -> Inbound | None:
        """Return a request to admit a stranger who addressed the bot, without the stranger's text; None if no request is due."""
        if inbound.addressed == "chat":
            return None
        self.services.log.write(
            "denied",
            f"refused: {reason}",
            chat_key=inbound.chat_key,
            channel=inbound.channel,
            user_id=inbound.user_id,
            reason=reason,
        )
        asks = inbound.addressed != "thread" and inbound.kind in {"message", "added"}
        return request_of(inbound, self.services.clock.now()) if reason == "stranger" and asks else None

    async def _take_in(self, inbound: Inbound) -> None:
        chat = await self.chats.get(inbound.chat_key)
        if not inbound.request_id:
            inbound = inbound.model_copy(update={"request_id": self.services.ids.ulid()})
        if chat.deleted(inbound):
            inbound = emptied(inbound)
        data: events.EventData
        if inbound.kind == "edit":
            data = events.Edited(inbound)
        elif inbound.kind == "delete":
            data = events.Deleted(inbound)
        elif inbound.is_stop:
            data = events.Stop(inbound, everyones=self.access.is_operator(inbound.person))
        else:
            data = events.Received(inbound, beside=not self.door.needs_turn(inbound))
        self.chats.append(Fact(chat.key, data, person=inbound.user_id, id=inbound.request_id))
        self.services.log.write(
            "inbound",
            "message taken in",
            chat_key=chat.key,
            request_id=inbound.request_id,
            channel=inbound.channel,
            user_id=inbound.user_id,
            message_id=inbound.message_id,
            addressed=inbound.addressed,
            command=inbound.command.name if inbound.command is not None else None,
            length=len(inbound.text),
            attachments=len(inbound.attachments),
        )

    def _meant(self, chat: Chat, inbound: Inbound) -> Inbound:
        """Return a stop command if the whole text asks to stop and something in this chat can be stopped; otherwise the
        message.
        """
        runs = chat.turn is not None and chat.turn.phase in STOPPABLE
        if chat.asks(inbound.person):
            return inbound  # the word “stop” is then an answer to a tool's question
        alone = plain(inbound) and not inbound.attachments and not inbound.brought
        if alone and (runs or inbound.chat_key.thread is not None) and asks_to_stop(inbound.text):
            return inbound.model_copy(update={"command": Command(name="stop")})
        return inbound

    async def hears_all(self, chat: ChatKey) -> bool:
        return any([await hears(chat) for hears in self.door.all("hears_all")])

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        chat = await self.chats.get(NO_CHAT)
        self.chats.append(Fact(chat.key, events.Unreadable(channel, key, self.access.words(raw), reason)))
        self.services.log.write(
            "error",
            "an event could not be read and went to the dead letters",
            level="error",
            channel=channel,
            key=key,
            reason=reason,
        )
        self.alerts.tell(
            f"dead letters of {channel}",
            sentence("operators.dead_letter", channel=channel, reason=reason, key=key),
        )
        await self.event_log.committed(patient=False)

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        self.alerts.tell(f"right of {channel}: {right}", words, every=DAY)

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        return (await self.archive.search(chat_key, HistoryQuery(limit=limit))).lines

    # ------------------------------------------------------------ conversations

    async def conversations(
        self, chat_key: ChatKey, *, query: str = "", after: ChatKey | None = None, limit: int
    ) -> list[Conversation]:
        spoken = await self.event_log.spoken_in(chat_key)
        words = _folded(query).split()[:MOST_WORDS]
        found = list(spoken)
        recall: Recalls | None = self.door.ports.get("recall")
        if words and recall is not None:
            # The index also contains each chat's first words (the title of an unnamed chat), so search only given names here.
            told = {key for key, one in self.chats.facts[TITLE].items() if _has(one["name"], words)}
            told |= {str(one) for one in await recall.saying(chat_key, words)}
            found = [one for one in spoken if str(one) in told]
        elif words:
            titles = await self._titles(found)
            found = [one for one in found if _has(titles[one], words)]
        begin = found.index(after) + 1 if after in found else 0
        some = found[begin : begin + limit]
        titles = await self._titles(some)
        return [Conversation(one, titles[one], spoken[one]) for one in some]

    async def conversation(self, chat_key: ChatKey) -> Conversation | None:
        at = (await self.event_log.spoken_in(chat_key)).get(chat_key)
        return None if at is None else Conversation(chat_key, (await self._titles([chat_key]))[chat_key], at)

    async def rename(self, chat_key: ChatKey, name: str, person: UserRef) -> None:
        name = text.preview(self.access.words(name), LONGEST_TITLE)
        await self.chats.get(chat_key)
        fact = events.FactSet(TITLE, str(chat_key), {"name": name} if name else None)
        self.chats.append(Fact(chat_key, fact, person=person.user_id))
        await self.event_log.committed(patient=False)

    async def _titles(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        named = {chat: fact["name"] for chat in chats if (fact := self.chats.facts[TITLE].get(str(chat)))}
        first = await self.event_log.first_words([chat for chat in chats if chat not in named])
        return {chat: named.get(chat) or text.preview(first.get(chat, ""), LONGEST_TITLE) for chat in chats}

    # ------------------------------------------------------------ pages of people

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        if not self.access.standing(opened.person, opened.chat_id, "direct").allowed:
            # The kind `admission` keeps `of` from storing the stranger's locale.
            with speaking(*self.locales.of(opened.model_copy(update={"kind": "admission"}))):
                return (HomeSection(self.services.settings.name, (say("strangers.hello"),)),)
        page = dict[str, tuple[str, ...]]()
        parts = [part for home in self.door.all("home") for part in home.items()]
        with speaking(*self.locales.of(opened)):
            for _, make in sorted(parts, key=lambda part: part[0]):
                section = await make(opened)
                page[section.title] = (*page.get(section.title, ()), *section.lines)
        return tuple(HomeSection(title, lines) for title, lines in page.items() if lines)

    async def model(self, chat_key: ChatKey, person: UserRef) -> AnsweringModel:
        models = self.models(chat_key)
        if not self.access.is_operator(person) or models.name == DEMO:
            return AnsweringModel(models.name)
        return AnsweringModel(models.name, models.sent().effort or "", models.known, models.efforts)

    async def questions(self, chat_key: ChatKey, person: UserRef, since: float) -> list[ShownQuestion]:
        decided = [
            ShownQuestion(one.row, one.text, int(one.shown_at * 1000), QuestionButtons("", ()))
            for event in await self.event_log.of_kinds(chat_key, [events.Revised.kind], since)
            if isinstance(one := event.data, events.Revised) and one.text and is_shown_in(one.row, chat_key)
        ]
        asked = [one for ask in self.door.all("questions") for one in ask(chat_key, person)]
        return [*decided, *asked]

    async def ratings(self, chat_key: ChatKey, since: float) -> dict[str, str]:
        rated = await self.event_log.of_kinds(chat_key, [events.Rated.kind], since)
        return {one.turn: one.data.rating for one in rated if one.turn and isinstance(one.data, events.Rated)}

    async def acts(self, chat_key: ChatKey) -> bool:
        turn = (await self.chats.get(chat_key)).turn
        return turn is not None and (turn.acted or turn.first.renews is not None)

    async def board(self, person: UserRef) -> list[OpenLoop]:
        with speaking(*self.locales.of_person(person)):
            return await self.door.waiting(Viewer(person, self.access.is_operator(person)))

    async def console_board(self) -> list[OpenLoop]:
        return await self.door.waiting(Viewer(CONSOLE, operator=True))

    async def decide(self, loop: OpenLoop, act: Act) -> str:
        """Run the chat command for an action on an open loop (a matter that waits for somebody), as the user of the
        console. Return a sentence about the outcome. Raises `errors.StorageError`.
        """
        name, args = COMMANDS[act]
        inbound = Inbound(
            channel=CONSOLE.channel,
            chat_id=NO_CHAT.chat_id,
            chat_key=NO_CHAT,
            chat_type="direct",
            user_id=CONSOLE.user_id,
            keys=(),
            ts=int(self.services.clock.now() * 1000),
            target={},
            text="",
            command=Command(name=name, args=args.format(loop.id)),
            request_id=self.services.ids.ulid(),
        )
        await self.chats.get(NO_CHAT)
        done = await self.door.commands[name].run(inbound)
        self.chats.append(*done.facts)
        what = f"{act} {loop.kind} {loop.id}"
        self.services.log.write(
            "console", what, level="action", chat_key=loop.chat_key, act=act, loop=loop.id
        )
        return done.say


def _folded(words: str) -> str:
    return unicodedata.normalize("NFKC", words).casefold()


def _has(title: str, words: Collection[str]) -> bool:
    folded = _folded(title)
    return all(word in folded for word in words)


# ------------------------------------------------------------ messages that ask to stop

_STOP_FILE = Path(__file__).with_name("stop_words.toml")
_STOP_LINES = tomllib.loads(_STOP_FILE.read_text("utf-8"))["words"].split("\n")
_STOP_WORDS = {_folded(word.strip()) for line in _STOP_LINES for word in line.split("|")} - {""}
_LONGEST_STOP = 200
_MENTION = re.compile(r"\A(?:<@[^<>\s]{1,80}>|@\w{1,80})[\s:,，：]*")
_AROUND = " \t\r\n\u200b\u200e\u200f\ufe0f\ufeff.!?,;…。！？、，¡¿؟"


def asks_to_stop(words: str) -> bool:
    """Return True if a message asks to stop. Case, punctuation and a mention at the beginning are ignored."""
    if len(words) > _LONGEST_STOP:
        return False
    said = _MENTION.sub("", unicodedata.normalize("NFKC", words.strip(_AROUND)))
    return " ".join(said.strip(_AROUND).casefold().split()) in _STOP_WORDS
