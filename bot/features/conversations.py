"""Splits a direct chat into conversations, on channels where each message outside a thread starts a new conversation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from bot import text
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Quoted
from bot.core import blocks
from bot.core.chat import STOPPABLE, Chat, Phase, plain
from bot.core.context import KeptTurn
from bot.core.events import Received
from bot.core.feature import Feature, Hooks, Runtime
from bot.tags import SEND
from bot.tools.permissions import taint

QUICK = 10_000  # max milliseconds between two messages that form one conversation
MOST_CHATS = 1_000
OF_CONVERSATION = frozenset(
    {"compact", "effort", "forget", "fork", "history", "model", "new", "resume", "stats", "undo"}
)
"""Commands that apply to one conversation of a chat."""


RECENT_SECONDS = 3_600.0  # max age in seconds of the turn that a new conversation in a direct chat quotes
LONGEST = 4_000  # max characters of each quoted message of that turn


class Conversations:
    """Assigns the messages of a direct chat to conversations."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._newest: OrderedDict[ChatKey, Inbound] = OrderedDict()

    async def found(self, inbound: Inbound) -> Sequence[Inbound]:
        """Return the message with the chatKey of its conversation. A stop may become one stop for each busy conversation.
        Raises `errors.StorageError`.
        """
        chat = inbound.chat_key
        if self._run.manifests[inbound.channel].separate:
            return (inbound,)
        if inbound.is_stop and (inbound.opens or chat.thread is None):
            return self._stops(inbound)
        about = inbound.command is not None and inbound.command.name in OF_CONVERSATION
        if about and inbound.chat_type == "direct" and chat.thread is None:
            last = await self._last_said(chat)
            return (inbound.model_copy(update={"chat_key": last if last.kind == chat.kind else chat}),)
        return (await self._placed(inbound),)

    def _stops(self, stop: Inbound) -> Sequence[Inbound]:
        """Return a stop for each busy conversation of a chat. In a group, leave out conversations without a message of the person."""
        busy = [
            chat.key
            for chat in self._run.chats
            if stop.chat_key.chat.shows(chat.key)
            and any(
                stop.chat_type == "direct" or one.person == stop.person
                for one in (*chat.waiting, *(chat.turn.members if chat.turn is not None else ()))
            )
        ]
        first, *others = busy or [stop.chat_key]
        silent = {"kind": "stop", "command": None, "request_id": ""}
        below = [stop.model_copy(update={**silent, "chat_key": key}) for key in others]
        return [stop.model_copy(update={"chat_key": first}), *below]

    async def _last_said(self, chat: ChatKey) -> ChatKey:
        for place in await self._run.event_log.spoken_in(chat):
            if any(map(plain, (await self._run.chats.get(place)).said)):
                return place
        return chat

    async def _placed(self, inbound: Inbound) -> Inbound:
        """Assign a new message to the conversation of the message sent just before it, if that message is still unanswered.
        Assign an edit or deletion to the conversation of the changed message.
        """
        if not inbound.opens:
            return inbound
        if not plain(inbound):
            return await self._change(inbound) if inbound.kind in {"edit", "delete"} else inbound
        chat = inbound.chat_key.chat
        before = self._newest.pop(chat, None)
        if before is not None and abs(inbound.ts - before.ts) <= QUICK and self._unanswered(before):
            place = {"chat_key": before.chat_key, "target": before.target}
            inbound = inbound.model_copy(update=place)
        self._newest[chat] = inbound
        if len(self._newest) > MOST_CHATS:
            self._newest.popitem(last=False)
        return inbound

    def _unanswered(self, before: Inbound) -> bool:
        chat = self._run.chats.loaded(before.chat_key)
        if chat is None or before not in chat.said or before in chat.waiting:
            return True
        turn = chat.turn
        runs = turn is not None and turn.phase in STOPPABLE - {Phase.SUSPENDED} and not turn.acted
        return runs and turn is not None and before in turn.members

    async def _change(self, change: Inbound) -> Inbound:
        for chat in self._run.chats:
            if change.chat_key.chat.contains(chat.key) and any(
                one.message_id == change.message_id for one in chat.said
            ):
                return change.model_copy(update={"chat_key": chat.key})
        for event in await self._run.event_log.naming(change.chat_key.chat, {change.message_id or ""}):
            if isinstance(event.data, Received) and event.data.inbound.message_id == change.message_id:
                return change.model_copy(update={"chat_key": event.chat})
        return change

    async def before(self, chat: Chat, inbound: Inbound) -> Sequence[Quoted]:
        """Return the newest turn of the same direct chat as quotes, if the turn is younger than an hour. Return () after `/new`."""
        if not inbound.opens or chat.context.head is not None or len(chat.context):
            return ()
        since = self._run.clock.now() - RECENT_SECONDS
        for place in await self._run.event_log.spoken_in(inbound.chat_key.chat, since):
            if place == chat.key:
                continue
            other = await self._run.chats.get(place)
            if other.context.turns:
                return self._exchange(other, other.context.turns[-1])
            if other.turn is None and not other.waiting:
                return ()
        return ()

    def _exchange(self, chat: Chat, turn: KeptTurn) -> list[Quoted]:
        origin = taint.seen(entry.message for entry in turn.entries)
        of_turn = {"words_of": tuple(sorted(origin.people)), "taint": origin.taint}
        asked = [one for one in chat.said if one.request_id in turn.sources and one.command is None]
        found = [
            Quoted(
                text=text.shorten_middle(one.text, LONGEST),
                **{name: getattr(one, name) for name in ("user_id", "user_name", "ts", "message_id")},
                **of_turn,
            )
            for one in asked
        ]
        answers = [
            Quoted(user_id=None, text=text.shorten_middle(words, LONGEST), from_self=True, **of_turn)
            for entry in turn.entries
            for words in _said(entry.message)
        ]
        return found + answers if answers else []  # a turn without answers was stopped


def _said(message: Message) -> list[str]:
    if message["role"] != "assistant":
        return []
    calls = blocks.tool_calls(message["content"])
    said = [str(call.input.get("text", "")) for call in calls if call.name == SEND]
    return said if calls else [blocks.plain_text(message["content"])]


def _build(runtime: Runtime) -> Hooks:
    conversations = Conversations(runtime)
    return Hooks(
        before_intake=conversations.found,
        before_turn=conversations.before,
        kinds=frozenset({"command", "stop", "opening"}),
    )


FEATURE = Feature("conversations", _build)
