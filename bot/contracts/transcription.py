"""The port of what hears voice notes."""

from __future__ import annotations

from typing import Protocol


class Transcriber(Protocol):
    """Writes down what is said in a recording."""

    async def transcribe(self, sound: bytes, type: str) -> str:  # noqa: A002 - the MIME type, as everywhere
        """The words of a recording of this MIME type; "" where nothing is said. Raises `errors.NotHeard`."""
        ...
