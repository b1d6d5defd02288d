"""Large results are shortened to beginning, end and a note; the results of a step share one limit."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import errors
from bot import text as texts
from bot.contracts.base import Json
from bot.contracts.tools import Omission, omission
from bot.testing.disk import Failure
from bot.testing.model import tool_use
from bot.tools import result_limits
from bot.tools.context import ToolExecutionContext, tool_scope
from tests.shares import examples
from tests.tool_calls import run_blocks
from tests.unit.tools.conftest import KEY, Says, Workbench

ID = "01J8Z3NDEKTSV4RRFFQ69G5FAV"
FAMILY = "👩\u200d👩\u200d👧\u200d👦"
PARTS = ["a", "é", "字", "\n", FAMILY, "🇩🇪", "e\u0301", "שלום ", " ", "word " * 9, "1234567890\n"]
TEXTS = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(st.sampled_from(PARTS) | st.text(max_size=4), min_size=1, max_size=30),
    st.sampled_from([1, 3, 60]),
)
LARGE = "".join(f"Zeile {number}: 字 und mehr\n" for number in range(3_000))


class Shown(NamedTuple):
    head: str
    tail: str
    artifact: str


def shown_by(content: str, left_out: Omission | None) -> Shown | None:
    if left_out is None:
        return None
    return Shown(content[: left_out.begin], content[left_out.end :], left_out.artifact)


def found(result: Json) -> Shown:
    one = shown_by(result["content"], omission(result))
    assert one is not None
    return one


async def all_of(tools: Workbench, artifact_id: str) -> str:
    page = await tools.artifacts.read(artifact_id, KEY, offset=0, limit=10**7)
    assert page.end == page.characters
    return page.text


def load(results: list[Json]) -> int:
    return sum(result_limits.weight(result["content"]) for result in results)


async def test_a_large_result_is_head_and_tail_and_whole_in_an_artifact(tools: Workbench) -> None:
    result = await tools.look(LARGE)
    one = found(result)
    assert result_limits.weight(result["content"]) <= result_limits.ROOM
    assert LARGE.startswith(one.head)
    assert LARGE.endswith(one.tail)
    assert await all_of(tools, str(one.artifact)) == LARGE
    (line,) = tools.log.of("tool_result")
    assert line.details["artifact"] == one.artifact


async def test_what_fits_stays_as_it_is_and_makes_no_artifact(tools: Workbench) -> None:
    for fits in ("x" * 8_250, "字" * 2_500):
        assert (await tools.look(fits))["content"] == fits
        assert found(await tools.look(fits + "!")).artifact
    assert tools.log.of("tool_result")[0].details["artifact"] is None


async def test_an_error_keeps_its_mark_and_a_long_one_is_put_away(tools: Workbench) -> None:
    long = await tools.look(errors.ToolError("wrong\n" * 5_000))
    assert long["is_error"] is True
    assert await all_of(tools, str(found(long).artifact)) == "wrong\n" * 5_000


@pytest.mark.parametrize("kind", ["*", "write"])
async def test_a_disk_that_cannot_write_costs_the_middle_and_says_so(tools: Workbench, kind: Any) -> None:
    tools.disk.fail(Failure(kind, times=None))
    result = await tools.look(LARGE)
    assert "they are lost, the whole result could not be kept]" in result["content"]
    assert result["content"].startswith("Zeile 0")
    assert result_limits.weight(result["content"]) <= result_limits.ROOM
    (line,) = tools.log.at("error")
    assert (line.kind, line.details["tool"]) == ("storage", "look")
    assert "Zeile" not in str(line.details)


async def test_outside_of_a_turn_and_without_a_store_nothing_is_kept(tools: Workbench) -> None:
    for more in ({}, {"artifacts": None}):
        runner = tools.dispatcher(Says("look", LARGE), **more)
        (result,) = await run_blocks(runner, [tool_use("look")])
        assert "are lost" in result["content"]


async def test_an_artifact_holds_no_secret(tools: Workbench) -> None:
    runner = tools.dispatcher(
        Says("look", "the key is sk-1\n" * 2_000), redact=lambda words: words.replace("sk-1", "[redacted]")
    )
    with tool_scope(ToolExecutionContext(KEY, "R1", None, None, None)):
        (result,) = await run_blocks(runner, [tool_use("look")])
    assert "sk-1" not in await all_of(tools, str(found(result).artifact))


async def step(tools: Workbench, *answers: Any) -> list[Json]:
    """Run one step of tools that return these texts or raise these errors."""
    made = [
        answer if isinstance(answer, Says) else Says(f"t{at:03}", answer) for at, answer in enumerate(answers)
    ]
    return await tools.run([tool_use(one.name) for one in made], *made)


async def test_of_one_step_the_largest_results_give_first(tools: Workbench) -> None:
    small, middle = "s" * 3_000, "m" * 5_000
    results = await step(tools, small, *[LARGE] * 5, middle)
    assert results[0]["content"] == small
    assert results[6]["content"] == middle
    assert 0.97 * result_limits.STEP_ROOM < load(results) <= result_limits.STEP_ROOM
    for result in results[1:6]:
        assert await all_of(tools, str(found(result).artifact)) == LARGE
    assert len({found(result).artifact for result in results[1:6]}) == 5, "one artifact each"
    assert len({found(result).head for result in results[1:6]}) == 1, "the same for the same"


async def test_what_lasts_goes_after_what_ages(tools: Workbench) -> None:
    skill = Says("skill", "i" * 30_000, ages=False)
    results = await step(tools, skill, LARGE, LARGE)
    assert results[0]["content"] == skill.answer
    assert load(results) <= result_limits.STEP_ROOM
    two = [Says(name, "i" * 30_000, ages=False) for name in ("one", "two")]
    results = await step(tools, *two, LARGE)
    assert load(results) <= result_limits.STEP_ROOM
    assert {len(found(one).head) > 1_000 for one in results[:2]} == {True}
    assert all([await all_of(tools, str(found(one).artifact)) == "i" * 30_000 for one in results[:2]])


@settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(answers=st.lists(TEXTS.filter(bool), min_size=1, max_size=12), times=st.sampled_from([1, 20]))
async def test_any_results_fit_and_nothing_of_them_is_lost(
    tools: Workbench, answers: list[str], times: int
) -> None:
    results = await step(tools, *[answer * times for answer in answers])
    assert load(results) <= result_limits.STEP_ROOM
    for result, answer in zip(results, answers, strict=True):
        whole = answer * times
        assert result_limits.weight(result["content"]) <= result_limits.ROOM
        shown = shown_by(result["content"], omission(result))
        if shown is None:
            assert result["content"] == whole
        else:
            assert whole.startswith(shown.head)
            assert whole.endswith(shown.tail)
            assert await all_of(tools, str(shown.artifact)) == whole


@settings(derandomize=True, deadline=None, max_examples=examples(400))
@given(words=TEXTS, room=st.integers(0, 40_000))
def test_any_text_is_cut_to_its_head_its_tail_and_a_note_that_counts_the_rest(words: str, room: int) -> None:
    if result_limits.weight(words) <= room:
        return
    content, left_out = result_limits.excerpt(words, room, ID)
    one = shown_by(content, left_out)
    assert one is not None
    assert left_out is not None
    note = next(line for line in content.split("\n") if "omitted; " in line)
    assert result_limits.weight(content) <= max(room, result_limits.weight(note))
    assert words.startswith(one.head)
    assert words.endswith(one.tail)
    gone = words[len(one.head) : len(words) - len(one.tail)]
    assert (left_out.lines, left_out.characters) == (gone.count("\n"), len(gone))
    for cut in (len(one.head), len(words) - len(one.tail)):
        assert texts.border(words, cut) == cut


def test_the_note_says_what_is_missing_and_how_to_get_it() -> None:
    content, one = result_limits.excerpt("one\n" * 10_000, 6_000, ID)
    assert one is not None
    assert (
        f"\n[… {one.lines} lines, {one.characters} characters omitted; whole result: artifact {ID}, "
        "read it with read_artifact]\n"
    ) in content
    lost = result_limits.excerpt("x" * 900, 10, None)
    assert lost == (
        "[… 0 lines, 900 characters omitted; they are lost, the whole result could not be kept]",
        None,
    )
