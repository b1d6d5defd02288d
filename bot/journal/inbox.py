"""Inbox rows, queued → in_turn → ended, and the rows of their turns."""

from __future__ import annotations

import itertools
import math
import sys
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from pydantic import ValidationError

from bot import errors, text
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import LISTENING, Inbound, Listening
from bot.contracts.journal import (
    OPEN_INBOX,
    FinalTurnState,
    InboxEnd,
    InboxRecord,
    InboxStatus,
    TurnRecord,
    TurnStatus,
    Unfinished,
)
from bot.contracts.outbound import OutboxRow
from bot.journal import outbox
from bot.journal.connection import Connection, Rows
from bot.journal.table import (
    JournalTable,
    Moves,
    clean,
    done,
    dumps,
    held,
    illegal,
    loads,
    make,
    read_key,
    states,
)

_RECEIVE = """INSERT INTO inbox (request_id, chat_key, user_id, message_id, received_at, changed_at, state, payload, amends)
    SELECT ?, ?, ?, ?, ?, ?, 'queued', ?, ? WHERE NOT EXISTS (SELECT 1 FROM keys WHERE key IN"""
_RECEIVED = "WHERE EXISTS (SELECT 1 FROM inbox WHERE request_id = ?)"
_PUT_KEY = f"INSERT INTO keys SELECT ?, ?, ? {_RECEIVED} ON CONFLICT DO NOTHING"
_PUT_CHAT = f"INSERT INTO chats (chat_key, first_at) SELECT ?, ? {_RECEIVED} ON CONFLICT DO NOTHING"
_OPEN_SAME = f"""SELECT request_id, payload FROM inbox WHERE chat_key = ?
    AND (message_id = ? OR request_id = (SELECT request_id FROM keys WHERE key = ?))
    AND user_id = ? AND state IN ({states(*OPEN_INBOX)}) ORDER BY rowid"""
_PUT_TURN = """INSERT INTO turns (id, chat_key, state, begun_at) VALUES (?, ?, 'running', ?)
    ON CONFLICT (id) DO NOTHING"""
_TURN_STATUS = "SELECT state FROM turns WHERE id = ?"
_MOVE_TURN = "UPDATE turns SET state = ?, ended_at = ? WHERE id = ?"
_STATUS = "SELECT state, turn_id, merged_into, detail FROM inbox WHERE request_id = ?"
_MOVE = "UPDATE inbox SET state = ?, turn_id = ?, merged_into = ?, detail = ?, changed_at = ? WHERE request_id = ?"
_AMEND = "UPDATE inbox SET payload = ?, message_id = ?, user_id = ?, changed_at = ? WHERE request_id = ?"
_RECORD = """SELECT request_id, payload, received_at, changed_at, amends, state, turn_id, merged_into, detail
    FROM inbox"""
_UNFINISHED = f"""SELECT inbox.request_id, inbox.payload, inbox.received_at, inbox.changed_at, inbox.amends, inbox.state,
        inbox.turn_id, inbox.merged_into, inbox.detail, turns.state, other.request_id, other.payload, other.received_at,
        other.changed_at, other.amends, other.state, other.turn_id, other.merged_into, other.detail
    FROM inbox LEFT JOIN turns ON turns.id = inbox.turn_id
    LEFT JOIN inbox AS other ON other.chat_key = inbox.chat_key AND other.message_id = inbox.message_id
        AND other.rowid <> inbox.rowid
    WHERE inbox.rowid IN (SELECT rowid FROM inbox WHERE state IN ({states(*OPEN_INBOX)})
        AND rowid > coalesce((SELECT rowid FROM inbox WHERE request_id = ?), -1)
        ORDER BY rowid LIMIT ?)
    ORDER BY inbox.rowid"""
_TURN = "SELECT state, id, chat_key, begun_at, ended_at FROM turns WHERE id = ?"
_ONE = f"{_RECORD} WHERE request_id = ?"
_NUMBERED = _RECORD.replace("FROM inbox", ", rowid FROM inbox")
_OF_ITEM = f"{_NUMBERED} WHERE chat_key = ? AND message_id = ?"
_OF_MESSAGE = f"""{_NUMBERED} WHERE chat_key = ?
    AND (message_id = ? OR request_id = (SELECT request_id FROM keys WHERE key = ?))"""
_QUOTING = f"{_RECORD} WHERE chat_key = ? AND message_id IS NOT NULL AND instr(payload, ?) > 0 ORDER BY rowid"
_IN_CHAT = """rowid IN (SELECT rowid FROM inbox WHERE message_id IS NOT NULL AND chat_key = ? UNION ALL
    SELECT rowid FROM inbox WHERE message_id IS NOT NULL AND chat_key > ? AND chat_key < ?)"""
_SAID_IN = f"{_RECORD} WHERE received_at >= ? AND received_at <= ? AND {_IN_CHAT} ORDER BY rowid DESC LIMIT ?"
_LISTEN = """INSERT INTO chats (chat_key, first_at, listening) VALUES (?, ?, ?)
    ON CONFLICT (chat_key) DO UPDATE SET listening = excluded.listening"""
_KEEP_DEAD_LETTER = """INSERT INTO dead_letters (channel, key, raw, reason, at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (channel, key) DO UPDATE SET raw = excluded.raw, reason = excluded.reason, at = excluded.at"""
_UNREADABLE = InboxEnd("dead", "unreadable")


class InboxWrites(JournalTable):
    """`contracts.journal.InboxWrites`."""

    def begin_turn(self, turn_id: str, chat_key: ChatKey, members: Sequence[str]) -> Future[None]:
        now = self._clock.now()
        row = clean((turn_id, str(chat_key), now))
        known, begun = self.base.known, (TurnMoves, str(row[0]))
        begin = TurnMoves({turn_id: TurnStatus.run}, now, known=known)
        join = self._joins(turn_id, members, now)

        def work(db: Connection) -> errors.IllegalTransition | None:
            db.execute(_PUT_TURN, row)
            if begun in known and known.get(begun) is None:
                known.keep(begun, TurnStatus())
            return illegal(make(db, begin, join))

        return self._writer.run(work, hurry=False)

    def join_turn(self, turn_id: str, members: Sequence[str]) -> Future[None]:
        return self._make(self._joins(turn_id, members, self._clock.now()))

    def suspend_turn(self, turn_id: str) -> Future[None]:
        return self._make(self._turn(turn_id, TurnStatus.suspend))

    def resume_turn(self, turn_id: str) -> Future[None]:
        return self._make(self._turn(turn_id, TurnStatus.run))

    def stop_turn(self, turn_id: str) -> Future[None]:
        return self._make(self._turn(turn_id, TurnStatus.stop, where_begun=True))

    def _make(self, moves: Moves[Any]) -> Future[None]:
        return self._writer.run(lambda db: illegal(moves.make(db)), hurry=False)

    def end_turn(
        self,
        turn_id: str,
        state: FinalTurnState,
        members: Mapping[str, InboxEnd],
        say: Sequence[OutboxRow] = (),
    ) -> Future[None]:
        return self._end(self._turn(turn_id, partial(TurnStatus.end, state=state)), members, say)

    def finish(self, request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> Future[None]:
        turn = self._turn(request_id, _ends_open(end.of_turn), where_begun=True)
        return self._end(turn, {request_id: end}, say)

    def _end(
        self, turn: TurnMoves, members: Mapping[str, InboxEnd], say: Sequence[OutboxRow]
    ) -> Future[None]:
        """End a turn and inbounds. What cannot follow keeps nothing else from being written."""
        now = self._clock.now()
        moves = _InboxMoves(
            {name: partial(InboxStatus.end, end=_clean_end(end)) for name, end in members.items()},
            now,
            known=self.base.known,
        )
        words = [outbox.values(row, now) for row in say]

        def work(db: Connection) -> errors.IllegalTransition | None:
            troubles = make(db, turn, moves)
            for name in members:
                self.base.known.forget((TurnMoves, text.clean(name)))  # one that never began
            db.executemany(outbox.PUT, words)
            return illegal(troubles)

        return self._writer.run(work, closes=members)

    def amend(self, inbound: Inbound, edits: Sequence[str] = ()) -> Future[bool]:
        user_id, message_id = _columns(inbound)
        now = self._clock.now()
        values = clean((_payload(inbound), message_id, user_id, now, inbound.request_id))
        merge = partial(InboxStatus.merge, message=text.clean(inbound.request_id))
        merges = _InboxMoves(dict.fromkeys(edits, merge), now, known=self.base.known)

        def work(db: Connection) -> bool | errors.IllegalTransition:
            row = db.execute(_STATUS, (values[-1],)).fetchone()
            if row is None or not InboxStatus(*row).open:
                return False
            db.execute(_AMEND, values)
            return illegal(merges.make(db)) or True

        return self._writer.run(work)

    def _turn(
        self, turn_id: str, move: Callable[[TurnStatus], TurnStatus], *, where_begun: bool = False
    ) -> TurnMoves:
        return TurnMoves({turn_id: move}, self._clock.now(), known=self.base.known, where_begun=where_begun)

    def _joins(self, turn_id: str, members: Sequence[str], now: float) -> _InboxMoves:
        join = partial(InboxStatus.join, turn_id=text.clean(turn_id))
        return _InboxMoves(dict.fromkeys(members, join), now, known=self.base.known)


class SqlInbox(InboxWrites):
    """`contracts.journal.Inbox`."""

    def receive(self, inbound: Inbound) -> Coroutine[Any, Any, bool]:
        now = self._clock.now()
        request_id, chat_key = text.clean(inbound.request_id), text.clean(str(inbound.chat_key))
        keys = {text.clean(f"{inbound.channel}:{key}") for key in inbound.keys}
        user_id, message_id = _columns(inbound)
        row = (request_id, chat_key, user_id, message_id, now, now, _payload(inbound))
        changes = None if inbound.changes is None else text.clean(f"{inbound.channel}:{inbound.changes}")
        same = (chat_key, message_id, changes, user_id) if inbound.kind == "edit" else None
        known = self.base.known
        receive = f"{_RECEIVE} ({', '.join('?' * len(keys)) or 'NULL'}))"

        def work(db: Connection) -> Callable[[], bool]:
            amends = _open_message(db.execute(_OPEN_SAME, same).fetchall()) if same is not None else None
            received = db.execute(receive, (*row, amends, *keys))
            db.executemany(_PUT_KEY, [(key, request_id, now, request_id) for key in keys])
            db.execute(_PUT_CHAT, (chat_key, now, request_id))
            turn = db.execute(_TURN_STATUS, (request_id,))
            inbox_row, turn_row = (_InboxMoves, request_id), (TurnMoves, request_id)
            inbox_token, turn_token = known.expect(inbox_row), known.expect(turn_row)

            def taken_in() -> bool:
                written, begun = bool(received.rowcount), turn.fetchone()
                known.confirm(inbox_row, inbox_token, InboxStatus(), written=written)
                known.confirm(turn_row, turn_token, begun and TurnStatus(*begun), written=written)
                return written

            return taken_in

        def undo(db: Connection) -> None:
            # Refused, so the platform will bring it again: then it must not count as seen.
            db.execute("DELETE FROM keys WHERE request_id = ?", (request_id,))
            db.execute("DELETE FROM inbox WHERE request_id = ?", (request_id,))

        return held(self.base.run(work, undo=undo, new=True))

    async def unfinished(self, limit: int | None = None, after: str = "") -> list[Unfinished]:
        left: list[Unfinished] = []
        while True:
            room = sys.maxsize if limit is None else limit - len(left)
            closing = self.base.closing
            rows, kept = await self.base.read(partial(self._page, clean((after, room))))
            over = closing | kept | self.base.closing  # of what was posted before, and meanwhile
            page = {name: list(found) for name, found in itertools.groupby(rows, key=itemgetter(0))}
            found = [_unfinished(same) for same in page.values()]
            unreadable = [
                (name, page[name][0][1]) for name, one in zip(page, found, strict=True) if one is None
            ]
            if await self._keep_unreadable(unreadable):
                continue
            left += [one for one in found if one is not None and one.inbound.request_id not in over]
            if limit is None or len(page) < room or len(left) == limit:
                return left
            after = rows[-1][0]

    def _page(self, values: Sequence[object], db: Connection) -> tuple[list[tuple[Any, ...]], set[str]]:
        """Rows that are open on file; and those of which the end waits for the disk."""
        return db.execute(_UNFINISHED, values).fetchall(), self.base.pending_closes()

    async def inbound(self, request_id: str) -> InboxRecord | None:
        return next(iter(_records(await self._rows(_ONE, (request_id,)))), None)

    async def turn(self, turn_id: str) -> TurnRecord | None:
        row = await self._row(_TURN, (turn_id,))
        if row is None or (key := read_key(row[2])) is None:
            return None
        return TurnRecord(row[0], id=row[1], chat_key=key, begun_at=row[3], ended_at=row[4])

    async def about(self, chat_key: ChatKey, message_id: str, key: str | None = None) -> list[InboxRecord]:
        named = None if key is None else f"{chat_key.channel}:{key}"
        values = clean((str(chat_key), message_id, named))

        def work(db: Connection) -> Callable[[], list[tuple[Any, ...]]]:
            of_message = db.execute(_OF_MESSAGE, values)

            def read() -> list[tuple[Any, ...]]:
                rows = of_message.fetchall()
                # Of an album, the rows about each item that its own row names.
                items = {item for row in rows for item in _items(row[1])}
                asked = [db.execute(_OF_ITEM, (values[0], item)) for item in items]
                found = {
                    row[-1]: row[:-1] for row in [*rows, *(row for one in asked for row in one.fetchall())]
                }
                return [found[number] for number in sorted(found)]

            return read

        return list(_records(await self.base.read(work)))

    async def quoting(self, chat_key: ChatKey, message_id: str) -> list[InboxRecord]:
        # The id stands in quotes in what was written; whether as one that is quoted, only reading it tells.
        rows = await self._rows(_QUOTING, (str(chat_key), dumps(message_id)))
        return [record for record in _records(rows) if record.inbound.quotes(text.clean(message_id))]

    async def said_in(
        self, chat: ChatKey, *, since: float = 0.0, until: float = math.inf, limit: int
    ) -> list[InboxRecord]:
        # Keys of threads go on with a colon, and the sign behind that is a semicolon.
        values = (since, until, str(chat), f"{chat}:", f"{chat};", limit)
        return list(_records(await self._rows(_SAID_IN, values)))

    async def knows(self, chat_key: ChatKey) -> bool:
        return await self._row("SELECT 1 FROM chats WHERE chat_key = ?", (str(chat_key),)) is not None

    def listen(self, chat: ChatKey, listening: Listening) -> Coroutine[Any, Any, None]:
        return done(self._change(_LISTEN, (str(chat), self._clock.now(), listening)))

    async def listening(self) -> dict[ChatKey, Listening]:
        rows = await self._rows("SELECT chat_key, listening FROM chats WHERE listening IS NOT NULL", ())
        read = ((read_key(chat_key), listening) for chat_key, listening in rows)
        return {key: listening for key, listening in read if key is not None and listening in LISTENING}

    def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_KEEP_DEAD_LETTER, (channel, key, raw, reason, self._clock.now())))

    async def newest(self) -> str:
        """The greatest requestId that is known; "" where there is none."""
        row = await self._row("SELECT max(request_id) FROM inbox", ())
        return str(row[0] or "") if row else ""

    async def _keep_unreadable(self, rows: list[tuple[str, str]]) -> bool:
        """Keep rows that cannot be read as dead letters, so that they do not block the others; True where a row is gone."""
        now = self._clock.now()

        def work(db: Connection) -> None:
            for request_id, payload in rows:
                db.execute(_KEEP_DEAD_LETTER, ("journal", request_id, payload, "its row cannot be read", now))
                end = partial(InboxStatus.end, end=_UNREADABLE)
                _InboxMoves({request_id: end}, now, known=self.base.known).make(db)
                self._turn(request_id, _ends_open("failed"), where_begun=True).make(db)

        if not rows:
            return False
        try:
            await self.base.run(work)
        except errors.StorageError:
            return False  # told already; they are found again at the next reading
        for request_id, _ in rows:
            self._log.write(
                "storage",
                "an unfinished inbound cannot be read and is now a dead letter",
                level="error",
                request_id=request_id,
            )
        return True


class TurnMoves(Moves[TurnStatus]):
    """Transitions of turns."""

    def _ask(self, db: Connection, name: str) -> Rows:
        return db.execute(_TURN_STATUS, (name,))

    def _status(self, rows: list[Any]) -> TurnStatus | None:
        return TurnStatus(*rows[0]) if rows else None

    def _write(self, db: Connection, name: str, _: TurnStatus, after: TurnStatus) -> None:
        db.execute(_MOVE_TURN, (after.state, None if after.open else self._now, name))


class _InboxMoves(Moves[InboxStatus]):
    """Transitions of inbounds. The turn that one leaves for another ends."""

    def _ask(self, db: Connection, name: str) -> Rows:
        return db.execute(_STATUS, (name,))

    def _status(self, rows: list[Any]) -> InboxStatus | None:
        return InboxStatus(*rows[0]) if rows else None

    def _write(self, db: Connection, name: str, before: InboxStatus, after: InboxStatus) -> None:
        db.execute(_MOVE, (after.state, after.turn_id, after.merged_into, after.detail, self._now, name))
        if after.turn_id != before.turn_id and before.turn_id is not None:
            left = {before.turn_id: _ends_open("done")}
            TurnMoves(left, self._now, known=self._known, where_begun=True).make(db)


def _ends_open(state: FinalTurnState) -> Callable[[TurnStatus], TurnStatus]:
    """End a turn that has not ended yet."""
    return lambda turn: turn.end(state) if turn.open else turn


def _clean_end(end: InboxEnd) -> InboxEnd:
    detail, merged_into = (None if one is None else text.clean(one) for one in (end.detail, end.merged_into))
    return InboxEnd(end.state, detail, merged_into)


def _columns(inbound: Inbound) -> tuple[str, str | None]:
    message_id = inbound.message_id
    return text.clean(inbound.user_id), None if message_id is None else text.clean(message_id)


def _open_message(rows: Iterable[tuple[str, str]]) -> str | None:
    """The requestId of the first message among rows that have not ended, which may be edits of one too."""
    told = ((name, loads(payload)) for name, payload in rows)
    return next((name for name, one in told if isinstance(one, dict) and one.get("kind") == "message"), None)


def _payload(inbound: Inbound) -> str:
    return dumps(inbound.model_dump(mode="python", by_alias=True))


def _items(payload: str) -> Iterable[str]:
    """The message ids of an album; a row that the disk has damaged names none."""
    told = loads(payload)
    items = told.get("items") if isinstance(told, dict) else None
    return items if isinstance(items, dict) else ()


def _parsed(request_id: str, payload: str) -> Inbound | None:
    """None where the disk has damaged it."""
    try:
        inbound = Inbound.model_validate_json(payload)
    except ValidationError:
        return None
    return inbound if inbound.request_id == request_id else None


def _unfinished(rows: Sequence[tuple[Any, ...]]) -> Unfinished | None:
    """One open inbound, from a row for each other one about its message; None where the disk has damaged it."""
    own = next(iter(_records([rows[0][:9]])), None)
    if own is None:
        return None
    others = _records(row[10:] for row in rows if row[10] is not None)
    about = sorted([own, *others], key=lambda record: record.inbound.request_id)
    return Unfinished(own, rows[0][9], tuple(about))


def _records(rows: Iterable[tuple[Any, ...]]) -> Iterable[InboxRecord]:
    for request_id, payload, received_at, changed_at, amends, *status in rows:
        inbound = _parsed(request_id, payload)
        if inbound is not None:
            yield InboxRecord(
                *status, inbound=inbound, received_at=received_at, changed_at=changed_at, amends=amends
            )
