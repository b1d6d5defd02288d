"""What a reply claims and what was done: a corpus of replies in four languages, and the way into a real turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from bot.contracts.agent import TurnRequest
from bot.contracts.journal import StepRecord
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.tools import Effect, ToolCall, ToolResult
from bot.features.claims import checked, detection
from bot.features.claims.performed_actions import ActionRecorder, PerformedAction
from bot.testing.model import reply, text, tool_use
from bot.tools.dispatch import Dispatcher, unwrapped
from tests.tool_calls import run_blocks
from tests.unit.agent.conftest import KEY, Bench

CORPUS = Path(__file__).with_name("claims.txt")
EFFECTS: dict[str, frozenset[Effect]] = {
    "run_shell": frozenset({"run", "write"}),
    "web_fetch": frozenset({"network"}),
    "chat_send": frozenset({"message"}),
    "write_file": frozenset({"write"}),
    "edit_file": frozenset({"write"}),
    "memory": frozenset({"write"}),
}


class Nothing(BaseModel):
    pass


@dataclass(frozen=True)
class Case:
    line: int
    language: str
    expected: frozenset[str]
    tools: tuple[str, ...]
    person: str
    reply: str


def cases() -> list[Case]:
    found = []
    for number, line in enumerate(CORPUS.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        language, wrong, tools, person, words = (part.strip() for part in line.split("|", 4))
        expected = frozenset() if wrong == "-" else frozenset(wrong.split(","))
        found.append(
            Case(number, language, expected, tuple(tools.split()), person, words.replace("\\n", "\n"))
        )
    return found


def flagged(case: Case) -> set[str]:
    done = [
        PerformedAction(
            name.rstrip("!"),
            EFFECTS.get(name.rstrip("!"), frozenset({"read"})),
            not name.endswith("!"),
            looks=name.rstrip("!") in {"read_file", "list_dir", "memory_view", "schedule_list"},
        )
        for name in case.tools
        if not name.endswith("!!")
    ]
    return {claim.kind for claim in checked.unfounded(case.reply, case.person, done, inside=False)}


def test_the_corpus_is_large_enough_and_has_every_language() -> None:
    found = cases()
    assert len(found) >= 150
    assert {case.language for case in found} == {"en", "de", "zh", "ja"}


def test_precision_and_recall(capsys: pytest.CaptureFixture[str]) -> None:
    hits = misses = alarms = 0
    wrong: list[str] = []
    for case in cases():
        got = flagged(case)
        if case.expected and got & case.expected:
            hits += 1
        elif case.expected:
            misses += 1
            wrong.append(f"{case.line}: missed {sorted(case.expected)}: {case.reply}")
        elif got:
            alarms += 1
            wrong.append(f"{case.line}: false alarm {sorted(got)}: {case.reply}")
    precision, recall = hits / (hits + alarms), hits / (hits + misses)
    with capsys.disabled():
        sys.stdout.write(
            f"\nclaims: precision {precision:.3f}, recall {recall:.3f} of {len(cases())} replies\n"
        )
    assert precision == 1.0, "\n".join(wrong)
    assert recall >= 0.97, "\n".join(wrong)


def test_of_a_very_long_message_both_ends_say_what_was_asked_for() -> None:
    wish, page = "保存到 notes.md", "页面 " * 40_000
    for person in (wish + page, page + wish):
        assert [claim.kind for claim in detection.claims("已保存到 notes.md。", person)] == ["saved"]
    # All of it would be gone through again and again while everybody else waits.
    assert detection.claims("已保存到 notes.md。", page + wish + page) == []


# ------------------------------------------------------------ in a turn


async def test_the_model_is_told_once_and_corrects_itself(bench: Bench) -> None:
    bench.model.answers += [
        reply(tool_use("chat_send", text="I've saved it to notes.md.")),
        reply(tool_use("chat_send", text="I have not saved it: I may not write files here.")),
    ]
    await bench.say("save it to notes.md")
    assert bench.chat.seen == ["I have not saved it: I may not write files here."]
    told = bench.model.requests[1].messages[-1]["content"][0]
    assert told["is_error"] is True
    assert "no tool has done that" in told["content"]
    assert "I've saved it to notes.md." in told["content"]


async def test_what_is_claimed_again_goes_out_with_a_note(bench: Bench) -> None:
    claim = reply(tool_use("chat_send", text="I've emailed Bob."))
    bench.model.answers += [claim, reply(tool_use("chat_send", text="I've emailed Bob."))]
    await bench.say("email Bob")
    (seen,) = bench.chat.seen
    assert seen.startswith("I've emailed Bob.\n\n(⚠️ Please check: “I've emailed Bob.”")
    marks = [entry for entry in bench.log.entries if entry.kind == "claim"]
    assert [entry.details["action"] for entry in marks] == ["corrected", "marked"]


async def test_plain_text_goes_out_with_a_note_in_its_language_and_costs_no_call(bench: Bench) -> None:
    bench.model.answers += [reply(text("已保存到 notes.md。"))]
    await bench.say("保存到 notes.md")
    assert len(bench.model.requests) == 1
    assert "请核实" in bench.chat.seen[0]


async def test_what_a_tool_did_in_the_same_step_bears_it_out(bench: Bench) -> None:
    bench.model.answers += [
        reply(
            tool_use("write_file", path="notes.md", content="x"),
            tool_use("chat_send", text="I've saved it to notes.md."),
        ),
        reply(),
    ]
    await bench.say("save it to notes.md")
    assert bench.chat.seen == ["I've saved it to notes.md."]


async def test_a_tool_that_was_refused_bears_nothing_out(bench: Bench) -> None:
    async def never(call: ToolCall, _: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        return ToolResult(call.id, "no", failed=True)

    async def around(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        return await (never if call.name == "write_file" else unwrapped)(call, run)

    registry = bench.registry
    bench.configure(
        dispatcher=Dispatcher(
            registry, clock=bench.clock, log=bench.log, around=ActionRecorder(around, registry)
        )
    )
    bench.model.answers += [
        reply(tool_use("write_file", path="notes.md", content="x")),
        reply(text("I've saved it to notes.md.")),
    ]
    await bench.say("save it to notes.md")
    assert "Please check" in bench.chat.seen[0]


async def test_what_ran_in_a_task_of_the_turn_bears_it_out(bench: Bench) -> None:
    inner = bench.deps.dispatcher

    class Helper:
        """A tool that has another agent do the work."""

        name = "task"
        description = "Have it done."
        input = Nothing
        effects: ClassVar[frozenset[Effect]] = frozenset()
        timeout_seconds = 5.0
        ages = True

        async def run(self, _: Nothing) -> str:
            call = tool_use("write_file", path="notes.md", content="x")
            await asyncio.create_task(run_blocks(inner, [call]))
            return "It is done."

    bench.add_tools(Helper())
    bench.model.answers += [reply(tool_use("task")), reply(text("I've saved it to notes.md."))]
    await bench.say("have it saved to notes.md")
    assert bench.chat.seen == ["I've saved it to notes.md."]


async def test_what_was_done_before_a_crash_bears_it_out(bench: Bench) -> None:
    bench.model.answers += [reply(tool_use("write_file", path="notes.md", content="x"))]
    inbound = bench.inbound("save it to notes.md")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)

    def crash(_: ModelRequest) -> ModelReply:
        task.cancel()
        return reply(tool_use("list_dir"))

    bench.model.answers.append(crash)
    task = asyncio.create_task(bench.pool.run(request))
    await asyncio.gather(task, return_exceptions=True)
    await bench.pool.flush()
    bench.restart()
    bench.model.answers += [reply(text("I've saved it to notes.md."))]
    await bench.pool.run(request)
    assert bench.chat.seen == ["I've saved it to notes.md."]


async def test_an_answer_about_an_older_turn_is_compared_with_that(bench: Bench) -> None:
    bench.model.answers += [
        reply(tool_use("write_file", path="notes.md", content="x")),
        reply(text("Here you are.")),
        reply(text("Yes, I've saved it to notes.md.")),
        reply(text("Yes, I've emailed Bob.")),
    ]
    await bench.say("save it to notes.md")
    await bench.say("did you save it?")
    assert bench.chat.seen[-1] == "Yes, I've saved it to notes.md."
    await bench.say("and have you emailed Bob?")
    assert "Please check" in bench.chat.seen[-1]


async def test_a_stop_while_a_reply_is_looked_at_lets_it_out(bench: Bench) -> None:
    words = "I've saved it to notes.md. " + "So much for that. " * 60
    bench.model.answers += [reply(tool_use("chat_send", text=words))]
    sending = asyncio.Event()
    steps: Callable[[str], Awaitable[list[StepRecord]]] = bench.journal.steps

    async def stopped(request_id: str) -> list[StepRecord]:
        await bench.pool.stop(KEY)
        sending.set()
        return await steps(request_id)

    bench.configure(steps=Stopping(bench.journal, stopped))
    outcome = await bench.say("save it to notes.md")
    assert sending.is_set()
    assert outcome.status == "stopped"
    (seen,) = bench.chat.seen
    assert seen.startswith(words)
    assert "Please check" in seen


class Stopping:
    """A journal of steps that something happens to when it is read."""

    def __init__(self, inner: Any, steps: Callable[[str], Awaitable[list[StepRecord]]]) -> None:
        self._inner = inner
        self.steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_each_saying_has_a_word_by_which_it_is_looked_for() -> None:
    """Else a sentence that says so is not even read."""
    found = 0
    for case in cases():
        for sentence, _ in detection.sentences(case.reply):
            for language in detection.languages(sentence):
                for saying in language.sayings:
                    if saying.pattern.search(sentence):
                        found += 1
                        assert language.names_deed(sentence), (sentence, saying.pattern.pattern)
    assert found > 150


@pytest.mark.parametrize("words", ["I've de**leted** `notes.txt`.", "I've DELETED notes.txt."])
def test_a_deed_that_is_marked_in_part_is_found(words: str) -> None:
    (claim,) = detection.claims(words, "delete it")
    assert claim.kind == "deleted"


def test_a_verb_with_a_prefix_is_found_too() -> None:
    (claim,) = detection.claims("Ich habe die Datei config.yml überschrieben.", "Überschreib sie")
    assert claim.kind == "saved"
