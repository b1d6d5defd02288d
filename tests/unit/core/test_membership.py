"""A person counts as a member only of the chats for which the channel confirms it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.channel import Channel, MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.core.access import Access, AccessList
from bot.testing.log import MemoryLog

KEYS = [*map(ChatKey.parse, ["slack:chat:C1", "slack:chat:C2", "web:chat:1"])]


class Knows:
    """The part of a channel that these tests need."""

    def __init__(self, answer: list[ChatKey] | MembershipAnswer | BaseException | None) -> None:
        self.answer = MembershipAnswer(answer) if isinstance(answer, list) else answer

    async def chats_of(
        self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer | None:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def permalink(self, line: ArchiveLine) -> str | None:
        return f"https://example.org/{line.message_id}"


def memberships(*, log: MemoryLog | None = None, **channels: Any) -> Access:
    lists = cast("AccessList", None)
    return Access({}, {}, (), lists, str, cast("dict[str, Channel]", channels), log or MemoryLog())


async def test_a_channel_is_asked_about_its_own_chats_and_believed_about_those() -> None:
    asked = memberships(
        slack=Knows(
            [ChatKey.parse("slack:chat:C2"), ChatKey.parse("web:chat:1"), ChatKey.parse("slack:chat:C9")]
        )
    )
    assert await asked.chats_of("slack", "U1", KEYS, direct=True) == MembershipAnswer(
        [ChatKey.parse("slack:chat:C2")]
    )


async def test_what_a_channel_could_not_say_is_passed_on_about_what_was_asked() -> None:
    said = MembershipAnswer([], [ChatKey.parse("slack:chat:C1"), ChatKey.parse("slack:chat:C9")])
    asked = memberships(slack=Knows(said))
    assert await asked.chats_of("slack", "U1", KEYS, direct=True) == MembershipAnswer(
        [], [ChatKey.parse("slack:chat:C1")]
    )


@pytest.mark.parametrize(
    "trouble", [errors.ChannelUnreachable("away"), errors.StorageError("x"), TimeoutError()]
)
async def test_trouble_means_no_and_that_nothing_was_said(trouble: Exception) -> None:
    log = MemoryLog()
    found = await memberships(slack=Knows(trouble), log=log).chats_of("slack", "U1", KEYS, direct=True)
    assert found == MembershipAnswer([], unanswered=KEYS[:2])
    assert log.kinds == ["denied"]


@pytest.mark.parametrize("runs", [True, False])
async def test_a_channel_that_does_not_know_means_no(runs: bool) -> None:
    asked = memberships(slack=Knows(None)) if runs else memberships()
    assert await asked.chats_of("slack", "U1", KEYS, direct=True) == MembershipAnswer([])


async def test_a_chat_is_asked_about_however_many_others_were_spoken_in_since() -> None:
    others = [ChatKey("slack", "C3", f"{number}.0") for number in range(1_000)]
    asked = memberships(slack=Knows(KEYS[:1]))
    assert await asked.chats_of("slack", "U1", [*others, *KEYS], direct=True) == MembershipAnswer(KEYS[:1])
