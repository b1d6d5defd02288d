"""Options, output functions and time formats that all commands share. This module imports nothing slow, because even
`--help` needs it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import text

if TYPE_CHECKING:
    from bot.contracts.base import Level
    from bot.telemetry.usage import UsageTotals

HOME = ".ship"
Here = Path()
Dir = Annotated[
    Path, typer.Option("--dir", metavar="DIR", exists=True, file_okay=False, help="The project folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Defaults = Annotated[
    bool, typer.Option("--defaults", help="If there is no ship.json, use defaults and the environment.")
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
Chat = Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")]
Since = Annotated[
    str | None, typer.Option(metavar="T", help="Only from this time on; 2d means two days ago.")
]
RequestId = Annotated[
    str, typer.Argument(metavar="REQUEST_ID", help="Id of a turn, as `/receipt` shows it, or of a task.")
]

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: `1 turn`, `2 turns`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def say(line: str = "") -> None:
    print(text.for_terminal(line))


def say_json(value: Any) -> None:
    say_raw(json.dumps(value, ensure_ascii=False))


def say_raw(line: str) -> None:
    """Print a line of JSON. On a terminal, control characters are removed. Characters that stdout cannot encode are escaped."""
    line = text.one_line(line)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], line)
    print(text.for_terminal(line) if sys.stdout.isatty() else line)


def say_rows(rows: Iterable[tuple[dict[str, Any], str]], nothing: str = "", *, as_json: bool) -> None:
    """Print rows, each given as (JSON object, line for people). Without rows, print `nothing` for people."""
    count = 0
    for count, (facts, line) in enumerate(rows, 1):  # noqa: B007 - the count is used after the loop
        if as_json:
            say_json(facts)
        else:
            say(line)
    if not (count or as_json):
        say(nothing)


def complain(line: str) -> None:
    """Print one line on stderr, with tokens redacted."""
    from bot.telemetry.redaction import LogRedactor

    print(text.for_terminal(" ".join(LogRedactor()(line).split("\n"))), file=sys.stderr)


class StderrLog:
    """Implements `contracts.environment.Log` for a command: prints warnings and errors on stderr."""

    def write(self, kind: str, message: str, *, level: Level = "info", **details: Any) -> None:
        del kind, details
        if level in {"warn", "error"}:
            complain(f"shipmate: {message}")


def must_confirm(what: str, *, yes: bool, warning: str = "This cannot be undone.") -> None:
    """Ask the user to confirm the action `what`, a phrase that begins with a verb. Raises `typer.Abort` if the
    user says no, and `typer.BadParameter` if there is no terminal.
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise typer.BadParameter(f"no terminal to ask on; give --yes to {what}. {warning}")
    if not yes:
        typer.confirm(f"{what[:1].upper()}{what[1:]}? {warning}", abort=True)


def text_of(path: Path) -> str:
    """Return the text of a file that the user names. Raises `typer.BadParameter` if the file is unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{str(path)!r} cannot be read as text: {type(error).__name__}") from None


def moment(value: str) -> datetime:
    """Parse a time in ISO 8601 (UTC if it names no zone), or an age such as `90s`, `15m`, `2h` or `3d`."""
    from bot.system import SystemClock

    ago = _AGO.fullmatch(value.strip())
    try:
        if ago:
            return datetime.fromtimestamp(SystemClock().now(), UTC) - timedelta(
                **{_UNITS[ago[2]]: int(ago[1])}
            )
        found = datetime.fromisoformat(value.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{value!r} is not a time; write 2026-11-20T16:00, or 2h for two hours ago"
        ) from None


def timestamp(seconds: float) -> str:
    """Return a time (epoch seconds) in the log's format: ISO 8601, UTC, milliseconds."""
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(milliseconds: float) -> str:
    """Return a time (epoch milliseconds) as text in the machine's time zone."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def cost_of(sums: UsageTotals, decimals: int = 2) -> str:
    """Return the cost in US dollars as text. The text also says how many answers have an unknown price."""
    unpriced = f", and {counted(sums.unpriced, 'answer')} of unknown price" if sums.unpriced else ""
    return f"${sums.cost:.{decimals}f}{unpriced}"
