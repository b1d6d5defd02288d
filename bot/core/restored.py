"""Closes unfinished work of a restored event log at the first start, because that work may have been
finished after the backup.
"""

from __future__ import annotations

from collections.abc import Iterator

from bot.contracts.approvals import Verdict
from bot.contracts.environment import Clock, Ids
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import EventLog
from bot.core.locales import Locales
from bot.core.operators import OperatorAlerts
from bot.core.outgoing import Address, Saying
from bot.words import say, sentence, speaking

RESTORED = "restored"
"""Kind and key of the fact that a restore writes."""
LATEST = 86_400.0
"""Max age in seconds of a message that its author is asked to send again."""


async def close_open(
    chats: Chats,
    event_log: EventLog,
    saying: Saying,
    locales: Locales,
    alerts: OperatorAlerts,
    *,
    clock: Clock,
    ids: Ids,
) -> None:
    """Close all unfinished work in one transaction, and ask people with an unanswered message to send it
    again. Does nothing unless the log was restored. Raises `errors.StorageError`.
    """
    if chats.facts.get(RESTORED, RESTORED) is None:
        return
    facts = list[Fact]()
    for key in await event_log.open_chats():
        chat = await chats.get(key)
        facts += [Fact(key, data, turn) for data, turn in _ends(chat)]
        facts += [Fact(key, row) for row in _told(chat, saying, locales, clock.now() - LATEST, ids)]
    await chats.get(NO_CHAT)
    chats.append(*facts, Fact(NO_CHAT, events.FactSet(RESTORED, RESTORED, None)))
    await event_log.committed(patient=False)
    alerts.tell(RESTORED, sentence("operators.chat_log_restored"))


def _ends(chat: Chat) -> Iterator[tuple[events.EventData, str | None]]:
    """Yield the events that close a chat's unfinished work, each with its turn."""
    for question in chat.questions.values():
        if question.verdict is None:
            yield events.Decided(question.id, Verdict("stopped")), question.turn
    # Rows may have been sent after the backup, so the platform is asked, or a marked repeat is sent.
    for row in chat.outbox.values():
        if row.state == "queued" and row.question is None:
            yield events.Sending(row.id, boot=""), row.turn
    if (turn := chat.turn) is not None:
        yield events.TurnEnded("answered" if turn.answered else "stopped"), turn.id
    for request in [*chat.beside, *(one.request_id for one in chat.waiting)]:
        yield events.Closed(request, RESTORED), None


def _told(chat: Chat, saying: Saying, locales: Locales, since: float, ids: Ids) -> list[events.Queued]:
    """Return the outbox rows that ask the author of a chat's newest unanswered message to send it again."""
    turn = chat.turn
    running = [] if turn is None or turn.answered else turn.left
    open_ones = () if chat.task is not None else (*running, *chat.waiting)
    asked = [one for one in open_ones if one.due is None and one.ts / 1000 >= since]
    if not asked:
        return []
    newest = asked[-1]
    with speaking(*locales.of(newest)):
        return saying.rows(ids.ulid(), Address.of(newest), say("delivery.lost_records"))
