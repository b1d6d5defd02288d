"""Random chats with all kinds of events and kills, and one test for each rule of the fold."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from bot.core import chat, events
from bot.core.events import Event
from tests.shares import one_in
from tests.unit.core import world

RULES: dict[str, tuple[str, str]] = {
    "a message starts a turn once it is on disk": ("elif first.seq <= committed:", "else:"),
    "a turn that another process began is begun again": ("elif turn.boot != boot:", "elif not turn.boot:"),
    "an answer to a former call is ignored": (
        "stale = isinstance(event.data, events.Answered)",
        "stale = False",
    ),
    "a send that was cut off is asked about": ("if row.boot != boot:", "if not row.boot:"),
    "a change of a message that has not come is kept": (
        "if known is None:\n            self._early = [*self._early, said][-MOST_EARLY:]",
        "if known is None:",
    ),
    "a fold begins before the changes that wait for their message": (
        "for one in (*self._early, *self._edits.values())]",
        "for one in self._edits.values()]",
    ),
    "what a message rests on begins with its changes": (
        "min([event.seq, *(one.seq for one in changes)])",
        "event.seq",
    ),
    "a fold begins before the messages of the turns in view": (
        "since = members[0], min([event.seq, *(one.since for one in members)])",
        "since = members[0], event.seq",
    ),
    "a stop reaches no turn whose last words are queued": (
        "if not turn.left and turn.phase in STOPPABLE:",
        "if not turn.left:",
    ),
    "a queued message is unfinished": (
        "needed += [one.seq for one in self.outbox.values()] if self.outbox else ()",
        "pass",
    ),
    "a live message whose turn is over comes to its end": (
        "if row.outdated or (over and row.turn not in answering):",
        "if row.outdated:",
    ),
    "a change that was cut off is made again": (
        'yield Deliver("find" if row.replaces is None else "send", row)',
        'yield Deliver("find", row)',
    ),
    "a live message of which nobody knows is asked about": (
        "if row.live and row.message_id is not None:",
        "if row.live:",
    ),
    "messages to one place go out one at a time": ("if row.place in seen:", "if row.id in seen:"),
    "words that join take the call away": (
        "turn.call = None\n                    turn.restarts += all(",
        "turn.restarts += all(",
    ),
    "a deleted message is answered no more": ("turn.withdrawn |= {", "turn.withdrawn & {"),
    "a verdict stays until the turn that asked has ended": (
        "waited_for = self.turn is not None and self.turn.id == question.turn",
        "waited_for = False",
    ),
    "a copy that arrives is changed later": (
        "question.copies[name] = replace(row, message_id=message_id)",
        "pass",
    ),
    "nothing stands between a call and its result": (
        "if self.turn is None or (running is not None and running.open_calls):",
        "if self.turn is None:",
    ),
    "a copy says how it ended once that is on disk": (
        "if question.decided <= committed:",
        "if question.decided:",
    ),
    "files are read once": ("turn.seen[data.request] = data.files", "pass"),
    "people hear of a file that was not read": (
        "turn.unread.append((said.attachments[: len(data.files)], data.files))",
        "pass",
    ),
    "a task that has begun goes on in its chat": ("turn.tasks[data.call] = data.task", "pass"),
    "a message is unfinished until it is answered": (
        "needed += [one.since for queue in self._people.values() for one in queue] if self._people else ()",
        "pass",
    ),
    "a running turn is unfinished": (
        "needed = [] if self.turn is None else [self.turn.since]",
        "needed = []",
    ),
    "nothing is due in the chat of a task": ("if self.task is not None:", "if False:"),
    "a tool that has begun is not run again": ("turn.tools[data.call] = data.boot", "pass"),
}
"""Rules of the fold, keyed by name: the rule's code, and code that replaces it to test that the rule is needed."""


def test_each_message_is_answered_once_in_order_over_any_kills() -> None:
    kills = 0
    for one in world.worlds(range(100)):
        kills += world.live(one)
        world.check(one)
    assert kills > 50


def test_no_fold_needs_what_has_expired() -> None:
    dropped = 0
    for one in world.worlds(range(30)):
        world.live(one)
        for name, some in one.disk.on_disk.items():
            for before in {*range(2, len(some), 3), len(some) + 1}:
                expired = Event("expired", name, 0.0, events.Expired(before, 0.0), seq=len(some) + 1)
                whole, rest = chat.Chat(name), chat.Chat(name)
                for event in some.values():
                    whole.apply(event)
                turns = len(whole.context.turns)
                whole.apply(expired)
                dropped += turns - len(whole.context.turns)
                assert before < expired.seq or whole.position.first == expired.seq
                for event in (*some.values(), expired):
                    if event.seq >= whole.position.first:
                        rest.apply(event)
                assert (rest.context.view(), rest.position) == (whole.context.view(), whole.position)
    assert dropped > 50


@pytest.mark.torture
def test_ten_thousand_worlds() -> None:
    for one in world.worlds(range(10_000)):
        world.live(one)
        world.check(one)


@pytest.mark.parametrize("rule", one_in(3, list(RULES)))
def test_without_a_rule_something_is_lost(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, instead = RULES[rule]
    source = Path(chat.__file__).read_text(encoding="utf-8")
    assert source.count(text) == 1, "the text of the rule"
    mutant = types.ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)
    exec(compile(source.replace(text, instead), chat.__file__, "exec"), mutant.__dict__)
    monkeypatch.setattr(world, "life", mutant)
    monkeypatch.setattr(world, "Chat", mutant.Chat)
    monkeypatch.setattr(world, "Phase", mutant.Phase)
    assert any(map(_goes_wrong, world.worlds(range(3_000))))


def _goes_wrong(one: world.World) -> bool:
    try:
        world.live(one)
        world.check(one)
    except (AssertionError, LookupError):
        return True
    return False
