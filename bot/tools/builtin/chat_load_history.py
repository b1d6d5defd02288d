"""`chat_load_history`: inserts older messages of this chat, or of the person's other chats, before the current message."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import THREAD, ChatKey
from bot.contracts.messages import ArchiveLine, HistoryQuery
from bot.contracts.tools import READS, WRITES, ToolInput
from bot.tools import context
from bot.tools.builtin import ToolPorts, tool
from bot.tools.context import RecallQuery, ToolExecutionContext

BYTES = 75_000
"""Max bytes of messages that one ranked search loads, about as much as a turn accepts. The search leaves out the lowest-ranked
messages. Without this limit, the turn would leave out the oldest messages instead.
"""
FARTHEST = 5_000
"""Max offset in a search of several chats. Such a search has to keep all messages before the offset in memory."""
MOST_CHATS = 200
"""Max number of a person's other chats that one search covers. The most recently active chats are searched."""
MOST_ARTIFACTS = 5
"""Max number of artifacts listed for one turn. The newest artifacts are listed."""
Phrasing = Annotated[str, Field(max_length=4_000)]


class LoadHistoryInput(ToolInput):
    limit: int = Field(default=30, ge=1, le=200, description="How many messages at the most.")
    keyword: str | None = Field(
        default=None, min_length=1, max_length=200, description="Literal text the messages contain, any case."
    )
    # Models repeat calls from old conversations, which contain this argument. So the argument is accepted, but not declared.
    query: SkipJsonSchema[str | None] = Field(default=None, max_length=4_000)
    queries: list[Phrasing] = Field(
        default=[],
        max_length=4,
        description="What to look for, phrased 2 to 4 ways, ranked together: what is asked, and what people may have "
        'written then ("Ana: I went hiking"). Names and dates are understood.',
    )
    role: Literal["user", "assistant"] | None = Field(
        default=None, description="Whose messages: theirs or yours."
    )
    before: datetime | None = Field(default=None, description="ISO 8601, exclusive; UTC without a zone.")
    after: datetime | None = Field(default=None, description="As `before`, inclusive.")
    offset: int = Field(default=0, ge=0, description="Skip this many of the newest (or best) matches.")
    scope: Literal["chat", "mine"] = Field(
        default="chat", description="mine: the other chats of the person who asks too."
    )

    @property
    def phrasings(self) -> tuple[str, ...]:
        """Return the different wordings of the question; () if the model requests the newest messages."""
        return tuple(dict.fromkeys(filter(None, [self.query, *self.queries])))


@dataclass(frozen=True, slots=True)
class _FoundLines:
    """The result of a search. `hits` are the matching lines; `lines` are the matches and their neighbours in time order.
    `total` is the number of matches. If `counted` is False, `total` is only a lower bound.
    """

    lines: list[ArchiveLine]
    hits: list[ArchiveLine]
    total: int
    complete: bool = True
    counted: bool = True


@tool(
    "Load older messages that you no longer see: the newest, or the best matches of `queries` with what was said "
    "around them. Search before you say that you do not know, and again in other words; `keyword` is for text you "
    "know exactly.",
    # The inserted messages depend on the order of calls. WRITES prevents two calls from running concurrently.
    effects=READS | WRITES,
    timeout_seconds=60.0,
    ages=False,
)
async def chat_load_history(ports: ToolPorts, args: LoadHistoryInput) -> str:
    """Find messages in the archive and insert them into the turn."""
    turn = context.current()
    injection = turn.injection
    if injection is None or (room := min(args.limit, injection.room())) <= 0:
        raise errors.ToolError("This turn has loaded as much history as it may. Answer with what you have.")
    if args.scope == "mine":
        # Direct chats of the person are included only if the current chat is direct.
        recall, chats_of = ports.recall, ports.chats_of
        if recall is None or chats_of is None or turn.channel is None or turn.user_id is None:
            raise errors.ToolError('Only this chat can be searched here. Use scope "chat".')
        kept = [key for key in await recall.kept(turn.channel) if key != turn.chat_key]
        others = await chats_of(turn.channel, turn.user_id, kept, direct=turn.private)
    else:
        others = await _sibling_chats(ports, turn)
    chats = [turn.chat_key, *others.chats[:MOST_CHATS]]
    find = _ranked if args.phrasings else _newest
    filters = {
        "keyword": args.keyword,
        "role": args.role,
        "before": _milliseconds(args.before),
        "after": _milliseconds(args.after),
        "skip": injection.in_view,
    }
    found = await find(ports, args, chats, room, filters)
    if not found.lines:
        return _nothing(args, found) + _left_out(others)
    loaded = await injection.inject(await _marked(ports, found.lines, turn.chat_key))
    told = _receipt(args, loaded, found, turn)
    if any((line.meta or {}).get("artifacts") for line in loaded):
        told += " What stands under `artifacts` can be read with `read_artifact`."
    return told + _left_out(others)


async def _sibling_chats(ports: ToolPorts, turn: ToolExecutionContext) -> MembershipAnswer:
    """If the turn is in a thread of a direct chat, return that chat and its other threads. Otherwise return no chats."""
    chat = turn.chat_key.chat
    if not turn.private or turn.chat_key.kind != THREAD:
        return MembershipAnswer([])
    kept = await ports.recall.kept(chat.channel) if ports.recall is not None else []
    found = dict.fromkeys(one for one in (chat, *kept) if chat.shows(one) and one != turn.chat_key)
    return MembershipAnswer(list(found))


async def _ranked(
    ports: ToolPorts, args: LoadHistoryInput, chats: list[ChatKey], room: int, filters: Json
) -> _FoundLines:
    if ports.recall is None:
        raise errors.ToolError("There is no ranked search here. Use `keyword`.")
    now = int(ports.clock.now() * 1000)
    query = RecallQuery(args.phrasings, now, limit=room, offset=args.offset, **filters)
    recalled = await ports.recall.recall(chats, query)
    taken: dict[_Identity, ArchiveLine] = {}
    hits, taken_bytes = list[ArchiveLine](), 0
    for hit in recalled.hits:
        near = [line for line in hit.near if not filters["skip"](line)]
        new = [line for line in (hit.line, *near) if _identity(line) not in taken]
        size = sum(len(line.text.encode()) for line in new)
        if taken and (len(taken) + len(new) > room or taken_bytes + size > BYTES):
            break
        taken |= {_identity(line): line for line in new[:room]}
        taken_bytes += size
        hits.append(hit.line)
    lines = sorted(taken.values(), key=lambda line: line.ts)
    return _FoundLines(lines, hits, recalled.total, recalled.complete)


async def _newest(
    ports: ToolPorts, args: LoadHistoryInput, chats: list[ChatKey], room: int, filters: Json
) -> _FoundLines:
    if len(chats) > 1 and args.offset > FARTHEST:
        raise errors.ToolError(
            f'With scope "mine" an offset goes to {FARTHEST:,}. Use `before` for what is older. Nothing was loaded.'
        )
    # Load one line more than fits, to learn whether there are more. Counting the lines would read all of them.
    skipped = args.offset if len(chats) > 1 else 0  # the offset applies after the chats are merged
    limit, offset = room + 1 + skipped, args.offset - skipped
    window = HistoryQuery(limit=limit, offset=offset, **filters)
    lines, total, counted = list[ArchiveLine](), 0, True
    for chat in chats:
        page = await ports.history(chat, window)
        total, counted = total + page.total, counted and page.counted
        lines = sorted([*lines, *page.lines], key=lambda line: line.ts)[-limit:]
    lines = lines[: max(0, len(lines) - skipped)][-room:]
    return _FoundLines(lines, lines, total, counted=counted)


async def _marked(ports: ToolPorts, lines: Sequence[ArchiveLine], chat_key: ChatKey) -> list[ArchiveLine]:
    """Return the lines with a link and their chat as metadata. The last line of each turn also names the turn's artifacts,
    except artifacts of other chats, because this chat cannot read them.
    """
    last = {line.request_id: line for line in lines if line.chat_key == chat_key and line.request_id}
    made: Mapping[str, Sequence[tuple[str, str]]] = {}
    with contextlib.suppress(errors.StorageError):  # messages are loaded even if this fails
        made = await ports.artifacts.made(chat_key, last) if last else {}
    marked = []
    for line in lines:
        found = made.get(line.request_id, ()) if last.get(line.request_id) is line else ()
        where = {
            "chat": str(line.chat_key) if line.chat_key != chat_key else None,
            "link": ports.permalink(line),
            "artifacts": [{"id": name, "tool": tool} for name, tool in found[-MOST_ARTIFACTS:]] or None,
        }
        marked.append(line.model_copy(update={"meta": {**(line.meta or {}), **where}}))
    return marked


_Identity = tuple[ChatKey, int, str, str]


def _identity(line: ArchiveLine) -> _Identity:
    return line.chat_key, line.ts, line.role, line.message_id or line.text


def _milliseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _nothing(args: LoadHistoryInput, found: _FoundLines) -> str:
    if found.total > 0 and args.offset:
        return (
            f"Nothing at offset {args.offset}: there are {found.total} matches that you do not see already."
        )
    narrowed = args.phrasings or args.keyword or args.role or args.before or args.after
    asked = "matches that" if narrowed else "is on file"
    return f"Nothing {asked}, beyond what you see already. Nothing was loaded." + _so_far(found)


def _receipt(
    args: LoadHistoryInput, lines: list[ArchiveLine], found: _FoundLines, turn: ToolExecutionContext
) -> str:
    first, last = (
        datetime.fromtimestamp(line.ts / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        for line in (lines[0], lines[-1])
    )
    said = f"Loaded {len(lines)} older messages, {first} to {last}"
    # If the turn had room for only some of the messages, count only the matches that were loaded.
    loaded = set(map(_identity, lines))
    matches = sum(_identity(hit) in loaded for hit in found.hits)
    said += f" ({matches} matches and what was said around them)" if args.phrasings else ""
    said += "; they now stand before the current message."
    left = found.total - args.offset - (matches if args.phrasings else len(lines))
    if left > 0:
        # The context now contains the loaded messages, so the same offset skips them and continues the search.
        further = "less good" if args.phrasings else "older"
        more = f"{left} more match" if found.counted else "More match"
        said += f" {more}: call again with offset {args.offset} for the next {further} ones."
    if not turn.private and any(line.chat_key != turn.chat_key for line in lines):
        said += " Others read this chat: repeat of other chats only what the person asks for."
    return said + _so_far(found)


def _so_far(found: _FoundLines) -> str:
    return "" if found.complete else " (Not all messages were searched: the index is being made.)"


def _left_out(others: MembershipAnswer) -> str:
    told, unanswered = "", len(others.unanswered)
    if (count := len(others.chats)) > MOST_CHATS:
        told += f" (Of this person's {count:,} other chats the {MOST_CHATS} last spoken in were searched.)"
    if unanswered:
        told += (
            f" (Of {unanswered:,} more chats the platform did not say whether this person is in them, so they were not "
            "searched. Try later, or let the person ask in the chat that they mean.)"
        )
    return told


TOOLS = (chat_load_history,)
