"""The buttons below a question: each is a command, pressed instead of typed."""

from __future__ import annotations

from collections.abc import Mapping

from telegram import InlineKeyboardButton, InlineKeyboardMarkup

TOLD = 200
"""UTF-16 units of the answer to a press."""
_ROWS = (
    (("Allow once", "approve {} once"), ("Deny", "deny {}")),
    (("Allow in this chat", "approve {} chat"), ("Always", "approve {} always")),
)


def below(place: Mapping[str, str]) -> InlineKeyboardMarkup | None:
    """The buttons of a message that asks for an approval; None where it does not."""
    name = place.get("approval")
    if not name:
        return None
    choices = place.get("choices", "once chat always deny").split()
    rows = [
        [
            InlineKeyboardButton(label, callback_data=word.format(name))
            for label, word in row
            if word.split()[-1] in choices or (word.startswith("deny") and "deny" in choices)
        ]
        for row in _ROWS
    ]
    return InlineKeyboardMarkup([row for row in rows if row]) if any(rows) else None
