"""`shipmate memory`: what is remembered of chats and people, read, edited and forgotten, with or without a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    Yes,
    changing,
    must_confirm,
    now,
    say,
    say_json,
    text_of,
    when,
)

if TYPE_CHECKING:
    from bot.contracts.environment import Disk
    from bot.storage.note_origins import Written
    from bot.storage.notes import MemoryFile, MemoryOwner, NoteStore

app = typer.Typer(
    name="memory", help="What is remembered: read, edit, forget.", no_args_is_help=True, rich_markup_mode=None
)

Owner = Annotated[
    str, typer.Argument(metavar="OWNER", help="A chat or a person, as `shipmate memory list` shows it.")
]
File = Annotated[
    str, typer.Argument(metavar="FILE", help="A file of it; session.md is the memory of a chat.")
]
Some = Annotated[str | None, typer.Argument(metavar="[FILE]", help="Only this file or folder.")]


@app.command("list")
def list_files(root: Dir = Here, as_json: AsJson = False) -> None:
    """Every chat and every person of whom something is remembered."""
    found = asyncio.run(_listed(root))
    for owner, path, size in found:
        if as_json:
            say_json({"owner": owner.key, "kind": owner.kind, "path": path, "bytes": size})
        else:
            say(f"{owner.kind:<6}  {size:>7,}  {owner.key}  {path}")
    if not found and not as_json:
        say("Nothing is remembered yet.")


@app.command()
def show(owner: Owner, file: Some = None, root: Dir = Here, as_json: AsJson = False) -> None:
    """The lines of what is remembered, each with when it was written, for whom, and in which turn."""
    for one, found in asyncio.run(_read(root, owner, file)):
        if not as_json:
            say(f"== {found.path}")
        for number, (line, by) in enumerate(zip(found.text.split("\n"), found.written, strict=True), 1):
            if as_json:
                place = {"owner": one.key, "kind": one.kind, "path": found.path, "line": number, "text": line}
                say_json(place | {"written": [_as_json(written) for written in by]})
            else:
                say(f"{_source(by):<60}  {line}".rstrip())


@app.command()
def edit(
    owner: Owner,
    file: File,
    root: Dir = Here,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="TEXT", help="Take the text from a file, or from - (input)."),
    ] = None,
) -> None:
    """Change a file in your editor, or put another text in its place."""
    one, before = asyncio.run(_one(root, owner, file))
    if source is None:
        import click

        words = click.edit(before, extension=".md")
    else:
        words = sys.stdin.read() if source == "-" else text_of(Path(source))
    if words is None or words == before:
        say("Nothing was changed.")
        return
    _must_be_memory(one, file, words)
    asyncio.run(_put(root, one, file, words))
    say(f"{file} of {one.key} is written.")


@app.command()
def forget(owner: Owner, file: Some = None, root: Dir = Here, yes: Yes = False) -> None:
    """Remove what is remembered, or one file of it. There is no way back."""
    must_confirm(f"forget {file or 'everything'} of {owner}", yes=yes)
    count = asyncio.run(_forget(root, owner, file))
    say(f"Forgotten: {count} file{'' if count == 1 else 's'} of {owner}.")


def _store(root: Path, disk: Disk | None = None) -> NoteStore:
    from bot import system
    from bot.core.archive import rotation
    from bot.storage.notes import NoteStore

    disk = disk or system.SystemDisk()
    archive = rotation.ArchiveFiles(root / HOME / "chats", disk)

    def key(name: str) -> str | None:
        return rotation.chat_key(disk, name, [archive.archive(name, 1), archive.main(name)])

    return NoteStore(root / HOME / "memory", disk=disk, keys=key)


async def _owner(store: NoteStore, name: str) -> MemoryOwner:
    from bot.storage.notes import MemoryOwner

    person = MemoryOwner("person", name)
    return person if ":" in name and await store.sizes(person) else MemoryOwner("chat", name)


async def _listed(root: Path) -> list[tuple[MemoryOwner, str, int]]:
    from bot.storage.notes import MemoryOwner

    store = _store(root)
    if not await asyncio.to_thread((root / HOME / "memory").is_dir):
        return []
    owners = [MemoryOwner("chat", key) for key in await store.chats()]
    owners += [MemoryOwner("person", key) for key in await store.people()]
    return [(owner, *item) for owner in owners for item in (await store.sizes(owner)).items()]


async def _read(root: Path, name: str, path: str | None) -> list[tuple[MemoryOwner, MemoryFile]]:
    store = _store(root)
    owner = await _owner(store, name)
    paths = [
        one for one in await store.sizes(owner) if path is None or one == path or one.startswith(f"{path}/")
    ]
    files = [await store.read(owner, one) for one in paths]
    if not files:
        raise _nothing(name, path)
    return [(owner, file) for file in files if file is not None]


async def _one(root: Path, name: str, path: str) -> tuple[MemoryOwner, str]:
    store = _store(root)
    owner = await _owner(store, name)
    if not await store.sizes(owner):
        raise _nothing(name)
    file = await store.read(owner, path)
    return owner, file.text if file is not None else ""


async def _put(root: Path, owner: MemoryOwner, path: str, words: str) -> None:
    from bot.contracts.identity import ChatKey
    from bot.storage.note_origins import Written

    chat_key = None
    if owner.kind == "chat":
        with contextlib.suppress(
            errors.IdentityInvalid
        ):  # the name of a folder, where nothing tells its chatKey
            chat_key = ChatKey.parse(owner.key)
    by = Written(int(now() * 1000), "", chat_key, "operator")
    with changing(root) as disk:
        await _store(root, disk).put(owner, path, words, by)


async def _forget(root: Path, name: str, path: str | None) -> int:
    with changing(root) as disk:
        store = _store(root, disk)
        count = await store.drop(await _owner(store, name), path)
    if not count:
        raise _nothing(name, path)
    return count


def _nothing(name: str, path: str | None = None) -> errors.NotFound:
    return errors.NotFound(f"nothing is remembered of {name!r}{f' in {path!r}' if path else ''}")


def _must_be_memory(owner: MemoryOwner, path: str, words: str) -> None:
    """The memory of a conversation is read by a machine too: without its sections it would count for nothing."""
    from bot.core.memory import MemoryInvalid, read
    from bot.storage.notes import SESSION

    if owner.kind != "chat" or path != SESSION:
        return
    try:
        read(words)
    except MemoryInvalid as error:
        raise typer.BadParameter(f"{SESSION} cannot be read so: it is {error}") from None


def _as_json(written: Written) -> dict[str, Any]:
    return {
        "ts": written.ts,
        "requestId": written.request_id or None,
        "chatKey": str(written.chat_key) if written.chat_key is not None else None,
        "userId": written.user_id,
    }


def _source(by: tuple[Written, ...]) -> str:
    """The newest source of a line, and the number of others."""
    if not by:
        return "(unknown)"
    last = by[-1]
    more = f" +{len(by) - 1}" if len(by) > 1 else ""
    return f"{when(last.ts)}  {last.user_id or '-'}  {last.request_id or '-'}{more}"
