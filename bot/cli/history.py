"""The commands that show conversations and their usage: `chats`, `history`, `index` and `stats`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    AsJson,
    Chat,
    Dir,
    Here,
    Since,
    StderrLog,
    complain,
    cost_of,
    counted,
    moment,
    say,
    say_json,
    say_rows,
    when,
)
from bot.cli.project import archive, database, event_log, hint_of_folder
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryQuery
from bot.core import chat as life
from bot.core import events
from bot.core.archive_files import people_of
from bot.core.events import Event
from bot.core.usage import By, UsageSums, names_of_groups
from bot.invocation import command
from bot.system import SystemClock
from bot.telemetry.usage import UsageTotals
from bot.tools.context import RecallQuery

if TYPE_CHECKING:
    from bot.features.search import Search

SHOWN = 10
"""Max chats that a list shows."""
Key = Annotated[str, typer.Argument(metavar="CHATKEY", help="A conversation, as `shipmate chats` shows it.")]
Words = Annotated[str | None, typer.Option(metavar="Q", help="Search for these words; best matches first.")]
Before = Annotated[str | None, typer.Option(metavar="T", help="Only lines before this time.")]
After = Annotated[str | None, typer.Option(metavar="T", help="Only lines at or after this time.")]
MAX_LINES = "Max lines: the newest, or the best matches."
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help=MAX_LINES)]
JSON_LINES = "Print the model's transcript, one JSON object per line."
Transcript = Annotated[bool, typer.Option("--transcript", help=JSON_LINES)]
Group = Annotated[By | None, typer.Option(metavar="BY", help="One row per day (UTC), person, chat or model.")]

index_app = typer.Typer(
    name="index", help="Maintain the search index.", no_args_is_help=True, rich_markup_mode=None
)


def chats(root: Dir = Here, as_json: AsJson = False) -> None:
    hint_of_folder(root)
    store = archive(root)
    found = asyncio.run(store.chats())
    names = asyncio.run(people_of(store, [one.chat_key for one in found]))
    rows = []
    for one in found:
        name, last = names.get(one.chat_key, ""), "-" if one.last_ts is None else when(one.last_ts)
        people = {"people": name.split(", ")} if name else {}
        facts = {"chatKey": one.chat_key, "lines": one.lines, "lastTs": one.last_ts} | people
        rows.append((facts, f"{last:<19}  {one.lines:>7,}  {one.chat_key}  {name}".rstrip()))
    say_rows(rows, "No conversation yet.", as_json=as_json)


def history(
    chat_key: Key,
    root: Dir = Here,
    search: Words = None,
    before: Before = None,
    after: After = None,
    limit: Limit = 30,
    transcript: Transcript = False,
    as_json: AsJson = False,
) -> None:
    try:
        key = ChatKey.parse(chat_key)
    except errors.IdentityInvalid:
        raise typer.BadParameter(
            f"{chat_key!r} names no conversation; `{command('chats', root)}` lists them", param_hint="CHATKEY"
        ) from None
    if transcript:
        for entry in asyncio.run(_transcript(root, key)):
            say_json(entry)
        return
    window: dict[str, Any] = {"limit": limit}
    for name, value in (("before", before), ("after", after)):
        window[name] = None if value is None else int(moment(value).timestamp() * 1000)
    if search is None:
        lines = asyncio.run(archive(root).search(key, HistoryQuery(**window))).lines
        found = [(line, dict[str, float]()) for line in lines]
    else:
        query = RecallQuery((search,), int(SystemClock().now() * 1000), **window)
        found = asyncio.run(_search(root, key, query))
    for line, score in found:
        if as_json:
            say_json(line.model_dump(by_alias=True, exclude_none=True) | score)
        else:
            who = "bot" if line.role == "assistant" else line.user_id or line.role
            words = "\n    ".join(line.text.splitlines())
            say(f"{when(line.ts)}  {who}: {words}")
    if not found:
        complain(f"Nothing found in {chat_key}.")


async def _transcript(root: Path, key: ChatKey) -> list[Json]:
    async with event_log(root) as log:
        found = [] if log is None else list(transcript_lines(key, await log.read(key)))
    if not found:
        raise errors.NotFound(f"the model has received nothing in {key}")
    return found


async def _search(root: Path, key: ChatKey, query: RecallQuery) -> list[tuple[ArchiveLine, dict[str, float]]]:
    async with _opened_search(root) as search:
        hits = [] if search is None else (await search.recall([key], query)).hits
        return [(hit.line, {"score": round(hit.score, 4)}) for hit in hits]


@asynccontextmanager
async def _opened_search(root: Path) -> AsyncIterator[Search | None]:
    """Update the search index and yield the search; yield None if there is no log. The gateway may be running."""
    from bot.features.search import Search
    from bot.features.search.index import FILE  # imports half of the gateway

    async with event_log(root) as log:
        if log is None:
            yield None
            return
        search = Search(root / HOME / FILE, log, clock=SystemClock(), log=StderrLog(), wait=None)
        search.exporter.start()
        try:
            yield search
        finally:
            await search.exporter.close()


@index_app.callback()
def _index() -> None:
    """Maintain the search index."""


@index_app.command()
def rebuild(root: Dir = Here) -> None:
    """Rebuild the search index from the log. Works while the gateway runs."""

    async def rebuilt() -> str:
        began = SystemClock().monotonic()
        async with _opened_search(root) as search:
            if search is None:
                return "No conversation yet."
            chats, lines = await search.rebuild()
        took = SystemClock().monotonic() - began
        return f"{counted(lines, 'line')} of {counted(chats, 'conversation')}, {took:.1f} s"

    say(asyncio.run(rebuilt()))


def stats(
    root: Dir = Here, chat: Chat = None, since: Since = None, by: Group = None, as_json: AsJson = False
) -> None:
    hint_of_folder(root)
    sums = UsageSums(root / HOME, database(root))
    start = 0.0 if since is None else moment(since).timestamp()
    if by is not None:
        _show_groups(root, by, sums, sums.by(by, chat=chat, since=start), as_json=as_json)
        return
    total = sums.total(chat=chat, since=start)
    if as_json:
        facts = {"chat": chat, **_facts(total), "errors": dict(total.errors), "models": dict(total.models)}
        facts["waitedMs"] = {"p50": total.wait(0.5), "p99": total.wait(0.99)}
        facts["modelShare"] = None if total.model_share is None else round(total.model_share, 4)
        say_json(facts | {"ratings": dict(total.ratings)})
    else:
        _show_totals(total)


def _show_groups(
    root: Path, by: By, sums: UsageSums, parts: list[tuple[str, UsageTotals]], *, as_json: bool
) -> None:
    if as_json:
        for name, part in parts:
            say_json({by: name} | _facts(part))
        return
    shown = [name for name, _ in parts[:SHOWN]]
    names = asyncio.run(names_of_groups(archive(root), sums, by, shown))
    width = max([len(by), *(len(name) for name, _ in parts)])
    say(f"{by:<{width}} {'turns':>7} {'answers':>8} {'read':>13} {'cache':>5} {'written':>11}  cost")
    for name, part in parts:
        who = f"  {names[name]}" if name in names else ""
        share = "" if part.cached is None else f"{part.cached:.0%}"
        say(
            f"{name or '-':<{width}} {part.turns:>7,} {part.calls:>8,} {part.prompt:>13,} {share:>5} "
            f"{part.tokens['outputTokens']:>11,}  {cost_of(part)}{who}"
        )


def _facts(sums: UsageTotals) -> dict[str, Any]:
    return {
        "turns": sums.turns,
        "failedTurns": sums.failed,
        "calls": sums.calls,
        **sums.tokens,
        "cacheReadShare": None if sums.cached is None else round(sums.cached, 4),
        "costUsd": round(sums.cost, 6),
        "unpricedCalls": sums.unpriced,
    }


def _show_totals(sums: UsageTotals) -> None:
    failures, models = (
        ", ".join(f"{name} {count}" for name, count in counts.most_common())
        for counts in (sums.errors, sums.models)
    )
    cached = "none" if sums.cached is None else f"{sums.cached:.0%}"
    good, bad, none = (sums.ratings[name] for name in ("good", "bad", "none"))
    say(f"turns    {sums.turns}" + (f", {sums.failed} of them failed" if sums.failed else ""))
    answers = counted(sums.calls, "answer") + (f" ({models})" if models else "")
    say(f"model    {answers}" + (f"; failures: {failures}" if failures else ""))
    say(
        f"tokens   {sums.prompt:,} read, {cached} of them from the cache; {sums.tokens['outputTokens']:,} written"
    )
    if sums.ratings:
        say(f"ratings  👍 {good}, 👎 {bad}, taken back {none}")
    say(f"cost     {cost_of(sums)}")
    if sums.waits:
        share = f"; {sums.model_share:.0%} of it is the model" if sums.model_share is not None else ""
        say(f"answers  in {sums.wait(0.5):,} ms (p50), {sums.wait(0.99):,} ms (p99){share}")


# ------------------------------------------------------------ transcripts

VERSION = 4  # Version of the transcript's lines
_FACTS: Mapping[type[events.EventData], tuple[str, Mapping[str, str]]] = {
    events.Told: ("", {"sources": "sources"}),
    events.Answered: (
        "",
        {
            "stopReason": "stop_reason",
            "model": "model",
            "cut": "cut",
            "usage": "usage",
            "costUsd": "cost_usd",
        },
    ),
    events.TurnStarted: ("turn_start", {}),
    events.TurnEnded: ("turn_end", {"status": "end", "reason": "reason"}),
    events.Injected: ("injection", {"messages": "messages", "ts": "times", "kept": "kept"}),
    events.Masked: ("mask", {"reason": "reason", "results": "results"}),
    events.Cut: ("boundary", {"reason": "reason", "dropped": "dropped", "head": "head"}),
    events.SessionMoved: ("boundary", {"turns": "turns", "head": "head"}),
    events.Expired: ("boundary", {}),
    events.Removed: ("boundary", {"related": "related"}),
}
"""For each class of event: the type of the event's transcript line ("" if only the line of the message shows the
event), and the line's attributes by field name."""


def transcript_lines(key: ChatKey, log: Iterable[Event]) -> Iterator[Json]:
    """Yield one line for each API message and each change of the model's context. `log` must have all events of the chat."""
    chat, parent, session = life.Chat(key), None, ""
    context = chat.context
    context.left = {}
    named = dict[int, str]()
    for event in log:
        chat.apply(event)
        data, named[event.seq] = event.data, event.id
        if isinstance(data, events.SessionMoved):
            session = data.session
        elif not session or (isinstance(data, events.Cut) and data.reason == "new"):
            session = event.id
        said, fields = _FACTS.get(type(data), ("", {}))
        facts: Json = {name: getattr(data, field) for name, field in fields.items()}
        match data:
            case events.Cut(dropped=tuple() as dropped):
                facts["dropped"] = [named.get(seq, "") for seq in dropped]
            case events.SessionMoved():
                facts["reason"] = "fork" if data.forked_at else "resume"
            case events.Expired() | events.Removed():
                facts["reason"] = "retention" if isinstance(data, events.Expired) else "removal"
        turn = context.running if context.running is not None else next(reversed(context.turns), None)
        added = turn.entries[-1:] if turn is not None and turn.id == event.turn else ()
        found: list[tuple[str, Json | None, Json]] = [
            (one.message["role"], one.message, {} if said else facts) for one in added if one.seq == event.seq
        ]
        found += [(said, None, facts)] if said else []
        for number, (kind, message, about) in enumerate(found):
            name = event.id if not number else f"{event.id}-{number}"
            line: dict[str, Any] = {
                "v": VERSION,
                "uuid": name,
                "parentUuid": None if kind == "boundary" else parent,
                "type": kind,
                "ts": int(event.at * 1000),
                "chatKey": str(key),
                "sessionId": session,
                "requestId": event.turn,
                "message": message,
                "data": {field: value for field, value in about.items() if value not in (None, "", ())},
            }
            yield {field: value for field, value in line.items() if value or field == "parentUuid"}
            parent = name
