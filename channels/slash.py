"""Commands of the channels in which a message that begins with `/word` is one."""

from __future__ import annotations

import re

from bot.contracts.inbound import Command

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)


def command(said: str) -> Command | None:
    """The command that a text is; None for `/usr/bin` and all other text."""
    match = _COMMAND.fullmatch(said.strip())
    if match is None:
        return None
    return Command(name=match[1].lower(), args=(match[2] or "").strip())
