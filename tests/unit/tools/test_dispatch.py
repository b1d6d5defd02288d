"""Every tool call gets a result. Calls are validated, run in order and within a time limit, and results contain no secrets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.tools import ToolCall, ToolResult
from bot.features.live import LiveTurns
from bot.telemetry.log import Running, running_scope
from bot.telemetry.redaction import LONG
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools import context
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import CUT_OFF, Dispatcher, Registry, failure, unfit
from tests.tool_calls import run_blocks

from .conftest import Says, Workbench


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=1, ge=1, description="How many.")


class Fake:
    description = "A tool."
    input = Input
    ages = True

    def __init__(
        self, name: str, work: Callable[[Any], Awaitable[str]], effect: Any = "read", seconds: float = 5
    ) -> None:
        self.name = name
        self.effects = frozenset({effect})
        self.timeout_seconds = seconds
        self._work = work

    async def run(self, args: Any) -> str:
        return await self._work(args)


async def fine(args: Input) -> str:
    return f"{args.count} done"


def dispatcher(*tools: Any, log: MemoryLog | None = None, **more: Any) -> Dispatcher:
    return Dispatcher(Registry(tools), clock=FakeClock(), log=log or MemoryLog(), **more)


async def one(tool: Any, **arguments: Any) -> Json:
    (result,) = await run_blocks(dispatcher(tool), [tool_use(tool.name, **arguments)])
    return result


async def test_invalid_input_never_reaches_the_tool_and_says_what_is_wrong() -> None:
    async def never(_: Any) -> str:
        raise AssertionError

    for arguments, said in (
        ({"count": 0}, "- count: expected greater than or equal to 1, got 0"),
        ({"colour": 1}, "- colour: expected no field of this name, got 1"),
        (
            {"count": "many"},
            "- count: expected a valid integer, unable to parse string as an integer, got the text 'many'",
        ),
    ):
        result = await one(Fake("never", never), **arguments)
        assert result["is_error"] is True
        assert said in result["content"]
    (result,) = await run_blocks(
        dispatcher(Fake("never", never)), [{**tool_use("never"), "input": ["no object"]}]
    )
    assert "- input: expected a valid dictionary or instance of" in result["content"]


async def test_an_unknown_tool_names_those_that_exist() -> None:
    (result,) = await run_blocks(dispatcher(Fake("fine", fine)), [tool_use("x" * 500)])
    assert "There are: fine" in result["content"]
    assert len(result["content"]) < 200


async def test_reads_run_side_by_side_and_everything_else_one_after_another_in_order() -> None:
    running = peak = 0
    both = asyncio.Event()

    async def meet(args: Input) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if running == 2:
            both.set()
        if args.count == 2:
            await asyncio.wait_for(both.wait(), 90)
        await asyncio.sleep(0)
        running -= 1
        return str(args.count)

    calls = [tool_use("meet", count=2), tool_use("meet", count=2)]
    results = await run_blocks(dispatcher(Fake("meet", meet)), calls)
    assert (peak, [r["content"] for r in results]) == (2, ["2", "2"])
    peak = 0
    calls = [tool_use("meet", count=n) for n in (3, 4, 5)]
    results = await run_blocks(dispatcher(Fake("meet", meet, "write")), calls)
    assert (peak, [r["content"] for r in results]) == (1, ["3", "4", "5"])


async def test_a_cut_call_is_not_run() -> None:
    call = tool_use("fine")
    (result,) = await run_blocks(dispatcher(Fake("fine", fine)), [call], frozenset({call["id"]}))
    assert (result["content"], result["is_error"]) == (CUT_OFF, True)


async def test_empty_and_secret_output_and_what_utf8_cannot_carry() -> None:
    async def broken(_: Any) -> str:
        return "half a \ud83d pair"

    async def empty(_: Any) -> str:
        return ""

    async def secret(_: Any) -> str:
        return "the key is sk-1"

    assert (await one(Fake("broken", broken)))["content"] == "half a \N{REPLACEMENT CHARACTER} pair"
    assert (await one(Fake("empty", empty)))["content"] == "(no output)"
    hiding = dispatcher(Fake("secret", secret), redact=lambda words: words.replace("sk-1", "[redacted]"))
    (result,) = await run_blocks(hiding, [tool_use("secret")])
    assert result["content"] == "the key is [redacted]"


async def test_the_log_has_previews_or_with_text_off_only_lengths() -> None:
    async def long(_: Any) -> str:
        return "canary " + "x" * 50_000

    log = MemoryLog()
    await run_blocks(dispatcher(Fake("long", long), log=log), [tool_use("long", count=7)])
    (result,) = log.of("tool_result")
    assert "canary" in result.details["result"]
    assert len(result.details["result"]) <= 4_000
    silent = MemoryLog()
    await run_blocks(
        dispatcher(Fake("long", long), log=silent, log_content=False), [tool_use("long", count=7)]
    )
    assert "canary" not in silent.text
    assert silent.of("tool_result")[0].details["result_length"] == 50_007
    assert "input" not in silent.of("tool_call")[0].details


async def test_no_piece_of_a_secret_is_left_where_a_log_line_is_cut() -> None:
    log, secret = MemoryLog(), "canary-" + "0123456789" * 4
    hiding = dispatcher(log=log, redact=lambda words: words.replace(secret, "[redacted]"))
    for at in range(2_600, 2_700, 20):
        await run_blocks(hiding, [tool_use("nothing", words="x" * at + secret + "y" * 9_000)])
    assert "characters left out" in log.text
    assert "canary" not in log.text


async def test_the_context_of_a_turn_is_its_own() -> None:
    async def who(_: Any) -> str:
        await asyncio.sleep(0)
        return str(context.current().chat_key)

    runner = dispatcher(Fake("who", who))

    async def turn(number: int) -> str:
        with tool_scope(ToolExecutionContext(f"chat {number}", "r", None, None, None)):  # type: ignore[arg-type]
            (result,) = await run_blocks(runner, [tool_use("who")])
            return str(result["content"])

    assert await asyncio.gather(*map(turn, range(20))) == [f"chat {n}" for n in range(20)]
    (outside,) = await run_blocks(runner, [tool_use("who")])
    assert "only while a message is being answered" in outside["content"]


async def test_what_is_long_is_searched_for_secrets_beside_all_else() -> None:
    """Redaction of a long output takes long, so it runs in another thread."""
    there = threading.current_thread()
    long_ones: list[tuple[bool, int]] = []

    def redact(words: str) -> str:
        long_ones.extend([(threading.current_thread() is there, len(words))] if len(words) >= LONG else [])
        return words.replace("secret", "[redacted]")

    async def prints(_: Any) -> str:
        return "secret " * 50_000

    async def fails(_: Any) -> str:
        raise errors.CommandFailed(status=1, stdout="secret " * 50_000, stderr="secret " * 50_000)

    registry = Registry([Fake("prints", prints), Fake("fails", fails)])
    runner = Dispatcher(registry, clock=FakeClock(), log=MemoryLog(), redact=redact)
    results = await run_blocks(runner, [tool_use("prints"), tool_use("fails")])
    assert all("[redacted]" in str(one["content"]) and "secret" not in str(one["content"]) for one in results)
    assert len(long_ones) >= 3
    assert not [length for on_the_loop, length in long_ones if on_the_loop]


SECRET = "canary-5f0e1d-secret"


def hide(words: str) -> str:
    return words.replace(SECRET, "[redacted]")


def test_many_and_long_and_secret_values_are_kept_short() -> None:
    with pytest.raises(ValidationError) as caught:
        Input.model_validate({f"x{number}": SECRET + "y" * 100_000 for number in range(50)})
    told = unfit(caught.value, hide).model
    assert len(told) < 5_000
    assert "- and 30 more" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("error", "model", "operator"),
    [
        (errors.ToolError(f"Do this, not {SECRET}."), "Do this, not [redacted].", "ToolError"),
        (
            errors.StorageError("disk 7 says EIO"),
            f"t failed: {errors.StorageError().for_model}",
            "StorageError: disk 7 says EIO",
        ),
        (RuntimeError("cannot open /etc/passwd"), "t failed: RuntimeError. Try another way.", "/etc/passwd"),
        (KeyError(SECRET), "t failed: KeyError. Try another way.", "[redacted]"),
        (
            OSError(errno.ENOSPC, "No space left on device", "a/b"),
            "t failed with ENOSPC (a/b): No space left on device.",
            "(a/b)",
        ),
        (
            OSError(errno.EACCES, "Permission denied", "/x/y"),
            "t failed with EACCES: Permission denied.",
            "/x/y",
        ),
        (
            errors.CommandFailed("make it", status=2, stdout="", stderr="x"),
            "exit code 2",
            "make it (exit code 2)",
        ),
        (
            errors.CommandFailed(status=-9, stdout="", stderr=""),
            "with signal 9.\nIt printed nothing.",
            "signal 9",
        ),
        (
            errors.CommandFailed(status=-9, stdout="so far", stderr="", limit=1.5),
            "longer than 1.5 s",
            "1.5 s",
        ),
        (
            errors.CommandFailed(status=3, stdout="out\n", stderr="```\n"),
            "exit code 3.\nstdout:\n```\nout\n```\nstderr:\n````\n```\n````",
            "exit code 3",
        ),
    ],
)
def test_the_model_is_told_what_it_can_act_on_and_the_operator_the_cause(
    error: Exception, model: str, operator: str
) -> None:
    told = failure(error, "t", hide)
    assert model in told.model
    assert operator in told.operator
    assert SECRET not in told.model + told.operator


async def test_a_call_that_takes_too_long_is_stopped() -> None:
    async def hang(_: Any) -> str:
        await asyncio.Event().wait()
        return ""

    assert "longer than 0.01 s" in (await one(Fake("hang", hang, seconds=0.01)))["content"]


async def test_of_long_outputs_head_and_tail_are_shown_and_the_whole_is_kept(tools: Workbench) -> None:
    lines = "\n".join(f"line {number} 字" for number in range(5_000))
    failed = errors.CommandFailed(status=1, stdout=lines, stderr=f"first\n{lines}\nthe error")
    (result,) = await tools.run([tool_use("look")], Says("look", failed))
    shown = result["content"]
    for words in ("line 0 字", "line 4999 字\n```\nstderr", "first", "the error\n```"):
        assert words in shown
    assert len(shown) < 8_000
    page = await tools.read(shown.rpartition("artifact ")[2].partition(",")[0], grep="line 2500 ")
    assert page["content"].count("line 2500 字") == 2
    assert ToolResult.of(result).omission is None


@pytest.mark.parametrize(
    ("effect", "refused", "inside", "told"),
    [
        ("read", False, False, ["began", False]),
        ("message", False, False, []),
        ("delegate", False, False, []),
        ("read", True, False, []),
        ("read", False, True, []),
    ],
)
async def test_who_shows_progress_is_told_of_calls_that_run(
    effect: Any, told: list[object], *, refused: bool, inside: bool
) -> None:
    heard: list[object] = []

    class Board:
        def began(self, call: ToolCall, at: float) -> None:
            heard.append("began")

        def ended(self, call_id: str, at: float, *, failed: bool) -> None:
            heard.append(failed)

    async def judge(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        return ToolResult(call.id, "no", failed=True) if refused else await run()

    registry = Registry([Fake("fine", fine, effect)])
    live = cast(
        "LiveTurns", SimpleNamespace(_board=lambda _: Board(), run=SimpleNamespace(clock=FakeClock()))
    )
    runner = dispatcher(Fake("fine", fine, effect), around=LiveTurns.calls(live, judge, registry))
    turn = ToolExecutionContext(ChatKey("telegram", "1"), "01REQ", "77", None, None)
    with tool_scope(turn), running_scope(Running(task="01TASK")) if inside else contextlib.nullcontext():
        await run_blocks(runner, [tool_use("fine")])
    assert heard == told
