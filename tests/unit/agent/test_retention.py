"""A chat that is kept for some days: older turns go from what the model is shown, and then from the disk, and nothing else changes."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.history.retention import Retention
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_damage import file_of
from tests.unit.agent.test_loading import talk
from tests.unit.agent.test_random import Judged, as_from_the_beginning, converse

DAY = 86_400.0


class Kept(Retention):
    """Days that begin where a test says."""

    begins = 0.0

    def since(self, chat_key: ChatKey, now: float) -> float:
        assert (chat_key, now > 0) == (KEY, True)
        return self.begins


def keeping(bench: Bench, **more: Any) -> Kept:
    kept = Kept(bench.root, {"*": 1}, SystemDisk())
    bench.configure(retention=kept, **more)
    return kept


def expired(bench: Bench, at: float, disk: Any = None) -> int:
    """Remove what is older than a time; the number of lines of sessions that go on."""
    retention = Retention(bench.root, {"*": 1}, disk or SystemDisk())
    return sum(one.told for one in retention.expire(at + DAY, lambda _: True))


def view_of(bench: Bench) -> str:
    store = bench.pool.runtime(KEY).store
    return json.dumps([*store.view(), *store.messages()])


def aged(bench: Bench, days: float, below: float) -> None:
    """Let the lines of the transcript that were written before a time be older."""
    path = file_of(bench)

    def older(found: re.Match[bytes]) -> bytes:
        ts = int(found[2])
        return found[1] + str(ts - int(days * DAY * 1000) if ts < below * 1000 else ts).encode()

    path.write_bytes(re.sub(rb'(?m)^(\{"v":3,"uuid":.*?"ts":)(\d+)', older, path.read_bytes()))


async def test_older_turns_go_from_the_request_when_a_conversation_comes_back(bench: Bench) -> None:
    kept = keeping(bench)
    await talk(bench, 2)
    await bench.clock.advance(60)
    kept.begins = bench.clock.now()
    bench.model.answers += [reply(text("answer"))]
    await bench.say("question 2", archive=False)
    bench.model.answers += [reply(text("well"))]
    await bench.say("and now?", archive=False)
    assert "question 0" in json.dumps(bench.sent), "a conversation in memory goes on as it is"
    bench.restart()
    bench.model.answers += [reply(text("well"))]
    await bench.say("and then?", archive=False)
    sent = json.dumps(bench.sent)
    assert [word in sent for word in ("question 0", "question 1", "question 2", "and now?")] == [
        False,
        False,
        True,
        True,
    ]
    assert [one.details["reason"] for one in bench.log.of("compaction")] == ["retention"]
    await as_from_the_beginning(bench)
    bench.restart()
    await bench.pool.describe(KEY)
    assert len(bench.log.of("compaction")) == 1, "once is enough"


async def test_a_turn_out_of_the_archive_is_as_old_as_its_line_there(bench: Bench) -> None:
    kept = keeping(bench)
    await bench.store(1_000, "user", "from the archive alone")
    await talk(bench, 1)
    for begins, shown in ((1, True), (2, False)):
        kept.begins = begins
        bench.restart()
        await bench.pool.describe(KEY)
        assert ("from the archive alone" in json.dumps(bench.pool.runtime(KEY).store.messages())) is shown


async def test_a_turn_whose_time_is_not_known_stays(bench: Bench) -> None:
    await talk(bench, 1)
    store = bench.pool.runtime(KEY).store
    store.turns[0] = replace(store.turns[0], began=None)
    view_changes = bench.pool.runtime(KEY).view_changes
    assert not view_changes.older_than(bench.clock.now() + 1e10)


async def test_what_went_from_the_view_goes_from_the_disk_while_the_chat_is_in_use(bench: Bench) -> None:
    bench.configure(max_messages=8)
    await talk(bench, 9, "old words")
    border = bench.clock.now() - 1
    path = file_of(bench)
    aged(bench, 5, bench.clock.now() + 1)
    await bench.clock.advance(1)
    bench.model.answers += [reply(text("young"))]
    await bench.say("young", archive=False)
    await bench.pool.flush()
    before = path.read_bytes()
    loaded = await bench.transcript.read(KEY)
    assert loaded.base is not None
    gone = expired(bench, border)
    after = path.read_bytes()
    assert gone == before.count(b"\n") - after.count(b"\n") > 10
    assert await bench.transcript.read(KEY) == loaded
    assert b"question 0" not in after
    assert b"young" in after
    assert expired(bench, border) == 0
    await talk(bench, 1, "goes on")
    assert b"goes on 0" in path.read_bytes()
    view = view_of(bench)
    bench.restart()
    await bench.pool.describe(KEY)
    assert view_of(bench) == view


async def test_without_a_boundary_nothing_goes(bench: Bench) -> None:
    await talk(bench, 3)
    aged(bench, 5, bench.clock.now() + 1)
    await bench.clock.advance(1)
    await talk(bench, 1)
    assert expired(bench, bench.clock.now()) == 0


async def test_lines_of_a_sessions_last_day_stay(bench: Bench) -> None:
    bench.configure(max_messages=4)
    await talk(bench, 6)
    aged(bench, 5, bench.clock.now() + 1)
    assert expired(bench, bench.clock.now()) == 0


async def test_a_kill_at_any_change_leaves_the_session_whole_or_cut(bench: Bench) -> None:
    bench.configure(max_messages=8)
    await talk(bench, 9)
    aged(bench, 5, bench.clock.now() + 1)
    await bench.clock.advance(1)
    await talk(bench, 1)
    path = file_of(bench)
    before, loaded, changes = path.read_bytes(), await bench.transcript.read(KEY), 0
    while True:
        changes += 1
        path.write_bytes(before)
        disk = FaultyDisk(SystemDisk())
        disk.fail(Failure(at=changes, times=None, then="exit"))
        try:
            expired(bench, bench.clock.now() - 1, disk)
        except SystemExit:
            assert await bench.transcript.read(KEY) == loaded
            expired(bench, bench.clock.now() - 1)
        else:
            break
        assert await bench.transcript.read(KEY) == loaded
        assert [one.name for one in path.parent.iterdir() if one.suffix == ".tmp"] == []
        assert len(path.read_bytes()) < len(before)
    assert changes > 2


async def test_of_any_conversation_what_is_left_is_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    cut = 0
    for seed in range(0, 24, stride):
        bench = Bench(tmp_path / str(seed))
        bench.configure(max_messages=6, model=Judged())
        await converse(bench, random.Random(seed))
        await bench.pool.flush()
        await bench.pool.describe(KEY)  # a crash at the end leaves a process that has not looked yet
        view, before = view_of(bench), await bench.transcript.read(KEY)
        for ts in sorted({line.ts for line in await bench.transcript.load(KEY)}):
            with monkeypatch.context() as patched:
                patched.setattr(Retention, "newest_ts", lambda *_: 1e15)
                cut += expired(bench, (ts + 1) / 1000)
            assert await bench.transcript.read(KEY) == before
        bench.restart()
        await bench.pool.describe(KEY)
        assert view_of(bench) == view
        await bench.close()
    assert cut
