"""`read_artifact` returns an artifact page by page. A page never becomes an artifact."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.tools import ToolResult
from bot.testing.disk import Failure
from bot.testing.model import tool_use
from bot.tools import result_limits
from tests.shares import examples
from tests.unit.tools.conftest import Says, Workbench
from tests.unit.tools.test_result_limits import TEXTS

HEAD = re.compile(
    r"\[characters (\d+) to (\d+) of (\d+), lines (\d+) to (\d+) of (\d+); "
    r"(?:go on with offset (\d+)|this is the end)\]\n"
)


async def put_away(tools: Workbench, text: str) -> str:
    left_out = ToolResult.of(await tools.look(text)).omission
    assert left_out is not None
    return left_out.artifact


def page(result: Json) -> tuple[str, int | None]:
    head = HEAD.match(result["content"])
    assert head is not None
    assert "is_error" not in result
    assert result_limits.weight(result["content"]) <= result_limits.ROOM
    return result["content"][head.end() :], int(head[7]) if head[7] else None


async def whole(tools: Workbench, artifact_id: str, **arguments: Any) -> str:
    text, offset = "", 0
    while True:
        more, following = page(await tools.read(artifact_id, offset=offset, **arguments))
        text += more
        if following is None:
            return text
        assert following > offset
        offset = following


@settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=TEXTS.filter(bool), limit=st.integers(2_000, 8_000))
async def test_all_pages_together_are_the_whole_result(tools: Workbench, text: str, limit: int) -> None:
    large = text * (1 + 9_000 // len(text))
    assert await whole(tools, await put_away(tools, large), limit=limit) == large


async def test_a_page_tells_lines_and_characters(tools: Workbench) -> None:
    artifact_id = await put_away(tools, "".join(f"{number:04}\n" for number in range(3_000)))
    result = await tools.read(f" {artifact_id.lower()} ", offset=50, limit=10)
    assert result["content"] == (
        "[characters 50 to 60 of 15000, lines 11 to 12 of 3000; go on with offset 60]\n0010\n0011\n"
    )
    last = await tools.read(artifact_id, offset=14_995)
    assert "; this is the end]\n2999\n" in last["content"]


async def test_only_the_chat_that_made_it_reads_it(tools: Workbench) -> None:
    artifact_id = await put_away(tools, "x" * 9_000)
    for result in (
        await tools.read(artifact_id, chat_key=ChatKey.parse("telegram:chat:8")),
        await tools.read("../telegram%3Achat%3A7/x"),
        await tools.read(artifact_id, chat_key=ChatKey.parse("telegram:chat:8"), grep="x"),
    ):
        assert result["is_error"] is True
        assert "This chat has no artifact" in result["content"]


async def test_a_disk_that_cannot_read_is_told_without_its_path(tools: Workbench) -> None:
    artifact_id = await put_away(tools, "x" * 9_000)
    tools.disk.fail(Failure("read"))
    result = await tools.read(artifact_id)
    assert result["content"] == f"read_artifact failed: {errors.StorageError().person}"


async def test_a_search_shows_lines_with_their_place(tools: Workbench) -> None:
    text = "".join(f"Zeile {number} von vielen\n" for number in range(2_000)) + "Die Nadel (a+)+$ 字\n"
    artifact_id = await put_away(tools, text)
    result = await tools.read(artifact_id, grep="NADEL (a+)+$")
    offset = text.index("Nadel")
    assert result["content"] == f"[1 of 1 lines]\nline 2001, offset {offset}: Die Nadel (a+)+$ 字"
    assert (await tools.read(artifact_id, grep="Heu"))["content"] == "No line from there on holds this text."
    two = await tools.read(artifact_id, grep="a\nb")
    assert "without line breaks" in two["content"]


@pytest.mark.parametrize("filler", ["字" * 200, "x" * 200])
async def test_a_search_with_many_finds_goes_on_page_by_page(tools: Workbench, filler: str) -> None:
    artifact_id = await put_away(tools, "".join(f"Nadel {number} {filler}\n" for number in range(100)))
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        result = await tools.read(artifact_id, grep="nadel", offset=offset)
        assert result_limits.weight(result["content"]) <= result_limits.ROOM
        first, *lines = result["content"].split("\n")
        assert first.startswith(f"[{len(lines)} of {100 - len(seen)} lines")
        seen += lines
        following = re.search(r"go on with offset (\d+)", first)
        offset = int(following[1]) if following else None
    assert [int(line.split("Nadel ")[1].split()[0]) for line in seen] == list(range(100))


async def test_too_many_pages_in_one_step_are_not_shown_and_never_become_artifacts(tools: Workbench) -> None:
    artifact_id = await put_away(tools, "x" * 90_000)
    before = len(tools.disk.done)
    calls = [tool_use("read_artifact", id=artifact_id, offset=8_000 * at) for at in range(8)]
    results = await tools.run([*calls, tool_use("look")], Says("look", "y" * 3_000))
    shown = [result for result in results[:8] if "is_error" not in result]
    assert 3 <= len(shown) <= 4
    assert results[: len(shown)] == shown, "the first ones"
    assert {result["content"] for result in results[len(shown) : 8]} == {result_limits.NO_ROOM}
    assert sum(result_limits.weight(result["content"]) for result in results) <= result_limits.STEP_ROOM
    written = [name for kind, name in tools.disk.done[before:] if kind == "replace"]
    assert len(written) <= 1, "what else is in the step may be put away, no page is"
