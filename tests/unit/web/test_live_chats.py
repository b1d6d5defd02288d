"""What a room keeps, and for how long."""

from __future__ import annotations

from bot.contracts.identity import ChatKey
from channels.web import live_chats


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
