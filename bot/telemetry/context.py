"""Context variables with the running turn's chatKey, requestId, person, step and task."""

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
    """Id of the task that a subagent is running."""
    person: UserRef | None = None
    """Person whose message started the turn."""


_running: ContextVar[Running] = ContextVar("running", default=Running())  # noqa: B039 (frozen)


def current() -> Running:
    return _running.get()


def person() -> str | None:
    """Return the person whose message started the running turn, as `channel:id`."""
    found = _running.get().person
    return None if found is None else str(found)


_Waiting = Callable[[float], AbstractContextManager[object]]
_waiting: ContextVar[_Waiting] = ContextVar("waiting", default=nullcontext)


def waiting_for_model(seconds: float) -> AbstractContextManager[object]:
    """Return a context manager that callers keep open while a model is unavailable. The model has not answered for
    `seconds` so far. Entering the context may notify the person.
    """
    return _waiting.get()(seconds)


def on_waiting_for_model(notify: _Waiting) -> None:
    """Set the context manager that `waiting_for_model` returns in this task and in tasks that this task starts."""
    _waiting.set(notify)


def turn_scope(
    *, chat_key: ChatKey | None = None, request_id: str | None = None, person: UserRef | None = None
) -> AbstractContextManager[None]:
    """Add the turn's ids to everything that is logged inside the context. Tasks started inside the context
    inherit the ids.
    """
    return _scope(Running(chat_key, request_id, person=person))


def step_scope(step: int) -> AbstractContextManager[None]:
    """Add the step's number to everything that is logged inside the context."""
    return _scope(replace(_running.get(), step=step))


def task_scope(task: str) -> AbstractContextManager[None]:
    """Add the task's id to everything that is logged inside the context."""
    return _scope(replace(_running.get(), task=task))


@contextmanager
def _scope(running: Running) -> Iterator[None]:
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)
