"""Queues the messages with which a turn answers, waits for their delivery, and previews an answer that still streams. Long code
blocks and wide tables of an answer become files, because they are unreadable in a chat.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import jiter

from bot import errors, text
from bot.contracts.channel import ReadingLimits
from bot.contracts.environment import Redact, off_loop
from bot.contracts.messages import Inbound, OutgoingFile, Sent
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.core import attachments, events
from bot.core.attachments import OutgoingFiles
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.events import StoredFile
from bot.core.outgoing import Address
from bot.llm import blocks
from bot.markdown import parser
from bot.tags import SEND, SILENT
from bot.telemetry import redaction
from bot.text import named
from bot.words import say

LONGEST_WAIT = 10.0
"""Max seconds for which a turn waits for a postponed message. A message with a longer delay is sent after the turn."""
MISSED_CHARS = 60  # Max characters of an undelivered answer that a notice quotes
SHORT = 2_000
"""Max characters of a text that is split on the event loop. A longer text is split on a thread, because splitting takes long."""


def question(asked: Inbound) -> str:
    """Return the question in a slash command as a quote with its author; "" for other messages. The answer shows the quote,
    because a group's members do not see slash commands.
    """
    if asked.chat_type != "group" or asked.message_id is not None or asked.due is not None or not asked.text:
        return ""
    return f"> `{named(asked.user_name or asked.user_id)}`: {text.preview(asked.text, 500)}\n\n"


@dataclass(eq=False)
class ChatReply:
    """Implements `tools.context.Reply` for one turn. The outbox rows of a step always have the same ids. So a step that is
    repeated after a crash sends nothing twice. `split` splits a text into messages, and `show` shows a preview. Blocks of
    the text that exceed the `limits` are sent as files; None means no limits.
    """

    chat: Chat
    turn: str
    to: Inbound
    chats: Chats
    _: KW_ONLY
    split: Callable[[str], list[str]]
    show: Callable[[Inbound, Callable[[], str]], object]
    limits: ReadingLimits | None
    redact: Redact
    files: OutgoingFiles

    def __post_init__(self) -> None:
        self.ending: str | None = None
        """Id of the step whose message ends the turn; None if the turn goes on after its next message."""

    @property
    def _rows(self) -> dict[str, events.RowEnded | None]:
        turn = self.chat.turn
        return turn.rows if turn is not None and turn.id == self.turn else {}

    def said(self, step_id: str) -> bool:
        """Return True if a message of this step is queued or delivered. Return False if the delivery has failed."""
        name = f"{self.turn}/{step_id}/0"
        end = self._rows.get(name)
        return name in self._rows and (end is None or end.state != "failed")

    def preview(self, words: Callable[[], str]) -> None:
        self.show(self.to, words)

    def queued(self, step_id: str) -> list[str]:
        return [one for one in self._rows if one.startswith(f"{self.turn}/{step_id}/")]

    async def leave(self, words: str, step: str, files: Sequence[OutgoingFile] = ()) -> None:
        """Queue a message and then `files`, without waiting for the delivery. If the step's message is already queued, do
        nothing. If a file cannot be sent, queue nothing and raise `errors.FileRefused`.
        """
        if self.queued(step):
            return
        for file in files:
            await self.files.check(self.to.channel, file)
        words = text.clean(self._with_notes(words))
        words = await off_loop(len(words), redaction.LONG, lambda: self.redact(words))
        try:
            shorter = await off_loop(len(words), SHORT, lambda: shortened(words, self.limits))
            for file in shorter.files:
                await self.files.check(self.to.channel, file)
            await self._queue(shorter.words, step, [*shorter.files, *files])
        except errors.FileRefused:
            await self._queue(words, step, files)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Queue a message with files and wait for its delivery (see `tools.context.Reply`)."""
        step = step_id or "said"
        await self.leave(words, step, files)
        return await self.chats.until(self.chat.key, lambda: self._outcome(step))

    def _with_notes(self, words: str) -> str:
        """Return a message's text with pending notes below it. The turn's first message begins with the question of a
        slash command and a notice about undelivered answers, if there are any.
        """
        if all(end is not None and end.state == "failed" for end in self._rows.values()):
            lost = [one.text for one in self.chat.missed if one.turn != self.turn]
            which = ", ".join(f"“{text.preview(one, MISSED_CHARS)}”" for one in lost)
            words = question(self.to) + words
            words = f"{say('delivery.missed', which=which)}\n\n{words}" if lost else words
        turn, running = self.chat.turn, self.chat.context.running
        notes = [one for one, told in running.notes.items() if not told] if running is not None else []
        return "\n\n".join(filter(None, (words, *notes, attachments.unread(turn.unread) if turn else "")))

    async def _queue(self, words: str, step: str, files: Sequence[OutgoingFile]) -> None:
        parts = await off_loop(len(words), SHORT, lambda: self.split(words))
        nothing: contextlib.AbstractAsyncContextManager[list[StoredFile]] = contextlib.nullcontext([])
        async with self.files.kept(files) if files else nothing as kept:
            if self.queued(step):
                return
            first = f"{self.turn}/{step}/0"
            said: list[tuple[str, StoredFile | None]] = [(part, None) for part in parts]
            said += [(file.markdown, stored) for file, stored in zip(files, kept, strict=True)]
            queued = [
                Address.of(self.to).queued(
                    f"{self.turn}/{step}/{at}",
                    part,
                    part_of=first if at else None,
                    last=at == len(parts) - 1,
                    ends=step == self.ending and stored is None,
                    replaces=self.to.renews or None if not at and not self._rows else None,
                    file=stored,
                )
                for at, (part, stored) in enumerate(said)
            ]
            self.chats.append(*(Fact(self.chat.key, one, self.turn) for one in queued))

    def _outcome(self, step: str) -> list[Sent] | None:
        """Return the messages of a step that were delivered; None while any outbox row of the step is neither delivered nor
        failed. Raises `errors.DeliveryFailed`.
        """
        sent, missing = list[Sent](), list[str]()
        rows, names = self._rows, self.queued(step)
        for name in names:
            end = rows[name]
            if end is None:
                row = self.chat.outbox.get(name)
                if row is None or row.not_before is None or row.not_before - row.queued_at < LONGEST_WAIT:
                    return None
                raise errors.DeliveryDeferred("put off", wait=row.not_before - row.queued_at)
            if end.state == "failed" and end.reason == errors.FileRefused.code:
                missing += [end.missing] if end.missing else []
            elif end.state == "failed":
                failed = errors.TargetGone if end.reason == errors.TargetGone.code else errors.DeliveryFailed
                raise errors.DeliveryPartial(sent=len(sent), parts=len(names)) if sent else failed(end.reason)
            elif end.state == "sent":
                sent.append(Sent(end.message_id or ""))
            elif f"{name}'" not in rows:
                raise errors.DeliveryUncertain(end.reason)
        if missing:
            raise errors.FilesMissing(names=missing)
        return sent


@dataclass(eq=False)
class PartialReply:
    """Collects an answer while it streams. If `plain` is False, only the text of `chat_send` calls is shown."""

    _: KW_ONLY
    plain: bool = True
    _text: str = ""
    _calls: dict[str, str] = field(default_factory=dict)
    """Input (partial JSON) of each `chat_send` call so far, keyed by call id."""
    _first: tuple[str, str] | None = None  # Id and name of the first tool call

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, ToolInputDelta):
            self._first = self._first or (event.tool_use_id, event.name)
            if event.name == SEND:
                self._calls[event.tool_use_id] = self._calls.get(event.tool_use_id, "") + event.partial_json
        elif self._first is None:  # a call without input sends no input events
            calls = blocks.tool_calls(event.content)
            self._first = (calls[0].id, calls[0].name) if calls else None

    @property
    def speaks(self) -> bool:
        """Return True if the answer begins with text for people: plain text or a `chat_send` call."""
        return self._first[1] == SEND if self._first is not None else self.plain and bool(self._text)

    def shown(self) -> str:
        """Return the first message's text so far. Plain text is included only until a tool call begins."""
        if self._first is None:
            return _aloud(self._text.strip())
        return self._message(self._first[0]) if self.speaks else ""

    def words(self) -> str:
        """Return the text for people: the text of `chat_send` calls or, if there is none, the plain text."""
        sent = [words for call in self._calls if (words := self._message(call).strip())]
        return "\n\n".join(sent) or _aloud(self._text.strip())

    def _message(self, call: str) -> str:
        """Return the text of a `chat_send` call so far."""
        try:
            raw = self._calls.get(call, "").encode("utf-8", "replace")
            value = jiter.from_json(raw, partial_mode="trailing-strings", cache_mode="none")
        except ValueError:
            return ""
        words = value.get("text") if isinstance(value, dict) else None
        return _aloud(words) if isinstance(words, str) else ""


def _aloud(words: str) -> str:
    """Return the cleaned text; "" if the text is, or may become, the marker for a silent answer."""
    words = text.clean(words)
    return "" if SILENT.startswith(words.strip()) or words.lstrip().startswith(SILENT) else words


# ------------------------------------------------------------ long code blocks and wide tables

_BEFORE = re.compile(r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*")
"""Pattern for the list markers and spaces that may precede a block on its first line."""
_LINE_END = re.compile(r"\r\n?|\n|$")
_FORMULA = re.compile(r"[=@\t＝＠]|[-+－＋](?!$|[\d.,]+ ?[%\w]{0,3}$)")
"""Pattern for the beginning of a cell that a spreadsheet program would run as a formula."""
_ENDINGS = dict(
    re.findall(
        r"(\w+)=(\w+)",
        "bash=sh console=txt csharp=cs elixir=ex golang=go haskell=hs javascript=js julia=jl kotlin=kt latex=tex "
        "makefile=mk markdown=md ocaml=ml perl=pl plaintext=txt powershell=ps1 python=py python3=py ruby=rb rust=rs "
        "shell=sh terraform=tf text=txt typescript=ts zsh=sh",
    )
)
"""Maps a language to its file name extension, if the extension differs from the language's name."""
_OWN_ENDING = re.compile(r"[a-z][a-z0-9]{0,5}")
_BLOCKS, _CELLS = parser(), parser()
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])
_MARK = re.compile(r"[*_~`\[\\<&]")
_BREAK = re.compile(r"<br ?/?>")
FIRST = 3  # If a table is sent as a file, the message shows its head and at most this many rows
NARROWEST = 4  # Min width, in terminal cells, of a table column that the message shows
LONGEST_CELL = 500
"""Max characters of a table cell from which Markdown is removed. Longer cells are copied unchanged."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A text in which a sentence with the file's name replaces each passage that became a file. `at` converts an offset in the
    original text into an offset in `words`. For an offset in a replaced passage, `at` returns the end of the sentence.
    """

    words: str
    files: tuple[OutgoingFile, ...] = ()
    _moves: tuple[tuple[int, int, int], ...] = ()
    """For each passage: its start and end in the original text, and the end of its replacement in `words`."""

    @property
    def ends_in_one(self) -> bool:
        return bool(self._moves) and self._moves[-1][2] == len(self.words)

    def at(self, place: int) -> int:
        moved = 0
        for begin, end, now in self._moves:
            if place <= begin:
                break
            if place < end:
                return now
            moved = now - end
        return place + moved


def shortened(words: str, limits: ReadingLimits | None, *, goes_on: bool = False) -> Shortened:
    """Return a Markdown text in which the blocks that exceed these limits have become files. If `goes_on` is True, the text
    is unfinished, and a code block that is still open at its end may become a file too.
    """
    if limits is None or (2 * len(words) <= limits.columns and words.count("\n") <= limits.lines):
        return Shortened(words)
    pieces, files, moves = list[str](), list[OutgoingFile](), list[tuple[int, int, int]]()
    done = length = 0
    for start, end, file, first in _long_blocks(words, limits, goes_on=goes_on):
        stem, _, ending = file.name.partition(".")
        count = sum(one.mime_type == file.mime_type and one.name.endswith(f".{ending}") for one in files)
        name = f"{stem}-{count + 1}.{ending}" if count else file.name
        label = say(f"delivery.{stem}_as_file", name=name)
        if first:
            indent = start - words.rfind("\n", 0, start) - 1
            label = f"\n{' ' * indent}".join([*first, "", label])
        pieces += [words[done:start], label]
        length += start - done + len(label)
        done = end
        moves.append((start, end, length))
        files.append(replace(file, name=name))
    return Shortened("".join([*pieces, words[done:]]), tuple(files), tuple(moves))


def _long_blocks(
    words: str, limits: ReadingLimits, *, goes_on: bool
) -> Iterator[tuple[int, int, OutgoingFile, list[str]]]:
    """Yield start, end, file and first rows of each code block and table that exceeds the limits, except blocks in quotes."""
    ends = [found.start() for found in _LINE_END.finditer(words)]
    starts = [0, *(found.end() for found in _LINE_END.finditer(words))]
    quotes = 0
    tokens = iter(_BLOCKS.parse(words))
    for token in tokens:
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type not in {"fence", "table_open"} or token.map is None or quotes:
            continue
        begun, end = _BEFORE.match(words, starts[token.map[0]]), ends[token.map[1] - 1]
        start = begun.end() if begun is not None else starts[token.map[0]]
        if token.type == "fence":
            body = token.content.removesuffix("\n") + "\n"
            last = words[:end].rpartition("\n")[2].strip()
            closed = last.startswith(token.markup) and not last.strip(token.markup[0])
            is_open = not (closed and words.find("\n", start, end) >= 0) and not words[end:].strip()
            markdown = f"{token.markup}{token.info}\n{body}{token.markup}"
            if goes_on or not is_open:
                end = len(words) if is_open else end
                language = (token.info[:100].split() or [""])[0].lower().strip("{}.:")
                ending = _ENDINGS.get(language, language if _OWN_ENDING.fullmatch(language) else "txt")
                file = OutgoingFile(f"code.{ending}", "text/plain", body.encode(), markdown=markdown)
                too_long = body.count("\n") > limits.lines or len(markdown) > limits.characters
                yield from [(start, end, file, [])] if too_long else ()
            continue
        rows = list[list[str]]()
        for cell in itertools.takewhile(lambda one: one.type != "table_close", tokens):
            if cell.type == "tr_open":
                rows.append([])
            elif cell.type == "inline":
                rows[-1].append(_plain(cell.content))
        widths = [
            max(text.width(line) for cell in column for line in cell.split("\n"))
            for column in zip(*rows, strict=True)
        ]
        wide = sum(widths) + 3 * (len(widths) - 1) > limits.columns
        markdown = "\n".join(line.strip() for line in words[start:end].splitlines())
        if wide or len(rows) > limits.lines or len(markdown) > limits.characters:
            written = io.StringIO()
            csv.writer(written).writerows(
                [f"'{cell}" if _FORMULA.match(cell) else cell for cell in row] for row in rows
            )
            # Without a byte order mark, spreadsheet programs do not read the file as UTF-8.
            data = written.getvalue().encode("utf-8" if written.getvalue().isascii() else "utf-8-sig")
            file = OutgoingFile("table.csv", "text/csv", data, markdown=markdown)
            yield start, end, file, _first_rows(rows, limits.columns)


def _first_rows(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return a table's head and first rows in Markdown, with long cells cut; [] if there are too many columns."""
    room = columns // len(rows[0]) - 3 if rows else 0
    if room < NARROWEST:
        return []
    cut = [
        [_cut(" ".join(cell.split()), room).replace("|", "\\|") for cell in row] for row in rows[: FIRST + 1]
    ]
    lines = [f"| {' | '.join(row)} |" for row in cut]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def _cut(cell: str, room: int) -> str:
    if text.width(cell) <= room:
        return cell
    shown = text.head(cell, room - 1)
    while text.width(shown) >= room:
        shown = text.head(shown, len(shown) - 1)
    return f"{shown}…"


def _plain(cell: str) -> str:
    """Return a cell without Markdown. A link's address follows its text."""
    if len(cell) > LONGEST_CELL or not _MARK.search(cell):
        return cell
    shown, url = list[str](), ""
    for token in _CELLS.parseInline(cell)[0].children or ():
        match token.type:
            case "link_open":
                url = str(token.attrs.get("href", ""))
                shown.append("")
            case "link_close" if url:
                shown.append(f" ({url})" if shown[-1] != url else "")
            case "code_inline":
                shown.append(token.content)
            case _:
                shown.append(_BREAK.sub("\n", token.content))
    return "".join(shown)
