"""`shipmate memory` reads, edits and deletes the memory of chats and people. The gateway may be running."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from bot import errors
from bot.cli.common import HOME, AsJson, Dir, Here, Yes, counted, must_confirm, say, say_json, text_of, when
from bot.cli.project import changing
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.core.memory import MemoryInvalid
from bot.core.memory import read as parse_memory
from bot.storage.notes import SESSION, MemoryFile, MemoryOwner, NoteStore, Written
from bot.system import SystemClock, SystemDisk

app = typer.Typer(
    name="memory",
    help="Read, edit and delete what is remembered.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Owner = Annotated[
    str, typer.Argument(metavar="OWNER", help="A chat or a person, as `shipmate memory list` shows it.")
]
File = Annotated[
    str, typer.Argument(metavar="FILE", help=f"A file of the owner; {SESSION} is a chat's summary.")
]
Some = Annotated[str | None, typer.Argument(metavar="[FILE]", help="Only this file or folder.")]


@app.command("list")
def list_files(root: Dir = Here, as_json: AsJson = False) -> None:
    """List the chats and people that have a memory."""
    asyncio.run(_list(_store(root), as_json=as_json))


async def _list(store: NoteStore, *, as_json: bool) -> None:
    owners = [MemoryOwner("chat", key) for key in await store.chats()]
    owners += [MemoryOwner("person", key) for key in await store.people()]
    for owner in owners:
        for path, size in (await store.sizes(owner)).items():
            if as_json:
                say_json({"owner": owner.key, "kind": owner.kind, "path": path, "bytes": size})
            else:
                say(f"{owner.kind:<6}  {size:>7,}  {owner.key}  {path}")
    if not owners and not as_json:
        say("Nothing is remembered yet.")


@app.command()
def show(owner: Owner, file: Some = None, root: Dir = Here, as_json: AsJson = False) -> None:
    """Show the lines of a memory, each with its time, person and turn."""
    whose, files = asyncio.run(_read(_store(root), owner, file))
    for found in files:
        if not as_json:
            say(f"== {found.path}")
        for number, (line, by) in enumerate(zip(found.text.split("\n"), found.written, strict=True), 1):
            if as_json:
                place = {"owner": whose.key, "kind": whose.kind, "path": found.path, "line": number}
                written = [
                    {
                        "ts": one.ts,
                        "requestId": one.request_id or None,
                        "chatKey": str(one.chat_key) if one.chat_key is not None else None,
                        "userId": one.user_id,
                    }
                    for one in by
                ]
                say_json(place | {"text": line, "written": written})
            else:
                say(f"{_source(by):<60}  {line}".rstrip())


async def _read(store: NoteStore, name: str, path: str | None) -> tuple[MemoryOwner, list[MemoryFile]]:
    """Return an owner and the owner's memory files. With `path`, return only that file or folder. Raises `errors.NotFound`."""
    owner = await _owner(store, name)
    wanted = [one for one in await store.sizes(owner) if path in {None, one} or one.startswith(f"{path}/")]
    files = [file for one in wanted if (file := await store.read(owner, one)) is not None]
    if not files:
        raise _nothing(name, path)
    return owner, files


@app.command()
def edit(
    owner: Owner,
    file: File,
    root: Dir = Here,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="TEXT", help="Read the new text from a file, or - for stdin."),
    ] = None,
) -> None:
    """Edit a file in your editor, or replace its text."""
    whose, files = asyncio.run(_read(_store(root), owner, None))
    before = next((one.text for one in files if one.path == file), "")
    if source is None:
        words = click.edit(before, extension=".md")
    else:
        words = sys.stdin.read() if source == "-" else text_of(Path(source))
    if words is None or words == before:
        say("Nothing was changed.")
        return
    if whose.kind == "chat" and file == SESSION:
        try:
            parse_memory(words)
        except MemoryInvalid as error:
            raise typer.BadParameter(f"{SESSION} is not valid: it is {error}") from None
    chat_key = None
    with contextlib.suppress(
        errors.IdentityInvalid
    ):  # an owner without a known chatKey is named by its folder
        chat_key = ChatKey.parse(whose.key) if whose.kind == "chat" else None
    by = Written(int(SystemClock().now() * 1000), "", chat_key, "operator")
    with changing(root) as disk:
        asyncio.run(_store(root, disk).change(whose, file, lambda _: words, by))
    say(f"{file} of {whose.key} is written.")


@app.command()
def forget(owner: Owner, file: Some = None, root: Dir = Here, yes: Yes = False) -> None:
    """Delete the memory of an owner, or one file of it. This cannot be undone."""
    must_confirm(f"forget {file or 'everything'} of {owner}", yes=yes)
    with changing(root) as disk:
        store = _store(root, disk)
        count = asyncio.run(store.drop(asyncio.run(_owner(store, owner)), file))
        if not count:
            raise _nothing(owner, file)
    say(f"Forgotten: {counted(count, 'file')} of {owner}.")


def _store(root: Path, disk: Disk | None = None) -> NoteStore:
    return NoteStore(root / HOME / "memory", disk=disk or SystemDisk())


async def _owner(store: NoteStore, name: str) -> MemoryOwner:
    person = MemoryOwner("person", name)
    return person if ":" in name and await store.sizes(person) else MemoryOwner("chat", name)


def _nothing(name: str, path: str | None) -> errors.NotFound:
    return errors.NotFound(f"nothing is remembered of {name!r}{f' in {path!r}' if path else ''}")


def _source(by: tuple[Written, ...]) -> str:
    """Return a text that names the newest source of a memory line, and gives the number of the line's older sources."""
    if not by:
        return "(unknown)"
    last, more = by[-1], f" +{len(by) - 1}" if len(by) > 1 else ""
    return f"{when(last.ts)}  {last.user_id or '-'}  {last.request_id or '-'}{more}"
