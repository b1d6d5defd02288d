"""The conversations of a browser's person."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.contracts.channel import Channel
from bot.contracts.outbound import OutgoingFile
from bot.testing.intake import RecordingIntake
from tests.contracts.channel_contract import reply
from tests.contracts.web_rig import Browser


async def test_each_conversation_has_a_chat_key_a_stream_and_message_ids_of_its_own(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    for said, conversation in (("one", {}), ("two", {"conversation": "plan-2"})):
        body = {"text": said, "clientId": "m1", **conversation}
        assert await browser.post("/api/messages", body) == (202, {"id": "m1", "taken": True})
    again = {"text": "two", "clientId": "m1", "conversation": "plan-2"}
    assert (await browser.post("/api/messages", again))[1]["taken"] is False
    first, second = intake.accepted
    root = str(first.chat_key)
    assert (str(second.chat_key), second.chat_id) == (f"{root}:thread:plan-2", first.chat_id)
    assert second.target == first.target | {"thread": "plan-2"}
    await channel.send(reply(second, "an answer to two"))
    assert [one["text"] for one in await browser.page("plan-2")] == ["two", "an answer to two"]
    assert [one["text"] for one in await browser.page()] == ["one"]
    assert await browser.page() == await browser.page("first")
    assert await browser.page("empty") == []


@pytest.mark.parametrize("name", ["a:b", "../x", "x" * 65, "", "é"])
async def test_a_conversation_with_an_impossible_id_is_refused(
    browser: Browser, intake: RecordingIntake, name: str
) -> None:
    body = {"text": "x", "clientId": "m1", "conversation": name}
    assert (await browser.post("/api/messages", body))[0] == 400
    assert (await browser.get("/api/events", params={"conversation": name}))[0] == 400
    assert (await browser.post("/api/messages", body | {"conversation": 7}))[0] == 400
    assert intake.offered == []


async def test_a_file_opens_in_every_conversation_of_its_person_and_in_no_other(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    given = await browser.give(b"mine", "mine.txt")
    body = {"text": "look", "clientId": "m1", "conversation": "a", "files": [given]}
    assert (await browser.post("/api/messages", body))[0] == 202
    made = OutgoingFile("made.txt", "text/plain", b"made")
    await channel.send(replace(reply(intake.accepted[0], ""), file=made))
    await browser.say("elsewhere")
    (sent,) = (await browser.page("a"))[-1]["files"]
    assert await browser.file(given, "mine.txt") == b"mine"
    assert await browser.file(sent["id"], "made.txt") == b"made"
    async with Browser(channel) as other:
        for name in (given, sent["id"]):
            assert (await other.http.get(f"{other.url}/api/files/{name}")).status == 404
