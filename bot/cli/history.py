"""`shipmate chats` and `shipmate history`: the archive, read without a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, complain, milliseconds, say, say_json, when

if TYPE_CHECKING:
    from bot.contracts import ArchiveLine, HistoryPage, Level
    from bot.history.archive import ChatInfo, ChatStore


class _Complaints:
    """`contracts.Log` for a command: what an operator should know goes to stderr."""

    def write(self, kind: str, message: str, *, level: Level = "info", **details: Any) -> None:
        del kind, details
        if level in {"warn", "error"}:
            complain(f"shipmate: {message}")


def chats(root: Dir = Here, as_json: AsJson = False) -> None:
    """The conversations in the archive, the one last spoken in first."""
    found = asyncio.run(_chats(root))
    for info in found:
        if as_json:
            say_json({"chatKey": info.chat_key, "lines": info.lines, "lastTs": info.last_ts})
        else:
            last = "????-??-?? ??:??:??" if info.last_ts is None else when(info.last_ts)
            say(f"{last}  {info.lines:>7,}  {info.chat_key}")
    if not found and not as_json:
        say("No conversation yet.")


def history(
    chat_key: Annotated[str, typer.Argument(metavar="CHATKEY", help="As `shipmate chats` shows it.")],
    root: Dir = Here,
    search: Annotated[str | None, typer.Option(metavar="Q", help="Only lines that hold this text.")] = None,
    before: Annotated[str | None, typer.Option(metavar="T", help="Only lines older than this.")] = None,
    after: Annotated[str | None, typer.Option(metavar="T", help="Only lines from this time on.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="The newest N.")] = 30,
    as_json: AsJson = False,
) -> None:
    """What was said in one conversation, oldest first."""
    window = {"limit": limit, "keyword": search, "before": milliseconds(before), "after": milliseconds(after)}
    page = asyncio.run(_page(root, chat_key, window))
    for line in page.lines:
        if as_json:
            say_json(line.model_dump(by_alias=True, exclude_none=True))
        else:
            _show(line)
    if not page.lines:
        complain(f"Nothing found in {chat_key}.")


def _show(line: ArchiveLine) -> None:
    who = "bot" if line.role == "assistant" else line.user_id or line.role
    first, *rest = line.text.splitlines() or [""]
    say(f"{when(line.ts)}  {who}: {first}")
    for more in rest:
        say(f"    {more}")


def _store(root: Path) -> ChatStore:
    from bot import system
    from bot.history.archive import ChatStore

    return ChatStore(root / HOME / "chats", disk=system.SystemDisk(), log=_Complaints())


async def _chats(root: Path) -> list[ChatInfo]:
    if not (root / HOME / "chats").is_dir():
        return []
    store = _store(root)
    try:
        return await store.chats()
    finally:
        await store.close()


async def _page(root: Path, chat_key: str, window: dict[str, Any]) -> HistoryPage:
    from bot.contracts import HistoryPage, HistoryQuery

    if not await asyncio.to_thread((root / HOME / "chats").is_dir):
        return HistoryPage([], 0)
    store = _store(root)
    try:
        return await store.search(chat_key, HistoryQuery(**window))
    finally:
        await store.close()
