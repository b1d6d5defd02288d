"""Files torn at every byte of their last three lines, with a page of zeros or rubbish behind: what was whole stays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.history.archive.store import ChatStore
from bot.history.transcript.store import Transcript
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog
from bot.testing.log import MemoryLog
from tests.blackbox.conftest import World
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends

KEY = ChatKey.parse("telegram:chat:1001")
QUESTIONS = [scene.WORDS.format(number) for number in range(3)]
PAGE, RUBBISH = b"\0" * 512, bytes(range(128, 256)) + b"\n\n{]\xff"


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_ends(monkeypatch)


async def talk(root: Path, *questions: str) -> None:
    """One life of a gateway that answers these."""
    async with scene.new_world(root) as world:
        await live(world, await scene.prepare(world, "telegram", str), *questions)


async def live(world: World, side: scene.Side, *questions: str) -> None:
    life = Inside(world)
    with environment(world):
        await life.start()
        for words in questions:
            await side.say(words)
            await scene.until_answered(side, words)
            await scene.until_quiet(world.root)
        await scene.ready(world.session, life.dashboard)
        await life.end()


def tears(whole: bytes, stride: int) -> Iterator[tuple[bytes, int]]:
    """The torn forms of a file, each with the number of lines that are whole in it. About the end of a line none is left out."""
    lines = whole.splitlines(keepends=True)
    begin = sum(map(len, lines[:-3]))
    for end in range(begin, len(whole) + 1):
        kept = whole[:end]
        if (end - begin) % stride and b"\n" not in whole[end - 2 : end + 2]:
            continue
        last = kept.rpartition(b"\n")[2]
        # The last line may lack its newline and be whole all the same.
        yield kept, kept.count(b"\n") + (bool(last) and last + b"\n" in lines[-3:])
    yield whole + PAGE, len(lines)
    yield whole + RUBBISH, len(lines)
    yield whole[:-20] + PAGE, len(lines) - 1


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


async def test_an_archive_keeps_every_whole_line(tmp_path: Path, stride: int) -> None:
    await talk(tmp_path, *QUESTIONS)
    path = only(tmp_path / ".ship" / "chats", "*.jsonl")
    whole = path.read_bytes()
    texts = [json.loads(line)["text"] for line in whole.splitlines()]
    for torn, lines in tears(whole, stride):
        path.write_bytes(torn)
        store = ChatStore(path.parent, disk=SystemDisk(), log=MemoryLog(), clock=SystemClock())
        new = ArchiveLine(
            ts=1, channel="telegram", chat_id="1001", chat_key=KEY, role="user", text="新しい行"
        )
        await store.append(new)
        page = await store.search(KEY, HistoryQuery(limit=100))
        assert [line.text for line in page.lines] == [*texts[:lines], "新しい行"], len(torn)
        await store.close()
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


async def test_a_transcript_keeps_every_whole_line(tmp_path: Path, stride: int) -> None:
    await talk(tmp_path, *QUESTIONS)
    path = only(tmp_path / ".ship" / "transcripts", "*/*.jsonl")
    whole = path.read_bytes()
    uuids = [json.loads(line)["uuid"] for line in whole.splitlines()]
    for torn, lines in tears(whole, stride):
        path.write_bytes(torn)
        kept = Transcript(
            path.parents[1], disk=SystemDisk(), ids=UlidSource(), clock=SystemClock(), log=MemoryLog()
        )
        loaded = [line.uuid for line in await kept.load(KEY)]
        assert loaded == uuids[:lines], len(torn)
        await kept.close()


async def test_a_log_goes_on_in_a_line_of_its_own(tmp_path: Path, stride: int) -> None:
    await talk(tmp_path, QUESTIONS[0])
    path = only(tmp_path / ".ship" / "logs", "*.jsonl")
    whole = path.read_bytes()
    for torn, lines in tears(whole, stride):
        path.write_bytes(torn)
        log = JsonlLog(path.parent, clock=SystemClock(), disk=SystemDisk(), ids=UlidSource())
        log.write("info", "新しい行")
        log.close()
        readable = [line for line in path.read_bytes().splitlines() if scene.readable(line)]
        assert len(readable) == lines + 1, len(torn)
        assert json.loads(readable[-1])["message"] == "新しい行"


async def torn_and_started(root: Path, rng: random.Random, times: int) -> None:
    """The last line of every file of a chat torn somewhere, again and again: each start goes on."""
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, "telegram", str)
        for number in range(times):
            await live(world, side, scene.WORDS.format(f"{number} before"))
            for pattern in ("chats/*.jsonl", "transcripts/*/*.jsonl", "logs/*.jsonl"):
                path = only(root / ".ship", pattern)
                whole = path.read_bytes()
                last = len(whole.splitlines(keepends=True)[-1])
                path.write_bytes(
                    whole[: len(whole) - rng.randrange(last)] + rng.choice([b"", b"", PAGE, RUBBISH])
                )
            await live(world, side, scene.WORDS.format(f"{number} after"))


async def test_a_gateway_starts_on_torn_files_and_answers(tmp_path: Path) -> None:
    await torn_and_started(tmp_path, random.Random(5), 4)


@pytest.mark.torture
async def test_a_gateway_starts_on_torn_files_a_hundred_times(tmp_path: Path) -> None:
    await torn_and_started(tmp_path, random.Random(scene.seed()), 100)
