"""Describes a failed tool call, for the model and for the operator.

The description tells the model what it can do. It never contains a traceback, a secret, a path outside the project, or
a way to weaken a protection. Text is redacted before it is cut.
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
from bot.tools import excerpt

STREAM = 1_000 * excerpt.TOKEN
"""Max token estimate of each output stream of a command (1,000 tokens). A longer stream keeps its end."""
MESSAGE = 300
"""Max characters of the description of an invalid field."""
GOT = 100
"""Max characters shown of an invalid value."""
PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """Two descriptions of a failure: one for the model, one for the operator. If `model` was shortened, `whole` is the
    full text.
    """

    model: str
    operator: str
    whole: str | None = None


def failure(error: Exception, tool: str, redact: Redact = str) -> Failure:
    """Return a description of an error that a tool raised. Only the operator gets the message of an unexpected error,
    because it may contain anything.
    """
    operator = redact(describe(error))
    if isinstance(error, errors.CommandFailed):
        return _command(error, tool, redact, operator)
    if isinstance(error, errors.ToolError):
        return Failure(redact(str(error)), type(error).__name__)
    if isinstance(error, errors.ShipmateError):
        return Failure(f"{tool} failed: {error.for_model}", operator)
    if isinstance(error, OSError) and error.errno is not None:
        named = error.filename if isinstance(error.filename, str) else ""
        # Paths outside the project are not shown.
        where = f" ({text.preview(redact(named), GOT)})" if named and named[0] not in "/~" else ""
        code = errno.errorcode.get(error.errno, "error")
        return Failure(f"{tool} failed with {code}{where}: {error.strerror or 'it failed'}.", operator)
    return Failure(f"{tool} failed: {type(error).__name__}. Try another way.", operator)


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


def _command(error: errors.CommandFailed, tool: str, redact: Redact, operator: str) -> Failure:
    whole = {"stdout": redact(error.stdout).rstrip("\n"), "stderr": redact(error.stderr).rstrip("\n")}
    short = {
        name: text.shorten_middle(one, max(100, excerpt.fitting(one, STREAM))) for name, one in whole.items()
    }
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

    def rendered(streams: Mapping[str, str]) -> str:
        parts = [f"{name}:\n{_fenced(words)}" for name, words in streams.items() if words]
        return "\n".join([head, *(parts or ["It printed nothing."])])

    return Failure(rendered(short), f"{operator} ({ended})", rendered(whole) if whole != short else None)


def _fenced(words: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{words}\n{fence}"
