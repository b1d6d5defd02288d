"""Context variables of the running turn: chatKey, requestId, person, step and task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace

from bot.contracts.identity import ChatKey, UserRef


@dataclass(frozen=True, slots=True)
class Running:
    chat_key: ChatKey | None = None
    request_id: str | None = None
    step: int | None = None
    task: str | None = None
    """Id of the running subagent's task."""
    person: UserRef | None = None
    """The person who caused the turn."""


_running: ContextVar[Running] = ContextVar("running", default=Running())  # noqa: B039 (frozen)


def current() -> Running:
    """The running turn and step."""
    return _running.get()


def person() -> str | None:
    """The person who caused the running turn, as `channel:id`."""
    found = _running.get().person
    return None if found is None else str(found)


_Waiting = Callable[[float], AbstractContextManager[object]]
_waiting: ContextVar[_Waiting] = ContextVar("waiting", default=nullcontext)


def waiting_for_model(seconds: float) -> AbstractContextManager[object]:
    """Context of waiting for a model that has not answered for so many seconds. The person may be told."""
    return _waiting.get()(seconds)


def on_waiting_for_model(told: _Waiting) -> None:
    """Enter `told` whenever this task, or one that it starts, waits for the model."""
    _waiting.set(told)


def turn_scope(
    *,
    chat_key: ChatKey | None = None,
    request_id: str | None = None,
    person: UserRef | None = None,
) -> AbstractContextManager[None]:
    """Attribute everything logged inside to this turn; tasks started inside inherit it."""
    return _scope(Running(chat_key, request_id, person=person))


def step_scope(step: int) -> AbstractContextManager[None]:
    """Attribute everything logged inside to this step of the running turn."""
    return _scope(replace(_running.get(), step=step))


def task_scope(task: str) -> AbstractContextManager[None]:
    """Attribute everything logged inside to this task of the running turn."""
    return _scope(replace(_running.get(), task=task))


@contextmanager
def _scope(running: Running) -> Iterator[None]:
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)
