"""After a removal, the chat in memory equals a chat that is rebuilt from the log."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.chat import Chat
from bot.core.events import Event
from bot.core.removal import Gone, blanked

KEY = ChatKey("telegram", "1")
SECRET = "鯨 is a whale"


def said(name: str, words: str) -> Inbound:
    return Inbound(
        channel="telegram",
        chat_id="1",
        chat_key=KEY,
        chat_type="direct",
        user_id="1",
        keys=(name,),
        ts=1_000,
        target={"chat_id": "1"},
        text=words,
        message_id=name,
        request_id=f"r{name}",
    )


def life(turns: int) -> list[Event]:
    """Return the events of turns in which the question, a `chat_send` call, its result and the answer contain the secret."""
    found = list[tuple[str, events.EventData]]()
    for number in range(turns):
        turn, words = f"r{number}", [{"type": "text", "text": f"{SECRET} {number}"}]
        call = {"type": "tool_use", "id": f"c{number}", "name": "chat_send", "input": {"text": SECRET}}
        told = {"role": "user", "content": words}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "sent"}
        found += [
            ("", events.Received(said(str(number), SECRET))),
            (turn, events.TurnStarted((turn,), "boot")),
            (turn, events.Told(told, (turn,))),
            (turn, events.Asked("a", "boot", "m")),
            (turn, events.Answered("a", [call], "tool_use")),
            (turn, events.ToolEnded(f"c{number}", result)),
            (turn, events.Asked("b", "boot", "m")),
            (turn, events.Answered("b", words, "end_turn")),
            (turn, events.TurnEnded("answered")),
        ]
    return [
        Event(f"e{seq}", KEY, 1.0, data, turn or None, seq=seq) for seq, (turn, data) in enumerate(found, 1)
    ]


def folded(log: list[Event]) -> Chat:
    chat = Chat(KEY)
    for event in log:
        chat.apply(event)
    return chat


@given(
    at=some.integers(0, 26), gone=some.sets(some.sampled_from(range(3)), min_size=1), answers=some.booleans()
)
def test_the_view_in_memory_and_that_of_the_log_are_one(at: int, gone: set[int], *, answers: bool) -> None:
    names = tuple(f"r{one}" for one in sorted(gone))
    removed = events.Removed(names, names if answers else (), tuple(str(one) for one in sorted(gone)))
    log = life(3)
    before = log[: at + 1]
    after = [replace(one, seq=one.seq + 1) for one in log[at + 1 :]]
    removal = Event("x", KEY, 1.0, removed, seq=at + 2)
    alive = folded([*before, removal, *after])
    blank = [replace(one, data=blanked(one, Gone.of(removed))) for one in before]
    again = folded([*blank, removal, *after])
    assert [alive.context.view(), alive.context.current()] == [again.context.view(), again.context.current()]
    shown = str([one for one in (*alive.context.view(), *alive.context.current()) if one["role"] == "user"])
    for event in before if answers else ():
        if isinstance(event.data, events.Told) and event.turn in names:
            assert f"{SECRET} {event.turn.removeprefix('r')}" not in shown
