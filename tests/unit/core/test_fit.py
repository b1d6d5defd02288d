"""A too large request is shortened by steps. Each makes it smaller; the history is halved at most three times."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelRequest
from bot.core import events
from bot.core.chat import Chat
from bot.core.events import Event, EventData
from bot.core.fit import Fit, Frame, Withdrawn
from bot.core.prompt import Frozen
from bot.llm import blocks
from bot.llm.models import ContextWindows, Learned, ModelDeps
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel
from tests.shares import examples
from tests.unit.core import world
from tests.unit.core.stand_ins import agent

TOOLS = tuple({"name": f"tool{number}", "description": "x" * 400, "input_schema": {}} for number in range(9))
FORMS = (TOOLS, TOOLS[:3], TOOLS[:1])


def text(words: str) -> Json:
    return {"type": "text", "text": words}


class Asking:
    """A chat whose running turn sends a request with random parts."""

    def __init__(self, rng: random.Random) -> None:
        self.chat = Chat(ChatKey("telegram", "1"))
        self.said: list[EventData] = []
        people = world.World(1, finds=True, kills=set(), refuses=range(0))
        for _ in range(rng.choice([0, 1, 3, 20])):
            name = self.begin(people, "question " + "y" * rng.choice([0, 40, 4_000]))
            self.answer(name, text("answer " + "x" * rng.choice([0, 40, 4_000])))
            self.append(name, events.TurnEnded("answered"))
        name = self.begin(people, "now " + "z" * rng.choice([1, 20_000]))
        if rng.random() < 0.5:
            count, size = rng.randrange(1, 30), rng.choice([5, 900])
            older = tuple({"role": "user", "content": [text("old " * size)]} for _ in range(count))
            self.append(name, events.Injected(older, tuple(range(count))))
        if rng.random() < 0.5:
            self.answer(name, {"type": "tool_use", "id": "t", "name": "look", "input": {}})
            found = "r" * rng.choice([10, 50_000])
            self.append(
                name, events.ToolEnded("t", {"type": "tool_result", "tool_use_id": "t", "content": found})
            )
        windows = ContextWindows(Learned(), log=MemoryLog())
        self.fit = Fit(
            self.chat,
            ModelDeps(ScriptedModel(), "m", windows),
            agent(),
            partial(self.append, name),
        )
        self.fit.begin(Frame(Frozen("rules"), [text("rules " * 50)], FORMS))

    def begin(self, people: world.World, words: str) -> str:
        said = world.inbound(people, 0)
        name = said.request_id
        self.append(name, events.Received(said))
        self.append(name, events.TurnStarted((name,), "boot"))
        self.append(name, events.Told({"role": "user", "content": [text(words)]}, (name,)))
        return name

    def answer(self, turn: str, block: Json) -> None:
        self.append(turn, events.Asked("call", "boot", "m"))
        self.append(turn, events.Answered("call", [block], None))

    def append(self, turn: str, data: EventData) -> None:
        self.said.append(data)
        self.chat.apply(Event(str(self.chat.seq), self.chat.key, 0.0, data, turn, seq=self.chat.seq + 1))


def size(request: ModelRequest) -> float:
    return blocks.tokens(request.messages) + blocks.tokens(request.tools)


@given(st.integers(0, 10**9), st.sampled_from([0, 100, 2_000, 8_000]), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=examples(300))
def test_each_try_is_strictly_smaller_until_it_fits_or_is_told(seed: int, window: int, numbers: bool) -> None:
    asking = Asking(random.Random(seed))
    fit, history = asking.fit, len(asking.chat.context)
    sizes, end = list[float](), ""
    try:
        while (now := size(request := fit.request())) > window:
            assert not sizes or now < sizes[-1]
            sizes.append(now)
            told = (round(now), window) if numbers and window else (None, None)
            fit.refused(request, errors.ContextOverflow("too long", tokens=told[0], window=told[1]))
    except Withdrawn as error:
        end = error.key
    cuts = [one for one in asking.said if isinstance(one, events.Cut)]
    assert len(sizes) <= 12
    assert sum(one.dropped != "all" for one in cuts) <= 3, "halved three times at the most"
    assert (end == "cleared") == any(one.dropped == "all" for one in cuts)
    if end == "too_large":
        assert asking.chat.context.turns or not history or cuts, "the history stays"
    assert sizes or len(asking.chat.context) == history


@given(st.integers(0, 10**9))
@settings(derandomize=True, deadline=None, max_examples=examples(50))
def test_what_is_no_overflow_changes_nothing(seed: int) -> None:
    asking = Asking(random.Random(seed))
    request, count = asking.fit.request(), len(asking.said)
    for failure in (errors.RateLimited("x"), errors.Overloaded("x"), errors.RequestInvalid("x")):
        with pytest.raises(type(failure)):
            asking.fit.refused(request, failure)
    assert (len(asking.said), asking.fit.request()) == (count, request)


def test_an_invalid_history_is_dropped_and_the_running_turn_goes_on() -> None:
    asking = Asking(random.Random(4))
    asking.chat.context.turns[0].entries[0].message["content"] = [text(" ")]
    sent = str(asking.fit.request().messages)
    assert "now z" in sent
    assert "answer " not in sent
    assert [one.reason for one in asking.said if isinstance(one, events.Cut)] == ["invalid"]
