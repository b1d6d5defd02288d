"""The board: the command `/waiting` lists what a chat waits for. The list includes the bot's promises for which no job is
scheduled.

A promise is a sentence of an answer in which the bot says that it will do something later. Quotes, code, drafts, questions
and offers are no promises. In doubt, a sentence is no promise. Each language has a file of phrases in this folder.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from bot import text
from bot.contracts.approvals import Act, OpenLoop, Viewer
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Inbound
from bot.contracts.tools import ToolCall
from bot.core import phrases
from bot.core.chat import Turn, chat_of_task
from bot.core.chats import Fact
from bot.core.context import RunningTurn
from bot.core.events import FactSet, TurnEndState
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.phrases import compiled
from bot.llm import blocks
from bot.tools.builtin.chat_send import chat_send
from bot.tools.builtin.work import schedule_create
from bot.tools.permissions.display import named, quoted
from bot.words import say, times

LANGUAGES = ("english", "chinese")
HEAD, TAIL = 500, 1_500
"""Max characters that are searched at the beginning and at the end of an answer. Searching more would take too long."""
LONGEST = 200  # max characters of a stored promise
PROMISE = "promise"  # kind of the `FactSet` events that store promises; the key is the turn's id
KEPT = 14 * 86_400.0  # max age in seconds of a promise on the board
SHORT = 6  # number of letters of a promise's short name
MOST_SHOWN = 8  # max entries of each kind that `/waiting` lists
GLIMPSE = 80  # max characters of a call that `/waiting` shows
_GAPS = re.compile(f"[□{phrases.COMMAND}]")


@functools.cache
def language(name: str) -> tuple[re.Pattern[str], Callable[[str], bool]]:
    """Return a quick pattern that matches in every promise of a language, and a function that returns True for a promise. The
    result is cached, because compiling the phrases takes a tenth of a second.
    """
    raw = phrases.load(Path(__file__).parent, name)
    before, around, *sayings = map(compiled, (raw["before"], raw["around"], *raw["sayings"]))

    def finds(sentence: str) -> bool:
        matches = (one.search(sentence) for one in sayings)
        return around.search(sentence) is None and any(
            found is not None and before.search(sentence[: found.start()]) is None for found in matches
        )

    return re.compile(raw["cue"]), finds


def promise_in(words: str, person: str = "") -> str:
    """Return the first promise in an answer; "" if there is none. `person` is the text that the answer replies to."""
    words = phrases.ends(words, HEAD, TAIL)
    # In nearly every answer, this fast search finds nothing, which saves the slow search.
    if not any(language(name)[0].search(words.lower()) for name in LANGUAGES):
        return ""
    if phrases.composing(phrases.ends(person)):
        return ""
    for read, shown in phrases.sentences(words):
        known = [name for name in phrases.languages(read) if name in LANGUAGES]
        if not phrases.asks(read) and any(language(name)[1](read) for name in known):
            return text.preview(_GAPS.sub("…", shown), LONGEST)
    return ""


class Board:
    """Finds promises at the end of turns, and shows the board in chats."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Store the promise in an answer, unless the turn created a scheduled job. Delete promises that are too old, and the
        promise of an answer that this turn replaces.
        """
        first, now, chats = turn.first, self._run.clock.now(), self._run.chats
        # If this turn answers a message again, the new answer replaces the former one, so the former promise is deleted.
        renewed = (str(first.chat_key), first.message_id if first.renews is not None else None)
        facts = [
            Fact(first.chat_key, FactSet(PROMISE, name, None))
            for name, one in chats.facts[PROMISE].items()
            if one["at"] < now - KEPT or (one["chat"], one.get("message", "")) == renewed
        ]
        chat = chats.loaded(first.chat_key)
        running = chat.context.running if chat is not None else None
        if running is None or state != "answered" or first.due is not None or _makes_job(running):
            return Done(facts=facts)
        # Search all that the person has read: the messages that the turn sent by tool, and the turn's last text.
        sent = [str(one.input.get("text", "")) for one in _calls(running) if one.name == chat_send.name]
        said = self._run.redact("\n".join([*sent, running.words]))
        if found := promise_in(said, "\n".join(one.text for one in turn.left)):
            words = "an answer promises something that no job carries"
            self._run.log.write("promise", words, request_id=turn.id)
            value = {"at": now, "words": found, "person": str(first.person), "name": first.user_name or ""}
            value |= {"chat": str(first.chat_key), "message": first.message_id or ""}
            facts.append(Fact(first.chat_key, FactSet(PROMISE, turn.id, value), turn.id))
        return Done(facts=facts)

    def _promises(self, viewer: Viewer) -> dict[str, OpenLoop]:
        found = dict[str, OpenLoop]()
        for turn, one in self._run.chats.facts[PROMISE].items():
            who, chat = UserRef.parse(one["person"]), ChatKey.parse(one["chat"])
            if one["at"] >= self._run.clock.now() - KEPT and viewer.sees(who, chat):
                acts: tuple[Act, ...] = ("done",) if viewer.owns(who) else ()
                about = one["words"], one["at"], who, one["name"]
                found[turn] = OpenLoop("promise", turn[-SHORT:], chat, *about, acts=acts)
        return found

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the promises and the running subagent tasks that this person sees on the board."""
        found = [*self._promises(viewer).values()]
        for key, turn in [(chat.key, chat.turn) for chat in self._run.chats if chat.turn is not None]:
            first = turn.first
            for task in turn.tasks.values() if viewer.sees(first.person, key) else ():
                child = self._run.chats.loaded(chat_of_task(key, task))
                label = child.task.label if child is not None and child.task is not None else ""
                what = text.preview(label, 120) or say("waiting.some_task")
                about = what, first.ts / 1000, first.person, first.user_name or ""
                found.append(OpenLoop("task", task[-SHORT:], key, *about, state="running"))
        return found

    async def command(self, inbound: Inbound) -> Done:
        """Run `/waiting`: list what waits for the person (in a group, for the group). `/waiting done NAME` ends a promise."""
        private, operator = inbound.chat_type == "direct", inbound.person in self._run.operators
        verb, _, name = inbound.args.partition(" ")
        if verb.casefold() == "done":
            return self._close(inbound, Viewer(inbound.person, operator), name.strip().upper())
        viewer = Viewer(inbound.person, operator, None if private else inbound.chat_key)
        prefix = self._run.manifests[inbound.channel].command_prefix
        parts = list[str]()
        for kind, group in groupby(await self._run.waiting(viewer), key=lambda one: one.kind):
            found = list(group)
            lines = [f"- {self._line(one, viewer, prefix)}" for one in found[:MOST_SHOWN]]
            more = len(found) - MOST_SHOWN
            lines += [f"- {say('home.more_jobs', count=more)}"] if more > 0 else []
            parts.append("\n".join([f"**{say(f'waiting.kind_{kind}')}**", *lines]))
        return Done("\n\n".join(parts) or say("waiting.nothing" if private else "waiting.nothing_here"))

    def _line(self, loop: OpenLoop, viewer: Viewer, prefix: str) -> str:
        parts = [f"“{loop.what}”" if loop.kind == "promise" else named(loop.what)]
        if loop.kind == "approval" and loop.detail:
            parts.append(f"`{quoted(text.preview(loop.detail, GLIMPSE))}`")
        if loop.person is not None and loop.person != viewer.person:
            parts.append(f"`{named(loop.name)}`" if loop.name else str(loop.person))
        if loop.kind != "job":
            parts.append(times.recent(loop.since, self._run.clock.now()))
        elif loop.state:
            parts.append(say(f"jobs.state_{loop.state}"))
        else:
            parts.append(say("jobs.state_next", time=times.date(loop.due or 0.0)))
        return " · ".join([*parts, *(f"`{prefix}{loop.command(act)}`" for act in loop.acts)])

    def _close(self, inbound: Inbound, viewer: Viewer, name: str) -> Done:
        for turn, loop in self._promises(viewer).items():
            if loop.id == name:
                by = str(inbound.person)
                self._run.log.write("promise", "a promise is closed", chat_key=loop.chat_key, by=by)
                gone = Fact(inbound.chat_key, FactSet(PROMISE, turn, None))
                return Done(say("waiting.closed", words=loop.what), (gone,))
        return Done(say("waiting.unknown"))


def _calls(running: RunningTurn) -> list[ToolCall]:
    said: Iterable[Message] = (one.message for one in running.entries)
    return [call for one in said if one["role"] == "assistant" for call in blocks.tool_calls(one["content"])]


def _makes_job(running: RunningTurn) -> bool:
    made = {call.id for call in _calls(running) if call.name == schedule_create.name}
    said = (
        block for one in running.entries if one.message["role"] == "user" for block in one.message["content"]
    )
    results = (block for block in said if isinstance(block, dict) and block.get("tool_use_id") in made)
    return any(not block.get("is_error") for block in results)


def _build(runtime: Runtime) -> Hooks:
    board = Board(runtime)

    async def warm() -> None:
        # Load the phrases at startup, because loading them would delay the end of a turn.
        for name in LANGUAGES:
            await asyncio.to_thread(language, name)

    return Hooks(
        commands={"waiting": Command(board.command)},
        serves=(warm,),
        turn_ends=board.turn_ends,
        waiting=board.waiting,
    )


FEATURE = Feature("waiting", _build)
