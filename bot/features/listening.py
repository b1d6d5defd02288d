"""Decides which messages of a group are for the bot, and collects earlier messages as context for a turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast
from weakref import WeakValueDictionary

from bot import errors, text
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Quoted
from bot.core import outgoing
from bot.core.chat import Chat, revised
from bot.core.chats import Fact
from bot.core.events import FactSet
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.outgoing import Address
from bot.words import paragraph, say, speaking

Listening = Literal["mention", "thread", "always", "never"]
"""Setting that decides which messages of a group are for the bot; commands always are. `mention`: messages that mention the
bot. `thread`: also replies to the bot, and messages in threads with the bot. `always`: all messages. `never`: none.
"""
LISTENING: tuple[Listening, ...] = ("mention", "thread", "always", "never")
HEARD: Listening = "thread"  # default value of `Listening`
LISTENS = "listening"  # kind of the `FactSet` events that store the `Listening` of groups
UNSEEN = "unseen"  # kind of the `FactSet` events that store when a chat was told that the bot cannot read it
DAY = 24 * 3_600.0
MOST_KNOWN = 10_000
"""Max cached conversations in which the bot takes part. For other conversations, the log is searched."""
SKEW = 300.0  # max difference in seconds between the clocks of this host and of a platform
CONTEXT_SECONDS = 20.0
"""Timeout in seconds for a platform to return earlier messages. After the timeout, the turn starts without them."""
MOST_KEPT, KEPT_SECONDS = 30, 3_600.0  # max messages kept per conversation, and their max age in seconds
MOST_CHATS = 200  # max conversations with kept messages; the least recently used one is dropped
LONGEST_KEPT = 2_000  # max characters of a kept message


@dataclass(eq=False)
class UnaddressedMessages:
    """Keeps in memory the messages that were not for the bot, each with its time of arrival in monotonic seconds. On
    platforms without a history API, they are the context of turns.
    """

    clock: Clock
    _chats: OrderedDict[ChatKey, deque[tuple[float, Inbound]]] = field(default_factory=OrderedDict)

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot. For an edit or deletion, update the kept message."""
        kept = self._chats.get(inbound.chat_key, deque(maxlen=MOST_KEPT))
        same = [one for one in kept if one[1].message_id == inbound.message_id]
        if inbound.kind != "message" or (inbound.message_id and same):
            for one in same:
                if inbound.kind == "delete":
                    kept.remove(one)
                else:
                    kept[kept.index(one)] = one[0], revised(one[1], inbound)
            return
        kept.append((self.clock.monotonic(), inbound))
        self._chats[inbound.chat_key] = kept
        self._chats.move_to_end(inbound.chat_key)
        if len(self._chats) > MOST_CHATS:
            self._chats.popitem(last=False)

    def take_early(self, opening: Inbound) -> list[Inbound]:
        """Remove and return a thread's messages that arrived before `opening` but were written after it. The message
        `opening` brought the bot into the thread.
        """
        kept = self._chats.get(opening.chat_key, deque()) if not opening.overheard else deque()
        early = [
            one for one in kept if one[1].ts >= opening.ts and one[1].addressed == "thread" and _said(one[1])
        ]
        for one in early:
            kept.remove(one)
        return [inbound for _, inbound in early]

    def before(self, inbound: Inbound) -> list[Quoted]:
        """Return the kept messages of the conversation of `inbound`, oldest first."""
        oldest = self.clock.monotonic() - KEPT_SECONDS
        kept = self._chats.get(inbound.chat_key, ())
        return [quoted for at, one in kept if at >= oldest for quoted in _said(one)]


def _said(inbound: Inbound) -> tuple[Quoted, ...]:
    own = Quoted(
        user_id=inbound.user_id,
        text=text.shorten_middle(inbound.text, LONGEST_KEPT),
        user_name=inbound.user_name,
        ts=inbound.ts,
        message_id=inbound.message_id,
        files=tuple(one.name or one.kind for one in inbound.attachments),
    )
    same = {"message_id": inbound.message_id, "ts": inbound.ts, "brought": False}
    passed_on = (
        one.model_copy(update={**same, "text": text.shorten_middle(one.text, LONGEST_KEPT)})
        for one in inbound.brought
    )
    return (*([own] if own.text.strip() or own.files else []), *passed_on)


class ListeningService:
    """Filters the messages of groups, runs `/listen`, and adds earlier messages to turns."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._unaddressed = UnaddressedMessages(runtime.clock)
        self._locks = WeakValueDictionary[ChatKey, asyncio.Lock]()
        self._known: dict[ChatKey, None] = {}  # conversations in which the bot takes part

    async def counted(self, inbound: Inbound) -> Sequence[Inbound]:
        """Return () if a message of a group is not for the bot. Otherwise return the message, and messages of its thread that were
        written later but arrived earlier.
        """
        counts = await self._counts(inbound)
        if not counts or inbound.kind in {"edit", "delete"}:
            self._unaddressed.keep(inbound)
        if not counts:
            return ()
        if inbound.kind == "message":
            self._joined(inbound.chat_key)
        found = [inbound]
        for early in self._unaddressed.take_early(inbound):
            if await self._counts(early):
                found.append(early.model_copy(update={"request_id": ""}))
            else:
                self._unaddressed.keep(early)
        return found

    def _listening(self, chat: ChatKey) -> Listening:
        chosen = self._run.chats.facts[LISTENS].get(str(chat.chat))
        return HEARD if chosen is None else cast("Listening", chosen["to"])

    async def _counts(self, inbound: Inbound) -> bool:
        """Return True if a message is for the bot. The messages of a conversation are checked one by one, in order."""
        async with self._locks.setdefault(inbound.chat_key, asyncio.Lock()):
            return inbound.addressed in {"direct", "command"} or await self._decide(inbound)

    def _joined(self, chat_key: ChatKey) -> None:
        self._known[chat_key] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _decide(self, inbound: Inbound) -> bool:
        # The `/listen` setting does not apply to commands, edits and deletions.
        if inbound.kind != "message" or inbound.command is not None:
            if not inbound.overheard:
                return True
            # An edit or deletion is for the bot if the changed message was. The `/listen` setting may have changed since then.
            if inbound.addressed == "thread" and await self._takes_part(inbound.chat_key):
                return True
            chat = await self._run.chats.get(inbound.chat_key)
            known = any(one.message_id == inbound.message_id for one in chat.said)
            # The bot may have quoted the deleted message. So take the deletion if the bot has since taken part in the chat.
            spoken, since = self._run.event_log.spoken_in, inbound.ts / 1000 - SKEW
            return known or (inbound.kind == "delete" and bool(await spoken(inbound.chat_key.chat, since)))
        listening = self._listening(inbound.chat_key)
        if listening in {"always", "never"}:
            return listening == "always"
        if inbound.addressed == "chat" or (listening == "mention" and inbound.addressed != "mention"):
            return False
        return not inbound.overheard or (not inbound.to_others and await self._takes_part(inbound.chat_key))

    async def _takes_part(self, chat_key: ChatKey) -> bool:
        if chat_key not in self._known and chat_key in await self._run.event_log.spoken_in(chat_key):
            self._joined(chat_key)
        return chat_key in self._known

    async def hears_all(self, chat: ChatKey) -> bool:
        """Return True if every message of a chat is for the bot."""
        return self._listening(chat) == "always"

    async def listen(self, inbound: Inbound) -> Done:
        """Run `/listen`: show which messages of a group are for the bot. Operators can change the setting."""
        asked, operator = inbound.args.casefold(), inbound.person in self._run.operators
        if inbound.chat_type == "direct":
            return Done(say("listen.direct"))
        if not asked:
            prefix = self._run.manifests[inbound.channel].command_prefix
            how = say("listen.change", choices=", ".join(LISTENING), prefix=prefix) if operator else ""
            return Done(paragraph(say(f"listen.{self._listening(inbound.chat_key)}"), how))
        if not operator:
            return Done(say("commands.operators_listen"))
        if asked not in LISTENING:
            return Done(say("listen.unknown", choices=", ".join(LISTENING)))
        chosen = FactSet(LISTENS, str(inbound.chat_key.chat), {"to": asked})
        return Done(say(f"listen.{asked}"), (Fact(inbound.chat_key, chosen),))

    async def before(self, chat: Chat, inbound: Inbound) -> Sequence[Quoted]:
        """Return earlier messages if the conversation is new to the model, or if a group's message mentions the bot.

        The messages come from the platform's history and from the kept messages, without messages that `inbound` quotes. If
        the model knows the conversation, return only people's messages since the last message that the model received.
        """
        known = chat.context.head is not None or len(chat.context) > 0
        mentioned = inbound.chat_type == "group" and inbound.addressed == "mention"
        if not mentioned and (known or inbound.opens):
            return ()
        told: Sequence[Quoted] = ()
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                told = await self._run.channels[inbound.channel].context(inbound)
        except (TimeoutError, errors.ShipmateError) as error:
            why = f"{type(error).__name__}: {error}"
            self._run.log.write("inbound", f"the earlier messages cannot be read: {why}", level="warn")
            if isinstance(error, errors.RightMissing):
                self._tell_of_right(chat, inbound)
        quoted = {one.message_id for one in inbound.quoted}
        found = [one for one in told if one.message_id is None or one.message_id not in quoted]
        shown = quoted | {one.message_id for one in found}
        heard = self._unaddressed.before(inbound) if inbound.addressed == "mention" else []
        found += [one for one in heard if one.message_id not in shown]
        if not known:
            return found
        since = max((one.ts for one in chat.said if one.request_id < inbound.request_id), default=0)
        return [one for one in found if (one.ts or 0) > since and not one.from_self]

    def _tell_of_right(self, chat: Chat, inbound: Inbound) -> None:
        """Tell a chat, at most once a day, that the bot lacks the right to read the chat's messages."""
        key, now = str(inbound.chat_key.chat), self._run.clock.now()
        told = self._run.chats.facts[UNSEEN].get(key)
        if told is None or now - told["at"] >= DAY:
            with speaking(*self._run.locales.of(inbound)):
                to = Address.of(inbound)
                rows = outgoing.rows(self._run, f"{inbound.request_id}/unseen", to, say("turn.unseen"))
            facts = (FactSet(UNSEEN, key, {"at": now}), *rows)
            self._run.chats.append(*(Fact(chat.key, one) for one in facts))


def _build(runtime: Runtime) -> Hooks:
    service = ListeningService(runtime)
    return Hooks(
        commands={"listen": Command(service.listen)},
        before_intake=service.counted,
        before_turn=service.before,
        only_new=True,
        hears_all=service.hears_all,
        kinds=frozenset({"group"}),
    )


FEATURE = Feature("listening", _build)
