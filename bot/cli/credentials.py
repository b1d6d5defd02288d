"""Asks for keys and tokens on a terminal, tests each key or token with its service, and writes them to `.env`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from bot import errors
from bot.access_list import FILE
from bot.cli.common import HOME, say
from bot.cli.project import access_list, model
from bot.cli.starter import env_example
from bot.config.checks import token_keys, variable
from bot.config.document import read_env_file
from bot.contracts.channel import ChannelSettings, Manifest
from bot.contracts.examination import Claim
from bot.contracts.identity import UserRef
from bot.invocation import command
from bot.system import SystemClock, SystemDisk

KEY = "ANTHROPIC_API_KEY"
CLAIM_SECONDS = 300.0
"""Max seconds to wait until the user sends a code to the bot. The code shows which platform account the user has."""
_UNQUOTED = re.compile(r"[\w.:/@+=-]*", re.ASCII)


@dataclass
class Credentials:
    """Values that the user has entered: variables for `.env`, operators (`channel:id`), and the channels
    with new tokens.
    """

    values: dict[str, str] = field(default_factory=dict)
    operators: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)


class Folder:
    """A project folder that may not be set up yet, with its ship.json ({} if unreadable) and the variables
    that are set.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.exists = (root / "ship.json").exists()
        self.variables = {**read_env_file(root / ".env", []), **os.environ}
        try:
            document = json.loads((root / "ship.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            document = {}
        self.document: dict[str, Any] = document if isinstance(document, dict) else {}

    @property
    def name(self) -> str | None:
        """Return the bot's name in ship.json; None if there is no ship.json."""
        return str(self.document.get("name") or "shipmate") if self.exists else None

    @property
    def operators(self) -> frozenset[str]:
        """Return the operators in ship.json as written there (may contain `${NAME}`), and the operators in
        the access list.
        """
        named = self.document.get("operators")
        listed = named if isinstance(named, list) else ()
        return frozenset(map(str, (*access_list(self.root).operators(), *listed)))

    def section(self, *keys: str) -> dict[str, Any]:
        found: Any = self.document
        for key in keys:
            found = found.get(key)
            if not isinstance(found, dict):
                return {}
        return dict(found)

    def token_keys(self, manifest: Manifest) -> dict[str, str]:
        """Return the tokens that a channel needs, with their keys in ship.json."""
        webhook = self.section("channels", manifest.name).get("webhook") is not None
        return token_keys(manifest, webhook=webhook)

    def instructions(self, manifest: Manifest, name: str) -> str:
        """Return the instructions for getting a channel's tokens for a bot with this name."""
        url = self.section("channels", manifest.name, "webhook").get("url")
        return manifest.connect(name, url if isinstance(url, str) else None)


def ask(folder: Folder, name: str, known: Mapping[str, Manifest]) -> Credentials:
    """Ask for the keys and tokens that are not set yet. An empty answer skips a key or channel."""
    found = Credentials()
    if folder.variables.get(KEY):
        say(f"{KEY} is set.")
    else:
        _ask_for_key(found, folder.section("llm").get("baseUrl"))
    for channel, manifest in sorted(known.items()):
        names = [variable(channel, token) for token in folder.token_keys(manifest)]
        if all(folder.variables.get(one) for one in names):
            if names:
                say(f"{' and '.join(names)}: set.")
        elif typer.confirm(f"Connect {channel}?", default=False):
            say(folder.instructions(manifest, name))
            _ask_for_tokens(folder, found, manifest)
    return found


def _ask_for_key(found: Credentials, base_url: str | None) -> None:
    while key := _secret("Anthropic API key (sk-ant-…; empty: the built-in demo model)"):
        trouble = asyncio.run(_test_key(key, base_url))
        say(f"  {trouble or 'The provider accepts it.'}")
        if not trouble or typer.confirm("Keep it anyway?", default=False):
            found.values[KEY] = key
            return


async def _test_key(key: str, base_url: str | None) -> str:
    """Return the reason why a key does not work; "" if the provider accepts the key."""
    asked = model("anthropic", key, base_url)
    try:
        await asked.check()
    except errors.ModelRefused as error:
        return f"The provider refuses it: {error}"
    except errors.ModelError as error:
        return f"It could not be tested: {error}"
    finally:
        await asked.close()
    return ""


def _ask_for_tokens(folder: Folder, found: Credentials, manifest: Manifest) -> None:
    keys = folder.token_keys(manifest)
    while True:
        values = dict[str, str]()
        for token in keys:
            values[token] = _ask_for_token(manifest, token)
            if not values[token]:
                return
        document = folder.section("channels", manifest.name) | {keys[one]: values[one] for one in keys}
        settings: ChannelSettings | None = None
        try:
            settings = manifest.settings.model_validate_json(json.dumps(document))
        except ValidationError:
            say(f"  Not tested, since ship.json is not valid there: see `{command('check', folder.root)}`.")
        accepted = settings is None or _are_accepted(manifest, settings)
        if accepted or typer.confirm("Keep them anyway?", default=False):
            break
    found.values |= {variable(manifest.name, token): value for token, value in values.items()}
    found.channels.append(manifest.name)
    if settings is not None and manifest.claim is not None:
        person = _person(manifest.claim, manifest.name, settings)
        found.operators += [f"{manifest.name}:{person}"] if person is not None else []


def _ask_for_token(manifest: Manifest, token: str) -> str:
    """Ask for a token until it has its platform's form, or until the user insists on another form. Return
    the token; "" if the user skips it.
    """
    form, title = manifest.token_forms.get(token), f"{manifest.name.capitalize()} {token.replace('_', ' ')}"
    example = form.example if form else "empty: skip it"
    while value := _secret(f"{title}, {variable(manifest.name, token)} ({example})"):
        if form is None or re.fullmatch(form.pattern, value):
            break
        say(f"  A {title} looks like {form.example}; this is something else.")
        if typer.confirm("Keep it anyway?", default=False):
            break
    return value


def _secret(words: str) -> str:
    return str(typer.prompt(words, default="", show_default=False, hide_input=True)).strip()


def _are_accepted(manifest: Manifest, settings: ChannelSettings) -> bool:
    """Test tokens with the platform and print the findings. Return True if the platform accepts them."""
    if manifest.examine is None:
        return True
    examined = asyncio.run(manifest.examine(settings))
    for one in examined.findings:
        say(f"  {one.part}: {one.found}" + (f"; {one.remedy}" if one.remedy else ""))
    return all(one.verdict in {"ok", "warn"} for one in examined.findings)


def _person(claim: Claim, channel: str, settings: ChannelSettings) -> str | None:
    """Return the platform's id of the user at this terminal; None if the user does not send the code."""
    try:
        found = asyncio.run(_claimed(claim, settings))
    except errors.ChannelError as error:
        say(f"  {error}")
        return None
    except KeyboardInterrupt:
        found = None
    say(f"  You are {channel}:{found}, an operator." if found else "  Skipped.")
    return found


async def _claimed(claim: Claim, settings: ChannelSettings) -> str | None:
    clock, code = SystemClock(), f"operator-{secrets.token_hex(8)}"
    say(
        "Operators approve what the bot asks for, and let others in. To become one, show who you are (Ctrl-C skips it):"
    )
    say(f"  {await claim.invite(settings, code)}")
    sys.stdout.flush()
    until = clock.monotonic() + CLAIM_SECONDS
    while clock.monotonic() < until:
        if found := await claim.look(settings, code):
            return found
        await clock.sleep(0.5)
    return None


def save(folder: Folder, found: Credentials, known: Mapping[str, Manifest]) -> None:
    """Add the values to `.env`, and add new operators to the access list."""
    disk, path = SystemDisk(), folder.root / ".env"
    if found.values:
        words = disk.read(path).decode("utf-8", "replace") or env_example(known)
        for name, value in found.values.items():
            line = f"{name}={value if _UNQUOTED.fullmatch(value) else json.dumps(value)}"
            empty = re.search(rf"(?m)^{name}=[ \t]*$", words)
            words = f"{words[: empty.start()]}{line}{words[empty.end() :]}" if empty else f"{words}{line}\n"
        disk.replace(path, words.encode())
        say(f"wrote  .env ({', '.join(found.values)})")
    for person in dict.fromkeys(found.operators):
        if person not in Folder(folder.root).operators:
            access_list(folder.root).appoint(UserRef.parse(person))
            say(f"wrote  {HOME}/{FILE} ({person} is an operator)")
