"""States of open rows as the session that writes has left them: nobody else writes, so it need not ask for them."""

from __future__ import annotations

from typing import Any

Row = tuple[object, str]
"""A kind of rows, and the id of one."""
MOST = 10_000
"""Rows whose states are known at once."""


class StatusCache:
    """Of the writer's thread alone. A row that is over is not in it, and whatever is taken back empties it."""

    def __init__(self) -> None:
        self._known: dict[Row, Any] = {}
        self._expected: dict[Row, object] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._expected)

    def __contains__(self, row: Row) -> bool:
        """True where the state of a row is known."""
        return row in self._known

    def get(self, row: Row) -> Any:
        """The state of a row that is known; None where there is no such row."""
        return self._known[row]

    def keep(self, row: Row, status: Any) -> None:
        """Know the state of a row from now on; None where there is no such row yet. One that is over is asked for again."""
        self._expected.pop(row, None)
        self._known.pop(row, None)
        if status is None or status.open:
            self._known[row] = status
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def forget(self, row: Row) -> None:
        """Ask for it, if anybody wants to know."""
        self._known.pop(row, None)

    def expect(self, row: Row) -> object:
        """A row was written, unless there is one already. Whoever wrote it is told behind the batch, and tells it here (`confirm`) with
        the token that this returns.
        """
        token = self._expected[row] = object()
        return token

    def confirm(self, row: Row, token: object, status: Any, *, written: bool) -> None:
        """Know the state of a row that was expected, if it was written and nothing has happened to it since."""
        if self._expected.get(row) is token:
            del self._expected[row]
            if written:
                self.keep(row, status)

    def clear(self) -> None:
        """Know nothing: what was written may not stay."""
        self._known.clear()
        self._expected.clear()
