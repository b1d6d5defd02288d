"""Commands in chat. Their answers are notices: people see them, the model never does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol

from bot import errors, text
from bot.access_list import PendingUser
from bot.contracts.agent import Agent, ChatStats, ModelInfo, SessionChange, SessionInfo
from bot.contracts.approvals import Verdict
from bot.contracts.channel import Channel, Introduces, Manifest
from bot.contracts.inbound import LISTENING, Inbound, Listening
from bot.contracts.operators import OperatorNotices
from bot.gateway.access import Access
from bot.gateway.admissions import AdmissionService
from bot.gateway.approvals import ApprovalService
from bot.gateway.conversation import HANDLED
from bot.gateway.effects import Ending
from bot.gateway.jobs.service import JobService
from bot.gateway.participation import Participation
from bot.gateway.ratings import Ratings
from bot.gateway.receipt import Receipts
from bot.gateway.removals import Removals
from bot.gateway.retries import Retries
from bot.gateway.scheduler import Scheduler
from bot.gateway.stops import Stops
from bot.tools.permissions.display import named

NONE_YET = "There is no conversation in this chat yet that I could go back to."
_MOST_BACK = 6
"""Digits of the number of turns; what is longer is an id."""


class Branches:
    """Goes back to sessions and forks them; receipts tell which turn a person means by an id or a reply."""

    def __init__(self, agent: Agent, receipts: Receipts, manifests: Mapping[str, Manifest]) -> None:
        self._agent = agent
        self._receipts = receipts
        self._manifests = manifests

    async def resume(self, inbound: Inbound) -> str:
        """Go on with an earlier session, or show which there are; for a person. Raises `errors.StorageError`."""
        asked = _first_word(inbound)
        if not asked:
            return await self._listed(inbound)
        change = await self._agent.resume(inbound.chat_key, asked)
        prefix, shown = self._manifests[inbound.channel].command_prefix, text.preview(asked, 40)
        if change.outcome == "done":
            return (
                f"We are back in conversation {change.id}.{_way_back(change, prefix)} "
                f"{prefix}history shows what I have in mind."
            )
        if change.outcome == "here":
            return f"We are in conversation {shown} already."
        if change.outcome == "ambiguous":
            return f"More than one conversation of this chat ends in {shown}. Give me more of its id."
        return f"This chat has no conversation {shown}. {prefix}resume alone shows which there are."

    async def fork(self, inbound: Inbound) -> str:
        """Go on from a turn of the past in a new session, for a person. Raises `errors.StorageError`."""
        asked, prefix = _first_word(inbound), self._manifests[inbound.channel].command_prefix
        back, request_id = 0, None
        if asked.isdecimal() and len(asked) <= _MOST_BACK:
            back = int(asked)
        elif (wanted := asked or inbound.answers) is not None:
            request_id = await self._receipts.found(inbound, wanted)
            if request_id is None:
                return f"I know no message or answer {text.preview(wanted, 40)} in this chat."
        change = await self._agent.fork(inbound.chat_key, request_id=request_id, back=back)
        if change.outcome == "done":
            left = change.turns
            where = f"I have left out the last {_turns(left)}" if left else "It has everything we said"
            return (
                f"A new conversation that begins as a copy of this one. {where}.{_way_back(change, prefix)}"
            )
        if request_id is not None:
            return f"That message is not in the conversation we are in. {prefix}resume shows the others of this chat."
        if not change.turns:
            return "There is nothing yet in this conversation that I could fork."
        return f"This conversation has {_turns(change.turns)}; I cannot go back {back:,} and keep one."

    async def _listed(self, inbound: Inbound) -> str:
        found = await self._agent.sessions(inbound.chat_key)
        if not found:
            return NONE_YET
        lines = [_session_line(one) for one in found]
        return "\n".join(
            [
                "Conversations of this chat, the last one first:",
                *lines,
                f"{self._manifests[inbound.channel].command_prefix}resume and the id of one returns to it.",
            ]
        )


def _first_word(inbound: Inbound) -> str:
    words = inbound.command.args.split() if inbound.command is not None else []
    return words[0] if words else ""


def _way_back(change: SessionChange, prefix: str) -> str:
    return f" {prefix}resume {change.left_id} returns to the one before." if change.left_id else ""


def _session_line(one: SessionInfo) -> str:
    moment = datetime.fromtimestamp(one.last_ts / 1000, UTC)
    count = one.messages
    words = f": “{one.words}”" if one.words else ""
    here = ", where we are" if one.current else ""
    return (
        f"{one.id} – {moment:%Y-%m-%d %H:%M} UTC, {count:,} message{'' if count == 1 else 's'}{here}{words}"
    )


def _turns(count: int) -> str:
    return f"{count:,} turn{'' if count == 1 else 's'}"


BESIDE = frozenset(
    {
        "allow",
        "block",
        "approve",
        "deny",
        "start",
        "help",
        "history",
        "jobs",
        "listen",
        "receipt",
        "renew",
        "retry",
        "stats",
        "status",
        "stop",
        "usage",
        "whoami",
    }
)
"""Commands that do not touch the conversation, whatever follows them (`beside`)."""

OF_CONVERSATION = frozenset(
    {"compact", "forget", "fork", "history", "model", "new", "resume", "stats", "undo"}
)
"""Commands about one conversation of a chat."""

ALIASES = {"usage": "stats"}
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
DEFAULT = "default"
LISTENS: Mapping[Listening, str] = {
    "mention": "I answer here where somebody mentions me.",
    "thread": "I answer here where somebody mentions me or replies to me, and in threads that I take part in.",
    "always": "I read all that is said here, and answer where I am of use.",
    "never": "I stay silent here; commands I still carry out.",
}
MOST_WAITING = 20
"""People that `/allow` alone shows."""

CUT_OFF = (
    "I was restarted while I did this. It may be done or not, so I do not do it again by myself; history (as a "
    "command) shows what I have in mind."
)


HELP = {
    "allow": "let somebody in by their id; alone, show who waits (operators)",
    "approve": "allow what waits for an approval: once, for this chat or always",
    "block": "keep somebody out by their id (operators)",
    "compact": "put a summary in place of what we said before; say what matters most",
    "deny": "forbid what waits for an approval",
    "forget": "forget the message you reply to, or the last one with my answer",
    "fork": "a new conversation, a copy of this one up to the message you reply to, or some turns back",
    "help": "what I understand",
    "history": "the beginning of what I have in mind of this conversation",
    "jobs": "what I am to do later here; pause, resume or cancel one by its name",
    "listen": "what I listen to in a group: mention, thread, always or never (operators)",
    "model": "which model answers here; operators choose another",
    "new": "begin a new conversation; the old one stays on file",
    "receipt": "the path of my last answer, or of the one you reply to",
    "resume": "go back to an earlier conversation of this chat; alone, show which there are",
    "start": "a few words about me",
    "stats": "what this conversation has come to: turns, tokens, cost; also usage",
    "status": "what I am doing, and with which model",
    "stop": "stop what I am working on",
    "undo": "take the last message and my answer out of what I have in mind",
    "whoami": "your id here, and what it may do",
}
"""What each command does, for people."""


class Servers(Protocol):
    """MCP servers (`bot.tools.mcp.servers.McpServers`)."""

    def sources(self) -> Mapping[str, str]:
        """The state of each, in words."""
        ...


class Pending(Protocol):
    """People who wait to be let in (`bot.access_list.AccessList`)."""

    def pending(self) -> list[PendingUser]:
        """The newest first."""
        ...


class Commands:
    """The work of each command, by name."""

    def __init__(
        self,
        *,
        name: str,
        agent: Agent,
        scheduler: Scheduler,
        access: Access,
        admissions: AdmissionService,
        participation: Participation,
        pending: Pending,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        alerts: OperatorNotices,
        stops: Stops,
        approvals: ApprovalService,
        receipts: Receipts,
        branches: Branches,
        removals: Removals,
        retries: Retries,
        ratings: Ratings,
        jobs: JobService,
        servers: Servers,
    ) -> None:
        self._ratings = ratings
        self._servers = servers
        self._stops = stops
        self._name = name
        self._agent = agent
        self._scheduler = scheduler
        self._access = access
        self._admissions = admissions
        self._participation = participation
        self._pending = pending
        self._channels = channels
        self._manifests = manifests
        self._alerts = alerts
        self._runs: dict[str, Callable[[Inbound], Awaitable[str]]] = {
            "allow": self._allow,
            "approve": approvals.approve,
            "block": self._block,
            "compact": self._compact,
            "deny": approvals.deny,
            "forget": removals.command,
            "fork": branches.fork,
            "help": self._help,
            "history": self._history,
            "jobs": jobs.command,
            "listen": self._listen,
            "model": self._model,
            "new": self._new,
            "receipt": receipts.run,
            "resume": branches.resume,
            "renew": retries.renew,
            "retry": retries.run,
            "start": self._start,
            "stats": self._stats,
            "status": self._status,
            "stop": stops.stop,
            "undo": self._undo,
            "whoami": self._whoami,
        }

    async def carry_out(self, inbound: Inbound) -> Ending:
        """Do what a command, or a signal such as the stop button of a platform, says; returns what to tell its person."""
        if inbound.kind == "stop":
            # The platform shows by itself what became of its button.
            await self._stops.stop(inbound)
            return Ending(HANDLED)
        if inbound.kind == "admission":
            return Ending(HANDLED, await self._admissions.ask(inbound))
        if inbound.kind == "rating":
            await self._ratings.keep(inbound)
            return Ending(HANDLED)
        if inbound.kind == "added":
            return Ending(HANDLED, await self._introduce(inbound))
        return Ending(HANDLED, await self.run(inbound))

    async def run(self, inbound: Inbound) -> str:
        """Carry out a command; returns the answer for the person."""
        assert inbound.command is not None  # noqa: S101 - the caller asks for commands only
        name = inbound.command.name
        run = self._runs.get(ALIASES.get(name, name))
        if run is None:
            asked = text.preview(inbound.command.name, 40)
            prefix = self._prefix(inbound)
            return f"I do not know {prefix}{asked}. {prefix}help shows what I understand."
        return await run(inbound)

    async def _introduce(self, inbound: Inbound) -> str:
        """The first words in a chat that the bot was added to; operators hear what it lacks there."""
        channel = self._channels.get(inbound.channel)
        if not isinstance(channel, Introduces):
            return ""
        introduction = await channel.introduce(inbound)
        if introduction.hindrance:
            by = f"{inbound.channel}:{inbound.user_id}"
            self._alerts.tell(
                f"rights in {inbound.chat_key}",
                f"{by} has added me to {inbound.chat_key}, and {introduction.hindrance}.",
            )
        return introduction.words

    def _prefix(self, inbound: Inbound) -> str:
        return self._manifests[inbound.channel].command_prefix

    async def _start(self, inbound: Inbound) -> str:
        return (
            f"Hello, I am {self._name}. Write to me as you would to a colleague; I remember what we said. "
            f"{self._prefix(inbound)}help shows my commands."
        )

    async def _help(self, inbound: Inbound) -> str:
        prefix = self._prefix(inbound)
        return "\n".join(f"{prefix}{name} – {words}" for name, words in HELP.items())

    async def _new(self, inbound: Inbound) -> str:
        count = await self._agent.reset(inbound.chat_key)
        if not count:
            return "We are at the beginning already. What is on your mind?"
        return f"A new conversation. I have set {count} messages aside; they stay on file."

    async def _compact(self, inbound: Inbound) -> str:
        assert inbound.command is not None  # noqa: S101 - it is what is carried out
        done = await self._agent.compact(inbound.chat_key, inbound.command.args.strip())
        if done.outcome == "nothing":
            return "There is not enough of a conversation yet to make it shorter."
        if done.outcome == "failed":
            return "I could not sum up our conversation just now; it is as it was. Please try again later."
        return (
            f"I have summed up {done.messages} older messages: about {done.tokens_before} tokens have become "
            f"{done.tokens_after}. The messages themselves stay on file."
        )

    async def _stats(self, inbound: Inbound) -> str:
        return told(await self._agent.stats(inbound.chat_key))

    async def _history(self, inbound: Inbound) -> str:
        kept = await self._agent.history(inbound.chat_key)
        return kept or "I have nothing of this conversation in mind yet."

    async def _undo(self, inbound: Inbound) -> str:
        try:
            said = await self._agent.undo(inbound.chat_key)
        except errors.SummedUp as error:
            return error.person
        if said is None:
            return "There is no message of this conversation in my mind that I could take back."
        return f"I have forgotten the message “{said}” and my answer. What I did for it stays done, and both stay on file."

    async def _status(self, inbound: Inbound) -> str:
        info = await self._agent.describe(inbound.chat_key)
        chats = [chat for key, chat in self._scheduler.chats() if inbound.chat_key.shows(key)]
        waiting = sum(chat.waiting for chat in chats)
        if running := sum(chat.running is not None for chat in chats):
            messages = "a message" if running == 1 else f"{running} messages"
            doing = f"I am working on {messages}" + (f", {waiting} more waiting" if waiting else "")
        else:
            # Others have all the places, or a burst is waited for.
            doing = f"I have not begun yet, {waiting} waiting" if waiting else "I am idle"
        servers = ", ".join(f"{name} ({state})" for name, state in sorted(self._servers.sources().items()))
        return (
            f"{doing}. Model: {info.model}. "
            f"I have {info.messages} of at most {info.max_messages} messages of this conversation in mind."
            + (f" MCP servers: {servers}." if servers else "")
        )

    async def _model(self, inbound: Inbound) -> str:
        asked = _argument(inbound)
        if not asked:
            return _answering(await self._agent.describe(inbound.chat_key))
        if not self._access.is_operator(inbound.channel, inbound.user_id):
            return "Only operators choose the model of a chat."
        name = None if asked.casefold() == DEFAULT else asked
        shown = text.preview(asked, 60)
        if name is not None and MODEL_NAME.fullmatch(name) is None:
            return f"“{shown}” is not the name of a model. Nothing has changed."
        try:
            info = await self._agent.choose_model(inbound.chat_key, name, inbound.request_id)
        except errors.OneModel as error:
            return error.person
        except errors.ModelUnknown:
            return f"The provider does not have a model “{shown}”. Nothing has changed."
        unsure = "" if info.confirmed else " I could not ask the provider whether it has it."
        return _answering(info) + unsure

    async def _allow(self, inbound: Inbound) -> str:
        if _argument(inbound) or not self._access.is_operator(inbound.channel, inbound.user_id):
            return await self._admit(inbound, "approved", "may talk to me from now on")
        if inbound.chat_type != "direct":
            return "Ask me that in our direct chat: the answer names people."
        waiting = await asyncio.to_thread(self._pending.pending)
        if not waiting:
            return "Nobody waits to be let in."
        allow = f"{self._prefix(inbound)}allow"
        lines = [f"{_name(one)}: {allow} {one.channel}:{one.user_id}" for one in waiting[:MOST_WAITING]]
        more = len(waiting) - len(lines)
        return "\n".join(
            [
                "These people wrote to me and are not let in:",
                *lines,
                *([f"and {more:,} more"] if more else []),
            ]
        )

    async def _block(self, inbound: Inbound) -> str:
        return await self._admit(inbound, "denied", "is kept out from now on")

    async def _admit(self, inbound: Inbound, decision: Literal["approved", "denied"], outcome: str) -> str:
        """Let an id in, or keep it out: one of this channel, or `channel:id`."""
        if not self._access.is_operator(inbound.channel, inbound.user_id):
            return "Only operators say who may talk to me."
        asked = _argument(inbound)
        channel, _, user_id = asked.rpartition(":")
        channel = channel or inbound.channel
        manifest = self._manifests.get(channel)
        if not user_id or manifest is None or not manifest.valid_id(user_id):
            return f"“{text.preview(asked, 60)}” is no id that I know. {self._prefix(inbound)}allow alone shows who waits."
        by = f"{inbound.channel}:{inbound.user_id}"
        await self._admissions.decide(channel, user_id, Verdict(decision, by, "always"))
        return f"{channel}:{user_id} {outcome}."

    async def _listen(self, inbound: Inbound) -> str:
        """Say what is listened to in a group; operators change it."""
        asked = _argument(inbound).casefold()
        if inbound.chat_type == "direct":
            return "Here I read all that you write."
        if not asked:
            said = LISTENS[await self._participation.listening(inbound.chat_key)]
            return f"{said} {self._prefix(inbound)}listen {', '.join(LISTENING)} changes that (operators)."
        if not self._access.is_operator(inbound.channel, inbound.user_id):
            return "Only operators say what I listen to."
        chosen = next((one for one in LISTENING if one == asked), None)
        if chosen is None:
            return f"I can listen to: {', '.join(LISTENING)}. Nothing has changed."
        await self._participation.listen(inbound.chat_key, chosen)
        return LISTENS[chosen]

    async def _whoami(self, inbound: Inbound) -> str:
        role = "an operator" if self._access.is_operator(inbound.channel, inbound.user_id) else "a member"
        return (
            f"You are {inbound.user_id} on {inbound.channel}, {role} here. This chat is {inbound.chat_key}."
        )


def _name(waiting: PendingUser) -> str:
    # It is their own choice: nothing in it is formatting, a link or a command.
    return f"`{named(waiting.name)}`" if waiting.name else "somebody without a name"


def beside(inbound: Inbound) -> bool:
    """True where a command does not touch the conversation: it is answered at once, whatever runs."""
    command = inbound.command
    if command is None:
        return False
    return command.name in BESIDE or (command.name == "model" and not command.args.strip())


def _argument(inbound: Inbound) -> str:
    return inbound.command.args.strip() if inbound.command is not None else ""


def _answering(info: ModelInfo) -> str:
    """Names the model that answers in a chat, for a person."""
    where = f"chosen for this chat (ship.json has {info.default})" if info.chosen else "as ship.json says"
    window, price = info.window, info.price
    reads = f"It reads up to {window:,} tokens." if window else "How many tokens it reads, I do not know."
    costs = "Its price I do not know."
    if price is not None:
        costs = f"A million tokens cost ${price[0]:,.2f} read and ${price[1]:,.2f} written."
    return f"{info.model} answers here, {where}. {reads} {costs}"


def told(stats: ChatStats) -> str:
    """The state of a conversation, for a person."""
    read = stats.cache_read_tokens
    prompts = stats.input_tokens + read + stats.cache_write_tokens
    share = f"{read / prompts:.0%} of that from its cache" if prompts else "nothing of that from its cache"
    cost = f"${stats.cost_usd:.2f}"
    if stats.unpriced:
        cost += f", and {_count(stats.unpriced, 'question')} whose price I do not know"
    return (
        f"{_count(stats.turns, 'turn')} so far, {_count(stats.calls, 'question')} to the model. It has read "
        f"{prompts:,} tokens, {share}, and written {stats.output_tokens:,}. Cost: {cost}.\n"
        f"In mind: {_count(stats.messages, 'message')}, about {stats.tokens:,} tokens, of which "
        f"{stats.masked_tokens:,} are masked. What I see of our conversation was rewritten "
        f"{_count(stats.epochs, 'time')}."
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
