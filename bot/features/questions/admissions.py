"""The base class of services that ask people questions, and admissions: a stranger who writes to the bot asks for
access, and operators decide. The log stores the request as an open question in the stranger's chat.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakValueDictionary

from bot import text
from bot.contracts.approvals import Approval, Choice, OpenLoop, QuestionButtons, Subject, Verdict, Viewer
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ABOUT, ONLY_TO, Inbound
from bot.core import events, outgoing
from bot.core.access import EVERY, id_form
from bot.core.chat import STOPPABLE, Chat
from bot.core.chats import Fact
from bot.core.feature import Done, Runtime
from bot.core.outgoing import Address, Question, examples
from bot.text import named
from bot.words import paragraph, say, speaking

MOST = 20  # max requests sent to operators per day; `/allow` lists further requests too
MOST_WAITING = 20  # max undecided people that `/allow` without an argument lists
ABOUT_A_PERSON: tuple[Choice, ...] = ("admit", "later")
ASKED = "admission"
"""Kind of the `FactSet` events that store requests; the key is the request's id. The value has the time, the stranger's message
without its text, and a flag that is true if operators were asked.
"""
KEPT = 7 * EVERY
"""Max age in seconds of a stored request. While the request is stored, a denied person can be notified of a later admission."""
CHECK_SECONDS = 2.0  # interval in seconds between checks for decisions that another process wrote
REACHED_SECONDS = 3.0  # timeout in seconds for delivering a question to an operator


@dataclass(eq=False)
class QuestionService:
    """Base of the services that ask people questions."""

    run: Runtime
    _locks: WeakValueDictionary[ChatKey, asyncio.Lock] = field(
        init=False, default_factory=WeakValueDictionary
    )

    def _alone(self, chat_key: ChatKey) -> asyncio.Lock:
        return self._locks.setdefault(chat_key, asyncio.Lock())

    def _append(self, chat: Chat, turn: str | None, *data: events.EventData) -> None:
        self.run.chats.append(*(Fact(chat.key, one, turn) for one in data))

    def _open(self, *subjects: Subject) -> list[tuple[Chat, Question]]:
        return [
            (chat, one)
            for chat in self.run.chats
            for one in chat.questions.values()
            if one.verdict is None and one.asked.subject in subjects
        ]

    async def _reached(self, chat: Chat, found: Question, rows: Collection[str]) -> bool:
        """Return True once one of these outbox rows is delivered or the question is decided. Return False after
        `REACHED_SECONDS`, or if no row can be delivered.
        """

        def known() -> bool | None:
            states = [found.arrived(name) for name in rows]
            if True in states or found.verdict is not None:
                return True
            return None if None in states else False

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACHED_SECONDS):
                return await self.run.chats.until(chat.key, known)
        return False


@dataclass(eq=False)
class Admissions(QuestionService):
    """Creates admission requests, applies decisions, and runs `/allow` and `/block`."""

    _rules: list[object] = field(init=False, default_factory=list)

    async def ask(self, inbound: Inbound) -> Done:
        """Ask operators to admit a message's author. A second call for the same message, after a crash, reuses the stored request."""
        await asyncio.to_thread(self.run.lists.note, inbound.channel, inbound.user_id, inbound.user_name)
        chat = await self.run.chats.get(inbound.chat_key)
        name = inbound.request_id
        for other, old in self._open("person"):
            if old.asked_at < self.run.clock.now() - KEPT:
                self._append(other, None, events.Decided(old.id, Verdict("expired")))
            elif _person(old) == inbound.person and old.id != name:
                return Done()
        if name not in self.run.chats.facts[ASKED]:
            self.run.chats.append(*self._asked(chat, inbound))
        found = chat.questions.get(name)
        if found is None or found.verdict is not None:
            return Done()  # the request was decided before a crash
        if inbound.chat_type == "group" and not self.run.manifests[inbound.channel].ephemeral:
            return Done()  # no reply, because everybody in the group would read it
        key = "strangers.asked" if await self._reached(chat, found, found.rows) else "strangers.tell_them"
        return Done(paragraph(say("strangers.hello"), say(key, who=inbound.person)))

    def _asked(self, chat: Chat, inbound: Inbound) -> Iterator[Fact]:
        """Yield the events that store a request. If operators got fewer than `MOST` requests today, also yield messages to them."""
        name, now, run = inbound.request_id, self.run.clock.now(), self.run
        before = run.chats.facts[ASKED]
        told = sum(fact["told"] for fact in before.values() if fact["at"] > now - EVERY) < MOST
        value = {"at": now, "told": told, "inbound": inbound.model_dump(mode="json")}
        yield Fact(chat.key, events.FactSet(ASKED, name, value))
        asked = Approval(name, inbound.chat_key, inbound.channel, inbound.user_id, subject="person")
        yield Fact(chat.key, events.QuestionAsked(name, asked))
        who = str(inbound.person)
        # People choose their names freely, so the name is quoted as code: formatting, links and ids in it stay plain text.
        shown = f"`{named(inbound.user_name)}` ({who})" if inbound.user_name else who
        for operator, to in run.alerts.people(name) if told else ():
            with speaking(*run.locales.of_person(operator)):
                place, prefix = run.access.place(inbound), self.run.manifests[to.channel].command_prefix
                words = say("strangers.question", who=shown, id=who, place=place, prefix=prefix)
                buttons = QuestionButtons(name, ABOUT_A_PERSON)
                rows = outgoing.rows(run, f"{name}/{to.chat_key}", to, words, buttons=buttons, question=name)
            yield from (Fact(chat.key, row) for row in rows)
        for old in [old for old, fact in before.items() if fact["at"] < now - KEPT]:
            yield Fact(chat.key, events.FactSet(ASKED, old, None))

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the people who ask for access, if the viewer is an operator in a private chat."""
        if not viewer.operator or viewer.chat is not None:
            return []
        places = {_person(one): chat.key for chat, one in self._open("person")}
        return [
            OpenLoop(
                "person",
                str(who),
                places.get(who),
                one.name or one.user_id,
                one.ts / 1000,
                who,
                one.name,
                acts=("admit", "block"),
            )
            for one in await asyncio.to_thread(self.run.lists.pending)
            for who in (UserRef(one.channel, one.user_id),)
        ]

    async def decide(self, found: Question, verdict: Verdict) -> bool:
        """Apply a decision that an operator made with a button. Return False if the request is already decided, or if the
        person was blocked in the meantime.
        """
        chat, who = await self.run.chats.get(found.asked.chat_key), _person(found)
        async with self._alone(chat.key):
            if found.verdict is not None:
                return False
            if self.run.access.standing(who, chat.key.chat_id, "direct").reason in {"blocked", "never"}:
                self.run.chats.append(*self._decided(chat, found.id, Verdict("denied", scope="always")))
                return False
            await self._carry_out(who, verdict)
            self.run.chats.append(*self._decided(chat, found.id, verdict))
            return True

    async def _decide(self, who: UserRef, verdict: Verdict) -> Sequence[Fact]:
        """Apply a decision about a person or group. Notify a person who was denied earlier and is admitted now."""
        await self._carry_out(who, verdict)
        theirs = [(chat, one.id) for chat, one in self._open("person") if _person(one) == who]
        if not theirs and verdict.ended == "approved":
            verdict = Verdict("approved")
            for name, value in list(self.run.chats.facts[ASKED].items()):
                inbound = Inbound.model_validate(value["inbound"])
                if inbound.person == who and value["at"] > self.run.clock.now() - KEPT:
                    theirs.append((await self.run.chats.get(inbound.chat_key), name))
        return [fact for chat, name in theirs for fact in self._decided(chat, name, verdict)]

    def _decided(self, chat: Chat, name: str, verdict: Verdict) -> Iterator[Fact]:
        """Yield an event that stores the verdict. For an admission, also yield a message to the person, in the chat of the
        request.
        """
        yield Fact(chat.key, events.Decided(name, verdict))
        value = self.run.chats.facts[ASKED].get(name)
        if value is None or verdict.ended != "approved":
            return
        inbound = Inbound.model_validate(value["inbound"])
        yield Fact(chat.key, events.FactSet(ASKED, name, None))
        to = Address.of(inbound)
        target = {key: one for key, one in to.target.items() if key not in {ONLY_TO, ABOUT}}
        to = Address(to.channel, to.chat_id, to.chat_key, to.chat_type, target, name)
        with speaking(*self.run.locales.of(inbound)):
            buttons = examples(inbound, self.run.manifests)
            rows = outgoing.rows(self.run, f"{name}/admitted", to, say("strangers.admitted"), buttons=buttons)
        yield from (Fact(chat.key, row) for row in rows)

    async def _carry_out(self, who: UserRef, verdict: Verdict) -> None:
        if verdict.ended == "approved":
            work, decision = self.run.lists.allow, "allowed"
        elif verdict.scope == "always":
            work, decision = self.run.lists.block, "blocked"
        else:
            work, decision = self.run.lists.dismiss, "not now"
        await asyncio.to_thread(work, who.channel, who.user_id)
        facts: Json = {"channel": who.channel, "user_id": who.user_id, "by": str(verdict.by or "")}
        self.run.log.write("admission", f"{who}: {decision}", decision=decision, **facts)

    async def watch(self) -> None:
        """Apply decisions that another process wrote, and stop the running turns of people who are now blocked."""
        while True:
            await self.run.clock.sleep(CHECK_SECONDS)
            rules: list[object] = [self.run.access.rules(channel) for channel in self.run.manifests]
            if rules != self._rules:
                self._rules = rules
                open_ones = {one.id for _, one in self._open("person")}
                for name, value in list(self.run.chats.facts[ASKED].items()):
                    inbound = Inbound.model_validate(value["inbound"])
                    standing = self.run.access.standing(inbound.person, inbound.chat_key.chat_id, "direct")
                    if standing.allowed or (standing.reason != "stranger" and name in open_ones):
                        denied = Verdict("denied", scope="always")
                        verdict = Verdict("approved") if standing.allowed else denied
                        chat = await self.run.chats.get(inbound.chat_key)
                        self.run.chats.append(*self._decided(chat, name, verdict))
            running = [(chat, chat.turn) for chat in self.run.chats if chat.turn is not None]
            for chat, first in [(chat, turn.first) for chat, turn in running if turn.phase in STOPPABLE]:
                standing = self.run.access.standing(first.person, first.chat_id, first.chat_type)
                if standing.reason == "blocked":
                    # `Z` × 26 sorts after every real id, so the stop applies to all messages so far.
                    gone = {"request_id": "Z" * 26, "keys": (), "text": "", "quoted": (), "attachments": ()}
                    stop = first.model_copy(update=gone | {"kind": "stop", "command": None})
                    self.run.chats.append(Fact(chat.key, events.Stop(stop, everyones=True)))

    async def allow(self, inbound: Inbound) -> Done:
        """Run `/allow [id]`: admit a person or group. Without an id, list the undecided people."""
        if inbound.args or not self.run.access.is_operator(inbound.person):
            return await self._admit(inbound, "approved")
        if inbound.chat_type != "direct":
            return Done(say("commands.allow_privately"))
        waiting = await asyncio.to_thread(self.run.lists.pending)
        if not waiting:
            return Done(say("commands.allow_nobody"))
        allow = f"{self.run.manifests[inbound.channel].command_prefix}allow"
        # People choose their names freely, so names are quoted as code: formatting, links and commands stay plain text.
        lines = [
            f"{f'`{named(one.name)}`' if one.name else say('commands.nameless')}: {allow} {one.channel}:{one.user_id}"
            for one in waiting[:MOST_WAITING]
        ]
        more = len(waiting) - len(lines)
        lines += [say("commands.allow_more", count=more)] if more else []
        return Done("\n".join([say("commands.allow_waiting"), *lines]))

    async def block(self, inbound: Inbound) -> Done:
        """Run `/block id`: deny a person or group."""
        return await self._admit(inbound, "denied")

    async def _admit(self, inbound: Inbound, decision: Literal["approved", "denied"]) -> Done:
        """Admit or deny an id. An id without the prefix `channel:` belongs to the channel of the command."""
        if not self.run.access.is_operator(inbound.person):
            return Done(say("commands.operators_admit"))
        asked = inbound.args
        channel, _, user_id = asked.rpartition(":")
        channel = channel or inbound.channel
        manifest = self.run.manifests.get(channel)
        if not user_id or manifest is None or not manifest.valid_id(user_id):
            name = inbound.command.name if inbound.command is not None else ""
            prefix = self.run.manifests[inbound.channel].command_prefix
            said = say("commands.no_id", asked=text.preview(asked, 60))
            said = said if asked else say("commands.needs_id", name=name, prefix=prefix)
            form = id_form(manifest or self.run.manifests[inbound.channel])
            return Done(paragraph(said, form, say("commands.who_waits", prefix=prefix)))
        who = UserRef(channel, user_id)
        if decision == "denied" and self.run.access.is_operator(who):
            # Without any operator, nobody could admit people with a command any more.
            return Done(say("commands.operator_stays", who=who))
        verdict = Verdict(decision, inbound.person, "always", inbound.user_name or "", inbound.request_id)
        facts = await self._decide(who, verdict)
        return Done(
            say("commands.admitted" if decision == "approved" else "commands.kept_out", who=who), facts
        )


def _person(found: Question) -> UserRef:
    return UserRef(found.asked.channel or "", found.asked.user_id or "")
