"""A past turn, read from its chat's events: its messages in their latest version, and the replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.contracts.approvals import QuestionButtons
from bot.contracts.inbound import Inbound
from bot.core import events
from bot.core.events import Event, Queued
from bot.core.message_versions import has_newer_words, plain, revised, same_message


@dataclass(slots=True)
class PastTurn:
    """`members` by request id, None if deleted; `end` is None while it runs; `shown` are its messages with
    their ids.
    """

    id: str
    members: dict[str, Inbound | None] = field(default_factory=dict)
    first: Inbound | None = None
    end: str | None = None
    shown: dict[str, tuple[Queued, str]] = field(default_factory=dict)

    def whole(self) -> Inbound | None:
        """Its messages merged into one; None if all were deleted."""
        parts = [one for one in self.members.values() if one is not None and plain(one)]
        return as_one(self.first, parts) if parts and self.first is not None else None

    @property
    def answer(self) -> tuple[Queued, str] | None:
        """Its only text reply, with its platform id; None if there is none or more than one."""
        replies = [one for one in self.shown.values() if one[0].form == "reply" and one[0].file is None]
        return replies[0] if len(replies) == 1 else None

    @property
    def notices(self) -> list[tuple[Queued, str]]:
        """Its messages with buttons."""
        return [one for one in self.shown.values() if one[0].buttons is not None and one[0].buttons.choices]


def as_one(first: Inbound, parts: Sequence[Inbound]) -> Inbound:
    """Merge a turn's messages into one in place of the first."""
    return first.model_copy(
        update={
            "text": "\n".join(one.text for one in parts if one.text),
            "attachments": tuple(file for one in parts for file in one.attachments),
            "quoted": tuple(quoted for one in parts for quoted in one.quoted),
            "links": tuple(link for one in parts for link in one.links),
            "mentioned": dict(pair for one in parts for pair in one.mentioned.items()),
        }
    )


class PastTurns:
    """The turns of a chat."""

    def __init__(self, found: Iterable[Event]) -> None:
        self._said: dict[str, Inbound | None] = {}
        self.edits: dict[str, Inbound] = {}
        self.turns: dict[str, PastTurn] = {}
        queued = dict[str, Queued]()
        for event in found:
            turn = self.turns.setdefault(event.turn, PastTurn(event.turn)) if event.turn is not None else None
            match event.data:
                case events.Received(inbound):
                    self._said[inbound.request_id] = inbound
                case events.Edited(edit):
                    self._edit(edit)
                case events.Deleted(deletion):
                    gone = {
                        name: None
                        for name, one in self._said.items()
                        if one is not None and same_message(one, deletion)
                    }
                    self._said |= gone
                case events.TurnStarted(members) | events.Joined(members) if turn is not None:
                    turn.members |= dict.fromkeys(members)
                    turn.first = turn.first or self._said.get(turn.id)
                case events.TurnEnded(end) if turn is not None:
                    turn.end = end
                case events.Queued(row):
                    queued[row] = event.data
                case events.RowEnded(row, "sent", str(message_id)) if turn is not None and row in queued:
                    turn.shown[row] = (queued[row], message_id)
        for turn in self.turns.values():
            turn.members = {name: self._said.get(name) for name in turn.members}

    def _edit(self, edit: Inbound) -> None:
        self.edits[edit.request_id] = edit
        for name, one in self._said.items():
            if one is not None and same_message(one, edit) and not has_newer_words(one, edit):
                self._said[name] = revised(one, edit)

    def about(self, edit: Inbound) -> PastTurn | None:
        """Return the latest turn that answered a message."""
        found = (
            turn
            for turn in reversed(self.turns.values())
            if any(one is not None and same_message(one, edit) for one in turn.members.values())
        )
        return next(found, None)


def with_buttons(shown: tuple[Queued, str], buttons: QuestionButtons) -> Queued:
    """Return the edit of a message that changes its buttons."""
    row, message_id = shown
    name = f"{row.row}/{buttons.question_id}/{'-'.join(buttons.choices)}"
    return replace(
        row,
        row=name,
        replaces=message_id,
        buttons=buttons,
        call=None,
        ends=False,
        repeat_of=None,
        part_of=None,
    )
