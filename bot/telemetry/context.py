"""Context variables of the running turn: chatKey, requestId, step and task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class Running:
    chat_key: ChatKey | None = None
    request_id: str | None = None
    step: int | None = None
    task: str | None = None
    """The subagent at work, by the id of its task."""


_running: ContextVar[Running] = ContextVar("running", default=Running())  # noqa: B039 (frozen)


def current() -> Running:
    """The turn and step that this task belongs to."""
    return _running.get()


@contextmanager
def turn_scope(*, chat_key: ChatKey | None = None, request_id: str | None = None) -> Iterator[None]:
    """Everything logged inside belongs to this turn; tasks started inside inherit it."""
    token = _running.set(Running(chat_key, request_id))
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def step_scope(step: int) -> Iterator[None]:
    """Everything logged inside belongs to this step of the running turn."""
    token = _running.set(replace(_running.get(), step=step))
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def task_scope(task: str) -> Iterator[None]:
    """Everything logged inside belongs to this task of the running turn."""
    token = _running.set(replace(_running.get(), task=task))
    try:
        yield
    finally:
        _running.reset(token)
