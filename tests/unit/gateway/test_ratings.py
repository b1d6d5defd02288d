"""👍 and 👎 below an answer are kept with its turn, and nobody is told anything."""

from __future__ import annotations

from typing import Any

from bot.testing.journal import FaultyJournal, JournalFailure
from tests.unit.gateway.conftest import Bench


async def answered(bench: Bench) -> str:
    """An answer; the id of its turn."""
    await bench.say("what is new?")
    await bench.idle()
    return str(bench.agent.requests[-1].request_id)


def rating(answers: str, rating: str = "good", **more: Any) -> dict[str, Any]:
    return {
        "kind": "rating",
        "rating": rating,
        "answers": answers,
        "message_id": None,
        "addressed": "command",
    } | more


def ratings(bench: Bench) -> list[tuple[str | None, Any, Any]]:
    lines = bench.log.of("feedback")
    return [(line.request_id, line.details["rating"], line.details["person"]) for line in lines]


async def test_a_rating_is_a_line_with_the_id_of_the_turn(bench: Bench) -> None:
    turn = await answered(bench)
    assert await bench.say("", **rating("m1"))
    assert await bench.say("", **rating("m1", "none"))
    await bench.idle()
    assert ratings(bench) == [(turn, "good", "tele:77"), (turn, "none", "tele:77")]
    assert bench.tele.texts == ["re: what is new?"]
    assert await bench.lines() == [("user", "what is new?"), ("assistant", "re: what is new?")]
    assert await bench.journal.unfinished() == []


async def test_brought_twice_it_counts_once(bench: Bench) -> None:
    await answered(bench)
    for fresh in (True, False):
        assert await bench.say("", **rating("m1", keys=("press",))) is fresh
    await bench.idle()
    assert len(ratings(bench)) == 1


async def test_what_is_no_answer_cannot_be_rated(bench: Bench) -> None:
    await answered(bench)
    await bench.say("", **rating("1"))
    await bench.say("", **rating("m9"))
    await bench.idle()
    assert ratings(bench) == []


async def test_a_rating_of_a_stranger_is_refused_and_is_no_request_to_be_let_in(bench: Bench) -> None:
    await answered(bench)
    assert not await bench.say("", **rating("m1", user_id="666", chat_id="666", chat_key="tele:chat:666"))
    await bench.idle()
    assert ratings(bench) == []
    assert bench.lists.pending() == []
    assert len(bench.tele.sent) == 1


async def test_only_the_last_part_of_an_answer_is_its_end(bench: Bench) -> None:
    bench.agent.answer = lambda _: "word " * 500
    await answered(bench)
    await bench.say("/whoami", addressed="command", command={"name": "whoami"})
    await bench.idle()
    assert [one.ends for one in bench.tele.sent] == [False, False, True, False]


async def test_a_journal_that_cannot_be_read_costs_the_rating_alone(tmp_path: Any) -> None:
    bench = Bench(tmp_path, wrap=lambda inner: FaultyJournal(inner, die=lambda: None))
    await bench.open()
    await answered(bench)
    journal: Any = bench.journal
    journal.fail(JournalFailure(kind="delivered_as", at=1, times=1, when="before", then="error"))
    await bench.say("", **rating("m1"))
    await bench.idle()
    assert ratings(bench) == []
    assert "a rating cannot be kept" in bench.log.text
    await bench.close()
