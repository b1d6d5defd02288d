"""JSON lines on disk are single lines for every reader. Lines of older versions can be read."""

from __future__ import annotations

import json

import pytest

from bot.storage import jsonl
from bot.telemetry.log import render
from bot.telemetry.redaction import LogRedactor

BREAKS = "a\u2028b\u2029c\x85d\x0be 你好 \u202e"


def test_no_string_ends_a_line() -> None:
    raw = jsonl.dumps({"text": BREAKS, BREAKS: [BREAKS]})
    assert len(raw.decode().splitlines()) == 1
    assert jsonl.loads(raw) == {"text": BREAKS, BREAKS: [BREAKS]}
    line = render({"message": BREAKS, "details": {"text": BREAKS}}, LogRedactor())
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["message"] == BREAKS


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_a_line_that_was_kept_as_it_is_is_read(sign: str) -> None:
    assert jsonl.loads(f'{{"text":"a{sign}b"}}\n'.encode()) == {"text": f"a{sign}b"}
