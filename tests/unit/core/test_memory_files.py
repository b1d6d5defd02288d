"""Memory files stay in their owner's folder and within limits. Each line's origins are stored."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.identity import ChatKey
from bot.storage import notes as memory_files
from bot.storage.notes import MemoryOwner, NoteStore, Written, carried
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from tests.shares import examples

CHAT = MemoryOwner("chat", "slack:chat:C1")
PERSON = MemoryOwner("person", "slack:U1")
PIECES = (  # noqa: SIM905 - a list would take a page
    "..¦.¦¦/¦\\¦\0¦%2e%2e¦%2F¦~¦a¦A¦é¦e\u0301¦事¦con¦\n¦ ¦:¦session.md¦files¦x.md¦\u202e¦🦊¦-¦C1"
).split("¦")


def by(request_id: str) -> Written:
    return Written(1_000, request_id, ChatKey.parse(CHAT.key), "U1")


def put(words: str) -> Callable[[str | None], str]:
    return lambda _: words


class Shelf:
    def __init__(self, root: Path) -> None:
        self.root = root / "memory"
        self.disk = FaultyDisk(SystemDisk())
        self.store = NoteStore(self.root, disk=self.disk, redact=lambda words: words.replace("sesame", "***"))

    async def write(self, path: str, words: str, request_id: str = "R1", owner: MemoryOwner = CHAT) -> None:
        await self.store.change(owner, path, put(words), by(request_id))

    async def text(self, path: str, owner: MemoryOwner = CHAT) -> str | None:
        file = await self.store.read(owner, path)
        return None if file is None else file.text

    async def sources(self, path: str) -> list[tuple[str, list[str]]]:
        file = await self.store.read(CHAT, path)
        assert file is not None
        lines = zip(file.text.split("\n"), file.written, strict=True)
        return [(line, [one.request_id for one in written]) for line, written in lines]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(parts=st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=9), person=st.booleans())
@example(parts=["..", "/", "..", "/", "x.md"], person=False)
@example(parts=["/", "etc", "/", "passwd"], person=True)
@example(parts=["a", "\0", "b"], person=True)
def test_no_path_leaves_its_folder(parts: list[str], *, person: bool) -> None:
    path, owner = "".join(parts), PERSON if person else CHAT

    async def written(root: Path) -> set[str]:
        shelf = Shelf(root)
        (root / "secret").write_text("outside", encoding="utf-8")
        try:
            await shelf.write(path, "hello", owner=owner)
        except errors.ToolError:
            assert await shelf.store.sizes(owner) == {}
        else:
            (name,) = await shelf.store.sizes(owner)
            assert await shelf.text(name, owner) == await shelf.text(path, owner) == "hello"
            for doubled in (name.upper(), name.lower()):
                if doubled != name:
                    with pytest.raises(errors.ToolError, match="already"):
                        await shelf.write(doubled, "once more", owner=owner)
        assert (root / "secret").read_text(encoding="utf-8") == "outside"
        return {str(p.relative_to(root).parent) for p in root.rglob("*") if p.is_file() and p.name[0] != "."}

    with tempfile.TemporaryDirectory() as folder:
        place = "memory/people/slack-U1" if person else "memory/slack%3Achat%3AC1/files"
        assert asyncio.run(written(Path(folder))) - {"."} <= {place}


async def test_a_file_is_kept_and_belongs_to_its_owner_alone(shelf: Shelf) -> None:
    await shelf.write("notes/люди.md", "Anna\n日本 🦊")
    assert await shelf.text("notes/люди.md") == "Anna\n日本 🦊"
    assert await shelf.text("notes/люди.md", PERSON) is None
    assert await shelf.text("notes/люди.md", MemoryOwner("chat", "slack:chat:C2")) is None
    assert await shelf.store.sizes(CHAT) == {"notes/люди.md": 16}
    await shelf.write("a.md", "mine", owner=PERSON)
    assert (await shelf.store.people(), await shelf.store.chats()) == (["slack:U1"], ["slack:chat:C1"])


async def test_a_secret_is_never_written(shelf: Shelf) -> None:
    await shelf.write("a.md", "open sesame")
    assert await shelf.text("a.md") == "open ***"
    assert not any(b"sesame" in path.read_bytes() for path in shelf.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("words", ["a\0b", "\x1b[2J", "bell\a"])
async def test_only_text_is_kept(shelf: Shelf, words: str) -> None:
    with pytest.raises(errors.ToolError, match="text only"):
        await shelf.write("a.md", words)
    assert await shelf.text("a.md") is None


async def test_there_is_room_for_so_much(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_files, "LARGEST", 40)
    monkeypatch.setattr(memory_files, "MOST_LINES", 4)
    monkeypatch.setattr(memory_files, "ALL_BYTES", 60)
    monkeypatch.setattr(memory_files, "MOST_FILES", 2)
    for words in ("x" * 41, "\n" * 4):
        with pytest.raises(errors.ToolError, match="at most"):
            await shelf.write("a.md", words)
    await shelf.write("a.md", "x" * 40)
    with pytest.raises(errors.ToolError, match="room"):
        await shelf.write("b.md", "x" * 21)
    await shelf.write("b.md", "x" * 20)
    await shelf.write("b.md", "y" * 20)
    await shelf.store.change(CHAT, "a.md", put(""), by("R2"))
    with pytest.raises(errors.ToolError, match="room"):
        await shelf.write("c.md", "")
    assert await shelf.store.sizes(CHAT) == {"a.md": 0, "b.md": 20}


async def test_what_an_operator_linked_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    await shelf.write("a.md", "mine")
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    (file,) = shelf.root.rglob("*.md")
    file.with_name("b%2Emd.md").symlink_to(tmp_path / "secret")
    assert await shelf.store.sizes(CHAT) == {"a.md": 4}
    assert await shelf.text("b.md") is None
    other = MemoryOwner("chat", "slack:chat:C2")
    (shelf.root / "slack%3Achat%3AC2").mkdir()
    (shelf.root / "slack%3Achat%3AC2" / "files").symlink_to(tmp_path)
    with pytest.raises(errors.ToolError, match="cannot be used"):
        await shelf.write("a.md", "mine", owner=other)
    assert await shelf.store.sizes(other) == {}


async def test_every_line_knows_where_it_comes_from(shelf: Shelf) -> None:
    await shelf.write("a.md", "one\ntwo", "R1")
    await shelf.write("a.md", "one\nthree\ntwo", "R2")
    assert await shelf.sources("a.md") == [("one", ["R1"]), ("three", ["R2"]), ("two", ["R1"])]
    await shelf.write("a.md", "one\nthree and two", "R3")
    assert await shelf.sources("a.md") == [("one", ["R1"]), ("three and two", ["R2", "R1", "R3"])]
    await shelf.store.move(CHAT, "a.md", "b.md", by("R4"))
    named = [("one", ["R1", "R4"]), ("three and two", ["R2", "R1", "R3", "R4"])]
    assert await shelf.sources("b.md") == named, "whoever names a file has words in it"


async def test_a_new_line_may_have_the_words_of_others_too(shelf: Shelf) -> None:
    asked: list[str] = []

    def also(line: str) -> list[Written]:
        asked.append(line)
        return [by("R0")] if line == "two" else []

    await shelf.write("a.md", "one")
    await shelf.store.change(CHAT, "a.md", put("one\ntwo\nthree"), by("R2"), also)
    assert asked == ["two", "three"]
    assert await shelf.sources("a.md") == [("one", ["R1"]), ("two", ["R0", "R2"]), ("three", ["R2"])]
    assert await shelf.store.forget(CHAT, {"R0"}) == 1
    assert await shelf.text("a.md") == "one\nthree"


async def test_of_a_file_that_was_changed_by_hand_nobody_says_where_it_comes_from(shelf: Shelf) -> None:
    await shelf.write("a.md", "one")
    (file,) = shelf.root.rglob("*.md")
    file.write_text("two\nthree", encoding="utf-8")
    assert await shelf.sources("a.md") == [("two", []), ("three", [])]
    file.with_suffix(".lines").write_text("[broken", encoding="utf-8")
    assert await shelf.sources("a.md") == [("two", []), ("three", [])]


async def test_one_who_is_cancelled_ends_once_the_disk_has_taken_it(tmp_path: Path) -> None:
    shelf, writing, go_on = Shelf(tmp_path), threading.Event(), threading.Event()

    def held(kind: str, _: str) -> None:
        if kind == "replace":
            writing.set()
            assert go_on.wait(90)

    shelf.store = NoteStore(shelf.root, disk=FaultyDisk(SystemDisk(), seen=held))
    noting = asyncio.create_task(shelf.write("a.md", "鯨"))
    await asyncio.to_thread(writing.wait, 90)
    noting.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    ended = noting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await noting
    assert (ended, await shelf.text("a.md")) == (False, "鯨"), "what is done next stands behind it"


async def test_the_lines_of_a_turn_are_forgotten(shelf: Shelf) -> None:
    await shelf.write("a.md", "one", "R1")
    await shelf.write("a.md", "one\ntwo", "R2")
    await shelf.write("b.md", "two again", "R2")
    assert await shelf.store.forget(CHAT, ["R2", "R9"]) == 2
    assert await shelf.sources("a.md") == [("one", ["R1"])]
    assert await shelf.text("b.md") is None
    assert await shelf.store.forget(CHAT, ["R2"]) == 0


async def test_folders_are_moved_and_removed_whole(shelf: Shelf) -> None:
    for path in ("n/a.md", "n/b.md", "na.md"):
        await shelf.write(path, path)
    assert await shelf.store.move(CHAT, "n", "m/old", by("R1")) == 2
    assert list(await shelf.store.sizes(CHAT)) == ["m/old/a.md", "m/old/b.md", "na.md"]
    for taken in ("na.md", "NA.md", "na.md/x", "m"):
        with pytest.raises(errors.ToolError, match="already"):
            await shelf.store.move(CHAT, "m/old/a.md", taken, by("R1"))
    assert await shelf.store.drop(CHAT, "m", session=False) == 2
    assert (
        await shelf.store.drop(CHAT, "m", session=False)
        == await shelf.store.move(CHAT, "m", "n", by("R1"))
        == 0
    )
    assert await shelf.text("na.md") == "na.md"


async def test_the_memory_of_the_conversation_can_only_be_read(shelf: Shelf) -> None:
    folder = shelf.root / "slack%3Achat%3AC1"
    folder.mkdir(parents=True)
    (folder / "session.md").write_text("## Facts\n- x", encoding="utf-8")
    assert await shelf.text("session.md") == "## Facts\n- x"
    await shelf.write("a.md", "x")
    for path in ("session.md", "Session.MD", "session.md/a"):
        with pytest.raises(errors.ToolError, match="only be viewed"):
            await shelf.write(path, "no")
        with pytest.raises(errors.ToolError, match="only be viewed"):
            await shelf.store.move(CHAT, "a.md", path, by("R1"))
    with pytest.raises(errors.ToolError, match="only be viewed"):
        await shelf.store.drop(CHAT, "session.md", session=False)
    await shelf.write("session.md", "a person has none", owner=PERSON)


@pytest.mark.parametrize("at", [1, 2])
async def test_a_disk_that_refuses_changes_nothing_and_what_is_there_can_be_forgotten(
    shelf: Shelf, at: int
) -> None:
    await shelf.write("a.md", "old")
    for _ in range(2):
        shelf.disk.fail(Failure("replace", at=at))
        with pytest.raises(errors.StorageError):
            await shelf.write("a.md", "new", "R2")
    assert await shelf.sources("a.md") == [("old", ["R1"])]
    await shelf.write("a.md", "newer", "R3")
    assert await shelf.sources("a.md") == [("newer", ["R1", "R3"])]
    assert await shelf.store.forget(CHAT, {"R1"}) == 1


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=6))
def test_no_source_of_what_is_left_goes_missing(versions: list[list[str]]) -> None:
    """If a remaining line may repeat words of a version, this line or an equal one names the version as a source."""
    lines: list[str] = []
    sources: list[tuple[int, ...]] = []
    for number, version in enumerate(versions):
        gone = {one for line, by in zip(lines, sources, strict=True) if line not in version for one in by}
        fresh = [line for line in version if line not in lines]
        sources = carried(list(zip(lines, sources, strict=True)), version, [number])
        lines = version
        assert len(sources) == len(lines)
        assert all(by for by in sources)
        for line, by in zip(lines, sources, strict=True):
            assert line not in fresh or (gone | {number}) <= set(by)
