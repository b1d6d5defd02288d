"""The tests that every channel must pass, on any platform. `test_<name>_channel.py` subclasses
`ChannelContract`.

A subclass supplies the class attributes and the fixture `rig`. The rig is a started channel, together with a
fake platform and its people.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors, http_server, text
from bot.contracts.channel import Channel, ChannelDeps, Manifest
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Outbound
from bot.http_server import Connections
from bot.system import SystemClock, SystemDisk
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog

EVERYDAY = (
    "hello",
    "  two  spaces and\na line break ",
    "*stars* _lines_ `ticks` <angles> & ampersands \\ #hash",
    "你好，今天天气怎么样？",
    "ありがとう、また明日",
    "مرحبا بالعالم، كيف حالك؟",
    "שלום עולם",
    "👨‍👩‍👧‍👦 🇪🇺 👍🏽 e\u0301 क्षि",
)
"""Examples of texts that people really write."""

_PIECES = [
    "word ",
    "Zürich ",
    "👨‍👩‍👧‍👦",
    "🇪🇺",
    "👍🏽",
    "e\u0301",
    "क्षि",
    "你好。",
    "ありがとう",
    "مرحبا ",
    "שלום ",
    "line\n",
    "end. ",
]

Cannot = Literal["say_as_self", "fail_next_send", "lose_next_answer", "repeat", "again"]


class Rig(Protocol):
    """A started channel that delivers to `intake`, with a platform that the test controls."""

    channel: Channel
    intake: RecordingIntake

    async def say(self, text: str, *, user: str = "first") -> None:
        """Address the bot in a direct chat as a person."""
        ...

    async def repeat(self) -> None:
        """Make the platform deliver the event of the last `say` again, although the event was confirmed."""
        ...

    async def again(self) -> None:
        """Make the platform deliver all unconfirmed events again, if there are any."""
        ...

    async def say_as_self(self, text: str) -> None:
        """Make a message of the bot itself arrive as an event; return when the event is processed."""

    async def visible(self) -> list[str]:
        """Return the bot's messages that people see, oldest first, as the text that people read."""
        ...

    async def fail_next_send(self) -> None:
        """Make the next send fail before the platform executes it."""

    async def lose_next_answer(self) -> None:
        """Make the platform execute the next send and lose the answer."""

    def fits(self, part: str) -> bool:
        """Return True if a part made by `split` fits into one message of the platform."""
        ...

    def build(self) -> Channel:
        """Return another channel with the same configuration, not started."""
        ...


def surroundings(folder: Path, clock: Clock | None = None) -> ChannelDeps:
    """Return the dependencies with which a channel under test is built."""
    home = folder / ".ship"
    home.mkdir(mode=0o700, exist_ok=True)
    return ChannelDeps(
        clock=clock or SystemClock(),
        log=MemoryLog(),
        rng=random.Random(1),
        home=home,
        root=folder,
        disk=SystemDisk(),
        user_of=http_server.user_of,
        serve=Connections(1000, clock=SystemClock(), log=MemoryLog()).server,
    )


def listening_port(around: ChannelDeps) -> int:
    """Return the port on which a channel built with these dependencies waits for its platform's requests."""
    assert isinstance(around.log, MemoryLog)
    return next(int(entry.details["port"]) for entry in around.log.of("channel") if "port" in entry.details)


class ChannelContract(abc.ABC):
    manifest: ClassVar[Manifest]
    addresses: ClassVar[st.SearchStrategy[dict[str, str]]]
    """Strategy that generates the addresses that `manifest.encode` accepts."""
    pinned: ClassVar[Mapping[str, Mapping[str, str]]]
    """Chat keys in the form stored in existing archives, each with the address that the key stands for."""
    cannot: ClassVar[Mapping[Cannot, str]] = {}
    """Actions that are impossible on this platform, each with the reason."""

    @pytest.fixture
    @abc.abstractmethod
    def rig(self) -> Any:
        """Start the channel and its platform; stop both after the test."""

    def _needs(self, what: Cannot) -> None:
        if reason := self.cannot.get(what):
            pytest.skip(reason)

    def test_a_chat_key_leads_back_to_the_address_it_was_made_from(self) -> None:
        @settings(derandomize=True, deadline=None, max_examples=100)
        @given(self.addresses)
        def round_trip(address: dict[str, str]) -> None:
            key = self.manifest.encode(address)
            assert str(key).startswith(f"{self.manifest.name}:chat:")
            assert self.manifest.decode(key) == address

        round_trip()

    def test_chat_keys_already_on_disk_keep_their_meaning(self) -> None:
        assert self.pinned
        for written, address in self.pinned.items():
            key = ChatKey.parse(written)
            assert str(key) == written
            assert self.manifest.encode(address) == key
            assert self.manifest.decode(key) == dict(address)

    @pytest.mark.parametrize("said", EVERYDAY)
    async def test_what_a_person_says_arrives_unchanged(self, rig: Rig, said: str) -> None:
        inbound = await _said(rig, said)
        assert inbound.text == said
        assert inbound.kind == "message"

    async def test_an_inbound_says_where_it_is_from(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        assert inbound.channel == rig.channel.name == self.manifest.name
        assert (inbound.chat_type, inbound.addressed, inbound.from_bot) == ("direct", "direct", False)
        assert inbound.keys
        assert all(inbound.keys)
        assert inbound.user_id
        assert inbound.ts > 1_000_000_000_000  # milliseconds
        parts = self.manifest.decode(inbound.chat_key)
        assert self.manifest.encode(parts) == inbound.chat_key
        assert inbound.chat_id in parts.values()

    async def test_two_messages_of_a_person_are_two_events_of_one_chat(self, rig: Rig) -> None:
        first = await _said(rig, "one")
        second = await _said(rig, "two")
        assert set(first.keys).isdisjoint(second.keys)
        assert (first.chat_key.chat, first.user_id) == (second.chat_key.chat, second.user_id)

    async def test_different_people_have_different_ids(self, rig: Rig) -> None:
        if reason := self.cannot_tell_people_apart:
            pytest.skip(reason)
        first = await _said(rig, "one")
        second = await _said(rig, "two", user="second")
        assert first.user_id != second.user_id
        assert first.chat_key != second.chat_key

    cannot_tell_people_apart: ClassVar[str] = ""
    """Reason why everyone who uses this channel counts as the same person; "" if the channel tells people apart."""

    async def test_an_event_delivered_twice_has_the_same_keys(self, rig: Rig) -> None:
        self._needs("repeat")
        first = await _said(rig, "once")
        await rig.repeat()
        second = await rig.intake.offers(2)
        assert second.keys == first.keys
        assert second.chat_key == first.chat_key
        assert len(rig.intake.accepted) == 1

    async def test_the_bots_own_messages_are_dropped(self, rig: Rig) -> None:
        self._needs("say_as_self")
        await rig.say_as_self("my own words")
        await _said(rig, "somebody else's words")
        assert [inbound.text for inbound in rig.intake.offered] == ["somebody else's words"]
        assert not rig.intake.dead_letters

    async def test_a_message_that_could_not_be_written_down_comes_again(self, rig: Rig) -> None:
        self._needs("again")
        rig.intake.failure = errors.StorageError()
        await rig.say("keep me")
        await rig.intake.offers(1)
        assert not rig.intake.accepted
        rig.intake.failure = None
        await rig.again()
        await rig.intake.until(lambda: bool(rig.intake.accepted))
        assert [inbound.text for inbound in rig.intake.accepted] == ["keep me"]
        assert {inbound.keys for inbound in rig.intake.offered} == {rig.intake.accepted[0].keys}

    async def test_a_message_that_was_written_down_does_not_come_again(self, rig: Rig) -> None:
        self._needs("again")
        await _said(rig, "once")
        await rig.again()
        await _said(rig, "twice")
        assert [inbound.text for inbound in rig.intake.offered] == ["once", "twice"]

    async def test_a_healed_channel_takes_in_everything_and_nothing_twice(self, rig: Rig) -> None:
        said = ["before", "你好", "مرحبا", "after"]
        for words in said:
            await rig.say(words)
            await rig.channel.heal()
        async with asyncio.timeout(90):
            while len(rig.intake.accepted) < len(said):
                await rig.again()
        await _said(rig, "well again")
        assert sorted(inbound.text for inbound in rig.intake.accepted) == sorted([*said, "well again"])
        assert rig.channel.health().connected

    async def test_healing_does_not_touch_what_goes_out(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        sending = [asyncio.create_task(rig.channel.send(reply(inbound, f"part {n}"))) for n in range(3)]
        await asyncio.gather(*[rig.channel.heal() for _ in range(3)])
        assert len({sent.message_id for sent in await asyncio.gather(*sending)}) == 3
        assert sorted(await rig.visible()) == ["part 0", "part 1", "part 2"]

    async def test_healing_what_does_not_run_does_nothing(self, rig: Rig) -> None:
        await rig.build().heal()
        await rig.channel.stop()
        await rig.channel.heal()
        assert not rig.channel.health().connected

    def test_where_a_person_is_told_something_is_an_address(self) -> None:
        assert (self.manifest.direct is None) == (not self.people)
        for person in self.people:
            assert self.manifest.valid_id(person)
            address = self.manifest.direct(person) if self.manifest.direct else {}
            assert self.manifest.decode(self.manifest.encode(address)) == address

    people: ClassVar[tuple[str, ...]] = ()  # user ids, if the channel can start a conversation with a person

    @pytest.mark.parametrize("answer", ["Hello there", *EVERYDAY[3:]])
    async def test_a_send_is_one_visible_message_with_an_id(self, rig: Rig, answer: str) -> None:
        inbound = await _said(rig, "hello")
        sent = await rig.channel.send(reply(inbound, answer))
        assert await rig.visible() == [answer]
        assert sent.message_id

    async def test_each_message_has_its_own_id(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        ids = [
            (await rig.channel.send(reply(inbound, answer))).message_id for answer in ("one", "two", "two")
        ]
        assert len(set(ids)) == 3
        assert await rig.visible() == ["one", "two", "two"]

    async def test_a_send_that_fails_says_so_and_is_not_tried_again(self, rig: Rig) -> None:
        self._needs("fail_next_send")
        inbound = await _said(rig, "hello")
        await rig.fail_next_send()
        with pytest.raises(errors.DeliveryFailed) as caught:
            await rig.channel.send(reply(inbound, "private words"))
        assert not isinstance(caught.value, errors.DeliveryUncertain)
        assert "private words" not in str(caught.value)
        assert await rig.visible() == []
        await rig.channel.send(reply(inbound, "later"))
        assert await rig.visible() == ["later"]

    async def test_a_lost_answer_is_reported_as_uncertain_and_not_sent_again(self, rig: Rig) -> None:
        self._needs("lose_next_answer")
        inbound = await _said(rig, "hello")
        await rig.lose_next_answer()
        with pytest.raises(errors.DeliveryUncertain) as caught:
            await rig.channel.send(reply(inbound, "private words"))
        assert "private words" not in str(caught.value)
        assert await rig.visible() == ["private words"]

    async def test_a_stopped_channel_reports_that_it_cannot_send(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        await rig.channel.stop()
        with pytest.raises(errors.DeliveryFailed):
            await rig.channel.send(reply(inbound, "too late"))

    async def test_a_paused_channel_still_sends(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        await rig.channel.pause()
        await rig.channel.send(reply(inbound, "the rest"))
        assert await rig.visible() == ["the rest"]

    async def test_the_sign_of_work_can_be_shown_and_cleared(self, rig: Rig) -> None:
        inbound = await _said(rig, "hello")
        await rig.channel.indicate(inbound.target, working=True)
        await rig.channel.indicate(inbound.target, working=False)
        await rig.channel.indicate(inbound.target, working=False)
        assert await rig.visible() == []

    async def test_split_parts_fit_and_together_say_the_same(self, rig: Rig) -> None:
        split, fits = rig.channel.split, rig.fits

        @settings(derandomize=True, deadline=None, max_examples=15)
        @given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=12), st.integers(1, 3))
        def holds(pieces: list[str], times: int) -> None:
            whole = longer_than_one(rig, "".join(pieces)) * times
            parts = split(whole)
            assert len(parts) > 1
            assert all(fits(part) for part in parts)
            assert all(part.strip() for part in parts)
            assert [g for part in parts for g in _seen(part)] == _seen(whole)

        holds()

    async def test_short_text_is_one_part(self, rig: Rig) -> None:
        for said in EVERYDAY:
            assert ["".join(part.split()) for part in rig.channel.split(said)] == ["".join(said.split())]

    @pytest.mark.parametrize("blank", ["", " ", "\n\n", " \t\n "])
    async def test_blank_text_has_no_parts(self, rig: Rig, blank: str) -> None:
        assert rig.channel.split(blank) == []

    async def test_every_part_of_a_long_text_can_be_sent(self, rig: Rig) -> None:
        inbound = await _said(rig, "tell me everything")
        parts = rig.channel.split(longer_than_one(rig, "".join(_PIECES)))
        for part in parts:
            await rig.channel.send(reply(inbound, part))
        shown = await rig.visible()
        assert ["".join(_seen(message)) for message in shown] == ["".join(_seen(part)) for part in parts]

    async def test_health_follows_the_life_of_the_channel(self, rig: Rig) -> None:
        assert not rig.build().health().connected
        assert rig.channel.health().connected
        await rig.channel.stop()
        assert not rig.channel.health().connected

    async def test_stopping_twice_or_unstarted_is_fine(self, rig: Rig) -> None:
        await rig.channel.stop()
        await rig.channel.stop()
        await rig.build().stop()

    async def test_a_direct_message_brings_no_earlier_messages_along(self, rig: Rig) -> None:
        assert await rig.channel.context(await _said(rig, "hello")) == ()


_numbers = itertools.count(1)


def reply(inbound: Inbound, answer: str) -> Outbound:
    """Return an answer to `inbound` in the form in which the gateway sends it."""
    number = next(_numbers)
    return Outbound(
        id=f"{number:026d}",
        request_id=f"{number:026d}",
        chat_key=inbound.chat_key,
        target=dict(inbound.target),
        text=answer,
    )


def notice(inbound: Inbound, sentence: str) -> Outbound:
    """Return a notice to the chat of `inbound`."""
    return dataclasses.replace(reply(inbound, sentence), kind="notice")


def longer_than_one(rig: Rig, unit: str) -> str:
    """Return `unit` repeated until the text is slightly too long for one message of the platform."""
    long = unit
    while rig.fits(long):
        long += long
    return long + unit


async def _said(rig: Rig, words: str, *, user: str = "first") -> Inbound:
    """Say something as a person; return the message when the intake has received it."""
    count = len(rig.intake.offered) + 1
    await rig.say(words, user=user)
    return await rig.intake.offers(count)


def _seen(part: str) -> list[str]:
    """Return the visible characters (graphemes) of a text, without white space."""
    return [grapheme for grapheme in text.graphemes(part) if grapheme.strip()]
