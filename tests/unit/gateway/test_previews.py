"""An answer is shown while it is being written: never more than what is certain, one message in all, whatever breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors, text
from bot.contracts.channel import EditPace, Pace
from bot.contracts.outbound import Outbound, OutboxRow, Sent
from bot.features.live.preview_parts import GOES_ON, Previewing
from bot.gateway.live.message import SENTENCE_SECONDS
from bot.telemetry import Redactor
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.words import say
from tests.shares import examples
from tests.unit.gateway.conftest import SECRET, FakeChannel
from tests.unit.gateway.outgoing import TO, Desk, address, until

INTERRUPTED = f"\n\n{say('turn.interrupted')}"

EDITS = EditPace({"direct": 1.0, "group": 3.0})
ANSWER = "Die Antwort auf deine Frage 你好 ist zweiundvierzig, und mehr braucht es nicht."


class Screen(FakeChannel):
    """Messages that can be changed. `stands` is what people see, `shown` every state that each message ever had."""

    def __init__(self) -> None:
        super().__init__("tele")
        self.stands: dict[str, str] = {}
        self.shown: list[tuple[str, str]] = []
        self.refusals: list[errors.DeliveryFailed] = []
        self.hold: asyncio.Event | None = None
        self.asked = 0

    async def send(self, message: Outbound) -> Sent:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        sent = await super().send(message)
        self._show(sent.message_id, message.text)
        return sent

    async def edit(self, message: Outbound, message_id: str) -> None:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        if message_id not in self.stands:
            raise errors.EditRefused("message to edit not found")
        self._show(message_id, message.text)

    async def delete(self, message: Outbound, message_id: str) -> None:
        del self.stands[message_id]

    def _show(self, message_id: str, words: str) -> None:
        self.stands[message_id] = words
        self.shown.append((message_id, words))

    @property
    def seen(self) -> list[str]:
        return list(self.stands.values())


class Writing:
    """An answer that comes piece by piece."""

    def __init__(self, words: str = "") -> None:
        self.words = words

    def __call__(self) -> str:
        return self.words


def desk(root: Path, tele: Screen | None = None, **options: Any) -> Desk:
    previewing = Previewing(options.pop("after", {"tele": 1.0}), Redactor({SECRET}).settled)
    return Desk(
        root, tele=tele or Screen(), edits=options.pop("edits", EDITS), previewing=previewing, **options
    )


@pytest.fixture
async def made(tmp_path: Path) -> Any:
    one = desk(tmp_path)
    await one.asked()
    yield one
    await one.close()


async def shows(made: Desk, words: Writing, count: int = 1) -> None:
    """Until so many states have been shown."""
    screen: Any = made.tele
    made.delivery.preview(TO, words)
    while len(screen.shown) < count:
        await made.slept(0.5)
        await asyncio.sleep(0.001)


async def test_an_answer_is_shown_while_it_is_written_and_becomes_the_reply(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing(ANSWER[:20])
    await shows(made, words)
    assert screen.seen == [ANSWER[:19] + GOES_ON]

    words.words = ANSWER[:41]
    await shows(made, words, 2)
    assert screen.seen == [ANSWER[:40].rstrip() + GOES_ON]

    sent = await made.delivery.send(TO, ANSWER)
    assert screen.stands == {sent[0].message_id: ANSWER}
    assert len(screen.sent) == 1, "created once"
    assert await made.lines() == [("assistant", ANSWER)]
    preview, reply = await made.rows()
    assert (preview.kind, preview.state, preview.message_id) == ("preview", "sent", "m1")
    assert (reply.kind, reply.state, reply.message_id, reply.text) == ("reply", "sent", "m1", ANSWER)
    await made.delivery.ended(TO)
    assert screen.seen == [ANSWER], "a turn that has answered leaves nothing open"


async def test_a_quick_answer_is_sent_once_and_whole(made: Desk) -> None:
    screen: Any = made.tele
    made.delivery.preview(TO, Writing(ANSWER[:20]))
    await made.slept(0.9)
    await made.delivery.send(TO, ANSWER)
    await made.clock.advance(60)
    assert screen.shown == [("m1", ANSWER)]
    assert [row.kind for row in await made.rows()] == ["reply"]


async def test_two_answers_of_one_turn_are_two_messages(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing("The first one comes"))
    await made.delivery.send(TO, "The first one comes first.")
    await shows(made, Writing("The second one"), 3)
    await made.delivery.send(TO, "The second one goes on.")
    assert screen.seen == ["The first one comes first.", "The second one goes on."]


async def test_an_answer_that_is_begun_anew_goes_on_in_the_same_message(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing("A long answer that is cut"))
    await shows(made, Writing("A short one, then"), 2)
    await made.delivery.send(TO, "A short one, then.")
    assert screen.stands == {"m1": "A short one, then."}


async def test_an_answer_that_breaks_off_says_so(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing("Half of an answer"))
    await made.delivery.ended(TO)
    assert screen.seen == ["Half of an answe" + INTERRUPTED]
    await made.delivery.send(TO, "Something went wrong on my side.", kind="notice")
    assert len(screen.seen) == 2
    assert await made.states() == [("sent", "m1"), ("sent", "m2")]
    assert await made.lines() == [], "what was no whole answer is not remembered as one"


async def test_where_it_is_switched_off_or_cannot_be_nothing_is_shown(tmp_path: Path) -> None:
    off: list[dict[str, Any]] = [{"after": {}}, {"edits": None}]
    for number, options in enumerate(off):
        (tmp_path / str(number)).mkdir()
        one = desk(tmp_path / str(number), **options)
        one.delivery.preview(TO, Writing(ANSWER[:30]))
        await one.clock.advance(30)
        assert one.clock.sleeping == 0
        await one.close()


LONG = "word " * 600
"""Four messages."""


async def test_a_long_answer_goes_on_in_further_messages_which_become_its_parts(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing(LONG[:500])
    await shows(made, words)
    words.words = LONG[:2_500]
    await made.slept(1.0, 3)
    await until(lambda: len(screen.seen) == 3)
    first, second, third = screen.seen
    assert [first, second] == screen.split(LONG)[:2], "what is complete does not go on"
    assert third.endswith(GOES_ON)
    assert LONG.startswith(first + second + third.removesuffix(GOES_ON))
    sent = await made.delivery.send(TO, LONG)
    assert [one.message_id for one in sent] == ["m1", "m2", "m3", "m4"]
    assert screen.seen == screen.split(LONG)
    await made.delivery.ended(TO)
    assert screen.seen == screen.split(LONG)
    assert {row.state for row in await made.rows()} == {"sent"}


async def test_an_ellipsis_of_the_answer_itself_stays_where_it_is_interrupted(made: Desk) -> None:
    screen: Any = made.tele
    words = "word " * 150 + "and so on …\n\n" + "word " * 150
    await shows(made, Writing(words), 2)
    await made.delivery.ended(TO)
    first, second = screen.seen
    assert first.rstrip().endswith("and so on …")
    assert second.endswith("word" + INTERRUPTED)


async def test_what_was_shown_beyond_the_answer_goes(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing(LONG[:1_500]), 2)
    sent = await made.delivery.send(TO, ANSWER)
    assert [one.message_id for one in sent] == ["m1"]
    await made.delivery.ended(TO)
    assert screen.seen == [ANSWER]
    assert sorted(row.state for row in await made.rows()) == ["failed", "sent", "sent"]
    assert await made.lines() == [("assistant", ANSWER)]


async def test_an_answer_in_several_messages_that_breaks_off_says_so_in_the_last(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing(LONG[:1_500]), 2)
    await made.delivery.ended(TO)
    first, second = screen.seen
    assert first == screen.split(LONG)[0]
    assert second.endswith(INTERRUPTED)
    assert GOES_ON not in second


async def test_nothing_stands_below_a_part_that_is_not_complete(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing(LONG[:500])
    await shows(made, words)
    screen.refusals.append(errors.DeliveryThrottled("slow down", retry_after=3))
    words.words = LONG[:1_500]
    await made.slept(1.0)
    await until(lambda: screen.asked == 2)
    assert screen.seen == [LONG[:499].rstrip() + GOES_ON]
    await made.slept(1.0, 4)
    await until(lambda: len(screen.seen) == 2)
    assert screen.seen[0] == screen.split(LONG)[0]


async def test_where_one_part_is_gone_the_rest_comes_below_it(made: Desk) -> None:
    """A message of a later part would stand above what takes the place of an earlier one."""
    screen: Any = made.tele
    await shows(made, Writing(LONG[:1_500]), 2)
    screen.finds = None
    screen.failures.append(errors.DeliveryUncertain("lost"))
    await shows(made, Writing(LONG[:2_500]), 3)
    await until(lambda: "no preview is shown any more" in made.log.text)
    await made.delivery.send(TO, LONG)
    assert screen.seen == screen.split(LONG)


async def test_it_begins_with_a_whole_sentence(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing("It depends on what")
    made.delivery.preview(TO, words)
    await made.slept(1.0, 4)
    assert screen.seen == []
    words.words = "It depends on what you want. Let"
    await made.slept(1.0)
    await until(lambda: bool(screen.seen))
    assert screen.seen == ["It depends on what you want. Le" + GOES_ON]


async def test_after_some_seconds_it_begins_with_what_there_is(made: Desk) -> None:
    screen: Any = made.tele
    began = made.clock.monotonic()
    await shows(made, Writing("It depends on what"))
    assert screen.seen == ["It depends on wha" + GOES_ON]
    assert made.clock.monotonic() - began >= SENTENCE_SECONDS


async def test_what_is_half_open_is_closed_or_held_back(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing("One thing. It is **very impor")
    await shows(made, words)
    words.words = "One thing. It is **very important**, see [the docs](https://exa"
    await shows(made, words, 2)
    words.words = (
        "One thing. It is **very important**, see [the docs](https://example.com):\n\n```py\nprint(1)\n"
    )
    await shows(made, words, 3)
    assert [shown for _, shown in screen.shown] == [
        "One thing. It is **very impo** …",
        "One thing. It is **very important**, see …",
        "One thing. It is **very important**, see [the docs](https://example.com):\n\n```py\nprint(1)\n```\n …",
    ]


# ------------------------------------------------------------ what is certain


WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                SECRET,
                SECRET[:9],
                SECRET[3:],
                "c2stYW50LXZlcnktc2VjcmV0LTAwMA==",
                "sk-ant-",
                "👨‍👩‍👧‍👦",
                "e\u0301",
                "\n\n",
                " ",
            ]
        ),
        st.text("sk-antvery 你好,.\n", max_size=12),
    ),
    min_size=1,
    max_size=14,
).map("".join)


@settings(deadline=None, max_examples=examples(60))
@given(words=WORDS, cuts=st.lists(st.floats(0, 1), min_size=1, max_size=6))
async def test_what_is_shown_is_the_beginning_of_what_will_be_said(
    tmp_path_factory: pytest.TempPathFactory, words: str, cuts: list[float]
) -> None:
    one = desk(tmp_path_factory.mktemp("previews"), after={"tele": 0.1})
    screen: Any = one.tele
    written = Writing()
    one.delivery.preview(TO, written)
    for cut in sorted(cuts):
        written.words = words[: int(cut * len(words))]
        await one.clock.advance(1.0)
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.002)
    if text.clean(words).strip():
        await one.delivery.send(TO, words)
    final = Redactor({SECRET})(text.clean(words)).lstrip()
    for _, shown in screen.shown[:-1]:
        assert shown.endswith(GOES_ON)
        assert final.startswith(
            shown.removesuffix(GOES_ON).lstrip()
        )  # of empty lines before it nothing is shown
    for _, shown in screen.shown:
        assert SECRET not in shown
    assert len(screen.stands) <= 1
    await one.close()


# ------------------------------------------------------------ drafts


class Pad(Screen):
    """A screen with drafts: `drafts` is every one that was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.drafts: list[str] = []
        self.answers: list[bool | errors.DeliveryFailed] = []

    async def draft(self, message: Outbound) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, errors.DeliveryFailed):
            raise answer
        if answer:
            self.drafts.append(message.text)
        return answer


@pytest.fixture
async def pad(tmp_path: Path) -> Any:
    previewing = Previewing({"tele": 1.0}, Redactor({SECRET}).settled, drafts={"tele"})
    one = Desk(tmp_path, tele=Pad(), edits=EDITS, previewing=previewing)
    await one.asked()
    yield one
    await one.close()


async def test_where_they_are_on_it_is_a_draft_and_then_a_message(pad: Desk) -> None:
    screen: Any = pad.tele
    words = Writing("One. **Tw")
    pad.delivery.preview(TO, words)
    await pad.slept(1.0)
    await until(lambda: bool(screen.drafts))
    words.words = "One. **Two** three"
    await pad.slept(1.0)
    await until(lambda: len(screen.drafts) == 2)
    assert screen.drafts == ["One. **T**", "One. **Two** thre"]
    assert screen.seen == []
    await pad.delivery.send(TO, "One. **Two** three.")
    await pad.delivery.ended(TO)
    assert screen.seen == ["One. **Two** three."]
    assert [row.kind for row in await pad.rows()] == ["reply"], "a draft needs no row"


async def test_a_draft_that_stays_is_shown_again_before_it_goes(pad: Desk) -> None:
    screen: Any = pad.tele
    pad.delivery.preview(TO, Writing("One. Two"))
    async with pad.passing(1.0):
        began = pad.clock.monotonic()
        await until(lambda: len(screen.drafts) == 3)
    assert screen.drafts == ["One. Tw"] * 3
    assert 40 <= pad.clock.monotonic() - began <= 60


async def test_without_drafts_it_is_a_message_that_changes(pad: Desk) -> None:
    screen: Any = pad.tele
    screen.answers = [
        errors.DeliveryThrottled("slow down", retry_after=1),
        errors.DeliveryUncertain("lost"),
        False,
    ]
    words = Writing("One. Two")
    pad.delivery.preview(TO, words)
    async with pad.passing():
        await until(lambda: not screen.answers or bool(screen.seen))
        words.words = "One. Two three"
        await until(lambda: screen.seen == ["One. Two thre" + GOES_ON])
    assert screen.drafts == []
    await pad.delivery.send(TO, ANSWER)
    assert screen.seen == [ANSWER]


async def test_a_group_sees_no_draft(pad: Desk) -> None:
    screen: Any = pad.tele
    group = address(chat_type="group")
    pad.delivery.preview(group, Writing("One. Two"))
    async with pad.passing():
        await until(lambda: screen.seen == ["One. Tw" + GOES_ON])
    assert screen.drafts == []


# ------------------------------------------------------------ budgets


async def test_what_is_shown_leaves_room_for_what_is_said(tmp_path: Path) -> None:
    one = desk(tmp_path, limits=True, total=Pace(3, 100.0))
    screen: Any = one.tele
    await shows(one, Writing("First of all"))
    await shows(one, Writing("Something else"), 2)
    made: Callable[[], str] = Writing("And a third thing")
    one.delivery.preview(TO, made)
    await one.slept(1.0, 5)
    assert len(screen.shown) == 2, "the last slot is for the answer"
    before = one.clock.monotonic()
    await one.delivery.send(TO, "The answer.")
    assert one.clock.monotonic() == before, "which does not have to wait"
    assert screen.seen == ["The answer."]
    await one.close()


async def test_changes_have_a_budget_of_their_own(tmp_path: Path) -> None:
    one = desk(tmp_path, limits=True, edits=EditPace({"direct": 1.0, "group": 1.0}, total=Pace(2, 1_000.0)))
    screen: Any = one.tele
    words = Writing("one two three four")
    await shows(one, words)
    for number in range(4):
        words.words += f" {number} more"
        await one.slept(1.0)
        await until(lambda: len(screen.shown) >= 2)
    assert len(screen.shown) == 2, "created, and changed once"
    await one.delivery.send(TO, "The answer.")
    assert screen.seen == ["The answer."]
    await one.close()


async def test_a_platform_that_wants_to_be_left_alone_is(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing("one two three")
    await shows(made, words)
    screen.refusals.append(errors.DeliveryThrottled("slow down", retry_after=20))
    words.words = "one two three four five"
    await made.slept(1.0)
    await until(lambda: screen.asked == 2)
    await made.slept(1.0, 9)
    assert screen.asked == 2
    await made.slept(1.0, 12)
    await until(lambda: screen.asked == 3)
    await made.delivery.send(TO, "The answer.")
    assert screen.seen == ["The answer."]


# ------------------------------------------------------------ what goes wrong


async def test_a_preview_that_somebody_deleted_is_replaced_by_a_new_message(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing("Half of an answer"))
    screen.stands.clear()
    sent = await made.delivery.send(TO, ANSWER)
    assert screen.stands == {"m2": ANSWER}
    assert [one.message_id for one in sent] == ["m2"]


async def test_a_last_change_without_a_known_outcome_is_made_again(made: Desk) -> None:
    screen: Any = made.tele
    await shows(made, Writing("Half of an answer"))
    screen.refusals += [errors.DeliveryUncertain("lost"), errors.DeliveryUncertain("lost")]
    await made.delivery.send(TO, ANSWER)
    assert screen.stands == {"m1": ANSWER}
    assert await made.lines() == [("assistant", ANSWER)]


async def test_a_change_that_never_gets_through_goes_out_later_by_itself(made: Desk) -> None:
    screen: Any = made.tele
    await made.delivery.open()
    await shows(made, Writing("Half of an answer"))
    screen.refusals += [errors.DeliveryUncertain("lost")] * 6
    with pytest.raises(errors.DeliveryDeferred):
        await made.delivery.send(TO, ANSWER)
    async with made.passing():
        await until(lambda: screen.seen == [ANSWER])
        await until(lambda: not made.delivery.outbox.deferred)
    assert await made.lines() == [("assistant", ANSWER)]


async def test_a_preview_that_may_not_have_arrived_is_looked_for(made: Desk) -> None:
    """On a platform that can tell, it becomes the answer; on one that cannot, the answer is a message of its own."""
    screen: Any = made.tele
    for finds, number in ((Sent("m1"), 1), (None, 2), (errors.DeliveryUncertain("cannot tell"), 2)):
        screen.stands.clear()
        screen.sent.clear()
        screen.failures.append(errors.DeliveryUncertain("lost"))
        screen.finds, before = finds, screen.asked
        made.delivery.preview(TO, Writing("Half. Of an answer"))
        await made.slept(1.0)
        await until(lambda before=before: screen.asked == before + 1)  # type: ignore[misc]
        if number == 1:
            screen.stands["m1"] = "Half of an answe" + GOES_ON
            screen.sent.append(None)
        await made.delivery.send(TO, ANSWER)
        assert screen.seen == [ANSWER]


async def test_what_is_on_its_way_is_waited_for_and_never_comes_after_the_answer(made: Desk) -> None:
    screen: Any = made.tele
    words = Writing("Half of an answer")
    await shows(made, words)
    screen.hold = asyncio.Event()
    words.words = "Half of an answer and more"
    await made.slept(1.0)
    await until(lambda: screen.asked == 2)
    sending = asyncio.create_task(made.delivery.send(TO, ANSWER))
    for _ in range(20):
        await asyncio.sleep(0)
    screen.hold.set()
    await sending
    assert [words for _, words in screen.shown][-2:] == ["Half of an answer and mor" + GOES_ON, ANSWER]


async def test_nothing_is_shown_before_an_earlier_answer_that_waits(made: Desk) -> None:
    screen: Any = made.tele
    screen.failures += [errors.DeliveryThrottled("long", retry_after=600)]
    with pytest.raises(errors.DeliveryDeferred):
        await made.delivery.send(address(request_id="01ERR"), "earlier")
    made.delivery.preview(TO, Writing("Half of an answer"))
    await made.slept(1.0, 20)
    assert screen.shown == []


async def test_without_a_row_nothing_is_shown(tmp_path: Path) -> None:
    one = desk(tmp_path, wrap=lambda inner: FaultyJournal(inner, die=lambda: None))
    journal: Any = one.journal
    journal.fail(JournalFailure(kind="put_outbox", at=1, times=1, when="before", then="error"))
    screen: Any = one.tele
    one.delivery.preview(TO, Writing("Half of an answer"))
    async with one.passing():
        await until(lambda: "no preview is shown any more" in one.log.text)
    assert screen.shown == []
    await one.delivery.send(TO, ANSWER)
    assert screen.seen == [ANSWER]
    await one.close()


# ------------------------------------------------------------ crashes


async def left(root: Path, screen: Screen) -> None:
    """A process that ends in the middle of an answer."""
    one = desk(root, screen)
    await one.asked()
    await shows(one, Writing("Half of an answer"))
    await one.placed()
    one.delivery.leave(TO)
    await one.close()


async def test_after_a_crash_the_answer_goes_on_in_the_same_message(tmp_path: Path) -> None:
    screen = Screen()
    await left(tmp_path, screen)
    assert screen.seen == ["Half of an answe" + GOES_ON]
    again = desk(tmp_path, screen)
    assert await again.delivery.resume(TO) == ()
    await shows(again, Writing("Another half of"), 2)
    await again.delivery.send(TO, ANSWER)
    assert screen.stands == {"m1": ANSWER}
    assert await again.lines() == [("assistant", ANSWER)]
    await again.close()


async def test_a_turn_that_a_crash_cut_off_and_a_stop_ends_then_leaves_a_mark(tmp_path: Path) -> None:
    screen = Screen()
    await left(tmp_path, screen)
    again = desk(tmp_path, screen)
    await again.delivery.resume(TO)
    await again.delivery.ended(TO)
    assert screen.stands == {"m1": "Half of an answe" + INTERRUPTED}
    assert await again.states() == [("sent", "m1")]
    await again.delivery.resume(TO)
    await again.delivery.ended(TO)
    assert len(screen.shown) == 2, "once"
    await again.close()


async def test_what_stands_there_is_not_shown_again(tmp_path: Path) -> None:
    made = desk(tmp_path)
    await made.asked()
    assert isinstance(made.tele, Screen)
    outbox, row = (
        made.delivery.outbox,
        OutboxRow("P", TO.request_id, TO.chat_key, TO.target, "甲", "progress", "sending", "m9"),
    )
    await made.file.put_outbox([row])
    await outbox.live_message(TO, "preview").show("")
    await outbox.live_message(TO, "progress", row).show("甲")
    assert made.tele.asked == 0
    await made.close()
