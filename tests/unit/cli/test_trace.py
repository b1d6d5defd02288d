"""`shipmate trace`: what journal, log and transcript tell of one turn, in one order."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.agent.conftest import KEY, Bench

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.journal import ANSWERED, InboxEnd, StepRecord
from bot.contracts.model import ModelReply, Usage
from bot.contracts.outbound import OutboxRow
from bot.journal.sqlite import SqliteJournal
from bot.journal.view import in_file
from bot.llm.log import LoggedModel
from bot.system import SystemDisk
from bot.telemetry import JsonlLog
from bot.testing.model import ScriptedModel, reply, tool_use
from tests.unit.cli.conftest import Shipmate


@dataclass
class Turn:
    root: Path
    request_id: str
    joined: str


async def _had(root: Path) -> Turn:
    """A turn that was written down by everyone, and a message that joined it."""
    bench = Bench(root / ".ship")
    journal = SqliteJournal(root / ".ship" / "journal.db", clock=bench.clock, log=bench.log)
    log = JsonlLog(root / ".ship" / "logs", clock=bench.clock, disk=SystemDisk(), ids=bench.ids)
    answer = reply(tool_use("chat_send", text="完了", more=True))
    told = ModelReply(answer.content, answer.stop_reason, Usage(10, 2), model="scripted", cost_usd=0.5)
    model = ScriptedModel(told, reply())
    bench.configure(
        log=log,
        steps=journal,
        model=LoggedModel(model, log=log, ids=bench.ids, clock=bench.clock, messages=True),
    )
    first, second = bench.inbound("hello"), bench.inbound("and more")
    await journal.receive(first)
    await journal.receive(second)
    await bench.pool.run(TurnRequest(first.request_id, KEY, inbound=first, reply=bench.chat))
    await bench.pool.flush()
    await journal.finish(first.request_id, ANSWERED)
    await journal.join_turn(first.request_id, [second.request_id])
    await journal.finish(second.request_id, ANSWERED)
    await journal.close()
    await bench.close()
    log.close()
    return Turn(root, first.request_id, second.request_id)


@pytest.fixture
def turn(project: Path) -> Turn:
    return asyncio.run(_had(project))


def test_the_path_of_a_turn(turn: Turn, shipmate: Shipmate) -> None:
    done = shipmate("trace", turn.request_id, "--dir", turn.root, "--json")
    assert done.code == 0, done.err
    assert {one["source"] for one in done.lines} == {"journal", "log", "transcript"}
    assert [one["at"] for one in done.lines] == sorted(one["at"] for one in done.lines)
    told = [one["what"] for one in done.lines]
    assert any(words.startswith("received: message") for words in told)
    assert any(words.startswith("model scripted") for words in told)
    assert any(words.startswith("llm_response") for words in told)
    assert {"turn_start", "user", "assistant", "turn_end"} <= set(told)
    assert "完了" not in str([one for one in done.lines if one["source"] == "transcript"])


def test_it_ends_with_what_it_cost(turn: Turn, shipmate: Shipmate) -> None:
    shown = shipmate("trace", turn.request_id.lower(), "--dir", turn.root).out.splitlines()
    assert (
        shown[-1]
        == "2 answers of the model, 10 tokens read, 2 written, $0.5000, and 1 answer of unknown price"
    )


def test_what_joined_a_turn_leads_to_it(turn: Turn, shipmate: Shipmate) -> None:
    done = shipmate("trace", turn.joined, "--dir", turn.root, "--json")
    assert {one["requestId"] for one in done.lines} == {turn.request_id}


async def _open(root: Path) -> None:
    """A turn that waits for a person, with a tool that was cut off and an answer that the platform put off."""
    bench = Bench(root / ".ship")
    journal = SqliteJournal(root / ".ship" / "journal.db", clock=bench.clock, log=bench.log)
    asked = bench.inbound("hello").model_copy(update={"request_id": "01REQ", "message_id": "41"})
    await journal.receive(asked)
    await journal.begin_turn("01REQ", KEY, ["01REQ"])
    now = bench.clock.now()
    usage = {"inputTokens": 200, "outputTokens": 41, "cacheReadTokens": 1_000}
    result = {"usage": usage, "costUsd": 0.00012, "providerRequestId": "req_7"}
    await journal.begin_step(StepRecord("01REQ", "s1", "model", "claude", now, now + 1.25, result))
    await journal.begin_step(StepRecord("01REQ", "s2", "tool", "run_shell", now + 2))
    row = OutboxRow("01ROW", "01REQ", KEY, {"chat": "77"}, "words")
    await journal.put_outbox([row.put_off(now + 60)])
    await journal.suspend_turn("01REQ")
    await journal.close()
    await bench.close()


def test_a_turn_that_is_open_is_told_with_the_ids_that_log_and_platform_know(
    project: Path, shipmate: Shipmate
) -> None:
    asyncio.run(_open(project))
    done = shipmate("trace", "01REQ", "--dir", project, "--json")
    told = {one["what"] for one in done.lines if one["source"] == "journal"}
    (row,) = told - {
        "received: message 41 from 77",
        "model claude: 1.250 s, 1,200 tokens in (1,000 from the cache), 41 out, $0.00012 (id req_7)",
        "tool run_shell: begun, no end recorded (id s2)",
        "begun, and waits for a person",
    }
    assert row.startswith("reply: ready (id 01ROW), not before ")


def test_without_a_journal_the_rest_is_told(turn: Turn, shipmate: Shipmate) -> None:
    file = turn.root / ".ship" / "journal.db"
    file.write_bytes(b"no journal at all, not even a short one")
    done = shipmate("trace", turn.request_id, "--dir", turn.root, "--json")
    assert done.code == 0
    assert "the journal cannot be read" in done.err
    file.unlink()
    done = shipmate("trace", turn.request_id, "--dir", turn.root, "--json")
    assert {one["source"] for one in done.lines} == {"log", "transcript"}


def test_what_nobody_knows(project: Path, shipmate: Shipmate) -> None:
    done = shipmate("trace", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--dir", project)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "nothing is on disk" in done.err


async def test_a_journal_is_only_read(turn: Turn) -> None:
    bench = Bench(turn.root / "elsewhere")
    file = turn.root / ".ship" / "journal.db"
    before = file.read_bytes()
    view = in_file(file, clock=bench.clock, log=bench.log)
    assert (await view.steps(turn.request_id))[0].kind == "model"
    with pytest.raises(errors.StorageError, match="only read"):
        await view.finish(turn.request_id, InboxEnd("handled", "no"))
    await view.close()
    assert file.read_bytes() == before
    await bench.close()


def test_a_person_sees_one_line_a_step(turn: Turn, shipmate: Shipmate) -> None:
    shown = shipmate("trace", turn.request_id, "--dir", turn.root).out.splitlines()
    assert shown[0].split() == ["offset", "ms", "tokens", "cache", "cost"]
    (first, _) = [one for one in shown if "llm_response" in one]
    assert "10→2" in first
    assert "0%" in first
    assert "$0.5000" in first
    assert all(one.startswith(" ") or "+" in one[:11] for one in shown[1:-1])
    assert not any("llm_request" in one or "tool_call" in one for one in shown)
    whole = shipmate("trace", turn.request_id, "--full", "--dir", turn.root).out
    assert "transcript" in whole
    assert "llm_request" in whole


def test_a_step_has_its_offset_and_duration(project: Path, shipmate: Shipmate) -> None:
    fields: dict[str, object] = {"level": "info", "requestId": "T", "step": 2}
    tool = {"tool": "chat_send", "toolUseId": "toolu_1"}
    usage = {"inputTokens": 100, "outputTokens": 7, "cacheReadTokens": 9_900}
    told: list[dict[str, object]] = [
        {
            "timestamp": "2027-01-15T12:00:00.000Z",
            "kind": "tool_call",
            "message": "chat_send",
            "details": tool,
        },
        {"timestamp": "2027-01-15T12:00:01.500Z", "kind": "tool_result", "message": "chat_send done"}
        | {"details": tool, "duration": 1234.5},
        {"timestamp": "2027-01-15T12:00:02Z", "kind": "llm_response", "message": "m answered"}
        | {"details": {"usage": usage, "costUsd": None, "model": "m"}},
        {"timestamp": "never", "kind": "turn_end", "message": "the turn is done", "details": None},
    ]
    folder = project / ".ship" / "logs"
    folder.mkdir()
    (folder / "2027-01-15.jsonl").write_text("".join(json.dumps(fields | one) + "\n" for one in told))
    shown = shipmate("trace", "T", "--dir", project).out.splitlines()
    assert [one.split() for one in shown[1:-1]] == [
        ["+1.500", "1,234", *["step", "2", "tool_result:", "chat_send", "done", "tool=chat_send"]],
        ["+2.000", "10,000→7", "99%", "unknown", *["step", "2", "llm_response:", "m", "answered", "model=m"]],
        ["+0.000", *["step", "2", "turn_end:", "the", "turn", "is", "done"]],
    ]


def test_a_turn_of_a_compressed_day_is_found(turn: Turn, shipmate: Shipmate) -> None:
    before = shipmate("trace", turn.request_id, "--dir", turn.root).out
    for path in list((turn.root / ".ship" / "logs").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert shipmate("trace", turn.request_id, "--dir", turn.root).out == before
