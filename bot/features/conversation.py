"""Conversations of a chat: start a new one, undo, stop, resume, fork, compact, choose the model, show the status. On channels
where each message outside a thread starts a new conversation, this feature also assigns messages to conversations.

The log keeps the former conversation after each command, and `/resume` returns to it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bot import errors, tags, text
from bot.contracts.base import Json, Message
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ORIGIN, Inbound, Quoted
from bot.contracts.model import ATTACHED
from bot.core import events, quotes
from bot.core.chat import STOPPABLE, Chat, Phase, plain
from bot.core.chats import Fact, find_turn
from bot.core.context import AgentContextStore, KeptTurn
from bot.core.events import Event, Received, SessionMoved
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.llm import blocks
from bot.llm.models import EFFORT, MODEL, ModelDeps, effort_of
from bot.tags import SEND
from bot.text import named
from bot.tools.builtin.chat_send import chat_send
from bot.tools.permissions import taint
from bot.words import CATALOGUES, DEFAULT, paragraph, say, times

QUICK = 10_000  # max age in milliseconds of an unanswered message whose conversation the next message joins
MOST_CHATS = 1_000
OF_CONVERSATION = frozenset(
    {"compact", "effort", "forget", "fork", "history", "model", "new", "resume", "stats", "undo"}
)
"""Commands that apply to one conversation of a chat."""


RECENT_SECONDS = 3_600.0  # max age in seconds of the turn that a new conversation in a direct chat quotes
LONGEST = 4_000  # max characters of each message that is quoted from that turn
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
DEFAULT_MODEL = "default"
LISTED = 10
SHORTEST, ULID = 4, 26
"""Min letters of a short id, and number of letters of a full id. If two ids end alike, their short ids are longer."""
MOST_BACK = 6  # max digits of an argument that is a number of turns; a longer argument is an id
SHOWN = 2_000  # max characters of a conversation that `/resume` and `/fork` show
_GATHERED = 5 * SHOWN
"""Max characters that are redacted before the text is cut to `SHOWN`. A secret that is cut into two is not recognised."""
QUOTED = 80
_ID = re.compile(r" \([^()]*\)$")  # pattern of the id that follows the name of a quoted person
_UNSHOWN = frozenset({tags.CONTEXT, tags.HISTORY, tags.NOTES, tags.SERVERS})
"""Tags around the gateway's own text in messages. The text inside is not shown to people."""


@dataclass(eq=False)
class Conversations:
    """Assigns the messages of a direct chat to conversations."""

    run: Runtime
    _newest: OrderedDict[ChatKey, Inbound] = field(default_factory=OrderedDict)

    async def found(self, inbound: Inbound) -> Sequence[Inbound]:
        """Return the message with the chatKey of its conversation. A stop may become one stop for each busy conversation.
        Raises `errors.StorageError`.
        """
        chat = inbound.chat_key
        if self.run.manifests[inbound.channel].separate:
            return (inbound,)
        if inbound.is_stop and (inbound.opens or chat.thread is None):
            # In a group, conversations without a message of the person go on.
            busy = [
                one.key
                for one in self.run.chats
                if chat.chat.shows(one.key)
                and any(
                    inbound.chat_type == "direct" or member.person == inbound.person
                    for member in (*one.waiting, *(one.turn.members if one.turn is not None else ()))
                )
            ]
            first, *others = busy or [chat]
            silent = {"kind": "stop", "command": None, "request_id": ""}
            below = [inbound.model_copy(update={**silent, "chat_key": key}) for key in others]
            return [inbound.model_copy(update={"chat_key": first}), *below]
        about = inbound.command is not None and inbound.command.name in OF_CONVERSATION
        if about and inbound.chat_type == "direct" and chat.thread is None:
            last = chat
            for place in await self.run.event_log.spoken_in(chat):
                if any(map(plain, (await self.run.chats.get(place)).said)):
                    last = place
                    break
            return (inbound.model_copy(update={"chat_key": last if last.kind == chat.kind else chat}),)
        return (await self._placed(inbound),)

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
        chat = self.run.chats.loaded(before.chat_key)
        if chat is None or before not in chat.said or before in chat.waiting:
            return True
        turn = chat.turn
        runs = turn is not None and turn.phase in STOPPABLE - {Phase.SUSPENDED} and not turn.acted
        return runs and turn is not None and before in turn.members

    async def _change(self, change: Inbound) -> Inbound:
        for chat in self.run.chats:
            if change.chat_key.chat.contains(chat.key) and any(
                one.message_id == change.message_id for one in chat.said
            ):
                return change.model_copy(update={"chat_key": chat.key})
        for event in await self.run.event_log.naming(change.chat_key.chat, {change.message_id or ""}):
            if isinstance(event.data, Received) and event.data.inbound.message_id == change.message_id:
                return change.model_copy(update={"chat_key": event.chat})
        return change

    async def before(self, chat: Chat, inbound: Inbound) -> Sequence[Quoted]:
        """Return the newest turn of the same direct chat as quotes, if the turn is younger than an hour. Return () after `/new`."""
        if not inbound.opens or chat.context.head is not None or len(chat.context):
            return ()
        since = self.run.clock.now() - RECENT_SECONDS
        for place in await self.run.event_log.spoken_in(inbound.chat_key.chat, since):
            if place == chat.key:
                continue
            other = await self.run.chats.get(place)
            if other.context.turns:
                turn = other.context.turns[-1]
                origin = taint.seen(entry.message for entry in turn.entries)
                of_turn = {"words_of": tuple(sorted(origin.people)), "taint": origin.taint}
                asked = [one for one in other.said if one.request_id in turn.sources and one.command is None]
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
                return found + answers if answers else ()  # a turn without answers was stopped
            if other.turn is None and not other.waiting:
                return ()
        return ()


def _said(message: Message) -> list[str]:
    if message["role"] != "assistant":
        return []
    calls = blocks.tool_calls(message["content"])
    said = [str(call.input.get("text", "")) for call in calls if call.name == SEND]
    return said if calls else [blocks.plain_text(message["content"])]


@dataclass(slots=True)
class Session:
    """A conversation. `view` is its state in the model's context: turns, head message and results replaced by placeholders.
    `points` are its ended turns, each with the view after that turn. `last` is the end of the newest turn in epoch seconds.
    """

    id: str
    view: SessionMoved
    points: list[tuple[KeptTurn, SessionMoved]] = field(default_factory=list)
    last: float = 0.0


@dataclass(eq=False)
class Sessions:
    """Conversations of one chat, rebuilt from the chat's events."""

    all: dict[str, Session] = field(default_factory=dict)
    current: Session = field(default_factory=lambda: Session("", SessionMoved("", ())))

    def apply(self, event: Event, chat: Chat) -> None:
        """Apply one event. `chat` is the chat's state after that event."""
        context, before = chat.context, self.current
        match data := event.data:
            case _ if not before.id:
                self._begin(event.id)
            case events.Cut(reason="new"):
                self._begin(event.id)
            case SessionMoved():
                self._begin(data.session)
                if data.forked_at:
                    ids = [turn.id for turn, _ in before.points]
                    self.current.points = before.points[: ids.index(data.forked_at) + 1]
                    self.current.last = event.at
            case events.TurnEnded() if context.turns and context.turns[-1].id == event.turn:
                before.points.append((context.turns[-1], _view(context)))
                before.last = event.at
            case events.Cut(reason="undo"):
                before.points = before.points[:-1]
            case events.Cut() | events.Masked() | events.Removed() | events.Expired():
                pass
            case _:
                return
        self.current.view = _view(context)

    def _begin(self, name: str) -> None:
        self.current = self.all.setdefault(name, Session(name, SessionMoved(name, ())))

    def short(self, name: str) -> str:
        """Return the shortest ending that distinguishes an id from the other conversations' ids."""
        others = [one for one in self.all if one != name]
        endings = (name[-length:] for length in range(SHORTEST, ULID))
        return next((one for one in endings if not any(other.endswith(one) for other in others)), name)


def _view(context: AgentContextStore) -> SessionMoved:
    return SessionMoved("", tuple(turn.id for turn in context.turns), context.head, dict(context.masked))


@dataclass(eq=False)
class Conversation:
    """Runs the commands about the current conversation."""

    run: Runtime

    def _prefix(self, inbound: Inbound) -> str:
        return self.run.manifests[inbound.channel].command_prefix

    async def _context(self, inbound: Inbound) -> AgentContextStore:
        return (await self.run.chats.get(inbound.chat_key)).context

    async def new(self, inbound: Inbound) -> Done:
        """Run `/new`: start a new conversation. The archive keeps the former conversation."""
        context = await self._context(inbound)
        if not len(context) and context.head is None:
            return Done(say("commands.new_empty"))
        words = say("commands.new", prefix=self._prefix(inbound))
        return Done(words, (Fact(inbound.chat_key, events.Cut("all", None, "new")),))

    async def undo(self, inbound: Inbound) -> Done:
        """Run `/undo`: remove the last turn."""
        context = await self._context(inbound)
        if not context.turns:
            return Done(say("commands.undo_nothing"))
        entries = context.turns[-1].entries
        said = self.run.redact(words_of(entries[0].message))
        gone = events.Cut(tuple(entry.seq for entry in entries), context.head, "undo")
        return Done(say("commands.undone", said=said), (Fact(inbound.chat_key, gone),))

    async def compact(self, inbound: Inbound) -> Done:
        """Run `/compact`: replace the older part of the conversation with a summary."""
        done = await self.run.compact(inbound)
        if done.outcome in {"nothing", "failed"}:
            return Done(say(f"commands.compact_{done.outcome}"))
        words = say("commands.compacted")
        if not self.run.access.is_operator(inbound.person):
            return Done(words)
        before, after = done.tokens_before, done.tokens_after
        figures = say("commands.compacted_figures", count=done.messages, before=before, after=after)
        return Done(paragraph(words, figures))

    async def stop(self, inbound: Inbound) -> Done:
        """Handle `/stop` and the platform's own stop button. After a press of the button, the platform itself shows the outcome."""
        said = (await self.run.chats.get(inbound.chat_key)).beside.get(inbound.request_id)
        ended, other = said.stopped if said is not None else None, ""
        if ended is not None and (theirs := ended.goes_on) is not None:
            other = say("stop.not_yours", who=f"`{named(theirs.user_name or theirs.user_id)}`")
        if inbound.kind == "stop":
            return Done(other)
        if ended is None or not ended.anything:
            return Done(other or say("stop.nothing"))
        prefix = self._prefix(inbound)
        dropped = ", ".join(f"{prefix}{text.preview(name, 40)}" for name in dict.fromkeys(ended.commands))
        told = say("stop.dropped", commands=dropped) if dropped else ""
        return Done(paragraph(say("stop.waiting" if other else "stop.stopped"), told, other))

    async def status(self, inbound: Inbound) -> str:
        """Run `/status`: show the person's running turns and the state of the current conversation."""
        chats = [chat for chat in self.run.chats if inbound.chat_key.shows(chat.key)]
        waiting = sum(len(chat.waiting) for chat in chats)
        if busy := [chat for chat in chats if chat.turn is not None]:
            doing = _work_of(busy) + (say("status.waiting", count=waiting) if waiting else "")
        else:
            doing = say("status.not_begun", count=waiting) if waiting else say("status.ready")
        context = await self._context(inbound)
        model = context.stood_in or self.run.models(inbound.chat_key).name
        line = say("status.line", doing=doing, model=model)
        if inbound.person not in self.run.operators:
            return line
        memory = say("status.memory", messages=len(context.view()), most=context.max_messages)
        servers = ", ".join(f"{name} ({state})" for name, state in sorted(self.run.servers().items()))
        return paragraph(line, memory, say("status.servers", servers=servers) if servers else "")

    async def home(self, opened: Inbound) -> HomeSection:
        """Return a person's running turns and the current model, for the person's home page."""
        busy = [chat for chat in self.run.chats if chat.turn and chat.turn.first.person == opened.person]
        model = say("home.model", model=self.run.models(opened.chat_key).name)
        return HomeSection(self.run.settings.name, (_work_of(busy) if busy else say("status.ready"), model))

    async def stats(self, inbound: Inbound) -> str:
        """Run `/stats`: show how much this chat has used so far. Operators also see the size of the current conversation."""
        context, models = await self._context(inbound), self.run.models(inbound.chat_key)
        used = await self.run.event_log.usage(inbound.chat_key)
        cost = text.dollars(used.cost)
        if used.unpriced:
            unpriced = say("stats.unpriced", count=used.unpriced, cost=cost)
            cost = unpriced if used.cost else say("stats.price_unknown")
        answers = say("stats.answers", count=used.turns, cost=cost)
        if not self.run.access.is_operator(inbound.person):
            return answers

        def count(messages: Sequence[Message]) -> int:
            return models.estimator.tokens(models.name, messages)

        share, written = f"{used.cached or 0:.0%}", used.tokens["outputTokens"]
        calls = say("stats.calls", count=used.calls, read=used.prompt, share=share, written=written)
        whole = [entry.message for turn in context.turns for entry in turn.entries]
        hidden = count(whole) - count([blocks.masked(one, context.masked) for one in whole])
        shown = context.view()
        view = say("stats.view", count=len(shown), tokens=count(shown) + hidden, masked=hidden)
        return f"{answers}\n{calls}\n{view}"

    async def history(self, inbound: Inbound) -> str:
        """Run `/history`: show which part of the conversation is in the model's context."""
        view = (await self._context(inbound)).view()
        return shown_history(view, self.run.redact) or say("commands.history_empty")

    async def model(self, inbound: Inbound) -> Done:
        """Run `/model`: show the model. Operators may also change it."""
        asked, models = inbound.args, self.run.models(inbound.chat_key)
        if not asked:
            return Done(_model_text(models))
        if not self.run.access.is_operator(inbound.person):
            return Done(say("commands.operators_model"))
        name = None if asked.casefold() == DEFAULT_MODEL else asked
        shown, unsure = text.preview(asked, 60), ""
        if name is not None and MODEL_NAME.fullmatch(name) is None:
            return Done(say("commands.model_name", name=shown))
        try:
            if name is not None:
                await models.windows.ask(models.model, name)
        except errors.OneModel as error:
            return Done(error.person)
        except errors.ModelUnknown:
            return Done(say("commands.model_missing", name=shown))
        except errors.ModelError as error:
            what = "the provider does not say whether it has the model"
            self.run.log.write("model", what, cause=str(error))
            unsure = say("commands.model_unsure")
        before, models.chosen = models.name, name
        facts: Json = {"model": models.name, "chosen": name is not None, "before": before}
        words = "a model was chosen for the chat"
        self.run.log.write("model", words, level="action", chat_key=inbound.chat_key, **facts)
        return Done(paragraph(_model_text(models), unsure), (_chosen(inbound, MODEL, name),))

    async def effort(self, inbound: Inbound) -> Done:
        """Run `/effort`: show the reasoning effort. Operators may also change it."""
        asked, models = inbound.args.casefold(), self.run.models(inbound.chat_key)
        if not asked:
            return Done(_effort_text(models))
        if not self.run.access.is_operator(inbound.person):
            return Done(say("commands.operators_effort"))
        models.chosen_effort = effort_of(asked)
        if models.chosen_effort is None and asked != DEFAULT_MODEL:
            return Done(say("commands.effort_name", name=text.preview(inbound.args, 60)))
        return Done(_effort_text(models), (_chosen(inbound, EFFORT, models.chosen_effort),))

    async def resume(self, inbound: Inbound) -> Done:
        """Run `/resume [id]`: return to an earlier conversation. Without an id, list the conversations."""
        sessions, prefix = Sessions(), self._prefix(inbound)
        past = await self.run.chats.replayed(inbound.chat_key, seen=sessions.apply)
        asked = next(iter(inbound.args.split()), "")
        if not asked:
            return Done(self._list(sessions, prefix))
        shown = text.preview(asked, 40)
        found = [one for one in sessions.all.values() if one.points and one.id.endswith(asked.upper())]
        if len(asked) < SHORTEST or not found:
            return Done(say("sessions.unknown", id=shown, prefix=prefix))
        if len(found) > 1:
            return Done(say("sessions.ambiguous", id=shown))
        if found[0] is sessions.current:
            return Done(say("sessions.here", id=shown))
        words = say("sessions.back", id=sessions.short(found[0].id), prefix=prefix)
        moved = replace(found[0].view, session=found[0].id)
        return await self._moved(inbound, past, sessions, words, moved)

    async def fork(self, inbound: Inbound) -> Done:
        """Run `/fork`: start a conversation that continues from a past turn of the current one."""
        asked = next(iter(inbound.args.split()), "")
        sessions = Sessions()
        past = await self.run.chats.replayed(inbound.chat_key, seen=sessions.apply)
        points = sessions.current.points
        back = int(asked) if asked.isdecimal() and len(asked) <= MOST_BACK else 0
        at = len(points) - 1 - back
        if not back and (wanted := asked if asked.strip("0") else inbound.answers):
            ref = await find_turn(self.run.chats, self.run.event_log, inbound, wanted)
            if ref is None:
                return Done(say("sessions.fork_unknown", asked=text.preview(wanted, 40)))
            at = next((at for at, (turn, _) in enumerate(points) if turn.id == ref.id), -1)
            if at < 0:
                return Done(say("sessions.fork_elsewhere", prefix=self._prefix(inbound)))
        if at < 0:
            short = say("sessions.fork_short", count=len(points), back=back)
            return Done(short if points else say("sessions.fork_nothing"))
        left, (turn, view) = len(points) - 1 - at, points[at]
        words = say("sessions.forked_without", count=left) if left else say("sessions.forked")
        moved = replace(view, session=self.run.ids.ulid(), forked_at=turn.id)
        return await self._moved(inbound, past, sessions, words, moved)

    async def _moved(
        self, inbound: Inbound, past: Chat, sessions: Sessions, words: str, moved: SessionMoved
    ) -> Done:
        """Replace the chat's conversation. If the former conversation has turns, the answer says how to return to it."""
        left = sessions.current
        what = "a fork of the session begins" if moved.forked_at else "an earlier session goes on"
        self.run.log.write("session", what, chat_key=inbound.chat_key, session=moved.session, left=left.id)
        known = (past.context.left or {}) | {turn.id: turn for turn in past.context.turns}
        context = await self._context(inbound)
        context.recalled = {one: known[one] for one in moved.turns if one in known}
        here = {"id": sessions.short(left.id), "prefix": self._prefix(inbound)}
        back = say("sessions.return", **here) if left.points else ""
        return Done(paragraph(words, back), (Fact(inbound.chat_key, moved),))

    def _list(self, sessions: Sessions, prefix: str) -> str:
        listed = sorted((one for one in sessions.all.values() if one.points), key=lambda one: -one.last)
        if not listed:
            return say("sessions.none")
        now, lines = self.run.clock.now(), list[str]()
        for one in listed[:LISTED]:
            words = self.run.redact(words_of(one.points[0][0].entries[0].message))
            told = {"id": sessions.short(one.id), "time": times.recent(one.last, now)}
            told["here"] = say("sessions.current") if one is sessions.current else ""
            told["words"] = say("sessions.words", words=words) if words else ""
            count = sum(len(turn.entries) for turn, _ in one.points)
            lines.append(say("sessions.line", count=count, **told))
        return "\n".join([say("sessions.list"), *lines, say("sessions.list_end", prefix=prefix)])


def _work_of(busy: Sequence[Chat]) -> str:
    waits = [one for one in busy if one.turn is not None and one.turn.phase is Phase.SUSPENDED]
    asks = sum(any(one.verdict is None and one.of_tool for one in chat.questions.values()) for chat in waits)
    counts = {"working": len(busy) - len(waits), "waits_approval": len(waits) - asks, "waits_question": asks}
    first, *others = [say(f"status.{key}", count=count) for key, count in counts.items() if count]
    for other in others:
        first = say("status.beside", before=first, after=other)
    return first


def _model_text(models: ModelDeps) -> str:
    name = models.name
    key = "commands.model_default" if models.chosen is None else "commands.model_chosen"
    window, price = models.windows.window(name), models.prices.million(name)
    reads = say("commands.model_window", window=window) if window else say("commands.model_window_unknown")
    costs = say("commands.model_price_unknown")
    if price is not None:
        costs = say("commands.model_price", read=price[0], written=price[1])
    return paragraph(say(key, model=name, default=models.default_model), reads, costs)


def _effort_text(models: ModelDeps) -> str:
    effort = models.sent().effort
    if effort is None:
        return say("commands.effort_none", model=models.name)
    key = "commands.effort_default" if models.chosen_effort is None else "commands.effort_chosen"
    return say(key, effort=effort)


def _chosen(inbound: Inbound, kind: str, name: str | None) -> Fact:
    value = None if name is None else {"name": name}
    return Fact(inbound.chat_key, events.FactSet(kind, str(inbound.chat_key), value))


def _build(runtime: Runtime) -> Hooks:
    run, conversations = Conversation(runtime), Conversations(runtime)
    return Hooks(
        commands={
            "new": Command(run.new, queued=True),
            "undo": Command(run.undo, queued=True),
            "compact": Command(run.compact, queued=True),
            "resume": Command(run.resume, queued=True),
            "fork": Command(run.fork, queued=True),
            "stop": Command(run.stop),
            "status": Command.saying(run.status),
            "stats": Command.saying(run.stats),
            "history": Command.saying(run.history),
            "model": Command(run.model, queued=True, tells=True),
            "effort": Command(run.effort, queued=True, tells=True),
        },
        signals={"stop": Command(run.stop)},
        home={0: run.home},
        before_intake=conversations.found,
        before_turn=conversations.before,
        only_new=True,
        kinds=frozenset({"command", "stop", "opening"}),
    )


# ------------------------------------------------------------ the conversation as people read it


def shown_history(messages: Sequence[Message], redact: Callable[[str], str]) -> str:
    """Return the newest part of a conversation, oldest message first, with secrets redacted. The text starts with `…` if
    older messages are left out. Return "" if no message has text for people.
    """
    gathered, left = "", 0
    for at, message in reversed(list(enumerate(messages))):
        gathered = "".join(f"{line}\n" for line in _lines(message)) + gathered
        if len(gathered) > _GATHERED:
            left = at
            break
    words = redact(gathered).strip()
    if len(words) <= SHOWN and not left:
        return words
    newest = words[text.border(words, max(0, len(words) - SHOWN + 2)) :]
    _, line, whole = newest.partition("\n")
    return f"…\n{whole if line else newest}"


def words_of(message: Message) -> str:
    """Return the beginning of the text that a person wrote in this message."""
    told = tags.of(message)
    both = zip(message["content"], told, strict=True)
    own = [block["text"] for block, tag in both if block["type"] == "text" and tag is None]
    quoted = [line for tag in told for line in _quoted(tag)]
    return text.preview(" ".join(own or quoted), QUOTED)


def _quoted(told: tags.Tag | None) -> Iterator[str]:
    for row in quotes.rows_of(told):
        name = _ID.sub("", str(row.get("from")))
        # People choose their names freely, so the name is quoted as code: formatting and links in it stay plain text.
        who = say("quoted.me") if name == quotes.YOU else f"`{named(name)}`"
        how, kind = f"quoted.{row.get('how')}", str(row.get("kind", ""))
        if kind:
            key = f"kinds.{kind.replace(' ', '_')}"
            yield say("quoted.kind", kind=say(key) if key in CATALOGUES[DEFAULT] else kind, who=who)
        else:
            yield say(how if how in CATALOGUES[DEFAULT] else "quoted.said", who=who)
        yield from (f"> {line}" for line in str(row.get("text", "")).splitlines())


def _lines(message: Message) -> Iterator[str]:
    who = "turn.history_bot" if message["role"] == "assistant" else "turn.history_person"
    for block, tag in zip(message["content"], tags.of(message), strict=True):
        if quoted := list(_quoted(tag)):
            yield from quoted
        elif block["type"] == "text" and (tag is None or tag.name not in _UNSHOWN):
            yield say(who, words=block["text"])
        elif block["type"] == "tool_use" and block["name"] == chat_send.name and block["input"].get("text"):
            yield say(who, words=str(block["input"]["text"]))
        elif block["type"] == ATTACHED and ORIGIN not in block:
            yield say(who, words="📎")


FEATURE = Feature("conversation", _build)
