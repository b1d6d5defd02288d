"""Checks each line that the product logs during a test against the table of log kinds
(`bot/contracts/log_kinds.toml`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.log_kinds import NULLABLE
from bot.telemetry.log import JsonlLog, json_copy, to_camel
from bot.testing.log import MemoryLog
from tests.log_kinds import COMMON, KINDS

ROOT = Path(__file__).parents[1]
PRODUCT = (f"{ROOT / 'bot'}/", f"{ROOT / 'channels'}/")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
found: list[str] = []
"""Errors found in the log lines of the running test."""


def complaint(kind: str, level: str, details: Mapping[str, Any]) -> str:
    """Return what is wrong with a log line according to the table; "" if the line is right. `details` are
    the details as logged.
    """
    known = KINDS.get(kind)
    if known is None:
        return f"unknown kind {kind!r}"
    if kind == "error" and level != "error":
        return f"kind error at level {level}"
    for name, value in details.items():
        detail = known.details.get(name) or COMMON.get(name)
        if detail is None:
            return f"{kind}: unknown detail {name!r}"
        types = detail.types
        # In Python a bool is also an int; in JSON a boolean is not a number.
        right = (
            "boolean" in types
            if isinstance(value, bool)
            else any(isinstance(value, _TYPES[one]) for one in types)
        )
        if not right:
            return f"{kind}.{name}: {type(value).__name__}, expected {' or '.join(types)}"
    return ""


def checked(write: Callable[..., None]) -> Callable[..., None]:
    """Wrap a log's `write`. The wrapper adds an error to `found` for each wrong line that the product's own
    code logs.
    """

    def write_checked(log: object, kind: str, message: str, **how: Any) -> None:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        caller = frame.f_back.f_code.co_filename
        del frame  # a frame that refers to itself keeps all of its callers in memory
        if caller.startswith(PRODUCT):
            named = {
                name: value
                for name, value in how.items()
                if name not in {"level", "duration", "chat_key", "request_id", "step"}
                and (value is not None or (kind, to_camel(name)) in NULLABLE)
            }
            if wrong := complaint(
                kind,
                how.get("level", "info"),
                {to_camel(name): json_copy(value) for name, value in named.items()},
            ):
                found.append(f"{caller.removeprefix(f'{ROOT}/')}: {wrong} ({message})")
        write(log, kind, message, **how)

    return write_checked


@pytest.fixture(scope="session", autouse=True)
def _every_line_is_looked_at() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for log in (JsonlLog, MemoryLog):
            patch.setattr(log, "write", checked(log.write))
        yield


@pytest.fixture(autouse=True)
def _lines_are_of_the_table() -> Iterator[None]:
    found.clear()
    yield
    assert found == []
