"""The tests that every `EventLog` must pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Command, Inbound
from bot.core import events
from bot.core.event_log import Entry, EventLog, Position
from bot.core.events import Event, EventData, encode
from bot.telemetry.usage import UsageTotals

ONE, OTHER = ChatKey("telegram", "1"), ChatKey("slack", "C1", "1700000000.000100")
WORDS = "你好 😀 مرحبا \u202e\n\0 end"


def received(key: str = "k1", words: str = WORDS) -> events.Received:
    return events.Received(
        Inbound(
            channel="telegram",
            chat_id="1",
            chat_key=ONE,
            chat_type="direct",
            user_id="7",
            keys=(key,),
            ts=1_700_000_000_000,
            target={"chat_id": "1"},
            kind="message",
            text=words,
            message_id=key,
            request_id=f"r-{key}",
        )
    )


def entry(
    seq: int, data: EventData, chat: ChatKey = ONE, *, name: str = "", position: Position | None = None
) -> Entry:
    event = Event(name or f"{chat}-{seq}", chat, 1_700_000_000.25, data, "turn", "7", seq)
    return Entry(event, position or Position(0, 1), encode(data))


class EventLogContract(ABC):
    """Tests of an event log. Subclasses implement `opened`, which opens the same log again if it is called
    with the same place.
    """

    @abstractmethod
    def opened(self, place: Any) -> AbstractAsyncContextManager[EventLog]: ...

    @pytest.fixture
    def place(self, tmp_path: Any) -> Any:
        return tmp_path

    async def test_what_was_committed_is_there_again_in_order_and_whole(self, place: Any) -> None:
        said = [
            received(),
            events.Told({"role": "user", "content": [{"type": "text", "text": WORDS}]}, ("r-k1",)),
        ]
        async with self.opened(place) as log:
            log.append([entry(1, said[0]), entry(2, said[1])])
            log.append([entry(1, events.Closed("x", "done"), OTHER, position=Position(1, None))])
            await log.committed()
        async with self.opened(place) as log:
            found = await log.read(ONE)
            assert [(one.seq, one.data, one.turn, one.person, one.at) for one in found] == [
                (at, data, "turn", "7", 1_700_000_000.25) for at, data in enumerate(said, 1)
            ]
            assert [one.seq for one in await log.read(ONE, 2)] == [2]
            assert await log.read(ChatKey("telegram", "2")) == []
            assert await log.chats(unfinished=True) == [ONE]
            assert await log.newest() == f"{ONE}-2"
            assert (await log.position(ONE), await log.position(OTHER)) == (Position(0, 1), Position(1, None))
            assert await log.position(ChatKey("telegram", "2")) is None

    async def test_what_is_pending_is_read_as_well(self, place: Any) -> None:
        async with self.opened(place) as log:
            log.append([entry(1, received())])
            await log.committed()
            log.append([entry(2, events.Closed("r-k1"), position=Position(2, None))])
            assert [one.seq for one in await log.read(ONE)] == [1, 2]
            assert await log.position(ONE) == Position(2, None)
            log.append([entry(3, received("k2"))])
            assert await log.known(("k2",))

    async def test_the_same_event_again_changes_nothing(self, place: Any) -> None:
        async with self.opened(place) as log:
            for _ in range(2):
                log.append([entry(1, received(), name="same")])
                await log.committed()
            assert len(await log.read(ONE)) == 1

    async def test_the_conversations_of_a_place_in_which_something_was_said_come_newest_first(
        self, place: Any
    ) -> None:
        places = [ChatKey("slack", "C1", "1.1"), ChatKey("slack", "C1"), ChatKey("slack", "C12"), OTHER]
        async with self.opened(place) as log:
            for number, chat in enumerate(places, 1):
                log.append([entry(1, received(f"k{number}"), chat, name=f"{number}")])
            log.append([entry(2, events.TurnStarted(("r",), "boot"), places[0], name="5")])
            for _ in ("pending", "on disk"):
                assert [*await log.spoken_in(places[1])] == [OTHER, places[1], places[0]]
                assert await log.spoken_in(OTHER) == {OTHER: 1_700_000_000.25}
                await log.committed()
            assert await log.spoken_in(places[1], 1_700_000_001.0) == {}

    async def test_the_first_words_of_a_chat_are_those_of_its_first_message_with_text(
        self, place: Any
    ) -> None:
        command = received("k1", "/help").inbound.model_copy(update={"command": Command(name="help")})
        said = [
            events.Received(command),
            received("k2", ""),
            received("k3", 'a "command":{} 你好'),
            received(),
        ]
        async with self.opened(place) as log:
            log.append([entry(at, one) for at, one in enumerate(said, 1)])
            log.append([entry(1, said[0], OTHER, name="other")])
            assert await log.first_words([ONE, OTHER, ChatKey("web", "none")]) == {ONE: 'a "command":{} 你好'}

    async def test_keys_of_what_people_did_are_known(self, place: Any) -> None:
        said = received().inbound
        kinds = [events.Received, events.Edited, events.Deleted, events.Stop]
        async with self.opened(place) as log:
            for at, kind in enumerate(kinds, 1):
                log.append([entry(at, kind(said.model_copy(update={"keys": (f"key{at}",)})))])
            await log.committed()
            assert [await log.known(("other", f"key{at}")) for at in range(1, 6)] == [True] * 4 + [False]
            assert not await log.known(())

    async def test_events_of_all_chats_are_read_in_the_order_of_commits(self, place: Any) -> None:
        async with self.opened(place) as log:
            log.append([entry(1, received()), entry(1, events.Closed("x"), OTHER)])
            await log.committed()
            log.append([entry(2, events.Closed("r-k1"))])
            await log.committed()
            assert [one.seq for one in await log.read(ONE, 2, pending=False)] == [2]
            log.append([entry(3, received("k2"))])
            found = await log.after(1, 2)
            assert [(n, one.chat, one.seq) for n, one in found] == [(2, OTHER, 1), (3, ONE, 2)]
            assert [n for n, _ in await log.after(0, 1)] == [1]
            assert set(await log.chats()) == {ONE, OTHER}

    async def test_facts_are_kept(self, place: Any) -> None:
        async with self.opened(place) as log:
            assert await log.cursor("archive") == 0
            for value in (1, 2):
                await log.move_cursor("archive", value)
        async with self.opened(place) as log:
            assert await log.cursor("archive") == 2

    async def test_what_a_chat_used_is_counted_once(self, place: Any) -> None:
        usage = {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 1}
        async with self.opened(place) as log:
            priced = events.Used("one", "turn", "telegram:1", usage, 0.25)
            asked = entry(1, received("k1"))
            over = entry(2, events.TurnEnded("answered"))
            known = [asked, replace(over, event=replace(over.event, turn=asked.event.id)), entry(3, priced)]
            log.append(known)
            await log.committed()
            log.append([*known, entry(4, replace(priced, model="two", purpose="memory", cost_usd=None))])
            log.append(
                [entry(5, events.TurnEnded("failed")), entry(6, events.Used("b", "turn", error="Overloaded"))]
            )
            log.append([entry(1, priced, OTHER)])
            await log.committed()
            found = await log.usage(ONE)
            counts = Counter(inputTokens=10, cacheReadTokens=6, cacheWriteTokens=2, outputTokens=4)
            assert found == UsageTotals(1, calls=2, unpriced=1, cost=0.25, tokens=counts)

    async def test_events_lose_words_with_the_event_that_removes_them(self, place: Any) -> None:
        async with self.opened(place) as log:
            said = entry(1, received("m1"))
            log.append([said, entry(1, received("m1"), OTHER)])
            (found,) = await log.naming(ONE, {"m1"})
            assert (found.id, found.data) == (said.event.id, said.event.data)
            assert await log.naming(ONE, {"m"}) == []
            blank = replace(said.event, data=received("m1", ""))
            removed = events.Removed(("r-m1",), by="r")
            log.append([replace(entry(2, removed), blanks=[(blank, encode(blank.data))])])
            await log.committed()
        async with self.opened(place) as log:
            assert [one.data for one in await log.read(ONE)] == [received("m1", ""), removed]

    async def test_events_are_found_by_their_kind_and_time_before_they_are_on_disk_too(
        self, place: Any
    ) -> None:
        async with self.opened(place) as log:
            log.append([entry(1, events.Rated("good")), entry(2, received()), entry(1, received("o"), OTHER)])
            await log.committed()
            log.append([entry(3, events.Rated("bad"))])
            rated = await log.of_kinds(ONE, ["rated", "closed"], 0.0)
            assert [one.data for one in rated] == [events.Rated("good"), events.Rated("bad")]
            assert await log.of_kinds(ONE, ["rated"], rated[-1].at + 1) == []

    async def test_who_watches_hears_of_each_commit(self, place: Any) -> None:
        heard: list[Mapping[ChatKey, int]] = []
        async with self.opened(place) as log:
            log.watch(heard.append)
            log.append([entry(1, received()), entry(1, events.Closed("x"), OTHER)])
            await log.committed()
            await log.committed()
        assert heard == [{ONE: 1, OTHER: 1}]

    async def test_halves_of_letters_cost_no_event(self, place: Any) -> None:
        halves = "a \ud83d b"
        async with self.opened(place) as log:
            log.append([entry(1, events.Queued("row", {"chat_id": halves}, halves, channel=halves))])
            log.append([entry(2, events.FactSet("kind", halves, {halves: halves}))])
            log.append([entry(3, received(halves))])
            await log.committed()
            assert await log.known((halves,))
        async with self.opened(place) as log:
            first, fact, _ = await log.read(ONE)
            assert isinstance(first.data, events.Queued)
            assert first.data.text in {halves, "a \ufffd b"}
            assert await log.facts() in ([("kind", one, {one: one})] for one in (halves, "a \ufffd b")), fact

    async def test_what_is_deleted_is_gone_with_its_keys_and_stays_counted(self, place: Any) -> None:
        used = events.Used("m", "turn", usage={"inputTokens": 7}, cost_usd=0.5)
        data = [received(), used, received("k2"), events.Closed("r-k2")]
        async with self.opened(place) as log:
            log.append([replace_time(entry(at, one), 10.0 * at) for at, one in enumerate(data, 1)])
            log.append([entry(1, events.Closed("x"), OTHER)])
            assert await log.older(ONE, 30.0) == (1, 3)
            assert [await log.older(ONE, at) for at in (0.0, 99.0)] == [(1, 1), (1, 5)]
            assert await log.older(ChatKey("telegram", "2"), 99.0) == (0, 0)
            await log.delete_before(ONE, 3)
            await log.delete_before(ONE, 3)
            assert await log.older(ONE, 30.0) == (3, 3)
        async with self.opened(place) as log:
            assert [one.data for one in await log.read(ONE)] == data[2:]
            found = await log.after(0, 9)
            assert [(one.chat, one.seq) for _, one in found] == [(ONE, 3), (ONE, 4), (OTHER, 1)]
            assert [one.seq for _, one in await log.after(found[0][0], 1)] == [4]
            assert (await log.known(["k1"]), await log.known(["k2"])) == (False, True)
            assert (await log.usage(ONE)).calls == 1


def replace_time(one: Entry, at: float) -> Entry:
    return replace(one, event=replace(one.event, at=at))


Opened = AsyncIterator[EventLog]
