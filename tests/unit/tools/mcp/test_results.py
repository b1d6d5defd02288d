"""The parts of a server's result, as the model is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from bot.tools.mcp.definitions import words_of

PAGE = "file:///page"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "text", "text": "Hello."}, "Hello."),
        ({"type": "image", "mimeType": "image/png", "data": "A" * 4_000}, "[image: image/png, 3,000 bytes]"),
        ({"type": "audio", "mimeType": "audio/ogg"}, "[audio: audio/ogg, 0 bytes]"),
        ({"type": "resource_link", "name": "page", "uri": PAGE}, f"[resource: page, {PAGE}]"),
        ({"type": "resource", "resource": {"uri": PAGE, "text": "Its words."}}, f"[{PAGE}]\nIts words."),
        (
            {"type": "resource", "resource": {"uri": PAGE, "mimeType": "image/png", "blob": "AAAA"}},
            f"[resource: {PAGE}, image/png, not shown]",
        ),
        ({"type": "resource"}, "[resource: not shown]"),
        ({"type": "hologram"}, "[hologram: not shown]"),
    ],
)
def test_a_part_is_its_text_or_a_line_that_tells_of_it(part: dict[str, Any], told: str) -> None:
    assert words_of({"content": [part]}) == told


def test_structured_content_stands_in_where_there_is_no_other() -> None:
    structured = {"name": "花子"}
    assert words_of({"content": [], "structuredContent": structured}) == '{"name": "花子"}'
    assert words_of({"content": [{"type": "text", "text": "Hi."}], "structuredContent": structured}) == "Hi."
    assert words_of({}) == ""
