"""Closes a stream of the model on every way out, so that its connection does not outlive its reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def aclosing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """The stream, closed at the end where it can be closed."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
