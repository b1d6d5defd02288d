"""Creates the files of a new project."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bot.cli.common import say
from bot.config.checks import token_keys, variable
from bot.contracts.channel import Manifest
from bot.contracts.environment import Disk

AGENT = """\
You are an assistant who works with people in their chats.

- Answer in the language of the person who asks, in their tone, without flattery.
- Short first: the answer in one or two sentences, then only what helps to act on it.
- Say what you know, what you assume and what you do not know. Never invent names, numbers, links or quotes.
- When something is unclear, make the most likely reading your own and say so; ask back only where a wrong guess
  would cost something.
- Use your tools rather than guess, and say what you did with them.
- What people tell you in one chat stays in that chat.
"""

GITIGNORE = """\
# Everything here is run-time data but the schemas.
*
!.gitignore
!schema/
!schema/*.json
"""

ENV_HEAD = """\
# Copy this file to .env, fill in what you use and keep it to yourself: chmod 600 .env
# What stays empty is off: without a key the built-in demo model answers.

# The key of the Messages API.
ANTHROPIC_API_KEY=
"""

ENV_TAIL = """
# 0 keeps what people and the model say out of the log; off wins over ship.json.
#SMA_LOG_LLM_MESSAGES=0
# 1 adds the whole request to the log.
#SMA_LOG_LLM_PAYLOAD=1
"""


def ship_json(name: str, operators: Sequence[str], known: Mapping[str, Manifest]) -> str:
    """Return a ship.json that works with and without credentials. It sets neither `enabled` nor `provider`."""
    channels = dict[str, dict[str, Any]]()
    for channel, manifest in sorted(known.items()):
        section: dict[str, Any] = {
            key: f"${{{variable(channel, token)}}}" for token, key in token_keys(manifest).items()
        }
        if "allow" in manifest.settings.model_fields:
            section["allow"] = []
        if section:
            channels[channel] = section
    document = {
        "$schema": "./.ship/schema/ship.schema.json",
        "name": name,
        "llm": {"model": "claude-sonnet-5-5", "apiKey": "${ANTHROPIC_API_KEY}"},
        "channels": channels,
        "operators": list(operators),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def env_example(known: Mapping[str, Manifest]) -> str:
    """Return the text of a `.env` file with the variables that ship.json refers to, without values."""
    parts = [ENV_HEAD]
    for channel, manifest in sorted(known.items()):
        if tokens := [f"{variable(channel, token)}=\n" for token in token_keys(manifest)]:
            parts += [f"\n# The channel {channel}.\n", *tokens]
    return "".join([*parts, ENV_TAIL])


def hide_from_git(root: Path, disk: Disk) -> None:
    """Add `.env` to `.gitignore`."""
    path = root / ".gitignore"
    words = disk.read(path).decode("utf-8", "replace")
    if {".env", "/.env", ".env*", "*.env"}.isdisjoint(line.strip() for line in words.splitlines()):
        gap = "" if not words or words.endswith("\n") else "\n"
        disk.replace(path, f"{words}{gap}.env\n".encode())
        path.chmod(0o644)
        say("wrote  .gitignore (.env)")
