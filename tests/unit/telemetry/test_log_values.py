from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.messages import Attachment
from bot.contracts.model import Usage
from bot.telemetry.log import MAX_LINE_BYTES

from .conftest import Make, lines


@pytest.mark.parametrize(
    "huge",
    [
        "密" * 1_000_000,
        ["x" * 900] * 900,
        ["x" * 900] * 250,
        {f"key{number}": "😀" * 500 for number in range(4_000)},
        [[[["deep" * 100] * 20] * 20] * 20] * 20,
        {"k" * 500_000: 1},
    ],
)
def test_no_line_is_over_64_kilobytes(make: Make, tmp_path: Path, huge: Any) -> None:
    log = make()
    log.write("a", "big", content=huge)
    log.write("a", "m" * 500_000)
    assert log.flush(30)
    raw = (tmp_path / "logs" / "2027-01-15.jsonl").read_bytes().splitlines(keepends=True)
    assert len(raw) == 2
    assert all(len(line) <= MAX_LINE_BYTES and json.loads(line) for line in raw)


class Sulky:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Colour(Enum):
    RED = "red"


def test_nothing_a_caller_passes_makes_it_raise(make: Make, tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    log = make()
    log.write("a", "a number that JSON cannot have", huge=10**5000)
    log.write(
        "a",
        "lone \ud800 surrogate \x00",
        nan=float("nan"),
        data=b"\xff\xfe",
        colour=Colour.RED,
        odd=Sulky(),
        error=ValueError(Sulky()),
        missing=OSError(2, "No such file", "x"),
        loop=loop,
        inbound=Attachment(kind="photo"),
        level_of=Usage,
    )
    assert log.flush()
    line = lines(tmp_path)[-1]
    assert line["message"] == "lone � surrogate \x00"
    assert line["details"]["nan"] is None
    assert line["details"]["colour"] == "red"
    assert line["details"]["error"] == "ValueError: <Sulky>"
    assert line["details"]["missing"] == "FileNotFoundError: 2 No such file (x)"
    assert line["details"]["inbound"]["kind"] == "photo"
