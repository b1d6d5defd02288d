"""Lines beside an artifact: private, never shown to the model, and gone with what they stand beside."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.history import artifacts, names
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from tests.unit.history.test_artifacts import DAY, KEY, OTHER, Make, files, make, put, whole

__all__ = ["make"]


def beside(tmp_path: Path, chat_key: ChatKey = KEY) -> dict[str, str]:
    """What is noted beside artifacts, by their ids."""
    folder = tmp_path / "artifacts" / names.encode(chat_key)
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.jsonl")}


async def test_what_is_noted_beside_an_artifact_is_private_and_goes_with_it(
    make: Make, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = make()
    one, two, three = [await put(store, f"text {number}") for number in range(3)]
    for name in (one, two, three):
        await store.note(name, KEY, [{"n": 1}, {"n": "二"}])
    await store.note(two, KEY, [{"n": 3}])
    lines = '{"n":1}\n{"n":"二"}\n'
    assert beside(tmp_path) == {one: lines, two: lines + '{"n":3}\n', three: lines}
    (file,) = (tmp_path / "artifacts").glob(f"*/{one}.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert await whole(store, one, 100) == ["text 0"]
    await store.put("again", chat_key=KEY, request_id="R2", tool="task", tool_use_id="t", artifact_id=two)
    assert beside(tmp_path)[two] == lines + '{"n":3}\n', "what takes the place of a text leaves it"
    assert await store.made(KEY, ["R1"]) == {"R1": [(one, "look"), (three, "look")]}
    monkeypatch.setattr(artifacts, "CHAT_COUNT", 3)
    four = await put(store, "text 4")
    assert set(beside(tmp_path)) == {two, three}
    assert await store.forget(KEY, ["R2"]) == 1
    assert set(beside(tmp_path)) == {three}
    await clock.advance(31 * DAY)
    assert await store.sweep(30) == 2
    assert beside(tmp_path) == {}
    await store.note(four, KEY, [{"late": 1}])
    await store.note(one, OTHER, [{"late": 1}])
    assert beside(tmp_path) == beside(tmp_path, OTHER) == {}, "what is gone does not come back"


async def test_what_is_noted_counts_as_what_is_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = make()
    monkeypatch.setattr(artifacts, "CHAT_BYTES", 3_000)
    old, newer = await put(store, "old"), await put(store, "newer")
    await store.note(newer, KEY, [{"x": "x" * 2_500}])
    newest = await put(store, "newest")
    assert files(tmp_path) == [f"{newer}.txt", f"{newest}.txt"]
    assert old not in beside(tmp_path)
    await store.note(newest, KEY, [{"x": "x" * 2_500}])
    last = await put(store, "last")
    assert files(tmp_path) == [f"{newest}.txt", f"{last}.txt"]


async def test_a_disk_that_refuses_a_note_is_a_storage_error(make: Make) -> None:
    disk = FaultyDisk(SystemDisk())
    store = make(disk)
    name = await put(store, "text")
    disk.fail(Failure("append"))
    with pytest.raises(errors.StorageError):
        await store.note(name, KEY, [{"n": 1}])
