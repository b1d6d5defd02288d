"""The conversations of a browser's user, and the stored messages of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.contracts.channel import Channel
from bot.contracts.identity import ChatKey
from bot.contracts.messages import OutgoingFile
from bot.testing.intake import RecordingIntake
from channels.web import live_chats
from tests.contracts.channel_contract import reply
from tests.contracts.web_rig import Browser


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


async def test_the_list_has_the_newest_first_in_pages_and_every_open_page_learns_of_news(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    for number in range(60):
        body = {"text": f"topic {number}", "clientId": "m1", "conversation": f"c{number}"}
        assert (await browser.post("/api/messages", body))[0] == 202
    _, first = await browser.get("/api/conversations")
    assert ([one["title"] for one in first["conversations"][:2]], first["more"]) == (
        ["topic 59", "topic 58"],
        True,
    )
    assert len(first["conversations"]) == 50
    _, rest = await browser.get("/api/conversations", params={"before": "c10"})
    assert ([one["id"] for one in rest["conversations"]][::9], rest["more"]) == (["c9", "c0"], False)
    _, found = await browser.get("/api/conversations", params={"q": "topic 5"})
    assert len(found["conversations"]) == 11
    tabs = [await browser.listen(one) for one in ("c1", "c2")]
    for tab in tabs:
        while (await tab.next())[0] != "working":
            pass
    about = intake.accepted[2]
    await channel.send(replace(reply(about, "so far"), kind="preview"))
    await channel.send(reply(about, "an answer"))
    await channel.indicate(about.target, working=True)
    assert (await browser.get("/api/conversations", params={"q": "topic 2"}))[1]["conversations"][-1][
        "working"
    ]
    assert (await browser.post("/api/conversations/c2", {"title": "two"}))[0] == 200
    assert [await browser.post(f"/api/conversations/{one}", {"title": "x"}) for one in ("none", "a:b")] == [
        (404, {"error": "There's nothing here."}),
        (400, {"error": "That request can't be read."}),
    ]
    assert (await browser.post("/api/conversations/c2", {"title": 2}))[0] == 400
    told = [await tabs[0].next() for _ in range(3)]
    assert [name for name, _ in told] == ["conversation"] * 3
    news = [{one: data[one] for one in ("role", "working", "title") if one in data} for _, data in told]
    assert news == [{"role": "assistant"}, {"working": True}, {"working": True, "title": "two"}]
    assert {data["id"] for _, data in told} == {"c2"}
    names = [(await tabs[1].next())[0] for _ in range(4)]
    assert names == ["message", "message", "working", "conversation"], "its own page is told what was said"


def chat(name: str) -> ChatKey:
    return ChatKey("web", name)


def _said(store: live_chats.LiveChats, name: str, text: str) -> None:
    store.say(chat(name), live_chats.WebMessage(store.number(), "x", "user", "message", text, ts=1))


def test_rooms_without_listeners_are_forgotten_from_the_oldest() -> None:
    store = live_chats.LiveChats()
    cut: list[bool] = []
    store.chat(chat("listening")).streams.append(live_chats.BrowserStream(lambda: cut.append(True)))
    for number in range(live_chats.MOST_CHATS + 10):
        _said(store, f"c{number}", "hello")
    assert len(store.chats) == live_chats.MOST_CHATS
    assert chat("listening") in store.chats
    assert chat("c0") not in store.chats
    assert chat(f"c{live_chats.MOST_CHATS + 9}") in store.chats


def test_a_browser_that_does_not_read_is_cut_off() -> None:
    cut: list[bool] = []
    stream = live_chats.BrowserStream(lambda: cut.append(True))
    for _ in range(300):
        stream.push(b"x")
    assert cut == []
    stream.push(b"x")
    assert cut == [True]
