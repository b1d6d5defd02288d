"""Describes a failed tool call, for the model and for the operator.

The model gets a message that it can act on. The message never contains a traceback, a secret, a path outside
the project, or a way to weaken a protection. Text is redacted before it is cut.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from bot import errors, text
from bot.contracts.environment import Redact
from bot.sizes import describe, normalize_to_size
from bot.telemetry.redaction import LogRedactor
from bot.tools import excerpt

STREAM = 1_000 * excerpt.TOKEN
"""Max token estimate of each output stream of a command (1,000 tokens). The end of a stream is always shown."""
MESSAGE = 300
"""Max characters of an unexpected error's message."""
LOOKED_AT = 2_000
"""Max characters processed of an unexpected error's message, because some errors contain their whole input."""
GOT = 100
"""Max characters shown of an invalid value."""
PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure in two forms: one for the model, one for the operator. `whole` is the full text if `model`
    was shortened.
    """

    model: str
    operator: str
    whole: str | None = None


def timed_out(tool: str, seconds: float) -> Failure:
    """Return the failure of a tool that reached its time limit."""
    return Failure(
        f"{tool} took longer than {seconds:g} s and was stopped. Ask for less at once.",
        "timeout",
    )


def failure(error: Exception, tool: str, redact: Redact = str) -> Failure:
    """Return a description of an error that a tool raised."""
    operator = redact(describe(error))
    if isinstance(error, errors.CommandFailed):
        return _command(error, tool, redact, operator)
    if isinstance(error, errors.ToolError):
        return Failure(redact(str(error)), type(error).__name__)
    if isinstance(error, errors.ShipmateError):
        return Failure(f"{tool} failed: {error.for_model}", operator)
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(_file_system(error, tool, redact), operator)
    words = presentable(redact(_message(error)))
    cause = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return Failure(f"{tool} failed: {cause}. Try another way.", operator)


# Messages of unexpected errors.

_TRACE = re.compile(r"Traceback \(most recent call last\):.*", re.DOTALL)
_PLACES = re.compile(
    r"""
      (?P<address>\b(?!file:)[a-z][a-z0-9+.-]*://[^\s'"<>]+)    # stays
    | (['"])(?:~|[a-z]:)?[/\\][^'"\n]*\2                        # a quoted path
    | \bfile:/+[^\s'"<>]*
    | (?<![\w/.%~-])(?:~|[a-z]:)?[/\\](?:[^\s'"<>|:;,()\[\]]+)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TOKENS = LogRedactor()


def presentable(words: str) -> str:
    """Return an error message as one line, without tracebacks, absolute paths and strings that look like tokens."""
    plain = _TOKENS(_TRACE.sub("", words[:LOOKED_AT]))
    hidden = _PLACES.sub(lambda found: found["address"] or "[path]", plain)
    return text.preview(hidden, MESSAGE).rstrip(".")


def _message(error: Exception) -> str:
    """Return the text and number arguments of an error, joined. Other arguments are skipped, because
    converting an argument to text may raise.
    """
    return " ".join(f"{arg}" for arg in error.args if isinstance(arg, str | int | float))


# Validation.

_EXPECTED = re.compile(r".*? should (?:be |have |match )?(?=\S)")
"""Pattern of the beginning of a pydantic message, such as "Input should be a valid integer"."""
_NAMED = {"missing": "a value", "extra_forbidden": "no field of this name"}


def unfit(error: pydantic.ValidationError, redact: Redact = str) -> Failure:
    """Return a description of invalid arguments, one line per field: `- field: expected what, got what`."""
    problems = error.errors(include_url=False)
    lines = [_problem(problem, redact) for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        lines.append(f"- and {len(problems) - PROBLEMS} more")
    head = "The input does not fit the tool; it was not run."
    return Failure("\n".join([head, *lines, "Mend the input and call again."]), "invalid input")


def _problem(problem: Mapping[str, Any], redact: Redact) -> str:
    field = ".".join(str(part) for part in problem["loc"]) or "input"
    kind, message = problem["type"], text.preview(redact(problem["msg"]), MESSAGE)
    expected = _NAMED.get(kind) or _EXPECTED.sub("", message, count=1)
    if expected == message:
        words = message.removeprefix("Value error, ")
    else:
        got = "nothing" if kind == "missing" else _got(problem["input"], redact)
        words = f"expected {expected}, got {got}"
    return f"- {text.preview(redact(field), GOT)}: {words}"


def _got(value: Any, redact: Redact) -> str:
    shown = normalize_to_size(value, 20 * GOT)
    words = f"the text {shown!r}" if isinstance(value, str) else f"{shown}"
    return text.preview(redact(words), GOT)


# The file system.


def _file_system(error: OSError, tool: str, redact: Redact) -> str:
    number = error.errno or 0
    code = errno.errorcode.get(number, "error")
    words = presentable(redact(error.strerror or "it failed"))
    named = error.filename if isinstance(error.filename, str) else ""
    # Paths outside the project are not shown.
    where = (
        f" ({text.preview(redact(named), GOT)})" if named and not named.startswith(("/", "~", "\\")) else ""
    )
    return f"{tool} failed with {code}{where}: {words}."


# Commands.


def _command(error: errors.CommandFailed, tool: str, redact: Redact, operator: str) -> Failure:
    streams = {"stdout": redact(error.stdout).rstrip("\n"), "stderr": redact(error.stderr).rstrip("\n")}
    ended = f"exit code {error.status}" if error.status >= 0 else f"signal {-error.status}"
    head = f"{tool}: the command ended with {ended}."
    if error.limit is not None:
        ended = f"stopped after {error.limit:g} s"
        head = (
            f"{tool}: the command took longer than {error.limit:g} s and was stopped; part of it may be done."
        )
    if error.over is not None:
        ended = f"stopped: {error.over}"
        head = f"{tool}: the command was stopped: {error.over}. Part of it may be done; do it with less."

    def rendered(*, whole: bool) -> str:
        parts = [
            f"{name}:\n{_fenced(words if whole else _shortened(words))}"
            for name, words in streams.items()
            if words
        ]
        return "\n".join([head, *(parts or ["It printed nothing."])])

    cut = any(words != _shortened(words) for words in streams.values())
    return Failure(rendered(whole=False), f"{operator} ({ended})", rendered(whole=True) if cut else None)


def _shortened(words: str) -> str:
    return text.shorten_middle(words, max(100, excerpt.fitting(words, STREAM)))


def _fenced(words: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{words}\n{fence}"
