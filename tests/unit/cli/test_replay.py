"""`shipmate replay`: requests as they were recorded, and a turn asked once more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.agent.conftest import KEY, Added, Bench, each
from tests.unit.agent.tasking import Routed, asked

from bot.history.transcript.requests import RequestLog
from bot.llm.body import wire
from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from bot.testing.model import reply, text, tool_use
from bot.testing.tasks import MemoryTaskEvents
from tests.unit.cli.conftest import Shipmate


@dataclass
class Turn:
    root: Path
    request_id: str
    bodies: list[bytes]


@pytest.fixture
def turn(project: Path) -> Turn:
    """A turn of three calls that somebody had in this project."""

    async def have() -> tuple[str, list[bytes]]:
        bench = Bench(project / ".ship")
        inbound = bench.inbound("wann fährt das Schiff? 🚢")
        more = [inbound]
        sent = reply(tool_use("chat_send", text="一二三\nmorgen", more=True))
        bench.model.answers.extend([reply(tool_use("skills_list")), sent, reply()])
        await bench.say("hello", arrivals=Added(each(more)))
        await bench.close()
        return inbound.request_id, [wire(one) for one in bench.model.requests]

    return Turn(project, *asyncio.run(have()))


def test_each_request_is_shown(turn: Turn, shipmate: Shipmate) -> None:
    done = shipmate("replay", turn.request_id, "--dir", turn.root, "--json")
    assert done.code == 0, done.err
    assert [(one["call"], one["exact"], one["wrong"], one["tools"]) for one in done.lines] == [
        (1, True, [], ["skills_list"]),
        (2, True, [], ["chat_send"]),
        (3, True, [], []),
    ]
    assert [one["bytes"] for one in done.lines] == [len(body) for body in turn.bodies]
    assert all(one["sha256"] == one["sentSha256"] for one in done.lines)
    shown = shipmate("replay", turn.request_id.lower(), "--offline", "--dir", turn.root).out
    assert shown.count("exact") == 3
    assert "chat_send" in shown


def test_the_bytes_themselves_are_printed(turn: Turn, shipmate: Shipmate) -> None:
    for number, body in enumerate(turn.bodies, 1):
        done = shipmate("replay", turn.request_id, "--body", number, "--dir", turn.root)
        assert (done.code, done.out.encode()) == (0, body)
    assert shipmate("replay", turn.request_id, "--body", 4, "--dir", turn.root).code == 1


def recorded(root: Path) -> Path:
    (file,) = (root / ".ship" / "transcripts").glob("*/*.requests")
    return file


def test_what_is_different_is_said(turn: Turn, shipmate: Shipmate) -> None:
    file = recorded(turn.root)
    file.write_bytes(file.read_bytes().replace(b'"sha256":"', b'"sha256":"0'))
    done = shipmate("replay", turn.request_id, "--dir", turn.root)
    assert done.code == 1
    assert "DIFFERENT" in done.out
    assert "what is recorded is not what was sent" in done.out
    assert "3 of 3 requests are not what was sent" in done.err
    body = shipmate("replay", turn.request_id, "--body", 1, "--dir", turn.root)
    assert body.code == 1
    assert body.out.encode() == turn.bodies[0]


def test_what_was_removed_is_said(turn: Turn, shipmate: Shipmate) -> None:
    async def erase() -> None:
        log = RequestLog(turn.root / ".ship" / "transcripts", disk=SystemDisk(), log=MemoryLog())
        await log.remove(KEY, [("", "Z")])
        await log.close()

    asyncio.run(erase())
    done = shipmate("replay", turn.request_id, "--dir", turn.root, "--json")
    assert done.code == 1
    assert {tuple(one["wrong"]) for one in done.lines} == {
        ("words were removed from this conversation since",)
    }
    body = shipmate("replay", turn.request_id, "--body", 1, "--dir", turn.root)
    assert (body.code, body.out) == (1, "")
    assert "words were removed from this conversation since" in " ".join(body.err.split())
    again = shipmate("replay", turn.request_id, "--model", "demo", "--dir", turn.root)
    assert again.code == 1
    assert "cannot be asked again" in again.err


def test_another_model_and_another_prompt_are_compared(turn: Turn, shipmate: Shipmate) -> None:
    words = turn.root / "prompt.md"
    words.write_text("Answer in one word.", encoding="utf-8")
    done = shipmate(
        "replay", turn.request_id, "--model", "demo", "--prompt", words, "--dir", turn.root, "--json"
    )
    assert done.code == 0, done.err
    told = done.lines[-1]
    assert (told["type"], told["model"], told["same"]) == ("replay", "demo", False)
    assert told["recorded"]["answer"] == "一二三\nmorgen"
    assert told["recorded"]["calls"] == 3
    assert told["again"]["answer"]
    assert told["again"]["costUsd"] == 0.0
    shown = shipmate("replay", turn.request_id, "--model", "demo", "--dir", turn.root).out
    assert "-一二三" in shown
    logs = [
        json.loads(line)
        for file in (turn.root / ".ship" / "logs").iterdir()
        for line in file.read_text("utf-8").splitlines()
    ]
    asked = [line for line in logs if line["kind"] == "llm_response"]
    assert {line["details"]["purpose"] for line in asked} == {"replay"}, "what it costs is on file"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{id}", "--offline", "--model", "m"], "--model and --prompt ask a model"),
        (["{id}", "--body", "1", "--model", "m"], "--model and --prompt ask a model"),
        (["{id}", "--prompt", "{bad}"], "cannot be read as text"),
    ],
)
def test_wrong_usage(turn: Turn, shipmate: Shipmate, words: list[str], told: str) -> None:
    bad = turn.root / "bad.md"
    bad.write_bytes(b"\xff\xfe")
    given = [word.replace("{id}", turn.request_id).replace("{bad}", str(bad)) for word in words]
    done = shipmate("replay", *given, "--dir", turn.root)
    assert done.code == 2
    assert told in " ".join(done.err.replace("│", " ").split())


@pytest.mark.parametrize("asked", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "../../etc/passwd"])
def test_what_nobody_knows_is_no_wrong_usage(turn: Turn, shipmate: Shipmate, asked: str) -> None:
    done = shipmate("replay", asked, "--dir", turn.root)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "no transcript knows" in done.err


def test_a_turn_of_which_no_request_is_recorded(turn: Turn, shipmate: Shipmate) -> None:
    """As an earlier version left it."""
    own = shipmate("replay", turn.request_id, "--dir", turn.root, "--json").lines[0]["requestId"]
    recorded(turn.root).unlink()
    done = shipmate("replay", turn.request_id, "--dir", turn.root)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert f"nothing is recorded of what {own} asked a model" in done.err
    assert "before requests were recorded" in done.err


def test_a_turn_whose_transcript_is_gone(turn: Turn, shipmate: Shipmate) -> None:
    own = shipmate("replay", turn.request_id, "--dir", turn.root, "--json").lines[0]["requestId"]
    (file,) = (turn.root / ".ship" / "transcripts").glob("*/*.jsonl")
    file.unlink()
    done = shipmate("replay", own, "--dir", turn.root, "--json")
    assert done.code == 0
    assert [(one["exact"], one["session"]) for one in done.lines] == [(True, None)] * 3
    assert f"turn {own} in {KEY}\n" in shipmate("replay", own, "--dir", turn.root).out


@dataclass
class Shared(Turn):
    """A turn with two tasks, of which the second is a fork."""

    tasks: tuple[str, str]
    asked: dict[str, list[bytes]]


@pytest.fixture
def shared(project: Path) -> Shared:
    async def have() -> tuple[str, list[bytes], tuple[str, str], dict[str, list[bytes]]]:
        bench, watch = Bench(project / ".ship"), MemoryTaskEvents()
        model = Routed(
            lambda one: (
                reply(text("- ein Fund"))
                if "tool_result" in json.dumps(one.messages[-1])
                else reply(tool_use("skills_list"))
            )
        )
        bench.configure(model=model, task_events=watch)
        calls = [tool_use("task", prompt="Such 探"), tool_use("task", prompt="Geh", mode="fork")]
        model.answers += [reply(*calls), reply(tool_use("chat_send", text="da", more=True)), reply()]
        await bench.say("hello")
        request_id = watch.events[0].request_id
        await bench.artifacts.put("x", chat_key=KEY, request_id=request_id, tool="look", tool_use_id="t")
        await bench.artifacts.put("x", chat_key=KEY, request_id="other", tool="task", tool_use_id="t")
        await bench.close()
        fresh, fork = dict.fromkeys(one.task_id for one in watch.events)
        found: dict[str, list[bytes]] = {fresh: [], fork: []}
        for one in model.children:
            found[fork if "worker of its own" in asked(one) else fresh].append(wire(one))
        return request_id, [wire(one) for one in model.requests], (fresh, fork), found

    request_id, bodies, tasks, found = asyncio.run(have())
    return Shared(project, request_id, bodies, tasks, found)


def test_each_request_of_a_task_is_shown(shared: Shared, shipmate: Shipmate) -> None:
    for task, mode in zip(shared.tasks, ("fresh", "fork"), strict=True):
        sent = shared.asked[task]
        done = shipmate("replay", task.lower(), "--dir", shared.root, "--json")
        assert done.code == 0, done.err
        assert [(one["task"], one["exact"], one["wrong"], one["tools"]) for one in done.lines] == [
            (task, True, [], ["skills_list"]),
            (task, True, [], []),
        ]
        assert {one["requestId"] for one in done.lines} == {shared.request_id}
        assert [one["answer"] for one in done.lines] == ["", "- ein Fund"]
        for number, body in enumerate(sent, 1):
            one = shipmate("replay", task, "--body", number, "--dir", shared.root)
            assert (one.code, one.out.encode()) == (0, body)
        assert len(sent) == 2
        shown = shipmate("replay", task, "--dir", shared.root).out
        assert f"({mode}) of the turn {shared.request_id} in {KEY}" in shown
        assert shown.count("exact") == 2


def test_a_turn_names_its_tasks(shared: Shared, shipmate: Shipmate) -> None:
    done = shipmate("replay", shared.request_id, "--dir", shared.root, "--json")
    assert done.code == 0, done.err
    told = [one for one in done.lines if one["type"] == "task"]
    assert [(one["task"], one["mode"], one["requests"], one["exact"], one["wrong"]) for one in told] == [
        (shared.tasks[0], "fresh", 2, 2, []),
        (shared.tasks[1], "fork", 2, 2, []),
    ]
    assert [one["task"] for one in done.lines if one["type"] == "call"] == [None] * (len(shared.bodies) + 1)
    shown = shipmate("replay", shared.request_id, "--dir", shared.root).out
    assert f"task {shared.tasks[1]} “Geh” (fork): 2 of 2 requests exact" in shown


def test_a_task_is_asked_again_with_its_recorded_results(shared: Shared, shipmate: Shipmate) -> None:
    words = shared.root / "prompt.md"
    words.write_text("Answer in one word.", encoding="utf-8")
    for task in shared.tasks:
        done = shipmate("replay", task, "--model", "demo", "--prompt", words, "--dir", shared.root, "--json")
        assert done.code == 0, done.err
        told = done.lines[-1]
        assert (told["type"], told["task"], told["model"]) == ("replay", task, "demo")
        assert (told["recorded"]["answer"], told["recorded"]["calls"]) == ("- ein Fund", 2)
        assert told["again"]["answer"]


def test_a_task_whose_requests_differ_is_told_with_its_turn(shared: Shared, shipmate: Shipmate) -> None:
    file = recorded(shared.root)
    ours = [shared.tasks[1].encode() in raw and b'"sha256"' in raw for raw in file.read_bytes().splitlines()]
    raws = zip(file.read_bytes().splitlines(keepends=True), ours, strict=True)
    file.write_bytes(
        b"".join(raw.replace(b'"sha256":"', b'"sha256":"0') if own else raw for raw, own in raws)
    )
    done = shipmate("replay", shared.request_id, "--dir", shared.root)
    assert done.code == 1
    assert "(fork): 0 of 2 requests exact" in done.out
    assert "2 of 8 requests are not what was sent" in done.err, "with the synthesis of both"
    assert shipmate("replay", shared.tasks[0], "--dir", shared.root).code == 0
    task = shipmate("replay", shared.tasks[1], "--dir", shared.root)
    assert (task.code, task.out.count("DIFFERENT")) == (1, 2)


def test_a_task_that_asked_nothing(shared: Shared, shipmate: Shipmate) -> None:
    file, task = recorded(shared.root), shared.tasks[0]
    kept = [
        raw for raw in file.read_bytes().splitlines(keepends=True) if f'"task":"{task}"'.encode() not in raw
    ]
    file.write_bytes(b"".join(kept))
    done = shipmate("replay", task, "--dir", shared.root)
    assert (done.code, "ended before it asked a model" in done.err) == (1, True)


def test_a_task_that_is_gone(shared: Shared, shipmate: Shipmate) -> None:
    recorded(shared.root).unlink()
    done = shipmate("replay", shared.tasks[0], "--dir", shared.root)
    assert done.code == 1
    assert "no request is recorded of it" in done.err


def test_a_turn_of_a_fork_of_the_conversation(project: Path, shipmate: Shipmate) -> None:
    """What went before is made again from the copy; the turns that were copied are those of the first session."""

    async def have() -> tuple[list[str], list[list[bytes]]]:
        bench, ids, sent = Bench(project / ".ship"), list[str](), list[list[bytes]]()

        async def say(words: str) -> None:
            count = len(bench.model.requests)
            bench.model.answers += [reply(tool_use("skills_list")), reply(text(words))]
            await bench.say(words)
            ids.append(max(line.request_id or "" for line in await bench.transcript.load(KEY)))
            sent.append([wire(one) for one in bench.model.requests[count:]])

        for words in ("one", "two", "three"):
            await say(words)
        await bench.pool.fork(KEY, back=1)
        await say("three and a half")
        bench.restart()
        await say("four")
        await bench.close()
        return ids, sent

    ids, sent = asyncio.run(have())
    sessions = []
    for request_id, bodies in zip(ids, sent, strict=True):
        done = shipmate("replay", request_id, "--dir", project, "--json")
        assert done.code == 0, done.err
        assert [one["exact"] for one in done.lines] == [True, True]
        sessions.append(done.lines[0]["session"])
        for number, body in enumerate(bodies, 1):
            shown = shipmate("replay", request_id, "--body", number, "--dir", project)
            assert shown.out.encode() == body
    assert [sessions.index(one) for one in sessions] == [0, 0, 0, 3, 3]
    assert len(set(ids)) == 5
