"""`chat_load_history`: older turns of this chat, injected before the current message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot import errors
from bot.contracts import ArchiveLine, Effect, HistoryQuery
from bot.tools import context
from bot.tools.registry import ToolPorts


class LoadHistoryInput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=30, ge=1, le=200, description="How many messages at the most.")
    keyword: str | None = Field(
        default=None, min_length=1, max_length=200, description="Literal text the messages contain, any case."
    )
    role: Literal["user", "assistant"] | None = Field(
        default=None, description="Whose messages: theirs or yours."
    )
    before: datetime | None = Field(
        default=None, description="ISO 8601, exclusive; UTC where no zone is given."
    )
    after: datetime | None = Field(
        default=None, description="ISO 8601, inclusive; UTC where no zone is given."
    )
    offset: int = Field(default=0, ge=0, description="Skip this many of the newest matches.")


class ChatLoadHistory:
    """Finds lines in the whole archive of this chat and hands them to the turn's injection."""

    name = "chat_load_history"
    description = (
        "Load older messages of this chat that you no longer see, newest first. They are put before the current "
        "message, marked with time and speaker; the result only says how many came. Use it when somebody refers "
        "to something earlier."
    )
    input = LoadHistoryInput
    # It reads, but what it injects depends on the order: two calls must not run side by side.
    effects: ClassVar[frozenset[Effect]] = frozenset({"read", "write"})
    timeout_seconds = 60.0
    ages = False

    def __init__(self, ports: ToolPorts) -> None:
        self._archive = ports.archive

    async def run(self, args: LoadHistoryInput) -> str:
        turn = context.current()
        room = turn.injection.room()
        if room <= 0:
            raise errors.ToolError(
                "This turn has loaded as much history as it may. Answer with what you have."
            )
        page = await self._archive.search(
            turn.chat_key,
            HistoryQuery(
                limit=min(args.limit, room),
                offset=args.offset,
                keyword=args.keyword,
                role=args.role,
                before=_milliseconds(args.before),
                after=_milliseconds(args.after),
                skip=turn.injection.in_view,
            ),
        )
        if not page.lines:
            return _nothing(args, page.total)
        loaded = await turn.injection.inject(page.lines)
        return _receipt(args, loaded, page.total)


def _milliseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _when(ts: int) -> str:
    return datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _nothing(args: LoadHistoryInput, total: int) -> str:
    if total:
        return f"Nothing at offset {args.offset}: there are {total} matches that you do not see already."
    asked = "matches that" if args.keyword or args.role or args.before or args.after else "is on file"
    return f"Nothing {asked}, beyond what you see already. Nothing was loaded."


def _receipt(args: LoadHistoryInput, lines: list[ArchiveLine], total: int) -> str:
    said = f"Loaded {len(lines)} older messages, {_when(lines[0].ts)} to {_when(lines[-1].ts)}; "
    said += "they now stand before the current message."
    left = total - args.offset - len(lines)
    if left > 0:
        # What was just loaded is in view now and no longer counts, so the same offset goes on.
        said += f" {left} more match: call again with offset {args.offset} for the next older ones."
    return said


def build(ports: ToolPorts) -> ChatLoadHistory:
    return ChatLoadHistory(ports)
