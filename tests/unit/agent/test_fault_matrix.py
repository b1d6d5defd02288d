"""Everything that a provider can do wrong, over the real client: at the first request and after a tool, once and for
ever. Each ends in an answer or in an honest line, tools run once, and the next message is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from bot.agent.turn import MAX_STEPS
from bot.contracts.base import Json
from bot.llm.client import AnthropicModel, Timeouts
from bot.llm.wrapper import RetryingModel
from bot.system import SystemClock
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY as API_KEY
from bot.testing.anthropic import AnthropicServer
from bot.testing.anthropic_script import Answer, error, reply, text, thinking, tool_use
from bot.testing.clock import FakeClock
from bot.words import say
from tests.shares import one_in
from tests.unit.agent.conftest import Bench
from tests.unit.agent.test_turn import Press

BROKEN = say("errors.any")

Fault = Callable[[], Answer]


def invalid(words: str) -> Fault:
    return lambda: error(400, "invalid_request_error", words)


OVERFLOWS = {
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "anthropic, output": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
        "`max_tokens` and try again"
    ),
    "anthropic, input": "input is too long",
    "anthropic, window": "input length exceeds context window",
    "anthropic, both": "input and output tokens exceed your context limit",
    "bedrock": "Input is too long for requested model",
    "bedrock, newer": (
        "The model returned the following errors: prompt is too long: 903884 tokens > 200000 maximum"
    ),
    "bedrock, bytes": "too many total text bytes",
    "mantle": (
        "This model's maximum context length is 202752 tokens. However, you requested 65536 output tokens and your "
        "prompt contains at least 137217 input tokens, for a total of at least 202753 tokens."
    ),
    "gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "openai": "Your input exceeds the context window of this model",
    "openai, older": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens"
    ),
    "vllm": (
        "This model's maximum context length is 262144 tokens. However, you requested 1000 output tokens and your "
        "prompt contains at least 262145 input tokens, for a total of at least 263145 tokens. "
        "(parameter=input_tokens, value=262145)"
    ),
    "deepseek": (
        "This model's maximum context length is 65536 tokens. However, you requested 190402 tokens (182402 in the "
        "messages, 8000 in the completion)"
    ),
    "openrouter": "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens",
    "poolside": "Input length 40000 exceeds the maximum allowed input length of 32768 tokens.",
    "groq": "Please reduce the length of the messages or completion",
    "xai": "maximum prompt length is 131072 but the request contains 537812 tokens",
    "together": "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "copilot": "prompt token count of 40000 exceeds the limit of 32768",
    "minimax": "invalid params, context window exceeds limit",
    "kimi": "Your request exceeded model token limit: 32768 (requested: 40000)",
    "lm studio": "tokens to keep from the initial prompt is greater than the context length",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "ollama": "prompt too long; exceeded max context length by 4000 tokens",
}
FAULTS: dict[str, Fault] = {
    **{f"overflow: {name}": invalid(words) for name, words in OVERFLOWS.items()},
    "overflow: vertex": lambda: script.Failure(
        413,
        '{"error":{"message":"{\\"type\\":\\"error\\",\\"error\\":{\\"message\\":\\"Prompt is too long\\"}}"}}',
    ),
    "overflow: cerebras": lambda: script.Failure(400, ""),
    "413": lambda: error(413, "request_too_large", "Request exceeds the maximum size"),
    "413 page": script.too_large_page,
    "max_tokens over the model's": invalid(
        "max_tokens: 8192 > 4096, which is the maximum allowed number of output"
    ),
    "429": script.rate_limited,
    "429 in a second": lambda: script.rate_limited(1),
    "429 in an hour": lambda: script.rate_limited(3600),
    "429 abc": lambda: script.rate_limited("abc"),
    "429 that sounds like an overflow": lambda: error(
        429, "rate_limit_error", "Too many tokens, please wait before trying again."
    ),
    "spend limit": lambda: script.rate_limited(code="workspace_spend_limit_reached"),
    "unpaid": script.unpaid,
    "529": script.overloaded,
    "529 in an hour": lambda: error(529, "overloaded_error", "Overloaded", retry_after="3600"),
    "529 not again": lambda: error(529, "overloaded_error", "Overloaded", x_should_retry="false"),
    "500": lambda: error(500, "api_error", "Internal server error"),
    "502 page": lambda: script.html_page(502, "Bad gateway"),
    "503 empty": lambda: script.Failure(503, ""),
    "504": lambda: error(504, "timeout_error", "Request timed out"),
    "auth": script.refused_key,
    "forbidden": script.forbidden,
    "no such model": lambda: error(404, "not_found_error", "model: claude-none"),
    "page with 200": script.html_page,
    "cut": lambda: script.cut(reply("An answer that is cut in the middle")),
    "cut before anything": lambda: script.cut(reply("An answer"), 0),
    "cut in a tool call": lambda: script.cut(reply(tool_use("press", '{"deep": "' + "x" * 90)), 6),
    "stall": lambda: script.stall(reply("An answer that stalls in the middle")),
    "clean end without message_stop": lambda: script.end_early(reply("An answer that just ends")),
    "empty stream": script.empty_body,
    "overloaded in the middle": lambda: script.error_event(reply("An answer that fails")),
    "api_error in the middle": lambda: script.error_event(
        reply("An answer"), kind="api_error", message="Internal"
    ),
    "overflow in the middle": lambda: script.error_event(
        reply("An answer"), kind="invalid_request_error", message="prompt is too long"
    ),
    "garbled event": lambda: script.garble(reply("An answer that is garbled")),
    "unknown event": lambda: script.unknown_event(reply("An answer with news")),
    "no event names": lambda: script.nameless(reply("An answer behind a proxy")),
    "no reason to stop": script.null_stop,
    "bad tool JSON": lambda: script.bad_json("press", '{"deep": NaN}'),
    "tool JSON of another kind": lambda: script.bad_json("press", "[1, 2]"),
    "unknown tool": lambda: reply(tool_use("no_such_tool")),
    "max_tokens in the text": lambda: reply("And so it goes on ", stop_reason="max_tokens"),
    "max_tokens in a tool": lambda: script.cut_call("press", '{"deep": "x'),
    "max_tokens in an empty tool": lambda: script.cut_call("press", ""),
    "max_tokens in thinking": lambda: reply(thinking(), stop_reason="max_tokens"),
    "max_tokens before anything": lambda: reply(stop_reason="max_tokens"),
    "window full in the text": lambda: reply("As far as", stop_reason="model_context_window_exceeded"),
    "window full in a tool": lambda: reply(
        tool_use("press", '{"x'), stop_reason="model_context_window_exceeded"
    ),
    "window full in thinking": lambda: reply(thinking(), stop_reason="model_context_window_exceeded"),
    "refusal": script.refusal,
    "refusal without a category": lambda: script.refusal(None),
    "refusal in a tool": lambda: reply(tool_use("press", '{"x'), stop_reason="refusal"),
    "unknown block": script.unknown_block,
    "unknown reason": script.unknown_stop,
    "unknown reason and silence": lambda: reply(stop_reason="brand_new_reason"),
    "compaction": lambda: reply(stop_reason="compaction"),
    "silence": reply,
    "thinking and silence": lambda: reply(thinking()),
    "blank text": lambda: reply(text(" \n")),
    "thinking bound elsewhere": invalid(
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
        'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    ),
    "pairing": invalid(
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message."
    ),
    "any 400": invalid("messages: something nobody has heard of"),
    "pause": script.pause_turn,
}
MOST = {"unknown tool": MAX_STEPS}
"""Requests that a fault may cost, where more than four: what the provider, or the model, asks for itself."""


class HastyClock(FakeClock):
    """Waiting takes no time."""

    async def sleep(self, seconds: float) -> None:
        self.ticks += seconds
        await asyncio.sleep(0)


@pytest.fixture
async def server(bench: Bench, request: pytest.FixtureRequest) -> AsyncIterator[AnthropicServer]:
    stalls = request.node.callspec.params["name"] == "stall"
    async with AnthropicServer(bind_thinking=True) as running:
        client = AnthropicModel(
            api_key=API_KEY,
            base_url=running.url,
            clock=SystemClock(),
            timeouts=Timeouts(connect=10.0, idle=0.15 if stalls else 10.0),
        )
        model = RetryingModel(client, clock=HastyClock(), rng=random.Random(1), log=bench.log, seconds=1.0)
        bench.configure(model=model, default_model="claude-sonnet-5-5")
        yield running
        await client.close()


TWICE = [((1, 1), (2, 99)), ((2, 1), (1, 99))]
"""Of each fault, the requests of the turn at which it comes, and how often. One of them is for `make test`."""
CASES = [
    case
    for at, name in enumerate(FAULTS)
    for case in one_in(2, [(name, TWICE[at % 2]), (name, TWICE[at % 2 - 1])])
]


@pytest.mark.parametrize(("name", "strikes"), CASES)
async def test_a_fault_ends_in_an_answer_or_in_the_truth(
    bench: Bench, server: AnthropicServer, name: str, strikes: tuple[tuple[int, int], ...]
) -> None:
    press = Press()
    bench.add_tools(press)
    for step, times in strikes:
        server.script(lambda _: reply(thinking(), text("你好。")))
        for number in range(2):
            await bench.say(f"before {number}")
        await struck(bench, server, press, Strike(name, step, times))


@dataclass
class Strike:
    """A fault that comes at the `step`-th request of a turn, so many times."""

    name: str
    step: int
    times: int
    faults: list[Answer] = field(default_factory=list)
    asked: int = 0

    def answer(self, _: Json) -> Answer:
        self.asked += 1
        if self.asked < self.step:
            return reply(thinking(), tool_use("press"))
        if self.asked >= self.step + self.times:
            return reply("Fine again.")
        self.faults.append(FAULTS[self.name]())
        return self.faults[-1]


async def struck(bench: Bench, server: AnthropicServer, press: Press, strike: Strike) -> None:
    begun, pressed = len(server.requests), press.pressed
    server.script(strike.answer)
    outcome = await bench.say("press it")

    assert outcome.delivered or outcome.notice, strike
    assert outcome.notice != BROKEN, strike
    assert press.pressed - pressed == strike.step - 1, strike
    assert strike.asked - (strike.step - 1) <= MOST.get(strike.name, 4), strike
    refused = [seen.status for seen in server.requests[begun:] if seen.status >= 400]
    given = [one.status for one in strike.faults if isinstance(one, script.Failure) and one.status >= 400]
    assert refused == given, "what is refused is what was to be"

    server.script(lambda _: reply("And on."))
    said = len(bench.chat.seen)
    assert (await bench.say("and now?")).status == "done", strike
    assert bench.chat.seen[said:] == ["And on."]
    assert server.requests[-1].status == 200
    assert not bench.log.of("repair")


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 40
