"""Edits and deletions: replaced or withdrawn before the turn, steered or stopped during it, recorded after it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnOutcome
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command
from bot.contracts.journal import ANSWERED, STOPPED, InboxEnd, InboxRecord
from bot.contracts.provenance import Provenance
from bot.core.quotes import EDITED
from bot.gateway import deletions
from bot.gateway.conversation import UNKNOWN_MESSAGE
from bot.testing.journal import FaultyJournal
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import Bench, refusing, unwritten

HERE = ChatKey.parse("tele:chat:77")
GROUP: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}


async def outcomes(bench: Bench, message_id: str, chat_key: ChatKey = HERE) -> list[str | None]:
    return [
        None if record.open else record.detail or record.state
        for record in await bench.journal.about(chat_key, message_id)
    ]


async def busy(bench: Bench, **more: Any) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("busy", message_id="busy", **more)
    await bench.agent.began.wait()


async def freed(bench: Bench) -> None:
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()


async def test_an_edit_before_the_turn_replaces_what_the_message_says(bench: Bench) -> None:
    await busy(bench)
    await bench.say("teh", message_id="m")
    await bench.say("the 你好", message_id="m", kind="edit", attachments=(Attachment(kind="photo"),))
    await freed(bench)
    assert bench.tele.texts[0] == "re: busy"
    assert bench.tele.texts[1].startswith("re: the 你好\n\nI couldn't look at the photo you sent.")
    assert await outcomes(bench, "m") == ["answered", "merged"]
    assert (await bench.journal.about(ChatKey.parse("tele:chat:77"), "m"))[0].inbound.text == "the 你好"
    assert [text for _, text in await bench.lines()][:2] == ["busy", "the 你好"]


async def test_of_two_edits_the_newer_counts_in_whatever_order_they_come(bench: Bench) -> None:
    await busy(bench)
    await bench.say("first", message_id="m", ts=1_000)
    await bench.say("third", message_id="m", kind="edit", ts=3_000)
    await bench.say("second", message_id="m", kind="edit", ts=2_000)
    await freed(bench)
    assert bench.tele.texts == ["re: busy", "re: third"]
    assert await outcomes(bench, "m") == ["answered", "merged", "outdated"]


async def test_a_deletion_before_the_turn_withdraws_the_message(bench: Bench) -> None:
    await busy(bench)
    await bench.say("never mind", message_id="m")
    await bench.say("", message_id="m", kind="delete")
    await bench.say("too late", message_id="m", kind="edit")
    await freed(bench)
    assert bench.tele.texts == ["re: busy"]
    assert await outcomes(bench, "m") == ["withdrawn", "handled", "outdated"]


@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_a_change_by_somebody_else_counts_for_nothing(bench: Bench, kind: str) -> None:
    await busy(bench, **GROUP)
    await bench.say("mine", message_id="m", **GROUP)
    await bench.say("forged", message_id="m", kind=kind, user_id="5", **GROUP)
    await freed(bench)
    assert bench.tele.texts == ["re: busy", "re: mine"]
    assert await outcomes(bench, "m", ChatKey.parse("tele:chat:-100")) == [
        "answered",
        "came before its message",
    ]


async def test_a_stranger_changes_nothing_and_leaves_no_trace(bench: Bench) -> None:
    assert await bench.say("canary", kind="edit", message_id="9", user_id="666", chat_id="666") is False
    await bench.idle()
    assert await bench.journal.about(ChatKey.parse("tele:chat:77"), "9") == []
    assert bench.tele.sent == []


async def test_an_edit_during_the_turn_joins_it(bench: Bench) -> None:
    await busy(bench)
    await bench.say("busy, now", message_id="busy", kind="edit")
    take = bench.agent.requests[0].arrivals.take_more
    (joined,) = take()
    assert (joined.kind, joined.text) == ("edit", "busy, now")
    await freed(bench)
    assert bench.tele.texts == ["re: busy"]
    message, edit = await bench.journal.about(HERE, "busy")
    assert (edit.state, edit.turn_id) == ("answered", message.inbound.request_id)


async def test_an_edit_that_comes_too_late_to_be_taken_up_is_a_turn_of_its_own(bench: Bench) -> None:
    await busy(bench)
    await bench.say("one", message_id="busy", kind="edit", ts=2_000_000_000_001)
    await bench.say("two", message_id="busy", kind="edit", ts=2_000_000_000_002)
    await freed(bench)
    assert bench.tele.texts == ["re: busy", "re: two"]
    assert bench.agent.requests[1].inbound is not None
    assert bench.agent.requests[1].inbound.kind == "edit"
    assert await outcomes(bench, "busy") == ["answered", "answered", "merged"]


async def test_an_edit_that_came_just_before_the_end_of_its_message_is_a_turn_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await busy(bench)
    about, read, over = bench.journal.about, asyncio.Event(), asyncio.Event()

    async def slowly(*place: Any) -> list[InboxRecord]:
        found = await about(*place)
        read.set()
        await over.wait()
        return found

    with monkeypatch.context() as slow:
        slow.setattr(bench.journal, "about", slowly)
        edit = asyncio.ensure_future(bench.say("busy, now", message_id="busy", kind="edit"))
        await read.wait()
        await freed(bench)
    assert bench.tele.texts == ["re: busy"]
    over.set()
    assert await edit
    await bench.idle()
    assert bench.tele.texts == ["re: busy", "re: busy, now"]
    assert await outcomes(bench, "busy") == ["answered", "answered"]


async def test_a_stop_that_overtakes_an_edit_of_a_message_in_the_journal_alone_ends_both(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, most_waiting=20)
    await bench.open()
    await busy(bench)
    for number in range(4):
        await bench.say(f"flood {number}", message_id=f"f{number}")
    async with bench.backlog.settling:  # the edit has yet to look what became of its message
        await bench.say("edited", message_id="f3", kind="edit")
        await bench.say("/stop", command=Command(name="stop"), addressed="command")
        assert await bench.tele.until(1) == [say("stop.stopped")]
        assert await outcomes(bench, "f3") == ["stopped", "stopped"]
    await freed(bench)
    assert bench.tele.texts == [say("stop.stopped")]
    assert await outcomes(bench, "f3") == ["stopped", "stopped"]
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_an_edit_that_leaves_nothing_is_no_turn(bench: Bench) -> None:
    await busy(bench)
    await bench.say(" ", message_id="busy", kind="edit")
    await freed(bench)
    assert bench.tele.texts == ["re: busy"]
    assert await outcomes(bench, "busy") == ["answered", "came too late"]


async def test_a_deletion_during_the_turn_stops_it_and_takes_its_edit_along(bench: Bench) -> None:
    await busy(bench)
    await bench.say("better", message_id="busy", kind="edit")
    await bench.say("", message_id="busy", kind="delete")
    await bench.idle()
    assert bench.tele.sent == []
    assert await outcomes(bench, "busy") == ["stopped", "withdrawn", "handled"]


async def test_a_deletion_of_one_message_of_a_burst_leaves_the_others_their_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="collect")
    await bench.open()
    await busy(bench)
    await bench.say("one", message_id="1st")
    await bench.say("two", message_id="2nd")
    bench.agent.began.clear()
    bench.agent.hold, held = asyncio.Event(), bench.agent.hold
    assert held is not None
    held.set()
    await bench.agent.began.wait()
    await bench.say("", message_id="2nd", kind="delete")
    await bench.say("", message_id="busy", kind="delete")
    await freed(bench)
    assert bench.tele.texts == ["re: busy", "re: one"]
    assert await outcomes(bench, "2nd") == ["withdrawn", "handled"]
    assert await outcomes(bench, "busy") == ["answered", "came too late"]
    await bench.close()


async def test_a_burst_of_which_every_message_is_deleted_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, debounce=1.0)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    await bench.say("one", message_id="1st")
    await bench.say("two", message_id="2nd")
    await bench.clock.advance(1.0)
    await bench.agent.began.wait()
    await bench.say("", message_id="2nd", kind="delete")
    await bench.say("", message_id="1st", kind="delete")
    await bench.idle()
    assert bench.tele.sent == []
    assert await bench.journal.unfinished() == []
    await bench.close()


@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_after_the_turn_a_change_is_recorded(bench: Bench, kind: str) -> None:
    await bench.say("said", message_id="m")
    await bench.idle()
    await bench.say("changed", message_id="m", kind=kind)
    await bench.idle()
    assert bench.tele.texts == ["re: said"]
    assert await outcomes(bench, "m") == ["answered", "came too late"]


async def test_what_comes_before_its_message_is_kept_for_it(bench: Bench) -> None:
    await bench.say("newest", message_id="m", kind="edit", ts=3_000)
    await bench.say("newer", message_id="m", kind="edit", ts=2_000)
    await bench.say("", message_id="gone", kind="delete")
    await bench.idle()
    assert await bench.say("original", message_id="m") is True
    assert await bench.say("never seen", message_id="gone") is True
    await bench.idle()
    assert bench.tele.texts == ["re: newest"]
    assert await outcomes(bench, "gone") == ["came before its message", "withdrawn"]
    assert ("user", "never seen") not in await bench.lines()
    assert await bench.journal.unfinished() == []


async def test_the_new_words_of_a_message_that_was_not_for_the_bot_are_recorded(bench: Bench) -> None:
    late = {"ts": int(bench.clock.now() * 1000) - 360_000}
    await bench.say("@bot now", message_id="m", kind="edit", addressed="mention", **late, **GROUP)
    await bench.idle()
    assert bench.tele.sent == []
    assert await bench.journal.unfinished() == []


async def test_a_command_that_is_edited_while_it_waits_is_what_it_says_now(bench: Bench) -> None:
    await busy(bench)
    await bench.say("/new", message_id="m", command=Command(name="new"))
    await bench.say("what is new?", message_id="m", kind="edit")
    await freed(bench)
    assert bench.agent.resets == []
    assert bench.tele.texts == ["re: busy", "re: what is new?"]


async def test_an_edit_that_cannot_be_recorded_counts_now_and_after_a_restart(tmp_path: Path) -> None:
    first = Bench(tmp_path, wrap=FaultyJournal)
    await first.open()
    await busy(first)
    await first.say("teh", message_id="m")

    refusing(first, "amend")
    await first.say("the", message_id="m", kind="edit")
    await asyncio.sleep(0)
    await first.close()
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert second.tele.texts == ["re: busy", "re: the"]
    assert await outcomes(second, "m") == ["answered", "merged"]
    await second.close()


class TestAfterARestart:
    async def test_changes_that_were_only_written_down_are_carried_out(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)  # no channel is open: everything is written down and nothing done
        await first.say("a", message_id="a")
        await first.say("A", message_id="a", kind="edit")
        await first.say("b", message_id="b")
        await first.say("", message_id="b", kind="delete")
        await first.say("c", message_id="c", kind="edit")
        await first.close()
        second = Bench(tmp_path)
        assert await second.open("tele") == 1
        await second.idle()
        assert second.tele.texts == ["re: A"]
        assert await outcomes(second, "a") == ["answered", "merged"]
        assert await outcomes(second, "b") == ["withdrawn", "handled"]
        assert await outcomes(second, "c") == ["came before its message"]
        await second.close()

    async def test_an_edit_of_a_turn_that_goes_on_comes_after_it(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)
        await first.open()
        await busy(first)
        await first.say("busy, now", message_id="busy", kind="edit")
        await first.close()
        second = Bench(tmp_path)
        second.agent.sources = (first.agent.requests[0].request_id,)
        await second.open()
        await second.idle()
        assert second.tele.texts == ["re: busy", "re: busy, now"]
        await second.close()

    async def test_an_edit_that_waited_for_its_own_turn_gets_it_and_one_that_came_later_does_not(
        self, tmp_path: Path
    ) -> None:
        first = Bench(tmp_path)
        await first.say("x", message_id="x")
        await first.clock.advance(1)
        await first.say("during", message_id="x", kind="edit")
        await first.clock.advance(1)
        (original, _) = await still_open(first.journal)
        await first.journal.finish(original.request_id, ANSWERED)
        await first.say("y", message_id="y")
        await first.journal.finish((await still_open(first.journal))[-1].request_id, ANSWERED)
        await first.clock.advance(1)
        await first.say("after", message_id="y", kind="edit")
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert second.tele.texts == ["re: during"]
        assert (await outcomes(second, "y"))[1] == "came too late"
        await second.close()

    async def test_whether_an_edit_came_in_time_is_not_read_from_clocks(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)
        await first.say("x", message_id="x")
        await first.clock.advance(60)
        await first.say("during", message_id="x", kind="edit")
        first.clock.jump(-30)  # somebody has set it
        (original, _) = await still_open(first.journal)
        await first.journal.finish(original.request_id, ANSWERED)
        await first.say("y", message_id="y")
        await first.journal.finish((await still_open(first.journal))[-1].request_id, ANSWERED)
        first.clock.jump(-30)
        await first.say("after", message_id="y", kind="edit")
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert second.tele.texts == ["re: during"]
        assert (await outcomes(second, "y"))[1] == "came too late"
        await second.close()

    async def test_an_edit_of_a_message_that_was_stopped_gets_no_turn(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)
        await first.say("x", message_id="x")
        await first.say("during", message_id="x", kind="edit")
        (original, _) = await still_open(first.journal)
        await first.journal.finish(original.request_id, STOPPED)  # and a kill before the edit ends too
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert second.tele.texts == []
        assert await outcomes(second, "x") == ["stopped", "came too late"]
        await second.close()

    async def test_a_message_of_a_turn_that_goes_on_can_still_be_withdrawn(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)
        await first.open()
        await busy(first)
        await first.close()
        second = Bench(tmp_path, max_concurrent=1)
        second.agent.sources = (first.agent.requests[0].request_id,)
        second.agent.hold = asyncio.Event()
        await second.open()
        await second.agent.began.wait()
        assert await second.say("", message_id="busy", kind="delete", keys=("deletion",))
        await second.idle()
        assert second.tele.sent == []
        await second.close()


@pytest.mark.parametrize("change", [{"kind": "delete", "message_id": "busy"}, {"kind": "stop"}])
async def test_the_sign_of_a_turn_that_does_not_go_on_after_a_restart_is_taken_away(
    change: dict[str, Any], tmp_path: Path
) -> None:
    first = Bench(tmp_path)
    await first.open()
    await busy(first)
    await first.close()
    second = Bench(tmp_path)
    await second.say("", keys=("late",), **change)
    await second.open()
    await second.idle()
    assert ([one.stopped for one in second.agent.requests], second.tele.texts) == ([True], [])
    assert second.tele.signs == [False]
    assert await second.journal.unfinished() == []
    await second.close()


async def test_an_edit_that_comes_after_the_deletion_and_before_the_message_leaves_nothing(
    bench: Bench,
) -> None:
    for more in ({"kind": "delete"}, {"kind": "edit"}, {"kind": "message"}):
        await bench.say("secret", message_id="m", keys=(more["kind"],), **more)
        await bench.idle()
    assert await bench.lines() == []
    assert bench.tele.texts == []
    assert await bench.journal.unfinished() == []


def leave_edits_open(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    finish = bench.journal.post.finish

    def but_edits(request_id: str, end: InboxEnd) -> Future[None]:
        return unwritten() if end.state == "merged" or end == UNKNOWN_MESSAGE else finish(request_id, end)

    patch.setattr(bench.journal.post, "finish", but_edits)


@pytest.mark.parametrize("when", ["before its message", "before the turn", "and the turn is over"])
async def test_an_edit_whose_words_the_turn_had_is_not_answered_again_where_a_crash_kept_it_open(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path, mode="followup")
    await first.open()
    leave_edits_open(first, monkeypatch)
    held = first.agent.hold = asyncio.Event()
    if when == "before its message":
        await first.say("the 你好", message_id="m", kind="edit")
        await first.say("teh", message_id="m")
    else:
        await first.say("busy", message_id="busy")
        await first.agent.began.wait()
        first.agent.began.clear()
        await first.say("teh", message_id="m")
        await first.say("the 你好", message_id="m", kind="edit")
        await first.clock.advance(5)
        first.agent.hold = asyncio.Event() if when == "before the turn" else None
        held.set()
    await first.agent.began.wait()
    if when == "and the turn is over":
        await first.idle()
    await first.close()
    second = Bench(tmp_path, mode="followup")
    await second.open()
    await second.idle()
    assert [one for one in [*first.tele.texts, *second.tele.texts] if "busy" not in one] == ["re: the 你好"]
    assert await second.journal.unfinished() == []
    await second.close()


async def test_an_edit_that_waits_and_took_up_a_newer_one_is_answered_after_a_crash(tmp_path: Path) -> None:
    first = Bench(tmp_path, mode="followup")
    await first.open()
    await busy(first)
    await first.say("second", message_id="busy", kind="edit", ts=1_800_000_000_000)
    await first.say("third", message_id="busy", kind="edit", ts=1_800_000_001_000)
    async with asyncio.timeout(90):
        while await outcomes(first, "busy") != [None, None, "merged"]:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    await first.close()
    second = Bench(tmp_path, mode="followup")
    await second.open()
    await second.idle()
    assert second.tele.texts == ["re: busy", "re: third"]
    assert await second.journal.unfinished() == []
    await second.close()


@pytest.mark.parametrize("answered", [False, True])
async def test_an_edit_that_another_one_took_up_is_not_answered_too_where_a_crash_kept_it_open(
    answered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path, mode="followup")
    await first.open()
    leave_edits_open(first, monkeypatch)
    await busy(first)
    await first.say("second", message_id="busy", kind="edit", ts=1_800_000_000_000)
    await first.say("third", message_id="busy", kind="edit", ts=1_800_000_001_000)
    await first.clock.advance(5)
    if answered:
        first.agent.hold.set()  # type: ignore[union-attr]
        await first.idle()
    await first.close()
    second = Bench(tmp_path, mode="followup")
    await second.open()
    await second.idle()
    assert [*first.tele.texts, *second.tele.texts] == ["re: busy", "re: third"]
    await second.close()


async def test_new_words_that_a_kill_kept_out_of_the_archive_get_there_with_the_next_start(
    tmp_path: Path,
) -> None:
    first = Bench(tmp_path)
    await first.say("as it was", message_id="m")
    (message,) = await still_open(first.journal)
    edit = first.inbound("as it is", kind="edit", message_id="m", request_id=first.ids.ulid())
    assert await first.journal.receive(edit)
    await first.journal.amend(message.model_copy(update={"text": edit.text}))
    await first.close()
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert await second.journal.unfinished() == []
    assert [words for role, words in await second.lines() if role == "user"] == ["as it is"]
    await second.close()


async def told(bench: Bench, words: str, **more: Any) -> list[tuple[str, str | None]]:
    """Say something; the edits that its turn is told of."""
    await bench.say(words, **more)
    await bench.idle()
    edits = [one for one in bench.agent.requests[-1].context if one.kind == EDITED]
    assert {one.provenance for one in edits} <= {Provenance(frozenset({"77"}))}
    return [(one.text, one.message_id) for one in edits]


@pytest.mark.parametrize("late", [False, True])
async def test_a_turn_begins_once_an_edit_before_it_is_on_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    await told(bench, "on Monday", message_id="a")
    bench.agent.messages = 2
    gate, ending, waits = asyncio.Event(), asyncio.Event(), asyncio.Event()
    finish, settled = bench.journal.post.finish, bench.deletions.settled

    def held(request_id: str, end: InboxEnd) -> asyncio.Future[None]:
        async def written() -> None:
            await gate.wait()
            await finish(request_id, end)

        ending.set()
        return asyncio.ensure_future(written())

    async def seen(chat_key: ChatKey) -> None:
        waits.set()
        await settled(chat_key)

    monkeypatch.setattr(bench.journal.post, "finish", held)
    monkeypatch.setattr(bench.deletions, "settled", seen)
    await bench.say("on 火曜日", message_id="a", kind="edit", ts=1_700_000_100_000)
    await ending.wait()
    await bench.say("when is it?", message_id="b")
    await waits.wait()
    await bench.clock.advance(0)
    await bench.clock.advance(deletions.PATIENCE - 1)
    assert len(bench.agent.requests) == 1
    if late:
        await bench.clock.advance(1)  # nobody waits for ever
        assert await bench.tele.until(2) == ["re: on Monday", "re: when is it?"]
    gate.set()
    await bench.idle()
    edits = [one.text for one in bench.agent.requests[-1].context if one.kind == EDITED]
    assert (len(bench.agent.requests), edits) == (2, [] if late else ["on 火曜日"])


async def test_an_edit_after_the_turn_is_known_to_the_next_one_and_to_no_other(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        await told(bench, f"old {name}", message_id=name)
    bench.agent.messages = 6
    await bench.say("first edit", message_id="a", kind="edit", ts=1_700_000_100_000)
    await bench.say("新しい a", message_id="a", kind="edit", ts=1_700_000_200_000)
    await bench.say("of a message that never came", message_id="x", kind="edit")
    await bench.say("  ", message_id="b", kind="edit")
    await bench.say("new c", message_id="c", kind="edit", ts=1_700_000_100_000)
    await bench.idle()
    await bench.say("", message_id="c", kind="delete")
    await bench.say("/status", command=Command(name="status"))
    await bench.idle()
    assert await told(bench, "elsewhere", chat_key="tele:chat:77:topic:5") == []
    assert await told(bench, "and now?") == [("新しい a", "a")]
    assert await told(bench, "later") == []


@pytest.mark.parametrize("between", ["command", "nothing", "failure", "stop", "deletion", "new"])
async def test_an_edit_is_known_to_the_next_turn_that_the_model_answers(bench: Bench, between: str) -> None:
    await told(bench, "on Monday", message_id="a")
    bench.agent.messages = 2
    await bench.say("on 火曜日", message_id="a", kind="edit", ts=1_700_000_100_000)
    await bench.idle()
    if between in {"command", "new"}:
        name = "compact" if between == "command" else "new"
        await bench.say(f"/{name}", message_id="b", command=Command(name=name))
    elif between == "nothing":
        await bench.say("", message_id="b", attachments=(Attachment(kind="sticker"),))
    elif between == "failure":
        bench.agent.answer = lambda _: TurnOutcome("failed", notice="not now")
        await bench.say("what?", message_id="b")
    else:
        await busy(bench)
        if between == "deletion":
            await bench.say("", message_id="busy", kind="delete")
        else:
            await bench.say("/stop", command=Command(name="stop"))
    await bench.idle()
    bench.agent.hold, bench.agent.answer = None, lambda _: "so it is"
    edits = [] if between == "new" else [("on 火曜日", "a")]
    assert await told(bench, "when is it?", message_id="c") == edits
    assert await told(bench, "and where?", message_id="d") == []


def counted_questions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[ChatKey]:
    """The questions for what was said in a chat, from now on."""
    asked: list[ChatKey] = []
    said_in = bench.journal.said_in

    async def counted(chat_key: ChatKey, **more: Any) -> list[InboxRecord]:
        asked.append(chat_key)
        return await said_in(chat_key, **more)

    monkeypatch.setattr(bench.journal, "said_in", counted)
    return asked


async def test_the_journal_is_asked_for_edits_again_only_once_one_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted_questions(bench, monkeypatch)
    await told(bench, "one", message_id="1")
    bench.agent.messages = 2
    await told(bench, "two", message_id="2")
    assert len(asked) == 1
    for name in ("3", "4"):
        assert await told(bench, "more", message_id=name) == []
    assert len(asked) == 1
    await bench.say("二", message_id="2", kind="edit", ts=1_700_000_100_000)
    await bench.idle()
    assert await told(bench, "and now?", message_id="5") == [("二", "2")]
    count = len(asked)
    assert count > 1
    # The edit stands behind the turn before this one: there may be another that has not ended.
    assert await told(bench, "later", message_id="6") == []
    assert len(asked) > count
    count = len(asked)
    assert await told(bench, "at rest", message_id="7") == []
    assert len(asked) == count


async def test_where_nobody_writes_words_the_journal_is_not_asked_each_time_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted_questions(bench, monkeypatch)
    bench.agent.messages = 2
    bench.tele.files["f"] = b"text"
    text_file = Attachment(kind="file", name="a.txt", ref="f")
    for name in ("1", "2", "3"):
        await told(bench, "", message_id=name, attachments=(text_file,))
        assert len(bench.agent.requests) == int(name)
    count = len(asked)
    await told(bench, "", message_id="4", attachments=(text_file,))
    assert len(asked) == count
    await bench.say("四", message_id="4", kind="edit", ts=1_700_000_100_000)
    await bench.idle()
    assert await told(bench, "and then?", message_id="5") == [("四", "4")]


async def test_an_edit_that_joined_or_was_answered_is_not_told_again(bench: Bench) -> None:
    bench.agent.messages = 2
    bench.agent.takes = True
    await busy(bench)
    await bench.say("busier", message_id="busy", kind="edit")
    await freed(bench)
    assert await told(bench, "next") == []


async def test_without_the_journal_the_turn_begins_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise errors.StorageError

    bench.agent.messages = 2
    monkeypatch.setattr(bench.journal, "said_in", refuse)
    assert await told(bench, "hello") == []
    assert bench.tele.texts == ["re: hello"]
