"""A model that was chosen for a chat: kept with the chat, declared where it changes, given up where the provider has no such one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot import errors
from bot.contracts.agent import ModelInfo
from bot.contracts.identity import ChatKey
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench, words

OPUS = "claude-opus-5-5"


async def choose(bench: Bench, model: str | None) -> ModelInfo:
    return await bench.pool.choose_model(KEY, model, bench.ids.ulid())


def asked(bench: Bench) -> list[str]:
    """Which models were asked."""
    return [request.model for request in bench.model.requests]


async def say(bench: Bench, said: str) -> None:
    bench.model.answers += [reply(text(f"to {said}"))]
    await bench.say(said)


async def test_the_next_turn_has_the_model_and_a_declared_change(bench: Bench) -> None:
    await say(bench, "one")
    facts = await choose(bench, OPUS)
    assert (facts.model, facts.chosen, facts.default) == (OPUS, True, "scripted")
    assert facts.price == (4, 20)
    await say(bench, "two")
    await say(bench, "three")
    assert asked(bench) == ["scripted", OPUS, OPUS]
    assert [one.details["reason"] for one in bench.log.of("compaction")] == ["model_change"]
    assert [w for m in bench.sent for w in words(m)] == ["one", "to one", "two", "to two", "three"]
    await choose(bench, None)
    await say(bench, "four")
    assert asked(bench)[-1] == "scripted"
    assert (await bench.pool.describe(KEY)).chosen is False
    with_other = await bench.pool.describe(ChatKey.parse("telegram:chat:2"))
    assert with_other.model == "scripted"


@pytest.mark.parametrize("before", [0, 1])
async def test_it_is_kept_over_restarts_new_conversations_and_returns_to_old_ones(
    bench: Bench, before: int
) -> None:
    for number in range(before):
        await say(bench, f"before {number}")
    await choose(bench, OPUS)
    bench.restart()
    await say(bench, "one")
    await bench.pool.reset(KEY)
    bench.restart()
    assert (await bench.pool.describe(KEY)).model == OPUS
    await say(bench, "two")
    await choose(bench, "claude-opus-5")
    _, earlier = await bench.pool.sessions(KEY)
    await bench.pool.resume(KEY, earlier.id)
    await say(bench, "three")
    bench.restart()
    await say(bench, "four")
    await bench.pool.fork(KEY, back=1)
    await say(bench, "five")
    assert asked(bench)[before:] == [OPUS, OPUS, "claude-opus-5", "claude-opus-5", "claude-opus-5"]
    await choose(bench, None)
    _, earlier, *_ = await bench.pool.sessions(KEY)
    await bench.pool.resume(KEY, earlier.id)
    await say(bench, "six")
    assert asked(bench)[-1] == "scripted", "what is chosen is the chat's, not a conversation's"


async def test_it_is_kept_where_only_the_newest_turns_are_read(bench: Bench) -> None:
    bench.configure(max_messages=6)
    await choose(bench, OPUS)
    for number in range(8):
        await say(bench, str(number))
    bench.restart()
    assert (await bench.pool.describe(KEY)).model == OPUS


async def test_it_is_kept_behind_a_boundary(bench: Bench) -> None:
    await choose(bench, OPUS)
    await say(bench, "one")
    await say(bench, "two")
    await bench.pool.undo(KEY)
    bench.restart()
    await say(bench, "three")
    assert set(asked(bench)) == {OPUS}


async def test_a_model_that_the_provider_does_not_have_is_given_up_and_the_person_told(bench: Bench) -> None:
    await say(bench, "one")
    await choose(bench, "claude-none")
    bench.model.answers += [errors.ModelUnknown()]
    outcome = await bench.say("two")
    assert outcome.status == "failed"
    assert outcome.notice == (
        "The model “claude-none” doesn't exist any more. From now on scripted answers here again. "
        "Please send your last message once more."
    )
    bench.restart()
    await say(bench, "two, again")
    assert asked(bench) == ["scripted", "claude-none", "scripted"]
    assert "two" in [w for m in bench.sent for w in words(m)], "what was said is kept"
    bench.model.answers += [errors.ModelUnknown()]
    outcome = await bench.say("three")
    assert outcome.notice == errors.ModelUnknown().person, (
        "the model of ship.json is not for the person to mend"
    )


async def test_what_cannot_be_written_is_not_chosen(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    made = Bench(tmp_path, disk)
    await say(made, "one")
    disk.fail(Failure("append", times=None, named=".jsonl"))
    with pytest.raises(errors.StorageError):
        await choose(made, OPUS)
    disk.mend()
    await say(made, "two")
    made.restart()
    await say(made, "three")
    assert set(asked(made)) == {"scripted"}
    await made.close()


async def test_a_chat_whose_transcript_is_gone_still_takes_up_its_archive(bench: Bench) -> None:
    await bench.store(1, "user", "from before 東京")
    await bench.store(2, "assistant", "I have it")
    await choose(bench, OPUS)
    await say(bench, "go on")
    assert "from before 東京" in str(bench.sent)
    assert asked(bench) == [OPUS]


async def test_what_goes_on_beside_the_turns_goes_with_it(bench: Bench) -> None:
    for number in range(4):
        await say(bench, f"{number} " + "word " * 400)
    await choose(bench, OPUS)
    bench.model.answers += [reply(text("<summary>\nthe words\n</summary>"))]
    await bench.pool.compact(KEY)
    assert bench.model.requests[-1].purpose == "compaction"
    assert asked(bench)[-1] == OPUS


async def test_a_thought_of_the_model_before_is_left_out(bench: Bench) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "of scripted"}
    bench.model.answers += [reply(thought, text("answer"))]
    await bench.say("one")
    await choose(bench, OPUS)
    await say(bench, "two")
    assert "of scripted" not in str(bench.sent)
    assert "answer" in str(bench.sent)
