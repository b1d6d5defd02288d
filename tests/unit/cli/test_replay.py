"""`shipmate replay`: requests made again from what is on disk, and a turn asked once more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.llm.body import wire
from bot.testing.model import reply, tool_use
from tests.unit.agent.conftest import Bench
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
        sent = reply(tool_use("chat_send", text="一二三\nmorgen"))
        bench.model.answers.extend([reply(tool_use("skills_list")), sent, reply()])
        await bench.say("hello", take_more=lambda: [more.pop()] if more else [])
        await bench.close()
        return inbound.request_id, [wire(one) for one in bench.model.requests]

    return Turn(project, *asyncio.run(have()))


def test_each_request_is_made_again(turn: Turn, shipmate: Shipmate) -> None:
    done = shipmate("replay", turn.request_id, "--dir", turn.root, "--json")
    assert done.code == 0, done.err
    assert [(one["call"], one["exact"], one["wrong"], one["tools"]) for one in done.lines] == [
        (1, True, [], ["skills_list"]), (2, True, [], ["chat_send"]), (3, True, [], []),
    ]  # fmt: skip
    assert [one["bytes"] for one in done.lines] == [len(body) for body in turn.bodies]
    assert all(one["sha256"] == one["sentSha256"] for one in done.lines)
    shown = shipmate("replay", turn.request_id.lower(), "--offline", "--dir", turn.root).out
    assert shown.count("exact") == 3
    assert "chat_send" in shown


def test_the_bytes_themselves_are_printed(turn: Turn, shipmate: Shipmate) -> None:
    for number, body in enumerate(turn.bodies, 1):
        done = shipmate("replay", turn.request_id, "--body", number, "--dir", turn.root)
        assert (done.code, done.out.encode()) == (0, body)
    assert shipmate("replay", turn.request_id, "--body", 4, "--dir", turn.root).code == 2


def test_what_is_different_is_said(turn: Turn, shipmate: Shipmate) -> None:
    for file in (turn.root / ".ship" / "transcripts" / "frames").iterdir():
        file.write_bytes(file.read_bytes().replace(b"chat", b"chit"))
    done = shipmate("replay", turn.request_id, "--dir", turn.root)
    assert done.code == 1
    assert "DIFFERENT" in done.out
    assert "held a secret or was changed" in done.out
    assert "3 of 3 requests are not what was sent" in done.err
    body = shipmate("replay", turn.request_id, "--body", 1, "--dir", turn.root)
    assert body.code == 1
    assert body.out


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
        (["01ARZ3NDEKTSV4RRFFQ69G5FAV"], "no transcript knows"),
        (["../../etc/passwd"], "no transcript knows"),
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


def test_a_turn_of_which_no_request_is_recorded(turn: Turn, shipmate: Shipmate) -> None:
    (file,) = (turn.root / ".ship" / "transcripts").glob("*/*.jsonl")
    lines = [line for line in file.read_text("utf-8").splitlines() if '"type":"meta"' not in line]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = shipmate("replay", turn.request_id, "--dir", turn.root)
    assert done.code == 2
    assert "nothing is recorded" in done.err
