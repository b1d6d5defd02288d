"""Summaries on demand on the loopback Messages API: its rules are those of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bot.contracts.base import Json
from bot.testing import anthropic_script as script
from bot.testing.anthropic import AnthropicServer
from bot.testing.anthropic_compaction import BETA, MAX_INSTRUCTIONS
from tests.unit.testing.messages import CACHE, HEADERS, Caller, assistant, body, result, text, use, user

WITH = HEADERS | {"anthropic-beta": f"other-2026-01-01, {BETA}"}
SUMMARIZE = {"type": "summarize"}
TALK = (user("How long is the bridge?"), assistant("1,991 m"))
FRAME: Json = {"system": [text("You are a guide.")]}


@pytest.fixture(autouse=True)
def able(server: AnthropicServer) -> None:
    server.compacts = True


async def made(caller: Caller, *messages: Json, **more: Any) -> Json:
    """A block of a conversation."""
    caller.server.answer("The bridge is 1,991 m long. 橋")
    given = body(*(messages or TALK), compaction=SUMMARIZE, **(FRAME | more))
    status, answer = await caller.post(given, headers=WITH)
    assert (status, answer["stop_reason"], len(answer["content"])) == (200, "compaction", 1), answer
    block: Json = answer["content"][0]
    return block


async def test_a_summary_is_one_signed_block_and_billed_beside(caller: Caller) -> None:
    caller.server.answer("The bridge is 1,991 m long. 橋")
    status, answer = await caller.post(body(*TALK, compaction=SUMMARIZE), headers=WITH)
    assert status == 200
    (block,) = answer["content"]
    assert block["content"] == "The bridge is 1,991 m long. 橋"
    assert block["signature"]
    usage = answer["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (0, 0)
    (iteration,) = usage["iterations"]
    assert iteration["type"] == "compaction"
    assert iteration["input_tokens"] > 0
    assert iteration["output_tokens"] > 0


async def test_it_stands_first_in_a_message_of_either_role_with_a_breakpoint_or_not(caller: Caller) -> None:
    block = await made(caller)
    for first in (user(block, "And now?"), user(block | {"cache_control": CACHE}), user(block)):
        status, answer = await caller.post(body(first, user("Go on"), **FRAME), headers=WITH)
        assert status == 200, answer
    again = await made(caller, user(block), *TALK)
    assert again["signature"] != block["signature"]


SENT_BACK: dict[str, tuple[Callable[[Json], list[Json]], str | None]] = {
    "behind a message": (lambda block: [user("Hi"), user(block)], "compaction_block_misplaced"),
    "behind a word": (lambda block: [user("Hi", block)], "compaction_block_misplaced"),
    "twice": (lambda block: [user(block, block)], "compaction_block_ambiguous"),
    "other words": (lambda block: [user(block | {"content": "x"})], "compaction_content_mismatch"),
    "other tools": (lambda block: [user(block | {"tool_changes": None})], "compaction_tool_changes_mismatch"),
    "other signature": (lambda block: [user(block | {"signature": "x"})], "compaction_signature_invalid"),
    "a field less": (
        lambda block: [user({name: block[name] for name in block if name != "encrypted_content"})],
        "compaction_signature_invalid",
    ),
}


@pytest.mark.parametrize("name", SENT_BACK)
async def test_what_is_not_sent_back_as_it_came_is_refused(caller: Caller, name: str) -> None:
    change, code = SENT_BACK[name]
    status, answer = await caller.post(
        body(*change(await made(caller)), user("Go on"), **FRAME), headers=WITH
    )
    assert (status, answer["error"]["details"]["error_code"]) == (400, code)


OTHERS: dict[str, Json] = {
    "another model": {"model": "claude-opus-5-5"},
    "another prompt": {"system": [text("You are a cat.")]},
    "another tool": {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
}


@pytest.mark.parametrize("name", OTHERS)
async def test_behind_something_else_it_is_refused(caller: Caller, name: str) -> None:
    block = await made(caller)
    status, answer = await caller.post(body(user(block), **(FRAME | OTHERS[name])), headers=WITH)
    assert (status, "another model" in answer["error"]["message"]) == (400, True)


async def test_without_the_header_nobody_knows_of_it(caller: Caller) -> None:
    status, answer = await caller.post(body(*TALK, compaction=SUMMARIZE))
    assert (status, answer["error"]["message"]) == (400, "compaction: Extra inputs are not permitted")
    status, answer = await caller.post(body(user(await made(caller)), **FRAME))
    assert (status, "Input tag 'compaction'" in answer["error"]["message"]) == (400, True)


ASKED: dict[str, tuple[Json, str]] = {
    "another type": (body(*TALK, compaction={"type": "shorten"}), "expected tags"),
    "another field": (body(*TALK, compaction=SUMMARIZE | {"trigger": 1}), "expected tags"),
    "instructions": (
        body(*TALK, compaction=SUMMARIZE | {"instructions": "x" * (MAX_INSTRUCTIONS + 1)}),
        "at most 16384",
    ),
    "context editing": (body(*TALK, compaction=SUMMARIZE, context_management={}), "context_management"),
    "stop sequences": (body(*TALK, compaction=SUMMARIZE, stop_sequences=["x"]), "stop_sequences"),
    "a format": (
        body(*TALK, compaction=SUMMARIZE, output_config={"format": {"type": "json_schema"}}),
        "output_config.format",
    ),
    "a forced call": (body(*TALK, compaction=SUMMARIZE, tool_choice={"type": "any"}), "tool_choice"),
    "in the middle of a turn": (
        body(user("Hi"), assistant(use()), compaction=SUMMARIZE),
        "without its result",
    ),
}


@pytest.mark.parametrize("name", ASKED)
async def test_what_cannot_be_asked_for_is_refused(caller: Caller, name: str) -> None:
    given, words = ASKED[name]
    status, answer = await caller.post(given, headers=WITH)
    assert status == 400
    assert words in answer["error"]["message"]


async def test_there_has_to_be_something_to_summarize(caller: Caller) -> None:
    block = await made(caller)
    status, answer = await caller.post(body(user(block), compaction=SUMMARIZE, **FRAME), headers=WITH)
    assert (status, answer["error"]["details"]["error_code"]) == (400, "compaction_nothing_to_summarize")
    caller.server.answer("calls answered")
    status, _ = await caller.post(
        body(user("Hi"), assistant(use()), user(result()), compaction=SUMMARIZE), headers=WITH
    )
    assert status == 200


@pytest.mark.parametrize(
    "answer",
    [script.reply("half", stop_reason="max_tokens"), script.reply(), script.reply(script.tool_use("look"))],
)
async def test_a_summary_that_did_not_come_about_is_an_empty_answer(
    caller: Caller, answer: script.Reply
) -> None:
    caller.server.then(answer)
    status, got = await caller.post(body(*TALK, compaction=SUMMARIZE), headers=WITH)
    assert (status, got["content"], got["stop_reason"]) == (200, [], answer.reason)


async def test_a_model_that_cannot_says_so_and_refuses(caller: Caller) -> None:
    caller.server.compacts = False
    status, answer = await caller.post(body(*TALK, compaction=SUMMARIZE), headers=WITH)
    assert (status, "not supported" in answer["error"]["message"]) == (400, True)
