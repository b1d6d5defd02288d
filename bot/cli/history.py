"""`shipmate chats`, `shipmate history` and `shipmate index`: the archive and its search index, read without a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    StderrLog,
    complain,
    counted,
    events,
    hint_of_folder,
    milliseconds,
    now,
    say,
    say_json,
    when,
)
from bot.invocation import command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from bot.contracts.archive import ArchiveLine
    from bot.contracts.base import Json
    from bot.contracts.identity import ChatKey
    from bot.core.archive.store import ChatStore
    from bot.features.search.service import Search

T = TypeVar("T")


def chats(root: Dir = Here, as_json: AsJson = False) -> None:
    """The conversations in the archive, the one last spoken in first."""
    hint_of_folder(root)
    found = asyncio.run(_ask(root, lambda archive: archive.chats())) or []
    names = people(root, [info.chat_key for info in found])
    for info in found:
        name = names.get(info.chat_key, "")
        if as_json:
            named = {"people": name.split(", ")} if name else {}
            say_json({"chatKey": info.chat_key, "lines": info.lines, "lastTs": info.last_ts} | named)
        else:
            last = "????-??-?? ??:??:??" if info.last_ts is None else when(info.last_ts)
            say(f"{last}  {info.lines:>7,}  {info.chat_key}" + (f"  {name}" if name else ""))
    if not found and not as_json:
        say("No conversation yet.")


def history(
    chat_key: Annotated[str, typer.Argument(metavar="CHATKEY", help="As `shipmate chats` shows it.")],
    root: Dir = Here,
    search: Annotated[
        str | None, typer.Option(metavar="Q", help="What to look for, in words; the best matches first.")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="T", help="Only lines older than this.")] = None,
    after: Annotated[str | None, typer.Option(metavar="T", help="Only lines from this time on.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000_000, help="The newest N, or the N best.")
    ] = 30,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="What the model was told, one JSON object a line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one conversation, oldest first. With --search the best matches, best first, then what was only said beside them."""
    key = _chat_key(chat_key, root)
    if transcript:
        for told in asyncio.run(_transcript(root, key)):
            say_json(told)
        return
    window = {"limit": limit, "before": milliseconds(before), "after": milliseconds(after)}
    found = asyncio.run(_found(root, key, search, window))
    if as_json:
        for line, score in found:
            scored = {} if score is None else {"score": round(score, 4)}
            say_json(line.model_dump(by_alias=True, exclude_none=True) | scored)
    elif search is None:
        for line, _ in found:
            _show(line)
    else:
        _show_matches(search, [line for line, _ in found])
    if not found:
        complain(f"Nothing found in {chat_key}.")


async def _transcript(root: Path, key: ChatKey) -> list[Json]:
    """The lines of the transcript. Raises `errors.NotFound`."""
    from bot.core.transcript import lines

    async with events(root) as log:
        found = [] if log is None else list(lines(key, await log.read(key)))
    if not found:
        raise errors.NotFound(f"the model was told nothing in {key}")
    return found


def _chat_key(words: str, root: Path) -> ChatKey:
    """The conversation that a person names. Raises `typer.BadParameter`."""
    from bot.contracts.identity import ChatKey

    try:
        return ChatKey.parse(words)
    except errors.IdentityInvalid:
        raise typer.BadParameter(
            f"{words!r} names no conversation; `{command('chats', root)}` shows those that are kept",
            param_hint="CHATKEY",
        ) from None


def _show_matches(search: str, lines: Sequence[ArchiveLine]) -> None:
    """Show the lines that have a word of a search, then those that stand for their place beside such lines."""
    from bot.features.search import analysis
    from bot.features.search.finder import parse_query

    _, terms = parse_query(search, int(now() * 1000))
    wanted = {term.token for term in terms}
    beside = [line for line in lines if wanted and wanted.isdisjoint(analysis.tokens(line.text))]
    for line in lines:
        if line not in beside:
            _show(line)
    if beside:
        say(
            "Said beside these:" if len(beside) < len(lines) else "None has a word of it; these come nearest:"
        )
    for line in beside:
        _show(line)


def _show(line: ArchiveLine) -> None:
    who = "bot" if line.role == "assistant" else line.user_id or line.role
    first, *rest = line.text.splitlines() or [""]
    say(f"{when(line.ts)}  {who}: {first}")
    for more in rest:
        say(f"    {more}")


def people(root: Path, chat_keys: Iterable[str]) -> dict[str, str]:
    """The names of those who spoke last in each chat, as its newest lines have them."""
    from bot.core.archive.store import people_of

    return asyncio.run(_ask(root, lambda archive: people_of(archive, chat_keys))) or {}


def persons(root: Path, chats: Mapping[str, str]) -> dict[str, str]:
    """The names of people, as the newest lines of a chat of each have them."""
    from bot.core.archive.store import names_of

    return asyncio.run(_ask(root, lambda archive: names_of(archive, chats))) or {}


async def _ask(root: Path, ask: Callable[[ChatStore], Awaitable[T]]) -> T | None:
    """The answer of the archive; None where there is none yet."""
    from bot.core.archive.store import ChatStore
    from bot.system import SystemDisk

    folder = root / HOME / "chats"
    if not await asyncio.to_thread(folder.is_dir):
        return None
    return await ask(ChatStore(folder, disk=SystemDisk(), log=StderrLog()))


async def _search(root: Path, ask: Callable[[Search], Awaitable[T]]) -> T | None:
    """The answer of the search, whose index is brought up to date, beside a gateway too; None where there is no log yet."""
    from bot.features.search.index import FILE
    from bot.features.search.service import Search
    from bot.system import SystemClock

    async with events(root) as event_log:
        if event_log is None:
            return None
        search = Search(root / HOME / FILE, event_log, clock=SystemClock(), log=StderrLog(), wait=None)
        search.exporter.start()
        try:
            return await ask(search)
        finally:
            await search.exporter.close()


async def _found(
    root: Path, chat_key: ChatKey, search: str | None, window: dict[str, Any]
) -> list[tuple[ArchiveLine, float | None]]:
    """Lines with their scores, which only a search gives."""
    from bot.contracts.archive import HistoryQuery
    from bot.tools.ports import RecallQuery

    if search is None:
        page = await _ask(root, lambda archive: archive.search(chat_key, HistoryQuery(**window)))
        return [] if page is None else [(line, None) for line in page.lines]
    query = RecallQuery((search,), int(now() * 1000), **window)
    found = await _search(root, lambda index: index.recall([chat_key], query))
    return [] if found is None else [(hit.line, hit.score) for hit in found.hits]


index_app = typer.Typer(
    name="index", help="The search index over the archive.", no_args_is_help=True, rich_markup_mode=None
)


@index_app.callback()
def _index() -> None:
    """The search index over the archive."""


@index_app.command()
def rebuild(root: Dir = Here) -> None:
    """Make the search index anew from the log. Works beside a running gateway."""
    from bot.system import SystemClock

    began = SystemClock().monotonic()
    counts = asyncio.run(_search(root, lambda search: search.rebuild()))
    if counts is None:
        say("No conversation yet.")
        return
    chats, lines = counts
    took = SystemClock().monotonic() - began
    say(f"{counted(lines, 'line')} of {counted(chats, 'conversation')}, {took:.1f} s")
