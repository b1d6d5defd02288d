"""Questions to people: approvals of tool calls and budgets, admissions of strangers, and questions of tools.

A question is an event of the asking chat. All messages of the question are outbox rows of that chat, even those sent to other
chats. After the first verdict, each message shows the outcome, and later verdicts are ignored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import starmap

from pydantic import TypeAdapter

from bot import errors, text
from bot.contracts.approvals import (
    CHOICES,
    LASTING,
    Approval,
    Choice,
    Ended,
    OpenLoop,
    Scope,
    ShownQuestion,
    Verdict,
    Viewer,
)
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection
from bot.contracts.identity import CONSOLE, ChatKey, UserRef
from bot.contracts.messages import Command as CallOf
from bot.contracts.messages import Inbound
from bot.core import events, outgoing
from bot.core.chat import Chat
from bot.core.chats import Fact
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.operators import who_decided
from bot.core.outgoing import Address, LastingApproval, Question, is_shown_in
from bot.features.questions import wording
from bot.features.questions.admissions import Admissions, QuestionService
from bot.features.questions.wording import SHORT, act, call_in_words, runs, that_hold
from bot.text import named
from bot.tools.policy import changed_lines, in_words
from bot.words import say, speaking, times

GRANTED = "approval"  # kind of the `FactSet` events that store lasting approvals; keys are question ids
MOST_SHOWN = 5  # max questions listed on a person's home page
SCOPES: dict[str, Scope] = {"once": "once", "chat": "chat", "today": "today", "always": "always"}
_GRANTS = TypeAdapter(LastingApproval)


@dataclass(eq=False)
class Approvals(QuestionService):
    """Implements `contracts.approvals.Approvals`. A question may be sent to several chats."""

    admissions: Admissions

    async def decide(self, asked: Approval, *others: Approval) -> Verdict:
        """Implement `contracts.approvals.Approvals.decide`. Each chat has at most one open question at a time."""
        async with self._alone(asked.chat_key):
            chat = await self.run.chats.get(asked.chat_key)
            calls = [asked, *others] if others else []
            left = [one for one in calls if _about(chat, one) is None and self._given(one) is None]
            for may in dict.fromkeys((one.granted, one.own) for one in left):
                # Ask one question about all calls that the same people may decide. The verdict applies to every call.
                alike = [one for one in left if (one.granted, one.own) == may]
                if len(alike) == 1:
                    continue
                verdict = await self._decided(chat, wording.together(alike))
                if verdict.ended in {"nobody", "unattended"} or wording.decides_each(verdict):
                    continue
                for one in alike:
                    name = self.run.ids.ulid()
                    decided = (events.QuestionAsked(name, one), events.Decided(name, verdict))
                    self._append(chat, one.request_id, *decided, *self._granted(name, one, verdict))
            return await self._decided(chat, asked)

    async def _decided(self, chat: Chat, asked: Approval) -> Verdict:
        if (given := self._given(asked)) is not None:
            if runs(given.asked) == runs(asked):
                self._append(chat, asked.request_id, _fact(replace(given, used=given.used + 1)))
                return given.verdict
            before, now = given.asked.script, asked.script
            lines = await asyncio.to_thread(changed_lines, before, now, 2) if before else ""
            asked = replace(asked, why="changed", shown=f"{asked.shown}\n{lines}".strip())
        turn = chat.turn
        if turn is None or asked.user_id is None:
            return Verdict("nobody")
        # An operator on the web page or in the terminal sees only questions from their own chats.
        manifests, first = self.run.manifests, turn.first
        if not asked.granted and not any(
            operator == first.person or manifests[operator.channel].access != "local"
            for operator in self.run.operators
            if operator.channel in manifests
        ):
            return Verdict("nobody")
        if turn.first.due is not None:
            return Verdict("unattended")
        found = _about(chat, asked)
        if found is None:
            name = self.run.ids.ulid()
            self._append(chat, asked.request_id, events.QuestionAsked(name, asked))
            self.run.log.write("approval", "people are asked", approval=name, tool=asked.tool)
            found = chat.questions[name]
        if found.verdict is None:
            async with self.run.suspended():
                await self._show(chat, found, turn.first)
        return found.verdict or Verdict("nobody")

    def _given(self, asked: Approval) -> LastingApproval | None:
        """Return the lasting approval that covers a call; None if there is none.

        An approval by a person who is no operator covers only calls that the requester may approve alone. Prefer an
        approval of the same programs, then the newest approval for all chats, then the newest for this chat.
        """
        covering = [
            one
            for one in (self._lasting() if asked.lasting else ())
            if one.asked.fingerprint.partition(":")[0] == asked.fingerprint.partition(":")[0]
            and (asked.granted or one.verdict.scope == "always" or one.verdict.by in self.run.operators)
            and one.verdict.covers(asked.chat_key, asked_in=one.asked.chat_key)
        ]
        return max(
            reversed(covering),
            key=lambda one: (runs(one.asked) == runs(asked), one.verdict.scope == "always"),
            default=None,
        )

    def _lasting(self) -> list[LastingApproval]:
        """Return the valid lasting approvals, oldest first. An approval for one day expires at the end of that day."""
        today = times.local(self.run.clock.now()).date()
        found = map(_GRANTS.validate_python, self.run.chats.facts[GRANTED].values())
        dates = ((one, times.local(one.decided_at).date()) for one in found)
        valid = [one for one, date in dates if one.verdict.scope != "today" or date == today]
        return sorted(valid, key=lambda one: one.decided_at)

    def _granted(self, name: str, asked: Approval, verdict: Verdict) -> list[events.FactSet]:
        now = self.run.clock.now()
        return [_fact(LastingApproval(name, asked, verdict, now))] if verdict.lasts else []

    async def _show(self, chat: Chat, found: Question, first: Inbound) -> None:
        """Send the question to the asking chat and wait for the verdict. Unless the person who caused the call may
        decide alone, also send the question to operators' direct chats.
        """
        asked, all_choices = found.asked, that_hold(found.asked, CHOICES)

        async def ask_operator(operator: UserRef, to: Address) -> str:
            with speaking(*self.run.locales.of_person(operator)):
                return await self._ask(chat, found, first, to, all_choices)

        alone = first.person in self.run.operators or asked.own
        elsewhere = () if alone else self.run.alerts.people(asked.request_id)
        theirs = await asyncio.gather(*starmap(ask_operator, elsewhere))
        choices = self._choices(asked, first.person)
        if not choices and first.chat_type == "group" and not await self._reached(chat, found, theirs):
            choices = all_choices
        own = await self._ask(chat, found, first, Address.of(first), choices)
        blind = first.chat_type == "direct" and not choices

        def settled() -> bool | None:
            # If the person of a direct chat is not allowed to decide, the question must reach at least one operator.
            lost = blind and all(found.arrived(name) is False for name in theirs)
            return True if found.verdict is not None or lost else None

        await self.run.chats.until(chat.key, settled)
        if found.verdict is None:
            self.run.log.write("approval", "no operator can be reached", level="warn", approval=found.id)
            # The question must be delivered before its message can show the outcome.
            await self.run.chats.until(chat.key, lambda: found.arrived(own) is not None or None)
            self._append(chat, asked.request_id, events.Decided(found.id, Verdict("nobody")))

    async def _ask(
        self, chat: Chat, found: Question, first: Inbound, to: Address, choices: tuple[Choice, ...]
    ) -> str:
        """Queue the question in one chat unless it is queued already. Return the id of its last outbox row, which has the
        buttons.

        A call that is too long for a message is sent as a file above the question, so that people see the whole call before
        they decide. If the file cannot be sent, the question offers no lasting approval.
        """
        name = f"{found.id}/{to.chat_key}"
        if queued := [one for one in found.rows if one == name or one.startswith(f"{name}/")]:
            return queued[-1]
        limited = self.run.channels[to.channel].reading_limits is not None
        cut = bool(choices) and limited and len(found.asked.shown) > wording.SHOWN
        if cut and not await self._sent_whole(chat, found, to, f"{name} file"):
            choices = tuple(one for one in choices if one not in LASTING)
        if choices:
            words, while_open = wording.question(self.run, found, first, to.chat_key, choices, cut=cut)
        else:
            words, while_open = wording.waiting_notice(found)
        if to.chat_key != first.chat_key:
            place = str(self.run.access.place(first))
            if first.channel != to.channel:
                place = say("place.elsewhere", place=place, channel=first.channel.title())
            words += f"\n\n{say('approval.asked_in', place=place)}"
        buttons = wording.buttons_of(found, choices)
        rows = outgoing.rows(
            self.run, name, to, words, buttons=buttons, question=found.id, while_open=(while_open,)
        )
        self._append(chat, found.asked.request_id, *rows)
        return rows[-1].row

    async def _sent_whole(self, chat: Chat, found: Question, to: Address, name: str) -> bool:
        """Send the complete call as a file. Return True once the file is delivered or the question is decided; False if the
        file cannot be delivered.
        """
        file = wording.file_of(found.asked)
        if name not in found.rows:
            try:
                await self.run.files.check(to.channel, file)
                async with self.run.files.kept([file]) as (stored,):
                    row = to.queued(name, file.markdown, form="notice", question=found.id, file=stored)
                    self._append(chat, found.asked.request_id, row)
            except errors.FileRefused as error:
                words, cause = "a call is no file", str(error)
                self.run.log.write("approval", words, level="warn", approval=found.id, cause=cause)
                return False

        def known() -> bool | None:
            arrived = found.arrived(name)
            # If the platform rejects the file, the gateway sends the content as text.
            return True if (arrived is False and file.markdown) or found.verdict is not None else arrived

        return await self.run.chats.until(chat.key, known)

    def _choices(self, asked: Approval, person: UserRef) -> tuple[Choice, ...]:
        if person in self.run.operators:
            return that_hold(asked, CHOICES)
        if person != asked.person or not (asked.granted or asked.own):
            return ()
        return that_hold(asked, ("once", "chat", "deny") if asked.granted else ("once", "deny"))

    async def home(self, opened: Inbound) -> HomeSection:
        """Return the calls that wait for an approval in this person's turns, for the person's home page."""
        waits = [one.asked for _, one in self._open("call", "budget") if one.asked.person == opened.person]
        lines = [say("home.waits", act=act(one, names_tool=False)) for one in waits[:MOST_SHOWN]]
        more = len(waits) - MOST_SHOWN
        lines += [say("home.more_jobs", count=more)] if more > 0 else []
        return HomeSection(self.run.settings.name, tuple(lines))

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the open questions that this person sees on the board. At the console, also return the lasting approvals."""
        found = await self.admissions.waiting(viewer)
        for chat, one in self._open("call", "budget", "question"):
            asked, about = one.asked, (one.asked_at, one.asked.person)
            if not viewer.sees(asked.person, asked.chat_key):
                continue
            if one.of_tool:
                found.append(OpenLoop("question", one.id, asked.chat_key, asked.shown, *about))
                continue
            name = chat.turn.first.user_name or "" if chat.turn is not None else ""
            what, why, detail = say("home.waits", act=act(asked, names_tool=False)), "", ""
            if may := bool(self._choices(asked, viewer.person)):
                what, why, detail = wording.wish(asked, ""), wording.reasons(asked), call_in_words(asked)
            shown = (asked.chat_key, what, *about, name, why, detail, one.expires_at)
            found.append(OpenLoop("approval", one.id[-SHORT:], *shown, acts=("once", "deny") if may else ()))
        for given in self._lasting() if viewer.person == CONSOLE else ():
            asked = given.asked
            what = say(f"waiting.lasting_{given.verdict.scope}", act=act(asked), count=given.used)
            found.append(
                OpenLoop(
                    "lasting",
                    given.id[-SHORT:],
                    asked.chat_key,
                    what,
                    given.decided_at,
                    asked.person,
                    detail=call_in_words(asked),
                    acts=("revoke",),
                    by=who_decided(given.verdict, "approval.an_operator"),
                )
            )
        return found

    def open_in(self, chat_key: ChatKey, person: UserRef) -> list[ShownQuestion]:
        """Return the open questions of a chat with the buttons that this person may press now."""
        chat = self.run.chats.loaded(chat_key)
        found = list[ShownQuestion]()
        for one in chat.questions.values() if chat is not None else ():
            copy = [row for row in one.copies.values() if is_shown_in(row.id, chat_key)]
            if chat is None or one.verdict is not None or not copy:
                continue
            choices = self._choices(one.asked, person)
            offered = bool(copy[-1].buttons and copy[-1].buttons.choices)
            for row in copy if offered else copy[-1:]:
                words = row.text
                if not offered and choices and chat.turn is not None:
                    # The question had no buttons, but the person may decide now. So write its text again.
                    with speaking(row.language, row.zone, row.own_zone):
                        words, _ = wording.question(self.run, one, chat.turn.first, chat_key, choices)
                buttons = wording.buttons_of(one, choices if row is copy[-1] else ())
                found.append(ShownQuestion(row.id, words, int(one.asked_at * 1000), buttons))
        return found

    async def approve(self, inbound: Inbound) -> Done:
        """Handle `/approve [name] [once|chat|today|always|each]` and the equivalent buttons."""
        words = inbound.args.split()
        last = words.pop().lower() if words and words[-1].lower() in {*SCOPES, "each"} else ""
        ended: Ended = "steered" if last == "each" else "approved"
        return await self._decide(inbound, " ".join(words), ended, SCOPES.get(last, "once"))

    async def deny(self, inbound: Inbound) -> Done:
        """Handle `/deny [name]` and the equivalent button."""
        return await self._decide(inbound, inbound.args, "denied", "once")

    async def afresh(self, press: Inbound) -> Done:
        """Handle the button [Start over without it]: stop the turn, and ask the person's own text again in a new conversation."""
        open_ones = (chat.turn for chat, one in self._open("call", "budget") if one.id == press.args)
        turn = next(open_ones, None)
        if turn is None:
            return Done(say("approval.unknown"))
        if press.person != turn.first.person and press.person not in self.run.operators:
            return Done(say("approval.not_yours"))
        none = dict.fromkeys(("message_id", "answers", "renews", "command"))
        bare = {**none, "quoted": (), "attachments": (), "text": "", "addressed": "command", "ts": press.ts}
        words = "\n".join(filter(None, (one.text for one in turn.left)))
        said: list[dict[str, object]] = [{"kind": "stop"}, {"command": CallOf(name="new")}]
        said += [{"text": words}] if words else []
        facts = list[Fact]()
        for number, change in enumerate(said):
            name = self.run.ids.ulid()
            keys = (f"{press.channel}:afresh:{press.args}:{number}",)
            one = turn.first.model_copy(update={**bare, **change, "request_id": name, "keys": keys})
            data = events.Received(one) if number else events.Stop(one)
            facts.append(Fact(one.chat_key, data, person=one.user_id, id=name))
        return Done(say("retry.trying"), facts)

    async def listed(self, inbound: Inbound) -> Done:
        """Run `/approvals`: list the lasting approvals. `/approvals NAME` revokes the approval of this name."""
        if inbound.person not in self.run.operators:
            return Done(say("approval.not_yours"))
        if inbound.chat_type != "direct":
            return Done(say("commands.allow_privately"))
        found, now = self._lasting(), self.run.clock.now()
        if inbound.args:
            given = next((one for one in found if _is_called(one.id, inbound.args.upper())), None)
            if given is None:
                return Done(say("approval.no_such", name=text.preview(inbound.args, 40)))
            self._note(given, inbound, "taken back")
            gone = Fact(inbound.chat_key, events.FactSet(GRANTED, given.id, None))
            return Done(say("approvals.gone", name=given.id[-SHORT:]), (gone,))
        lines = [
            say(
                f"approvals.line_{one.verdict.scope}",
                name=one.id[-SHORT:],
                act=act(one.asked),
                call=named(one.asked.shown),
                chat=one.asked.chat_key,
                by=who_decided(one.verdict, "approval.an_operator"),
                time=times.recent(one.decided_at, now),
                count=one.used,
            )
            for one in found
        ]
        how = say("approvals.how", prefix=self.run.manifests[inbound.channel].command_prefix)
        return Done("\n".join([*lines, how]) if lines else say("approvals.none"))

    async def _decide(self, inbound: Inbound, name: str, ended: Ended, scope: Scope) -> Done:
        found = self._named(inbound, name)
        if isinstance(found, str):
            return Done(found)
        asked, refusal = found.asked, ""
        asker = asked.granted and inbound.person == asked.person
        if inbound.person not in self.run.operators and (not asker or scope == "always"):
            refusal = say("approval.not_always" if asker else "approval.not_yours")
        elif scope in LASTING and not asked.lasting:
            refusal = say("approval.once_only")
        elif ended == "steered" and not asked.step:
            refusal = say("approval.nothing")
        if refusal:
            self._note(found, inbound, "refused")
            return Done(refusal)
        verdict = Verdict(ended, inbound.person, scope, inbound.user_name or "", inbound.request_id)
        if asked.subject == "person":
            if not await self.admissions.decide(found, verdict):
                return Done(say("approval.unknown"))
            return Done(say("strangers.admits" if ended == "approved" else "strangers.stays_out"))
        self._note(found, inbound, ended, scope=scope)
        key = ended if ended != "approved" or scope == "once" else f"approved_{scope}"
        granted = (Fact(asked.chat_key, one) for one in self._granted(found.id, asked, verdict))
        decided = Fact(asked.chat_key, events.Decided(found.id, verdict), found.turn)
        return Done(say(f"approval.{key}"), (decided, *granted))

    def _named(self, inbound: Inbound, name: str) -> Question | str:
        """Return the open question of this name. Without a name, return the only open question in this chat or its threads.
        Otherwise return the sentence that says why no single question was found.
        """
        if wanted := name.upper():
            found = [one for _, one in self._open("call", "budget", "person") if _is_called(one.id, wanted)]
            if len(found) == 1:
                return found[0]
            # Only buttons contain the full id. An unknown full id thus comes from the button of a closed question.
            closed = len(wanted) == len(self.run.ids.ulid())
            return say("approval.unknown") if closed else say("approval.no_such", name=text.preview(name, 40))
        seen = [(one, self._seen_in(one, inbound)) for _, one in self._open("call", "budget")]
        near = [one for one, places in seen if places]
        here = [one for one, places in seen if inbound.chat_key in places]
        if len(found := here or near) == 1:
            return found[0]
        if not near:
            return say("approval.nothing")
        told = ((one.id[-SHORT:], act(one.asked), named(in_words(one.asked.shown))) for one in near)
        names = [say("approval.one", name=short, act=wish, shown=shown) for short, wish, shown in told]
        prefix = self.run.manifests[inbound.channel].command_prefix
        return say("approval.which", name=near[0].id[-SHORT:], names=", ".join(names), prefix=prefix)

    def _seen_in(self, one: Question, inbound: Inbound) -> set[ChatKey]:
        """Return the chats in which this person sees a question: the asking chat; for an operator, also all chats with a copy."""
        asked_in, here = one.asked.chat_key, inbound.chat_key
        found = {asked_in} if here.shows(asked_in) else set[ChatKey]()
        if inbound.person in self.run.operators:
            shown = {self.run.manifests[row.channel].encode(row.target) for row in one.copies.values()}
            direct = inbound.chat_type == "direct"
            found |= {key for key in shown if here.shows(key) or (direct and key.shows(here))}
        return found

    def _note(
        self, found: Question | LastingApproval, inbound: Inbound, decision: str, *, scope: Scope = "once"
    ) -> None:
        asked = found.asked
        facts: Json = {"approval": found.id, "decision": decision, "scope": scope, "by": str(inbound.person)}
        facts |= {"chat_key": asked.chat_key, "request_id": asked.request_id}
        facts |= {"rule": asked.rule or None, "fingerprint": asked.fingerprint}
        self.run.log.write("approval", f"{asked.tool}: {decision}", **facts)


def _about(chat: Chat, asked: Approval) -> Question | None:
    return next((one for one in chat.questions.values() if one.asked.key == asked.key), None)


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or (len(wanted) >= SHORT and name.endswith(wanted))


def _fact(given: LastingApproval) -> events.FactSet:
    return events.FactSet(GRANTED, given.id, _GRANTS.dump_python(given, mode="json"))


class ToolQuestions(QuestionService):
    """Questions of tools. A question is dropped when the process ends, because its tool call ends too."""

    async def ask(self, chat_key: ChatKey, request_id: str, words: str) -> str | None:
        """Implement `tools.context.Ask`. Each chat has at most one open question at a time."""
        async with self._alone(chat_key):
            chat = await self.run.chats.get(chat_key)
            turn = chat.turn
            if turn is None or turn.id != request_id or turn.first.due is not None:
                return None
            first, name = turn.first, self.run.ids.ulid()
            record = Approval(turn.id, chat.key, first.channel, first.user_id, shown=words)
            record = replace(record, granted=True, own=True, subject="question")
            rows = outgoing.rows(self.run, name, Address.of(first), words, question=name)
            self._append(chat, turn.id, events.QuestionAsked(name, record), *rows)
            asked = chat.questions[name]
            self.run.log.write("question", "the person is asked something", request_id=turn.id)
            async with self.run.suspended():
                await self.run.chats.until(
                    chat.key, lambda: asked.verdict or False in asked.rows.values() or None
                )
            if asked.verdict is None:
                self.run.log.write("question", "a question did not arrive", level="warn")
                self._append(chat, turn.id, events.Decided(name, Verdict("nobody")))
            if asked.verdict is None or asked.verdict.ended != "steered":
                return None
            messages = [*chat.waiting, *(chat.turn.members if chat.turn is not None else ())]
            said = next((one for one in messages if one.request_id == asked.verdict.request_id), None)
            return None if said is None or said.command is not None else said.text


def _build(runtime: Runtime) -> Hooks:
    admissions = Admissions(runtime)
    approvals = Approvals(runtime, admissions)
    return Hooks(
        commands={
            "approve": Command(approvals.approve),
            "deny": Command(approvals.deny),
            "approvals": Command(approvals.listed),
            "afresh": Command(approvals.afresh),
            "allow": Command(admissions.allow),
            "block": Command(admissions.block),
        },
        signals={"admission": Command(admissions.ask)},
        approvals=approvals,
        asks=ToolQuestions(runtime).ask,
        questions=approvals.open_in,
        outcome=wording.outcome,
        home={1: approvals.home},
        waiting=approvals.waiting,
        serves=(admissions.watch,),
    )


FEATURE = Feature("questions", _build)
