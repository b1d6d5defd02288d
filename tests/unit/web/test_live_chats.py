"""What a room keeps, and for how long."""

from __future__ import annotations

import json

import pytest

from bot.contracts.identity import ChatKey
from channels.web import live_chats


def chat(name: str) -> ChatKey:
    return ChatKey("web", name)


def _said(store: live_chats.LiveChats, name: str, text: str) -> None:
    store.say(chat(name), live_chats.WebMessage(store.number(), "x", "user", "message", text, ts=1))


def test_a_room_keeps_its_newest_messages_within_a_size() -> None:
    store = live_chats.LiveChats()
    for number in range(300):
        _said(store, "a", f"{number}")
    assert [said.text for said in store.chat(chat("a")).said] == [f"{number}" for number in range(100, 300)]
    for _ in range(3):
        _said(store, "a", "x" * 600_000)
    assert len(store.chat(chat("a")).said) == 1


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


def test_what_a_forgotten_room_held_is_not_passed_over_in_silence() -> None:
    store = live_chats.LiveChats()
    _said(store, "a", "one")
    seen = json.loads(json.dumps(store.history([]).decode())).split("\n")[0].removeprefix("id: ")
    _said(store, "a", "two")
    del store.chats[chat("a")]
    _said(store, "a", "three")
    assert store.missed(chat("a"), seen) is None


def test_a_browser_that_does_not_read_is_cut_off() -> None:
    cut: list[bool] = []
    stream = live_chats.BrowserStream(lambda: cut.append(True))
    for _ in range(300):
        stream.push(b"x")
    assert cut == []
    stream.push(b"x")
    assert cut == [True]


def test_all_rooms_together_keep_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_chats, "TOTAL", 1_000)
    house = live_chats.LiveChats()
    a, b, c = map(chat, "abc")
    for one in (a, b, c):
        house.chat(one)
        house.say(one, live_chats.WebMessage(house.number(), str(one), "user", "message", "字" * 450, 1))
    assert [house.chats[one].size for one in (a, b, c)] == [0, 450, 450]
    assert house.missed(a, f"{house.boot}-0") is None, "shown the archive instead"
    assert "字".encode() in (house.missed(c, f"{house.boot}-2") or b"")
    house.say(c, live_chats.WebMessage(house.number(), "d", "user", "message", "字" * 2_000, 1))
    assert [house.chats[one].size for one in (a, b)] == [0, 0]
