"""Strangers who ask to be let in, and operators who decide about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.access_list import AccessList
from bot.contracts.approvals import ApprovalRecord, QuestionButtons, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command, Inbound
from bot.contracts.outbound import ONLY_TO, Outbound, Sent
from bot.core.access import EVERY, Access
from bot.gateway import admissions
from bot.system import SystemDisk
from bot.words import say
from tests.unit.gateway.conftest import Bench, killed, never
from tests.unit.gateway.outgoing import until

OPERATORS = frozenset({UserRef("tele", "1"), UserRef("tele", "2")})
EVE: dict[str, Any] = {
    "user_id": "666",
    "chat_id": "666",
    "chat_key": "tele:chat:666",
    "target": {"chat": "666"},
    "user_name": "Eve",
}


class Door(Bench):
    """A gateway with two operators; `edits` is what its messages were changed into, by message id."""

    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, operators=OPERATORS, direct=lambda user: {"chat": user}, **more)
        self.edits: dict[str, Outbound] = {}

        async def edit(message: Outbound, message_id: str) -> None:
            self.edits[message_id] = message

        self.tele.edit = edit  # type: ignore[attr-defined]

    def inbound(self, words: str = "hello", **more: Any) -> Inbound:
        return super().inbound(words, **{"keys": (self.ids.ulid(),), **more})

    async def opened(self) -> Door:
        await self.open()
        await self.approvals.recover()
        return self

    def requests(self) -> list[Outbound]:
        """What operators were asked, in the order of their ids."""
        asked = [one for one in self.tele.sent if one.buttons is not None]
        return sorted(asked, key=lambda one: str(one.chat_key))

    async def asked(self, **more: Any) -> str:
        """Somebody asks to be let in; the name of the request."""
        assert not await self.say("let me in", **{**EVE, **more})
        await until(lambda: len(self.requests()) == len(OPERATORS))
        buttons = self.requests()[0].buttons
        assert buttons is not None
        return buttons.question_id

    async def press(self, word: str, args: str, user: str = "1", **more: Any) -> None:
        place = {"chat_id": user, "chat_key": f"tele:chat:{user}", "target": {"chat": user}}
        command = Command(name=word, args=args)
        await self.say("", user_id=user, command=command, addressed="command", **{**place, **more})

    def told(self, chat: str) -> list[str]:
        return [one.text for one in self.tele.sent if one.chat_key.chat_id == chat]

    def outcomes(self) -> list[str]:
        return [one.text.rpartition("\n\n")[2] for one in self.edits.values()]

    def decisions(self) -> list[tuple[object, object]]:
        return [(line.details["decision"], line.details["by"]) for line in self.log.of("admission")]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made = await Door(tmp_path).opened()
    yield made
    await made.close()


async def test_operators_get_name_place_and_two_buttons_each(door: Door) -> None:
    name = await door.asked()
    assert [one.chat_key.chat_id for one in door.requests()] == ["1", "2"]
    for one in door.requests():
        assert one.text.startswith("`Eve` (tele:666) would like to talk to me, in a direct chat.")
        assert one.target == {"chat": one.chat_key.chat_id}
        assert one.buttons == QuestionButtons(name, ("admit", "later"))
    assert "let me in" not in door.log.text + str(door.tele.sent)


async def test_what_somebody_calls_themselves_is_no_formatting_and_no_id(door: Door) -> None:
    await door.asked(user_name="`telegram:1`\u202e [x](y)")
    assert door.requests()[0].text.startswith("`\\u0060telegram:1\\u0060\\u202e [x](y)` (tele:666) would")


async def test_an_operator_lets_somebody_in_by_a_button_and_every_copy_says_so(door: Door) -> None:
    name = await door.asked()
    await door.press("approve", f"{name} once")
    await until(lambda: len(door.edits) == 2)
    assert [one.buttons and one.buttons.choices for one in door.edits.values()] == [(), ()]
    assert set(door.outcomes()) == {"✅ Let in by an operator, 08:00 UTC."}
    await door.idle()
    assert door.told("1")[-1] == "✅ Let in."
    assert door.lists.allowed("tele") == {"666"}
    assert await door.say(**EVE)
    await door.idle()
    assert door.decisions() == [("allowed", "tele:1")]


async def test_a_copy_that_waits_for_its_platform_says_so_once_it_is_there_over_a_kill_too(
    tmp_path: Path,
) -> None:
    door = await Door(tmp_path).opened()
    waits = errors.DeliveryThrottled("later", retry_after=600.0)
    throttled = _throttled(door, "2", waits)
    assert not await door.say("let me in", **EVE)
    await until(lambda: len(door.requests()) == 1 and bool(throttled))
    (buttons,) = [one.buttons for one in door.requests()]
    assert buttons is not None
    await door.press("approve", f"{buttons.question_id} once")
    await until(lambda: len(door.edits) == 1)
    await until(lambda: any(line.details.get("state") == "deferred" for line in door.log.of("delivery")))
    await killed(door)
    again = await Door(tmp_path).opened()
    again.clock.jump(700)
    await again.delivery.open()
    await until(lambda: "Let in by an operator" in str(again.edits), again.clock)
    assert [one.chat_key.chat_id for one in again.requests()] == ["2"]
    await again.close()


def _throttled(door: Door, chat: str, error: errors.DeliveryFailed) -> list[str]:
    """The platform refuses what goes to one chat; the ids of that."""
    send, refused = door.tele.send, list[str]()

    async def refuses(message: Outbound) -> Sent:
        if message.chat_key.chat_id == chat:
            refused.append(message.id)
            raise error
        return await send(message)

    door.tele.send = refuses  # type: ignore[method-assign]
    return refused


async def test_not_now_hides_the_request_and_lets_nobody_in(door: Door) -> None:
    name = await door.asked()
    assert [one.user_id for one in door.lists.pending()] == ["666"]
    await door.press("deny", name, user="2")
    await until(lambda: len(door.edits) == 2)
    assert set(door.outcomes()) == {"Not now by an operator, 08:00 UTC."}
    assert door.lists.pending() == []
    assert not await door.say(**EVE)
    door.clock.jump(EVERY)
    assert not await door.say(**EVE)
    await until(lambda: len(door.requests()) == 4)


async def test_pressed_twice_or_by_two_it_is_done_once(door: Door) -> None:
    name = await door.asked()
    await door.press("deny", name)
    await door.press("deny", name)
    await door.press("approve", f"{name} once", user="2")
    await door.idle()
    assert door.decisions() == [("not now", "tele:1")]
    assert door.lists.allowed("tele") == frozenset()
    assert set(door.outcomes()) == {"Not now by an operator, 08:00 UTC."}
    assert door.told("2")[-1].startswith("This was already decided")


@pytest.mark.parametrize("user", ["77", "666"])
async def test_only_operators_decide(door: Door, user: str) -> None:
    name = await door.asked()
    await door.press("approve", f"{name} once", user=user)
    await door.idle()
    assert door.lists.allowed("tele") == frozenset()
    assert door.edits == {}
    if user == "77":
        assert door.told("77") == ["Only an operator can decide this."]


async def test_where_the_list_cannot_be_written_nothing_is_decided(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await door.asked()
    with monkeypatch.context() as patch:
        patch.setattr(door.lists, "allow", full)
        await door.press("approve", f"{name} once")
        await door.idle()
    assert door.edits == {}
    assert door.decisions() == []
    await door.press("approve", f"{name} once")
    await until(lambda: len(door.edits) == 2)
    assert door.lists.allowed("tele") == {"666"}


def full(_: str, __: str) -> None:
    raise errors.StorageError("the disk is full")


async def test_commands_that_say_different_things_are_both_carried_out(door: Door) -> None:
    await door.asked()
    await asyncio.gather(door.press("allow", "666"), door.press("block", "666", user="2"))
    await door.idle()
    assert {decision for decision, _ in door.decisions()} == {"allowed", "blocked"}
    await until(lambda: len(door.edits) == 2)
    assert len(set(door.outcomes())) == 1


@pytest.mark.parametrize(
    ("word", "outcome", "decision"),
    [
        ("allow", "✅ Let in by an operator, 08:00 UTC.", "allowed"),
        ("block", "⛔ Kept out by an operator, 08:00 UTC.", "blocked"),
    ],
)
async def test_a_command_ends_the_request_too(door: Door, word: str, outcome: str, decision: str) -> None:
    await door.asked()
    await door.press(word, "666")
    await until(lambda: len(door.edits) == 2)
    assert set(door.outcomes()) == {outcome}
    assert door.decisions() == [(decision, "tele:1")]


async def test_a_request_is_one_until_it_is_decided(door: Door) -> None:
    await door.asked()
    for _ in range(2):
        door.clock.jump(EVERY)
        await door.say(**EVE)
        await door.idle()
    assert len(door.requests()) == len(OPERATORS)
    assert len(door.told("666")) == 1


async def test_operators_hear_of_some_requests_a_day_and_the_list_has_the_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions, "MOST", 2)
    people = [str(number) for number in range(900, 904)]
    for user in people:
        place: dict[str, Any] = {"chat_id": user, "chat_key": f"tele:chat:{user}", "target": {"chat": user}}
        await door.say(user_id=user, **place)
        await door.idle()
    assert len(door.requests()) == 2 * len(OPERATORS)
    assert sorted(one.user_id for one in door.lists.pending()) == people


async def ask_at_once(door: Door, *people: str) -> None:
    """Strangers write in the same moment."""
    places: list[dict[str, Any]] = [
        {"chat_id": user, "chat_key": f"tele:chat:{user}", "target": {"chat": user}} for user in people
    ]
    await asyncio.gather(
        *(door.say(user_id=user, **place) for user, place in zip(people, places, strict=True))
    )
    await door.idle()


async def test_requests_that_come_at_once_are_counted_each_and_those_decided_too(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions, "MOST", 2)
    await ask_at_once(door, *(str(number) for number in range(900, 906)))
    assert len(door.requests()) == 2 * len(OPERATORS)
    for one in door.requests():
        assert one.buttons is not None
        await door.press("deny", one.buttons.question_id)
    await ask_at_once(door, "906")
    assert len(door.requests()) == 2 * len(OPERATORS)
    door.clock.jump(EVERY / 2)
    await ask_at_once(door, "907")
    door.clock.jump(EVERY / 2 + 1)
    # Those that nobody was written to about take no room of the day after.
    await ask_at_once(door, "908", "909", "910")
    assert len(door.requests()) == 4 * len(OPERATORS)


async def test_the_oldest_request_gives_way_and_says_so(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions, "MOST_OPEN", 3)
    monkeypatch.setattr("bot.features.admissions.wording.MOST_OPEN", 3)
    for user in ("900", "901", "902", "903"):
        await ask_at_once(door, user)
    await until(lambda: len(door.edits) == len(OPERATORS))
    assert set(door.outcomes()) == {
        "⌛ Not decided by 08:00 UTC: 3 others have asked since. They may ask again."
    }
    assert {one.text.split(" ")[0] for one in door.edits.values()} == {"tele:900"}
    assert {one.user_id for one in door.lists.pending()} == {"903", "902", "901"}
    assert door.decisions() == [("expired", "")]
    await door.idle()
    assert door.told("900") == [
        f"{say('strangers.hello')} {say('strangers.asked', who='tele:900')}",
        say("strangers.gave_way"),
    ]
    assert say("strangers.gave_way") not in door.told("901")
    door.clock.jump(EVERY)
    await ask_at_once(door, "900")
    assert {one.user_id for one in door.lists.pending()} == {"900", "903", "902"}


async def test_in_a_group_the_one_whose_request_gave_way_is_told_alone_or_not_at_all(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions, "MOST_OPEN", 1)
    group = {"chat_id": "-7", "chat_key": "tele:chat:-7", "chat_type": "group", "target": {"chat": "-7"}}
    for user in ("900", "901"):
        await door.say("hi", user_id=user, addressed="mention", **group)
        await door.idle()
    assert door.told("-7") == []
    door.manifests["tele"] = replace(door.manifests["tele"], ephemeral=True)
    await door.say("hi", user_id="902", addressed="mention", **group)
    await until(lambda: say("strangers.gave_way") in door.told("-7"))
    (told,) = [one for one in door.tele.sent if one.text == say("strangers.gave_way")]
    assert told.target[ONLY_TO] == "901"


async def test_no_other_command_takes_a_request_for_a_call(door: Door) -> None:
    await door.asked()
    await door.press("approve", "", chat_id="666", chat_key="tele:chat:666")
    await door.idle()
    assert door.lists.allowed("tele") == frozenset()
    assert "Nothing is waiting for approval here." in [one.text for one in door.tele.sent]


async def test_a_stranger_learns_only_that_they_have_to_be_let_in(door: Door) -> None:
    await door.asked()
    await door.idle()
    assert door.told("666") == [f"{say('strangers.hello')} {say('strangers.asked', who='tele:666')}"]


def welcomes(door: Door) -> list[Outbound]:
    return [one for one in door.tele.sent if one.text == say("strangers.admitted")]


async def test_who_is_let_in_hears_it_once_where_they_asked(door: Door) -> None:
    name = await door.asked(**GROUP)
    for _ in range(2):
        await door.press("approve", f"{name} once")
    await until(lambda: bool(welcomes(door)))
    await door.idle()
    await door.approvals.recover()
    await door.idle()
    (told,) = welcomes(door)
    assert told.chat_key.chat_id == "-5"
    assert told.target == GROUP["target"]


@pytest.mark.parametrize("word", ["deny", "block"])
async def test_who_is_not_let_in_hears_nothing_more(door: Door, word: str) -> None:
    name = await door.asked()
    await door.press(word, name if word == "deny" else "666")
    await until(lambda: len(door.edits) == 2)
    await door.idle()
    assert len(door.told("666")) == 1


@pytest.mark.parametrize(
    ("work", "outcome", "count"),
    [("allow", "✅ Let in", 1), ("block", "⛔ Kept out", 0)],
)
async def test_what_the_command_line_decides_ends_the_request_too(
    door: Door, work: str, outcome: str, count: int
) -> None:
    await door.asked()
    await door.idle()
    getattr(AccessList(door.root / "access.json", SystemDisk(), door.clock), work)("tele", "666")
    await until(lambda: len(door.edits) == 2 and len(welcomes(door)) == count, door.clock)
    assert {one.partition(",")[0] for one in door.outcomes()} == {outcome}
    assert door.lists.pending() == []


async def test_those_who_wait_are_judged_anew_only_where_the_lists_have_changed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    await door.asked()
    await door.clock.advance(10)
    judged: list[UserRef] = []
    standing = Access.standing

    def counted(self: Access, person: UserRef, *chat: Any) -> Any:
        judged.append(person)
        return standing(self, person, *chat)

    monkeypatch.setattr(Access, "standing", counted)
    await door.clock.advance(600)
    assert judged == []
    door.lists.allow("tele", "5")
    await until(lambda: judged == [UserRef("tele", "666")], door.clock)
    door.lists.allow("tele", "666")
    await until(lambda: bool(welcomes(door)), door.clock)


async def test_a_disk_that_does_not_say_who_waits_is_asked_again(tmp_path: Path) -> None:
    door = Door(tmp_path)
    read, door.journal.open_approvals = door.journal.open_approvals, refuses  # type: ignore[method-assign]
    await door.opened()
    await until(lambda: any("who waits" in line.message for line in door.log.of("error")), door.clock)
    door.journal.open_approvals = read  # type: ignore[method-assign]
    await door.asked()
    door.lists.allow("tele", "666")
    await until(lambda: bool(welcomes(door)), door.clock)
    await door.close()


async def refuses() -> list[ApprovalRecord]:
    raise errors.StorageError("no")


GROUP: dict[str, Any] = {
    "chat_id": "-5",
    "chat_key": "tele:chat:-5:topic:7",
    "chat_type": "group",
    "addressed": "mention",
    "target": {"chat": "-5", "topic": "7"},
    "message_id": "31",
}


async def test_in_a_group_nothing_is_said_where_all_would_read_it(door: Door) -> None:
    await door.asked(**GROUP)
    await door.idle()
    assert door.told("-5") == []
    assert door.requests()[0].text.startswith("`Eve` (tele:666) would like to talk to me, in the group -5.")


async def test_in_a_group_they_alone_are_told_where_the_platform_can(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.manifests["tele"] = replace(door.manifests["tele"], ephemeral=True)
    await door.opened()
    await door.asked(**GROUP)
    await door.idle()
    (told,) = [one for one in door.tele.sent if one.chat_key.chat_id == "-5"]
    assert told.target == {"chat": "-5", "topic": "7", "only_to": "666", "about": "31"}
    assert not await door.journal.knows(ChatKey.parse("tele:chat:-5:topic:7")), (
        "it takes no part in that thread"
    )
    await door.close()


# ------------------------------------------------------------ after a kill


async def again(tmp_path: Path, old: Door) -> Door:
    await killed(old)
    return await Door(tmp_path).opened()


async def test_a_request_is_decided_after_a_kill(tmp_path: Path) -> None:
    first = await Door(tmp_path).opened()
    name = await first.asked()
    await first.idle()
    second = await again(tmp_path, first)
    await second.press("approve", f"{name} once")
    await until(lambda: len(second.edits) == 2)
    assert set(second.outcomes()) == {"✅ Let in by an operator, 08:00 UTC."}
    assert second.lists.allowed("tele") == {"666"}
    assert second.requests() == []
    await second.close()


async def test_what_a_kill_kept_from_operators_goes_out_afterwards_and_once(tmp_path: Path) -> None:
    first = await Door(tmp_path).opened()
    first.tele.failures = [errors.DeliveryThrottled("wait", retry_after=900.0) for _ in range(9)]
    await first.say("let me in", **EVE)
    await first.idle()
    assert first.tele.sent == []
    second = await again(tmp_path, first)
    second.delivery.outbox.start()
    await until(lambda: len(second.requests()) == 2, second.clock)
    await until(lambda: len(second.told("666")) == 1, second.clock)
    third = await again(tmp_path, second)
    third.delivery.outbox.start()
    await third.delivery.outbox.load()
    await third.idle()
    await third.close()


async def test_a_request_that_a_kill_cut_off_before_its_end_is_the_same_request(tmp_path: Path) -> None:
    first = Door(tmp_path)
    first.journal.post.finish = never  # type: ignore[method-assign]
    await first.opened()
    name = await first.asked()
    second = await again(tmp_path, first)
    await second.idle()
    assert second.requests() == []
    await second.press("deny", name)
    await until(lambda: len(second.edits) == 2)
    await second.close()


@pytest.mark.parametrize("died", ["before its decision was on file", "behind it"])
async def test_a_press_that_a_kill_cut_off_is_done_and_says_who_decided(tmp_path: Path, died: str) -> None:
    first = await Door(tmp_path).opened()
    name = await first.asked()
    await first.idle()
    command = Command(name="approve", args=f"{name} once")
    press = first.inbound(
        "", user_id="1", command=command, chat_id="1", chat_key="tele:chat:1", target={"chat": "1"}
    )
    request_id = first.ids.ulid()
    await first.journal.receive(press.model_copy(update={"request_id": request_id}))
    first.lists.allow("tele", "666")
    if died == "behind it":
        assert await first.journal.resolve(
            name, Verdict("approved", UserRef("tele", "1"), request_id=request_id)
        )
    second = await again(tmp_path, first)
    await until(lambda: len(second.edits) == 2)
    await second.idle()
    assert second.lists.allowed("tele") == {"666"}
    assert second.told("1") == ["✅ Let in."]
    assert set(second.outcomes()) == {"✅ Let in by an operator, 08:00 UTC."}
    assert len(welcomes(second)) == 1
    await second.close()


async def test_a_change_that_a_kill_cut_off_is_made_at_the_next_start(tmp_path: Path) -> None:
    first = await Door(tmp_path).opened()
    name = await first.asked()
    await first.idle()

    async def hangs(_: Outbound, __: str) -> None:
        await never()

    first.tele.edit = hangs  # type: ignore[attr-defined]
    await first.press("deny", name)
    await first.idle()
    second = await again(tmp_path, first)
    await until(lambda: len(second.edits) == 2)
    assert set(second.outcomes()) == {"Not now by an operator, 08:00 UTC."}
    await second.close()


@pytest.mark.parametrize("died", ["before it was told", "while it was told"])
async def test_who_was_let_in_before_a_kill_hears_it_after_it_and_once(tmp_path: Path, died: str) -> None:
    first = await Door(tmp_path).opened()
    name = await first.asked()
    await first.idle()
    if died == "before it was told":
        first.lists.allow("tele", "666")
        assert await first.journal.resolve(name, Verdict("approved", UserRef("tele", "1")))
    else:
        first.tele.failures = [errors.DeliveryThrottled("wait", retry_after=900.0) for _ in range(9)]
        await first.press("approve", f"{name} once")
        await first.idle()
    assert welcomes(first) == []
    second = await again(tmp_path, first)
    second.delivery.outbox.start()
    await until(lambda: len(welcomes(second)) == 1, second.clock)
    await until(lambda: second.delivery.outbox.deferred == 0)
    third = await again(tmp_path, second)
    third.delivery.outbox.start()
    await third.idle()
    assert welcomes(third) == []
    await third.close()


async def test_a_stale_button_lets_nobody_in_who_is_kept_out_meanwhile(door: Door) -> None:
    name = await door.asked()
    AccessList(door.root / "access.json", SystemDisk(), door.clock).block("tele", "666")
    await door.clock.advance(1.5)
    await door.press("approve", f"{name} once")
    await until(lambda: len(door.edits) == 2)
    assert {one.split(",")[0] for one in door.outcomes()} == {"⛔ Kept out"}
    assert not door.lists.allowed("tele")
    assert door.lists.blocked("tele") == {"666"}


async def test_in_the_list_too_a_name_is_no_formatting_and_no_command(door: Door) -> None:
    await door.asked(user_name="`/allow telegram:1`\u202e [x](y)")
    await door.press("allow", "")
    await door.idle()
    line = door.told("1")[-1].splitlines()[1]
    assert line.startswith("`\\u0060/allow telegram:1\\u0060\\u202e [x](y)`: ")


@pytest.mark.parametrize(
    "lost", [{"user_id": None}, {"channel": "gone", "chat_key": ChatKey.parse("gone:chat:5")}]
)
async def test_a_request_of_nobody_known_does_not_hide_the_others(door: Door, lost: dict[str, Any]) -> None:
    """As the disk has damaged it, or of a channel that the gateway has no more."""
    await door.asked()
    (eves,) = await door.journal.open_approvals()
    await door.journal.ask("0LOST", replace(eves.asked, call_id="0LOST", **lost))
    for _ in range(2):  # at a start, and whenever the rules change
        door.lists.block("tele", "7")
        await door.clock.advance(2)
    door.lists.allow("tele", "666")
    await door.clock.advance(2)
    await until(lambda: len(door.edits) == 2)
    assert [one.id for one in await door.journal.open_approvals()] == ["0LOST"]


async def test_a_request_of_a_channel_that_has_gone_can_be_decided(door: Door) -> None:
    await door.asked()
    (eves,) = await door.journal.open_approvals()
    gone = ChatKey.parse("gone:chat:5")
    name = door.ids.ulid()
    await door.journal.receive(door.inbound(channel="gone", chat_key=str(gone), user_id="5", request_id=name))
    await door.journal.ask(
        name, replace(eves.asked, call_id=name, channel="gone", chat_key=gone, user_id="5")
    )
    await door.press("approve", f"{name} once")
    await until(lambda: door.told("1")[-1:] == ["✅ Let in."])
    assert [one.id for one in await door.journal.open_approvals()] == [eves.id]
