"""Builds the buttons below a message that asks people for a decision. Each button's value is the text of a command."""

from __future__ import annotations

import re
from typing import cast

from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.messages import Command
from bot.words import say, speaking

_VALUES: dict[Choice, str] = {
    "once": "approve {} once",
    "chat": "approve {} chat",
    "always": "approve {} always",
    "deny": "deny {}",
    "each": "approve {} each",
    "afresh": "afresh {}",
    "admit": "approve {} once",
    "later": "deny {}",
    "again": "retry {}",
    "renew": "renew {}",
}
_VALUE = re.compile(
    r"(?P<name>approve|deny|afresh|retry|renew) (?P<args>[0-9A-Z]{26}(?: (?:once|chat|always|each))?)"
)


def offered(buttons: QuestionButtons, language: str) -> dict[Choice, tuple[str, str]]:
    """Return a dict from each choice of `buttons` to the label and the value of its button."""
    with speaking(language):
        return {
            choice: (say(f"buttons.{choice}"), value.format(buttons.question_id))
            for choice, value in _VALUES.items()
            if choice in buttons.choices
        }


def pressed(choice: str, question_id: str) -> Command | None:
    """Return the command that the button `choice` runs. Return None if no such button exists or `question_id` is invalid."""
    value = _VALUES.get(cast("Choice", choice))
    return command(value.format(question_id)) if value is not None else None


def command(value: str) -> Command | None:
    """Return the command in a pressed button's value; None for other text, which a manipulated client may send."""
    found = _VALUE.fullmatch(value)
    return Command(name=found["name"], args=found["args"]) if found is not None else None
