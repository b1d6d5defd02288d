"""A fork asks behind the bytes of its chat: the provider has read them before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot import errors
from bot.contracts.model import InMemoryLearned, ModelFacts, ModelReply
from bot.core import forks, memory
from bot.core.forks import Prefix
from bot.core.memory import MemoryInvalid, SessionMemory
from bot.llm.windows import ContextWindows
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.provider import MODEL, Provider

SUMMARY = "<analysis>long thoughts</analysis><summary>## What happened\n- 我们谈了\n## Open tasks\n- pay\n</summary>"
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def said(words: str) -> Any:
    return {"role": "user", "content": [text(words)]}


def answered(words: str) -> Any:
    return {"role": "assistant", "content": [text(words)]}


def prefix(count: int = 6) -> Prefix:
    history = [
        one for n in range(count) for one in (said(f"question {n} " + "x" * 330), answered(f"answer {n}"))
    ]
    return Prefix([text("You are a cat.")], history)


async def test_the_memory_is_asked_for_behind_the_chats_own_next_request(bench: Bench) -> None:
    await bench.say("What is the capital of 日本?")
    runtime = bench.pool.runtime(KEY)
    bench.model.answers.append(reply(text(SessionMemory(facts=("it is 東京",)).markdown)))
    found = await forks.remember(Prefix(runtime.view_changes.system, runtime.store.view()), None, bench.deps)
    fork = bench.model.requests[-1]
    await bench.say("And of France?")
    following = bench.model.requests[-2]
    assert found.facts == ("it is 東京",)
    assert fork.purpose == "memory"
    count = len(fork.messages) - 1
    assert bare(fork.system) == bare(following.system)
    assert fork.tools == following.tools
    assert bare(fork.messages[:count]) == bare(following.messages[:count])
    assert "cache_control" not in json.dumps(fork.messages[-1])


def bare(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace(', "cache_control": {"type": "ephemeral"}', "")


async def test_a_call_in_the_answer_is_not_run(bench: Bench) -> None:
    bench.model.answers.append(reply(tool_use("chat_send", text="hello")))
    with pytest.raises(MemoryInvalid):
        await forks.remember(prefix(), None, bench.deps)
    assert bench.chat.seen == []


async def test_secrets_do_not_get_into_a_memory(bench: Bench) -> None:
    bench.configure(redact=lambda words: words.replace("hunter2", "***"))
    bench.model.answers.append(reply(text(SessionMemory(facts=("the password is hunter2",)).markdown)))
    assert (await forks.remember(prefix(), None, bench.deps)).facts == ("the password is ***",)


async def test_a_memory_that_is_full_loses_what_was_used_longest_ago_and_the_log_says_so(
    bench: Bench,
) -> None:
    known = SessionMemory(facts=tuple(f"事実 {number} " + "x" * 400 for number in range(22)))
    assert known.capped() == known, "it is just not full"
    bench.model.answers.append(
        reply(text("## Facts\n- " + "y" * 800 + "\n- " + "z" * 800 + "\n## Used\n- 1"))
    )
    kept = await forks.remember(prefix(), known, bench.deps)
    assert kept.tokens <= memory.MAX_TOKENS
    assert kept.facts[-3:] == (known.facts[0], "y" * 800, "z" * 800)
    assert known.facts[1] not in kept.facts
    (told,) = (entry for entry in bench.log.entries if "the memory is full" in entry.message)
    assert told.details["items"] == 24 - len(kept)


async def test_the_analysis_of_a_summary_is_dropped(bench: Bench) -> None:
    bench.model.answers.append(reply(text(SUMMARY)))
    summary = await forks.summarize(prefix(), None, "the bill", bench.deps)
    assert summary == "## What happened\n- 我们谈了\n## Open tasks\n- pay"
    assert bench.model.requests[-1].purpose == "compaction"
    assert "the bill" in json.dumps(bench.model.requests[-1].messages[-1])


async def test_a_prompt_that_is_too_long_loses_its_oldest_rounds_by_the_excess(bench: Bench) -> None:
    # Of some 2,700 tokens, counted fourfold by the provider, a fifth is too much.
    bench.model.answers += [errors.ContextOverflow(tokens=10_000, window=8_000), reply(text(SUMMARY))]
    await forks.summarize(prefix(24), None, "", bench.deps)
    first, second = (request.messages for request in bench.model.requests)
    assert bare(second) == bare([*first[len(first) - len(second) : -1], second[-1]])
    assert second[0]["role"] == "user"
    sizes = [bench.deps.models.estimator.messages("scripted", one[:-1]) for one in (first, second)]
    assert 0.2 * sizes[0] < sizes[0] - sizes[1] < 0.8 * sizes[0]


async def test_what_was_thought_behind_what_is_gone_is_not_sent(bench: Bench) -> None:
    thought = {"role": "assistant", "content": [THINKING, text("so")]}
    history = [one for n in range(6) for one in (said(f"question {n}"), thought)]
    bench.model.answers += [errors.ContextOverflow(), reply(text(SUMMARY))]
    await forks.summarize(Prefix([text("You are a cat.")], history), None, "", bench.deps)
    first, second = (json.dumps(list(request.messages)) for request in bench.model.requests)
    assert "signature" in first
    assert "signature" not in second


async def test_it_is_tried_four_times_at_the_most_and_ever_shorter(bench: Bench) -> None:
    bench.model.answers += [errors.ContextOverflow() for _ in range(4)]
    with pytest.raises(errors.ContextOverflow):
        await forks.summarize(prefix(20), None, "", bench.deps)
    sizes = [len(request.messages) for request in bench.model.requests]
    assert len(sizes) == 4
    assert sizes == sorted(set(sizes), reverse=True)


async def test_a_prompt_of_which_nothing_would_be_left_is_given_up(bench: Bench) -> None:
    bench.model.answers.append(errors.ContextOverflow(tokens=100_000, window=1_000))
    with pytest.raises(errors.ContextOverflow):
        await forks.summarize(prefix(1), None, "", bench.deps)
    assert len(bench.model.requests) == 1


async def test_another_failure_is_not_tried_again(bench: Bench) -> None:
    bench.model.answers.append(errors.Overloaded())
    with pytest.raises(errors.Overloaded):
        await forks.summarize(prefix(), None, "", bench.deps)


async def test_an_answer_is_asked_for_within_what_the_model_gives(bench: Bench) -> None:
    bench.model.known = ModelFacts(max_output=1_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    assert forks.request(prefix(), bench.deps, purpose="memory").max_tokens == 1_000


async def test_an_answer_has_a_limit_of_its_own_whatever_turns_may_answer(bench: Bench) -> None:
    bench.configure(windows=ContextWindows(InMemoryLearned(), log=bench.log, max_tokens=2_048))
    assert forks.request(prefix(), bench.deps, purpose="memory").max_tokens == forks.ANSWER_TOKENS
    assert bench.deps.budget().max_tokens == 2_048
    bench.model.known = ModelFacts(window=32_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    asked, hard = forks.request(prefix(), bench.deps, purpose="memory").max_tokens, bench.deps.budget().hard
    assert hard is not None
    assert 2_048 < asked <= 32_000 - hard, "behind the longest prompt there is room for it"


async def test_a_model_that_gives_less_is_asked_again_within_that_and_it_is_learnt(bench: Bench) -> None:
    bench.model.answers += [errors.OutputOverflow(limit=4_096), reply(text(NOTED))]
    assert (await forks.remember(prefix(), None, bench.deps)).facts == ("四十二",)
    assert [request.max_tokens for request in bench.model.requests] == [forks.ANSWER_TOKENS, 4_096]
    assert forks.request(prefix(), bench.deps, purpose="memory").max_tokens == 4_096
    bench.model.answers.append(errors.OutputOverflow())
    with pytest.raises(errors.OutputOverflow):
        await forks.remember(prefix(), None, bench.deps)


NOTED = SessionMemory(facts=("四十二",)).markdown
CUT = reply(text(NOTED), stop_reason="max_tokens")
LONG_SUMMARY = f"<summary>{'word ' * 9_000}\n## Open tasks\n(none)</summary>"


async def test_a_memory_that_was_cut_off_is_asked_for_once_more_with_a_smaller_aim(bench: Bench) -> None:
    bench.model.answers += [CUT, reply(text(NOTED))]
    assert (await forks.remember(prefix(), None, bench.deps)).facts == ("四十二",)
    first, second = bench.model.requests
    assert bare(first.messages[:-1]) == bare(second.messages[:-1])
    assert ["at most 800 words" in bare(one.messages[-1]) for one in (first, second)] == [False, True]
    bench.model.answers += [CUT, CUT]
    with pytest.raises(MemoryInvalid, match="cut off"):
        await forks.remember(prefix(), None, bench.deps)
    assert len(bench.model.requests) == 4


@pytest.mark.parametrize("first", [reply(text(SUMMARY), stop_reason="max_tokens"), reply(text(LONG_SUMMARY))])
async def test_so_is_a_summary_also_behind_a_prompt_that_was_too_long(
    bench: Bench, first: ModelReply
) -> None:
    bench.model.answers += [errors.ContextOverflow(), first, reply(text(SUMMARY))]
    summary = await forks.summarize(prefix(24), None, "", bench.deps)
    assert "我们谈了" in summary
    _, second, third = bench.model.requests
    assert bare(second.messages[:-1]) == bare(third.messages[:-1])
    assert ["at most 600 words" in bare(one.messages[-1]) for one in (second, third)] == [False, True]
    bench.model.answers += [first, first]
    with pytest.raises(MemoryInvalid):
        await forks.summarize(prefix(), None, "", bench.deps)


async def test_the_provider_has_all_that_a_fork_shares_with_its_chat_in_its_cache(bench: Bench) -> None:
    def script(body: Any) -> Any:
        if "<memory_task>" in json.dumps(body["messages"][-1]):
            return reply(text(SessionMemory(facts=("a cat",)).markdown))
        last = body["messages"][-1]["content"][-1]
        return reply(text("ok")) if last["type"] == "tool_result" else reply(tool_use("skills_list"))

    model = Provider(bench.clock, bench.log, script)
    bench.configure(model=model, default_model=MODEL)
    for number in range(4):
        await bench.say(f"message {number} 你好 {'x' * 3_000}")
    runtime = bench.pool.runtime(KEY)
    await forks.remember(Prefix(runtime.view_changes.system, runtime.store.view()), None, bench.deps)
    turn, fork = model.calls[-2:]
    assert fork.read >= turn.prompt, "all that the chat's last request held is read, not paid again"
    await bench.say("next")
    following = model.calls[-2]
    assert following.read >= turn.prompt, "and the fork has not pushed it out"
