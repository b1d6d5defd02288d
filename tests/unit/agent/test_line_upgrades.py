"""A chat whose transcript was written by the version before comes back as it was; its facts are read out of words once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bot import ulids
from bot.context import checkpoint, found_tools, replay
from bot.context.store import AgentContextStore
from bot.contracts.archive import ArchiveKey
from bot.contracts.tools import omission
from bot.contracts.transcript import Boundary, MessageEvent, TranscriptLine
from bot.history import file_names
from bot.history.transcript import lines as transcript_lines
from bot.tools import excerpt
from tests.unit.agent.conftest import KEY, Bench

OLD = Path("tests/corpus/transcripts/1")
ID = "01J8Z3NDEKTSV4RRFFQ69G5FAV"
QUOTED = f"[… 7 lines, 9 characters omitted; whole result: artifact {'0' * 26}, read it with read_artifact]\n"


@pytest.fixture
def old(bench: Bench) -> Path:
    """The session of such a chat: an archive was taken over, a large result shortened, a quote removed and quoted again."""
    (session,) = OLD.glob("*.jsonl")
    home = bench.root / "transcripts" / file_names.encode(KEY)
    home.mkdir(parents=True)
    return Path(shutil.copy(session, home))


async def test_the_view_of_the_chat_is_the_same_to_the_byte(bench: Bench, old: Path) -> None:
    await bench.pool.describe(KEY)
    store = bench.pool.runtime(KEY).store
    sent, _ = found_tools.declared(store.view())
    assert json.dumps(sent, ensure_ascii=False, indent=1) + "\n" == (OLD / "view.json").read_text("utf-8")
    whole = AgentContextStore(bench.deps.limits.max_messages)
    assert not replay.replay(whole, await bench.transcript.load(KEY))
    assert [turn.entries for turn in whole.turns] == [turn.entries for turn in store.turns]
    assert old.read_bytes() == next(OLD.glob("*.jsonl")).read_bytes(), "reading changes nothing on disk"


async def test_its_checkpoint_restores_and_its_facts_are_fields(bench: Bench, old: Path) -> None:
    loaded = await bench.transcript.read(KEY)
    assert loaded.base is not None
    assert checkpoint.rebuilt(loaded.base, loaded.messages) is not None
    await bench.pool.describe(KEY)
    store = bench.pool.runtime(KEY).store
    adopted = ArchiveKey(1_600_000_000_000, "user", "7"), ArchiveKey(1_600_000_001_000, "assistant", "8")
    assert store.adopted() == {*adopted, None}
    entries = [entry for turn in store.turns for entry in turn.entries]
    results = [block for entry in entries for block in entry.message["content"] if "tool_use_id" in block]
    (artifact,) = [left_out.artifact for left_out in map(omission, results) if left_out is not None]
    assert artifact.startswith("01M"), "the quoted note is not the real one"
    assert [sorted(entry.unquoted) for entry in entries if entry.unquoted] == [["41"], ["41"]]
    assert not any(entry.redacted for entry in entries), "the model said these words itself"
    began = [turn.began for turn in store.turns]
    assert None not in began[1:]
    assert old.exists()


def line(content: str, v: int, **data: object) -> TranscriptLine:
    """A line of a version that holds a tool's result."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": content}
    told = {"v": v, "uuid": "a", "type": "user", "ts": 1, "chatKey": str(KEY), "requestId": "R"}
    told |= {"message": {"role": "user", "content": [result]}, "data": data}
    found = transcript_lines.parsed(json.dumps(told, separators=(",", ":")).encode())
    assert found is not None
    return found


def result_of(told: TranscriptLine) -> dict[str, object]:
    assert told.message is not None
    (result,) = told.message["content"]
    return dict(result)


@pytest.mark.parametrize("quoted", ["", QUOTED * 3])
def test_what_an_old_result_left_out_is_read_from_its_note(quoted: str) -> None:
    content, left_out = excerpt.excerpt(quoted + "y\n" * 50_000 + quoted, excerpt.ROOM, ID).shown
    assert left_out is not None
    assert omission(result_of(line(content, 1))) == left_out


def test_a_note_in_a_line_of_today_is_words_like_any_others() -> None:
    assert omission(result_of(line(QUOTED, 2))) is None


def test_a_turn_of_an_old_checkpoint_began_when_its_request_was_made() -> None:
    kept = {"turns": [{"requestId": one, "sources": [], "uuids": []} for one in (ID, "R")], "masked": {}}
    raw = {"v": 1, "uuid": "b", "type": "boundary", "ts": 1, "chatKey": str(KEY)}
    told = transcript_lines.parsed(json.dumps(raw | {"data": {"kept": kept | {"digest": ""}}}).encode())
    assert told is not None
    assert isinstance(told.event, Boundary)
    assert told.event.kept is not None
    assert [turn.began for turn in told.event.kept.turns] == [round(ulids.made_at(ID) * 1000), None]


def test_an_older_checkpoint_says_of_each_message_what_all_quote_without_its_words() -> None:
    turns = [{"requestId": one, "sources": [], "uuids": [f"{one}1", f"{one}2"], "began": 7} for one in "RS"]
    kept = {"turns": turns, "masked": {}, "digest": "", "unquoted": ["41", "42"]}
    raw = {"v": 2, "uuid": "b", "type": "boundary", "ts": 1, "chatKey": str(KEY), "data": {"kept": kept}}
    told = transcript_lines.parsed(json.dumps(raw).encode())
    assert told is not None
    assert isinstance(told.event, Boundary)
    assert told.event.kept is not None
    assert told.event.kept.unquoted == tuple((uuid, ("41", "42")) for uuid in ("R1", "R2", "S1", "S2"))
    assert [turn.began for turn in told.event.kept.turns] == [7, 7], "what it tells itself holds"


def test_the_key_of_an_adopted_line_may_hold_anything() -> None:
    told = line("x", 1, sources=["archive:-5:user:a:b\nc", "S"])
    assert isinstance(told.event, MessageEvent)
    assert (told.event.sources, told.event.adopted) == (("S",), ArchiveKey(-5, "user", "a:b\nc"))


@pytest.mark.parametrize("number", ["7", "7" * 5_000])
def test_a_line_with_a_number_of_any_size_is_read(number: str) -> None:
    note = f"[… {number} lines, 5 characters omitted; whole result: artifact {'A' * 26}, read it with read_artifact]"
    line = {
        "uuid": "01J8Z3NDEKTSV4RRFFQ69G5FAV",
        "type": "user",
        "ts": 1,
        "chatKey": str(KEY),
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": f"a\n{note}"}],
        },
        "data": {"sources": [f"archive:{number}:user:1"]},
    }
    read = transcript_lines.parsed(json.dumps(line).encode())
    assert read is not None
    assert isinstance(read.event, MessageEvent)
    assert (read.event.adopted is not None) == (len(number) == 1)
    assert (omission(read.event.message["content"][0]) is not None) == (len(number) == 1)
