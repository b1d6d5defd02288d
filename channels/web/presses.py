"""Reads what a person does with a message on the page. A press (a button of a question, a thumb below an
answer, Stop) is no message of the person, so it is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command, Inbound
from bot.contracts.waiting import COMMANDS, Act
from channels import approval_buttons
from channels.web.settings import KEYS

CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
SETTINGS = frozenset({"model", "effort"})
"""Choices in the header of the page. Each is the command of the same name."""
PRESS = "press"
"""Key of a target. Its value is the id of the press that is answered."""
_RATINGS = frozenset({"good", "bad", "none"})
_LONGEST = 300
_LOOP = re.compile(r"[\w.:@+-]+")
"""Name of something that waits."""


def read(body: Mapping[str, Any], chat: ChatKey, *, now: float, language: str | None) -> Inbound | None:
    """Return the inbound of a press; None if the body is not valid. `choice` names the button, `of` is the
    question, the turn, the message or the open loop below which the button is, or the value that was chosen.
    """
    key, choice, of = body.get("clientId"), body.get("choice"), body.get("of", "")
    if not (isinstance(key, str) and isinstance(choice, str) and isinstance(of, str)):
        return None
    if CLIENT_ID.fullmatch(key) is None or len(of) > _LONGEST:
        return None
    name, person = f"{PRESS}:{key}", chat.chat_id
    press = KEYS.inbound(chat, name, "", user=person, now=now, language=language, zone=None)
    facts: dict[str, Any] = {"message_id": None, "addressed": "command"}
    facts["target"] = {**press.target, PRESS: key}
    if choice == "stop":
        facts["kind"] = "stop"
    elif choice in _RATINGS and of:
        facts |= {"kind": "rating", "answers": of, "rating": choice}
    else:
        facts["command"] = Command(name=choice, args=of.strip()) if choice in SETTINGS else None
        facts["command"] = facts["command"] or approval_buttons.pressed(choice, of) or _act(choice, of)
        if facts["command"] is None:
            return None
    return press.model_copy(update=facts)


def _act(choice: str, of: str) -> Command | None:
    """Return the command of a button on the board of what waits. The command checks whether the person may use it."""
    name, args = COMMANDS.get(cast("Act", choice), ("", ""))
    return Command(name=name, args=args.format(of)) if name and _LOOP.fullmatch(of) is not None else None


def edited(
    message: str,
    key: str,
    words: str,
    chat: ChatKey,
    *,
    files: tuple[Attachment, ...],
    now: float,
    language: str | None,
    zone: object,
) -> Inbound:
    """Return the inbound of an edit that asks for a new answer. The new words are never a command."""
    person = chat.chat_id
    edit = KEYS.inbound(
        chat, f"edit:{key}", words, user=person, now=now, language=language, zone=zone, files=files
    )
    return edit.model_copy(update={"kind": "edit", "message_id": message, "command": None, "renews": ""})
