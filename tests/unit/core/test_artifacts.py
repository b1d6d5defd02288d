"""Artifacts are stored completely, belong to one chat, are read in pages that split no grapheme, and are searched literally."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.storage import artifacts, jsonl
from bot.storage.artifacts import ArtifactMatches, ArtifactStore
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from tests.shares import examples

KEY, OTHER = ChatKey.parse("slack:chat:C1:thread:1.2"), ChatKey.parse("telegram:chat:-7")
DAY = 86_400
FAMILY = "👩\u200d👩\u200d👧\u200d👦"
Make = Callable[..., ArtifactStore]


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock, log: MemoryLog) -> Make:
    def made(disk: Disk | None = None) -> ArtifactStore:
        return ArtifactStore(
            tmp_path / "artifacts", disk=disk or SystemDisk(), ids=UlidSource(clock), clock=clock, log=log
        )

    return made


async def put(store: ArtifactStore, text: str, chat_key: ChatKey = KEY) -> str:
    return await store.put(text, chat_key=chat_key, request_id="R1", tool="look", tool_use_id="toolu_1")


def files(tmp_path: Path, chat_key: ChatKey = KEY) -> list[str]:
    return sorted(path.name for path in (tmp_path / "artifacts" / jsonl.file_name(chat_key)).glob("*.txt"))


async def whole(store: ArtifactStore, artifact_id: str, limit: int, most: int = sys.maxsize) -> list[str]:
    """Return all pages of an artifact, or the first `most`."""
    found, offset = list[str](), 0
    while len(found) < most:
        page = await store.read(artifact_id, KEY, offset=offset, limit=limit)
        assert page.offset == offset
        found.append(page.text)
        offset = page.end
        if offset == page.characters:
            break
    return found


async def test_an_artifact_is_one_private_file_with_what_it_came_from(make: Make, tmp_path: Path) -> None:
    artifact_id = await put(make(), "Erste Zeile\n二行目\n")
    path = tmp_path / "artifacts" / jsonl.file_name(KEY) / f"{artifact_id}.txt"
    head, text = path.read_text(encoding="utf-8").split("\n", 1)
    assert text == "Erste Zeile\n二行目\n"
    assert json.loads(head) == {
        "v": 1,
        "chatKey": str(KEY),
        "requestId": "R1",
        "tool": "look",
        "toolUseId": "toolu_1",
        "ts": 1_800_000_000_000,
        "origin": {"people": [], "taint": "foreign"},
        "characters": 16,
        "lines": 2,
        "bytes": len(text.encode()),
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_another_chat_reaches_nothing(make: Make, tmp_path: Path) -> None:
    store = make()
    artifact_id = await put(store, "secret plans")
    for call in (
        store.read(artifact_id, OTHER, offset=0, limit=10),
        store.grep(artifact_id, OTHER, "plans", offset=0, limit=10),
    ):
        with pytest.raises(errors.ToolError, match="has no artifact"):
            await call
    # A file in the folder of another chat cannot be read there.
    folder = tmp_path / "artifacts" / jsonl.file_name(OTHER)
    folder.mkdir()
    source = tmp_path / "artifacts" / jsonl.file_name(KEY) / f"{artifact_id}.txt"
    (folder / source.name).write_bytes(source.read_bytes())
    with pytest.raises(errors.ToolError, match="damaged"):
        await store.read(artifact_id, OTHER, offset=0, limit=10)


@pytest.mark.parametrize(
    "artifact_id", ["", "01J", "../../ship.json", "0" * 25 + "/", "人" * 26, "Z" * 5_000, "0" * 26]
)
async def test_an_id_is_never_a_path(make: Make, artifact_id: str) -> None:
    with pytest.raises(errors.ToolError, match="call the tool that made it again") as caught:
        await make().read(artifact_id, KEY, offset=0, limit=10)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"x",
        lambda raw: raw[raw.index(b"\n") + 1 :],
        lambda raw: b"{}\n" + raw,
        lambda raw: b"\x00" * len(raw),
    ],
    ids=["shorter", "longer", "no head", "another head", "nothing but zeros"],
)
async def test_a_damaged_artifact_is_told_and_never_shown(
    make: Make, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store = make()
    artifact_id = await put(store, "the text")
    path = tmp_path / "artifacts" / jsonl.file_name(KEY) / f"{artifact_id}.txt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(errors.ToolError, match="damaged"):
        await store.read(artifact_id, KEY, offset=0, limit=10)


async def test_a_disk_that_fails_is_a_storage_error(make: Make) -> None:
    disk = FaultyDisk(SystemDisk())
    store = make(disk)
    artifact_id = await put(store, "text")
    disk.fail(Failure("*", times=None))
    with pytest.raises(errors.StorageError):
        await put(store, "text")
    with pytest.raises(errors.StorageError):
        await store.read(artifact_id, KEY, offset=0, limit=10)
    with pytest.raises(errors.StorageError):
        await store.sweep(1)


PARTS = [
    *(  # noqa: SIM905 - a list would take a page
        "a¦é¦字¦\n¦\r\n¦🇩🇪¦e\u0301\u0302¦👍🏽¦שלום ¦क्षि¦ ¦\u200d"
    ).split("¦"),
    FAMILY,
    "x" * 50,
]
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), min_size=1, max_size=60).map("".join)


@settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=TEXTS.filter(bool), limit=st.integers(1, 90), repeat=st.sampled_from([1, 1, 40]))
async def test_pages_of_any_size_give_the_whole(make: Make, text: str, limit: int, repeat: int) -> None:
    store = make()
    kept = (text * repeat).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    pages = await whole(store, await put(store, text * repeat), limit * repeat)
    assert "".join(pages) == kept
    assert all(pages)


async def test_no_page_begins_or_ends_inside_a_grapheme(make: Make) -> None:
    store = make()
    artifact_id = await put(store, (FAMILY + "🇩🇪" + "\r\n") * 500)
    for limit in (1, 10, 11, 12, 100, 7_000):
        for page in await whole(store, artifact_id, limit, most=50):
            left = page
            while left:
                part = next(one for one in (FAMILY, "🇩🇪", "\r\n") if left.startswith(one))
                left = left.removeprefix(part)
    inside = await store.read(artifact_id, KEY, offset=3, limit=7)
    assert (inside.offset, inside.text) == (0, FAMILY)


@pytest.mark.parametrize("cancelled", [1, 2])
async def test_one_who_is_cancelled_ends_once_the_disk_has_taken_it(
    make: Make, tmp_path: Path, cancelled: int
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def held(kind: str, _: str) -> None:
        if kind == "replace":
            writing.set()
            assert go_on.wait(90)

    putting = asyncio.create_task(put(make(FaultyDisk(SystemDisk(), seen=held)), "text"))
    await asyncio.to_thread(writing.wait, 90)
    for _ in range(cancelled):
        putting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    ended = putting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert (ended, len(files(tmp_path))) == (False, 1), "what is done next stands behind it"


async def test_over_the_largest_size_the_middle_goes_and_the_text_says_so(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(artifacts, "LARGEST", 1_000)
    store = make()
    text = "".join(f"{FAMILY}{number}" for number in range(200))
    artifact_id = await put(store, text)
    (kept,) = await whole(store, artifact_id, 10_000)
    head, note, tail = kept.split("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head.endswith(tuple("0123456789"))
    assert tail.startswith((FAMILY, *"0123456789"))
    assert len(head) + len(tail) + int(note.split()[1]) == len(text)
    assert "too large to be kept whole" in note
    assert 800 < len((head + tail).encode()) <= 1_000


async def test_of_one_chat_the_oldest_go_and_other_chats_keep_theirs(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = make()
    other = await put(store, "kept", OTHER)
    monkeypatch.setattr(artifacts, "CHAT_COUNT", 3)
    ids = [await put(store, f"text {number}") for number in range(5)]
    assert files(tmp_path) == [f"{one}.txt" for one in ids[2:]]
    monkeypatch.setattr(artifacts, "CHAT_BYTES", 1_400)
    newest = await put(store, "x" * 1_000)
    assert len(files(tmp_path)) == 2
    alone = await put(store, "x" * 5_000)
    assert files(tmp_path) == [f"{alone}.txt"], "the newest stays, however large"
    assert newest != alone
    assert files(tmp_path, OTHER) == [f"{other}.txt"]


async def test_what_cannot_be_removed_does_not_keep_a_new_one_from_being_kept(
    make: Make, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "CHAT_COUNT", 1)
    disk = FaultyDisk(SystemDisk())
    store = make(disk)
    await put(store, "old")
    disk.fail(Failure("remove"))
    artifact_id = await put(store, "new")
    assert await whole(store, artifact_id, 10) == ["new"]
    assert log.at("warn")[0].message == "old artifacts cannot be removed"


async def test_what_is_old_is_swept_and_nothing_else(make: Make, clock: FakeClock, tmp_path: Path) -> None:
    store = make()
    old = await put(store, "old")
    await put(store, "old too", OTHER)
    folder = tmp_path / "artifacts" / jsonl.file_name(KEY)
    (folder / ".left.tmp").write_text("torn")
    (folder / "README.txt").write_text("not ours")
    await clock.advance(29 * DAY)
    young = await put(store, "young")
    await clock.advance(2 * DAY)
    assert await store.sweep(30) == 2
    assert files(tmp_path) == [f"{young}.txt", "README.txt"]
    assert not (folder / ".left.tmp").exists()
    with pytest.raises(errors.ToolError, match="too old"):
        await store.read(old, KEY, offset=0, limit=10)
    assert await store.sweep(30) == 0


async def test_a_clock_that_is_set_forward_makes_nothing_old(make: Make, clock: FakeClock) -> None:
    store = make()
    name = await put(store, "young")
    clock.jump(400 * DAY)
    assert await store.sweep(30) == 0
    assert (await store.read(name, KEY, offset=0, limit=10)).text
    await clock.advance(31 * DAY)
    assert await store.sweep(30) == 1


async def grep(store: ArtifactStore, text: str, words: str, **more: int) -> ArtifactMatches:
    return await store.grep(await put(store, text), KEY, words, **({"offset": 0, "limit": 8_000} | more))


async def test_one_endless_line_is_searched_in_segments_and_shown_around_the_find(make: Make) -> None:
    line = "字" * 1_995 + "Nadel" + "字" * 1_998 + "NADEL" + "é" * 70_000 + "nadel"
    found = await grep(make(), line, "nadel")
    assert [one.offset for one in found.found] == [1_995, 3_998, 74_003]
    assert all(one.line == 1 and "nadel" in one.text.casefold() for one in found.found)
    assert all(len(one.text) <= artifacts.SHOWN + 2 for one in found.found)
    assert found.found[0].text.startswith("…字")
    assert found.found[0].text.endswith("字…")


@settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(st.text(alphabet="absSé字", max_size=8), max_size=12),
    words=st.text(alphabet="abAs字É", min_size=1, max_size=3),
)
async def test_a_search_finds_the_lines_that_hold_the_words(make: Make, lines: list[str], words: str) -> None:
    found = await grep(make(), "\n".join([*lines, "end"]), words)
    expected = [at for at, line in enumerate(lines, 1) if words.casefold() in line.casefold()]
    assert [one.line for one in found.found] == expected
    assert found.total == len(expected)
