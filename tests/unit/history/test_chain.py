"""Sessions of another making: what their last message leads back to is the conversation."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from bot.context import replay
from bot.context.store import AgentContextStore

from bot.contracts.identity import ChatKey
from bot.history.transcript import chain
from bot.history.transcript.store import Transcript
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog

KEY = ChatKey.parse("telegram:chat:1")
SESSION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def said(uuid: str, role: str, parent: str | None, content: Any = None, **more: Any) -> dict[str, Any]:
    message = {
        "role": role,
        "content": content if content is not None else f"says {uuid}",
        "model": "m",
        **more,
    }
    return {"type": role, "uuid": uuid, "parentUuid": parent, "timestamp": "2026-01-01", "message": message}


def progress(uuid: str, parent: str | None) -> dict[str, Any]:
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "data": {"type": "hook"}}


def call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "look", "input": {}}


def result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": f"seen {name}"}


class Desk:
    def __init__(self, root: Path) -> None:
        self.log = MemoryLog()
        self.path = root / "telegram%3Achat%3A1" / f"{SESSION}.jsonl"
        self.transcript = Transcript(
            root, disk=SystemDisk(), ids=UlidSource(), clock=FakeClock(), log=self.log
        )

    async def shown(self, *lines: Any) -> list[str]:
        """What the model is shown of a session of these lines: text, calls and results."""
        self.path.parent.mkdir(exist_ok=True)
        raws = [one if isinstance(one, str) else json.dumps(one) for one in lines]
        self.path.write_text("".join(f"{raw}\n" for raw in raws), "utf-8")
        store = AgentContextStore(1_000)
        replay.replay(store, (await self.transcript.read(KEY)).lines)
        return [
            block.get("text") or block.get("id") or str(block["content"])
            for message in store.view()
            for block in message["content"]
        ]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_links_of_progress_are_passed_through(desk: Desk) -> None:
    assert await desk.shown(
        said("a", "user", None),
        progress("p1", "a"),
        progress("p2", "p1"),
        said("b", "assistant", "p2"),
        progress("p3", "b"),
        said("c", "user", "p3"),
    ) == ["says a", "says b", "says c"]
    assert desk.log.at("warn") == []


async def test_branches_that_were_left_are_dead(desk: Desk) -> None:
    assert await desk.shown(
        said("a", "user", None),
        said("b", "assistant", "a"),
        said("wrong", "user", "b"),
        said("wronger", "assistant", "wrong"),
        said("c", "user", "b"),
        said("d", "assistant", "c"),
    ) == ["says a", "says b", "says c", "says d"]


async def test_results_of_calls_made_side_by_side_stay(desk: Desk) -> None:
    parts = {"id": "msg_1"}
    assert await desk.shown(
        said("a", "user", None),
        said("b1", "assistant", "a", [call("t1")], **parts),
        said("b2", "assistant", "b1", [call("t2")], **parts),
        said("r1", "user", "b1", [result("t1")]),
        said("r2", "user", "b2", [result("t2")]),
        said("c", "assistant", "r2"),
    ) == ["says a", "t1", "t2", "seen t1", "seen t2", "says c"]


async def test_a_boundary_breaks_the_chain_on_purpose(desk: Desk) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "x", "parentUuid": None}
    assert await desk.shown(
        said("old", "user", None), boundary, said("summary", "user", "x"), said("b", "assistant", "summary")
    ) == ["says summary", "says b"]


@pytest.mark.parametrize("back", [False, True])
async def test_what_was_compacted_away_is_read_again_only_by_who_went_back_to_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    nodes = chain.node
    read: list[str] = []

    def counted(value: dict[str, Any], offset: int, before: str | None) -> chain.Node | None:
        read.append(str(value.get("uuid")))
        return nodes(value, offset, before)

    monkeypatch.setattr(chain, "node", counted)
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "x", "parentUuid": None}
    before = [said("old", "user", None), *(said(f"o{at}", "assistant", "old") for at in range(500))]
    after = [said("summary", "user", "x"), said("b", "assistant", "summary")]
    last = said("c", "user", "o0" if back else "b")
    shown = await desk.shown(*before, boundary, *after, last)
    assert shown == (["says old", "says o0", "says c"] if back else ["says summary", "says b", "says c"])
    assert ("o1" in read) is back
    kept: dict[str, Any] = boundary | {"compactMetadata": {"preservedSegment": {}}}
    assert (await desk.shown(*before, kept, *after, last))[-1] == "says c"
    assert read.count("o1") == 1 + back


@pytest.mark.parametrize("seed", range(20))
async def test_a_circle_is_told_and_not_followed(desk: Desk, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(6)]
    lines = [said(one, rng.choice(["user", "assistant"]), rng.choice(names)) for one in names]
    lines += [progress("p", "q"), progress("q", "p"), said("last", "user", rng.choice(["p", "n0"]))]
    assert "says last" in await desk.shown(*lines)
    (warning,) = desk.log.at("warn")
    assert "circle" in warning.message
    assert warning.details["uuids"]


async def test_lines_without_ids_follow_one_another_as_they_stand(desk: Desk) -> None:
    lines = [
        {"type": role, "message": {"role": role, "content": words}}
        for role, words in (("user", "one"), ("assistant", "two"), ("user", "three"))
    ]
    assert await desk.shown(*lines) == ["one", "two", "three"]
    first = [line.uuid for line in (await desk.transcript.read(KEY)).lines]
    assert first == [line.uuid for line in (await desk.transcript.read(KEY)).lines]


async def test_a_link_to_a_line_that_is_torn_leads_to_the_one_before(desk: Desk) -> None:
    torn = json.dumps(said("b", "assistant", "a"))[:-9]
    assert await desk.shown(
        said("a", "user", None), torn, said("c", "user", "b"), said("d", "assistant", "c")
    ) == ["says a", "says c", "says d"]
    (warning,) = desk.log.at("warn")
    assert warning.details["file"] == desk.path.name
    assert warning.details["offsets"] == [len(json.dumps(said("a", "user", None))) + 1]


async def test_blank_answers_and_thinking_alone_are_no_messages(desk: Desk) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert await desk.shown(
        said("a", "user", None),
        said("b", "assistant", "a", [thinking]),
        said("c", "assistant", "b", [{"type": "text", "text": " \n"}]),
        said("d", "user", "c"),
    ) == ["says a", "says d"]


async def test_a_call_without_a_result_gets_one_that_says_it_may_have_run(desk: Desk) -> None:
    *_, answer = await desk.shown(said("a", "user", None), said("b", "assistant", "a", [call("t1")]))
    assert "may have run" in answer


async def test_turns_of_ours_go_on_behind_what_others_wrote(desk: Desk) -> None:
    ours = [
        {"uuid": f"z{at}", "type": kind, "ts": at, "chatKey": str(KEY), "requestId": "r", "message": message}
        for at, (kind, message) in enumerate(
            [
                ("turn_start", None),
                ("user", {"role": "user", "content": [{"type": "text", "text": "ours"}]}),
                ("turn_end", None),
            ]
        )
    ]
    assert await desk.shown(said("a", "user", None), said("b", "assistant", "a"), *ours) == [
        "says a",
        "says b",
        "ours",
    ]
