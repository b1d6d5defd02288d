"""The way back to the chat that asked: queues what is said, and waits for what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot import errors, text
from bot.contracts.environment import Redact
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutgoingFile, Sent
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact

LONGEST_WAIT = 10.0
"""Max seconds for which a message that was put off is waited for: it goes out by itself later."""


class ChatReply:
    """`contracts.agent.Reply` of one turn. A message has the same rows however often it is said: a turn that was cut off says nothing
    twice by saying it again.
    """

    def __init__(
        self,
        chat: Chat,
        turn: str,
        to: Inbound,
        chats: Chats,
        *,
        split: Callable[[str], list[str]],
        show: Callable[[Inbound, Callable[[], str]], object],
        redact: Redact,
    ) -> None:
        self._chat = chat
        self._turn = turn
        self._to = to
        self._chats = chats
        self._split = split
        self._show = show
        self._redact = redact
        self._ending: str | None = None

    @property
    def written(self) -> Sequence[str]:
        return tuple(self._rows)

    @property
    def _rows(self) -> dict[str, events.RowEnded | None]:
        turn = self._chat.turn
        return turn.rows if turn is not None and turn.id == self._turn else {}

    def end_with(self, step_id: str | None) -> None:
        """The message of this step ends the turn; None: the next one does not."""
        self._ending = step_id

    def said(self, step_id: str) -> bool:
        """True where a message of this step is in the chat, or on its way."""
        rows = self._rows
        name = f"{self._turn}/{step_id}/0"
        end = rows.get(name)
        return name in rows and (end is None or end.state != "failed")

    def preview(self, words: Callable[[], str]) -> None:
        self._show(self._to, words)

    def leave(self, words: str, step: str) -> None:
        """Queue words that the turn waits for no more."""
        self._queue(words, step)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """As `contracts.agent.Reply`."""
        if files:
            raise errors.FileRefused("this core sends no files yet")
        names = self._queue(words, step_id or "said")
        return await self._chats.until(self._chat.key, lambda: self._outcome(names))

    def _queue(self, words: str, step: str) -> list[str]:
        to, rows, running = self._to, self._rows, self._chat.context.running
        notes = running.untold_notes if running is not None else ()
        parts = self._split(self._redact(text.clean("\n\n".join([words, *notes]))))
        names = [f"{self._turn}/{step}/{at}" for at in range(len(parts))]
        queued = [
            events.Queued(
                name,
                to.target,
                part,
                channel=to.channel,
                chat_id=to.chat_id,
                chat_type=to.chat_type,
                part_of=names[0] if name != names[0] else None,
                last=name == names[-1],
                ends=step == self._ending,
                replaces=to.renews if name == names[0] and not rows else None,
                language=to.language or "",
            )
            for name, part in zip(names, parts, strict=True)
            if name not in rows
        ]
        if queued:
            self._chats.append(*(Fact(self._chat.key, one, self._turn) for one in queued))
        return names

    def _outcome(self, names: Sequence[str]) -> list[Sent] | None:
        """Return the sent messages of these rows, None while one is open. Raises `errors.DeliveryFailed`."""
        sent = list[Sent]()
        rows = self._rows
        for name in names:
            while (end := rows.get(name)) is not None and end.state == "unknown" and f"{name}'" in rows:
                name = f"{name}'"  # noqa: PLW2901 - its repeat stands for it
            if end is None:
                row = self._chat.outbox.get(name)
                if row is None or row.not_before is None or row.not_before - row.queued_at < LONGEST_WAIT:
                    return None
                raise errors.DeliveryDeferred("put off", wait=row.not_before - row.queued_at)
            if end.state == "failed":
                failed = errors.TargetGone if end.reason == errors.TargetGone.code else errors.DeliveryFailed
                raise errors.DeliveryPartial(sent=len(sent), parts=len(names)) if sent else failed(end.reason)
            if end.state == "unknown":
                raise errors.DeliveryUncertain(end.reason)
            sent.append(Sent(end.message_id or ""))
        return sent
