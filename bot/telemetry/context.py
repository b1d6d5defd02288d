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
    """The subagent at work, by the id of its task."""
    person: UserRef | None = None
    """The person who caused it."""


_running: ContextVar[Running] = ContextVar("running", default=Running())  # noqa: B039 (frozen)


def current() -> Running:
    """The turn and step that this task belongs to."""
    return _running.get()


def person() -> str | None:
    """The person who caused it, as `channel:id`, for a log line."""
    found = _running.get().person
    return None if found is None else str(found)


_Waiting = Callable[[float], AbstractContextManager[object]]
_waiting: ContextVar[_Waiting] = ContextVar("waiting", default=nullcontext)


def waiting_for_model(seconds: float) -> AbstractContextManager[object]:
    """For the block the running turn waits for a model that has not answered for so many seconds: its person may be told."""
    return _waiting.get()(seconds)


def on_waiting_for_model(told: _Waiting) -> None:
    """Let each such block of the running task, and of tasks that are started in it, enter `told`."""
    _waiting.set(told)


def turn_scope(
    *,
    chat_key: ChatKey | None = None,
    request_id: str | None = None,
    person: UserRef | None = None,
) -> AbstractContextManager[None]:
    """Everything logged inside belongs to this turn; tasks started inside inherit it."""
    return _scope(Running(chat_key, request_id, person=person))


def step_scope(step: int) -> AbstractContextManager[None]:
    """Everything logged inside belongs to this step of the running turn."""
    return _scope(replace(_running.get(), step=step))


def task_scope(task: str) -> AbstractContextManager[None]:
    """Everything logged inside belongs to this task of the running turn."""
    return _scope(replace(_running.get(), task=task))


@contextmanager
def _scope(running: Running) -> Iterator[None]:
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)
