"""The buttons below a question: each is a command, pressed instead of typed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.contracts.inbound import Command

_BUTTONS = {
    "once": ("Allow once", "approve {} once"),
    "chat": ("Allow in this chat", "approve {} chat"),
    "always": ("Always", "approve {} always"),
    "deny": ("Deny", "deny {}"),
}
_VALUE = re.compile(r"(?P<name>approve|deny) (?P<args>[0-9A-Z]{26}(?: (?:once|chat|always))?)")


def offered(target: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Label and value of each button of a message, by choice; {} where it asks for no approval, or no longer."""
    name = target.get("approval")
    choices = target.get("choices", " ".join(_BUTTONS)).split()
    shown = (choice for choice in _BUTTONS if name and choice in choices)
    return {choice: (_BUTTONS[choice][0], _BUTTONS[choice][1].format(name)) for choice in shown}


def command(value: str) -> Command | None:
    """The command that a value is. It comes from the person's client, so only commands that buttons have are taken."""
    found = _VALUE.fullmatch(value)
    return Command(name=found["name"], args=found["args"]) if found is not None else None
