"""Commands about one conversation: start a new conversation, undo a turn, stop, and show the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot import text
from bot.contracts.base import Message
from bot.contracts.channel import HomeSection
from bot.contracts.inbound import Inbound
from bot.core import blocks, events, rendering
from bot.core.chat import Chat, Phase
from bot.core.chats import Fact
from bot.core.event_log import ChatStats
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.features.conversation.models import Models
from bot.features.conversation.sessions import SessionCommands
from bot.tools.permissions.display import named
from bot.words import paragraph, say


class Conversation:
    """Runs the commands about a conversation."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime

    async def new(self, inbound: Inbound) -> Done:
        """Run `/new`: start a new conversation. The archive is kept."""
        chat = await self._run.chats.get(inbound.chat_key)
        if not len(chat.context) and chat.context.head is None:
            return Done(say("commands.new_empty"))
        words = say("commands.new", prefix=self._run.manifests[inbound.channel].command_prefix)
        return Done(words, (Fact(chat.key, events.Cut("all", None, "new")),))

    async def undo(self, inbound: Inbound) -> Done:
        """Run `/undo`: remove the last turn."""
        context = (await self._run.chats.get(inbound.chat_key)).context
        if not context.turns:
            return Done(say("commands.undo_nothing"))
        turn = context.turns[-1]
        said = self._run.redact(rendering.said(turn.entries[0].message))
        gone = events.Cut(tuple(entry.seq for entry in turn.entries), context.head, "undo")
        return Done(say("commands.undone", said=said), (Fact(inbound.chat_key, gone),))

    async def stop(self, inbound: Inbound) -> Done:
        """Run `/stop`, or handle the platform's stop button. The platform itself shows the outcome of its button."""
        chat = await self._run.chats.get(inbound.chat_key)
        ended = chat.stopped.get(inbound.request_id)
        other = "" if ended is None or ended.goes_on is None else _whose(ended.goes_on)
        if inbound.kind == "stop":
            return Done(other)
        if ended is None or not ended.anything:
            return Done(other or say("stop.nothing"))
        prefix = self._run.manifests[inbound.channel].command_prefix
        dropped = ", ".join(f"{prefix}{text.preview(name, 40)}" for name in dict.fromkeys(ended.commands))
        told = [say("stop.dropped", commands=dropped)] if dropped else []
        return Done(
            paragraph(say("stop.waiting" if other else "stop.stopped"), *told, *filter(None, [other]))
        )

    async def status(self, inbound: Inbound) -> str:
        """Run `/status`: show the person's running turns and the state of this conversation."""
        chats = [chat for chat in self._run.chats if inbound.chat_key.shows(chat.key)]
        waiting = sum(len(chat.waiting) for chat in chats)
        if busy := [chat for chat in chats if chat.turn is not None]:
            doing = _doing(busy) + (say("status.waiting", count=waiting) if waiting else "")
        else:
            doing = say("status.not_begun", count=waiting) if waiting else say("status.ready")
        context = (await self._run.chats.get(inbound.chat_key)).context
        model = context.stood_in or self._run.models(inbound.chat_key).name
        words = [say("status.line", doing=doing, model=model)]
        if inbound.person in self._run.operators:
            words.append(say("status.memory", messages=len(context.view()), most=context.max_messages))
            servers = ", ".join(f"{name} ({state})" for name, state in sorted(self._run.servers().items()))
            words += [say("status.servers", servers=servers)] if servers else []
        return paragraph(*words)

    async def home(self, opened: Inbound) -> HomeSection:
        """Return a person's running turns and the model in use, for the person's home page."""
        busy = [chat for chat in self._run.chats if chat.turn is not None]
        own = [one for one in busy if one.turn is not None and one.turn.first.person == opened.person]
        model = say("home.model", model=self._run.models(opened.chat_key).name)
        return HomeSection(self._run.name, (_doing(own) if own else say("status.ready"), model))

    async def stats(self, inbound: Inbound) -> str:
        """Run `/stats`: show this chat's usage so far. Operators also see the size of the current conversation."""
        context = (await self._run.chats.get(inbound.chat_key)).context
        models, usage = self._run.models(inbound.chat_key), await self._run.event_log.usage(inbound.chat_key)

        def count(messages: Sequence[Message]) -> int:
            return models.estimator.messages(models.name, messages)

        whole = [entry.message for turn in context.turns for entry in turn.entries]
        hidden = count(whole) - count([blocks.masked(one, context.masked) for one in whole])
        now = replace(
            usage,
            messages=len(context.view()),
            tokens=count(context.view()) + hidden,
            masked_tokens=hidden,
        )
        return stats_text(now, details=self._run.access.is_operator(inbound.person))

    async def history(self, inbound: Inbound) -> str:
        """Run `/history`: show which part of the conversation the model sees."""
        context = (await self._run.chats.get(inbound.chat_key)).context
        return rendering.history(context.view(), self._run.redact) or say("commands.history_empty")


def _doing(busy: Sequence[Chat]) -> str:
    """Return a sentence that says how many chats are working and how many wait for a person."""
    waits = [one for one in busy if one.turn is not None and one.turn.phase is Phase.SUSPENDED]
    asks = sum(
        any(
            asked.verdict is None and asked.record.asked.subject == "question"
            for asked in one.questions.values()
        )
        for one in waits
    )
    keys = {
        "status.working": len(busy) - len(waits),
        "status.waits_approval": len(waits) - asks,
        "status.waits_question": asks,
    }
    first, *others = [say(key, count=count) for key, count in keys.items() if count]
    for other in others:
        first = say("status.beside", before=first, after=other)
    return first


def _whose(message: Inbound) -> str:
    """Return the sentence saying that a stop does not end another person's turn."""
    return say("stop.not_yours", who=f"`{named(message.user_name or message.user_id)}`")


def _build(runtime: Runtime) -> Hooks:
    conversation, models, sessions = Conversation(runtime), Models(runtime), SessionCommands(runtime)
    return Hooks(
        commands={
            "new": Command(conversation.new, queued=True),
            "undo": Command(conversation.undo, queued=True),
            "stop": Command(conversation.stop),
            "status": Command.saying(conversation.status),
            "resume": Command(sessions.resume, queued=True),
            "fork": Command(sessions.fork, queued=True),
            "stats": Command.saying(conversation.stats),
            "history": Command.saying(conversation.history),
            "model": Command(models.model, queued=True, tells=True),
            "effort": Command(models.effort, queued=True, tells=True),
        },
        signals={"stop": Command(conversation.stop)},
        home={0: conversation.home},
    )


FEATURE = Feature("conversation", _build)


def stats_text(stats: ChatStats, *, details: bool) -> str:
    """Return the state of a conversation as text for a person; `details` adds the lines for operators."""
    cost = text.dollars(stats.cost_usd)
    if stats.unpriced and not stats.cost_usd:
        cost = say("stats.price_unknown")
    elif stats.unpriced:
        cost = say("stats.unpriced", count=stats.unpriced, cost=cost)
    lines = [say("stats.answers", count=stats.turns, cost=cost)]
    if details:
        read, written = stats.cache_read_tokens, stats.output_tokens
        prompts = stats.input_tokens + read + stats.cache_write_tokens
        share = f"{read / prompts:.0%}" if prompts else "0%"
        lines += [
            say("stats.calls", count=stats.calls, read=prompts, share=share, written=written),
            say("stats.view", count=stats.messages, tokens=stats.tokens, masked=stats.masked_tokens),
        ]
    return "\n".join(lines)
