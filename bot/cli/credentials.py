"""Asks on a terminal for keys and tokens, tries each where it is used, and keeps them in `.env`."""

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
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ValidationError

from bot import errors
from bot.cli.common import HOME, access_list, model, say
from bot.config.checks import token_keys, variable
from bot.contracts.identity import UserRef
from bot.invocation import command

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bot.contracts.channel import ChannelSettings, Manifest
    from bot.contracts.examination import Claim, Examination

KEY = "ANTHROPIC_API_KEY"
WAIT_SECONDS = 300.0
"""So long somebody has to send the code that shows who they are."""
_PLAIN = re.compile(r"[\w.:/@+=-]*", re.ASCII)


@dataclass
class Credentials:
    """Keeps what was found: values for `.env`, and people (`channel:id`) who showed that they are at this terminal."""

    values: dict[str, str] = field(default_factory=dict)
    operators: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    """Channels whose tokens are among the values."""


def ask(root: Path, name: str, known: Mapping[str, Manifest]) -> Credentials:
    """Ask for what is not set yet. An empty answer leaves a part out."""
    found, file, given = Credentials(), document(root), _given(root)
    if given.get(KEY):
        say(f"{KEY} is set.")
    else:
        _ask_for_key(found, _section(file, "llm").get("baseUrl"))
    for channel, manifest in sorted(known.items()):
        section, names = _section(_section(file, "channels"), channel), _names(file, manifest)
        if all(given.get(one) for one in names.values()):
            if names:
                say(f"{' and '.join(names.values())}: set.")
        elif typer.confirm(f"Connect {channel}?", default=False):
            say(manifest.connect(name, posts_to(file, channel)))
            _ask_for_tokens(root, found, manifest, names, section)
    return found


def tell(root: Path, known: Mapping[str, Manifest]) -> None:
    """Say what of this is set, and what is not."""
    file, given = document(root), _given(root)
    if not given.get(KEY):
        say(f"{KEY} is not set: the built-in demo model answers.")
    for channel, manifest in sorted(known.items()):
        names = _names(file, manifest).values()
        missing = " and ".join(one for one in names if not given.get(one))
        if missing:
            are = "are" if " and " in missing else "is"
            say(
                f"{channel}: {missing} {are} not set; `{command(f'init --connect {channel}', root)}` says how to get them."
            )
        elif names:
            say(f"{channel}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} set.")


def _given(root: Path) -> dict[str, str]:
    from bot.config.placeholders import read_env_file

    return {**read_env_file(root / ".env", []), **os.environ}


def _names(file: Mapping[str, Any], manifest: Manifest) -> dict[str, str]:
    """The variables of a channel's tokens."""
    section = _section(_section(file, "channels"), manifest.name)
    keys = token_keys(manifest, webhook=section.get("webhook") is not None)
    return {token: variable(manifest.name, token) for token in keys}


def document(root: Path) -> dict[str, Any]:
    """An earlier ship.json, for the addresses in it; {} where it cannot be read."""
    try:
        document = json.loads((root / "ship.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def name(root: Path) -> str | None:
    """The bot's name that holds where there is a ship.json; None where there is none."""
    return str(document(root).get("name") or "shipmate") if (root / "ship.json").exists() else None


def operators(root: Path) -> frozenset[str]:
    """The operators of a folder so far, as ship.json writes them, which may hold `${NAME}`: those of ship.json, and those who became one since."""
    named = document(root).get("operators")
    return frozenset(map(str, (*access_list(root).operators(), *(named if isinstance(named, list) else ()))))


def posts_to(file: Mapping[str, Any], channel: str) -> str | None:
    """The address of a channel's webhook in ship.json, if there is one."""
    url = _section(_section(_section(file, "channels"), channel), "webhook").get("url")
    return url if isinstance(url, str) else None


def _section(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _ask_for_key(found: Credentials, address: str | None) -> None:
    while key := _secret("Anthropic API key (sk-ant-…; empty: the built-in demo model)"):
        wrong = asyncio.run(_try_key(key, address))
        say(f"  {wrong or 'The provider takes it.'}")
        if not wrong or typer.confirm("Keep it all the same?", default=False):
            found.values[KEY] = key
            return


async def _try_key(key: str, address: str | None) -> str:
    """Try a key; the trouble with it, "" where the provider takes it."""
    asked = model(provider="anthropic", api_key=key, base_url=address)
    try:
        await asked.check()
    except errors.ModelRefused as error:
        return f"The provider refuses it: {error}"
    except errors.ModelError as error:
        return f"It could not be tried: {error}"
    finally:
        await asked.close()
    return ""


def _ask_for_tokens(
    root: Path, found: Credentials, manifest: Manifest, names: Mapping[str, str], section: Mapping[str, Any]
) -> None:
    while True:
        values = {}
        for token, name in names.items():
            values[token] = _ask_for_token(manifest, token, name)
            if not values[token]:
                return
        settings = _settings(manifest, section, values)
        if settings is None:
            say(f"  ship.json is wrong there, so they were not tried: see `{command('check', root)}`.")
        if (
            settings is None
            or _hold(manifest, settings)
            or typer.confirm("Keep them all the same?", default=False)
        ):
            found.values |= {names[token]: value for token, value in values.items()}
            found.channels.append(manifest.name)
            if settings is not None and manifest.claim is not None:
                person = _person(manifest.claim, manifest.name, settings)
                found.operators += [] if person is None else [f"{manifest.name}:{person}"]
            return


def _ask_for_token(manifest: Manifest, token: str, name: str) -> str:
    """A token of its platform's form, or one that is kept all the same; "" where it is left off."""
    form, called = manifest.token_forms.get(token), f"{manifest.name.capitalize()} {token.replace('_', ' ')}"
    while value := _secret(f"{called}, {name} ({form.example if form else 'empty: leave it off'})"):
        if form is None or re.fullmatch(form.pattern, value):
            break
        say(f"  A {called} looks like {form.example}; this is something else.")
        if typer.confirm("Keep it all the same?", default=False):
            break
    return value


def _settings(
    manifest: Manifest, section: Mapping[str, Any], values: Mapping[str, str]
) -> ChannelSettings | None:
    keys = token_keys(manifest, webhook=section.get("webhook") is not None)
    document = {**section, **{keys[token]: value for token, value in values.items()}}
    try:
        return manifest.settings.model_validate_json(json.dumps(document))
    except ValidationError:
        return None


def _hold(manifest: Manifest, settings: ChannelSettings) -> bool:
    """Try them; True where nothing is wrong."""
    if manifest.examine is None:
        return True
    examined = asyncio.run(_examined(manifest.examine(settings)))
    for one in examined.findings:
        say(f"  {one.part}: {one.found}" + (f"; {one.remedy}" if one.remedy else ""))
    return all(one.verdict in {"ok", "warn"} for one in examined.findings)


async def _examined(examination: Awaitable[Examination]) -> Examination:
    return await examination


def _person(claim: Claim, channel: str, settings: ChannelSettings) -> str | None:
    """The id of whoever sits at this terminal, as they have shown it; None where they do not."""
    try:
        found = asyncio.run(_claimed(claim, settings))
    except errors.ChannelError as error:
        say(f"  {error}")
        return None
    except KeyboardInterrupt:
        found = None
    say(f"  You are {channel}:{found}, an operator." if found else "  Left out.")
    return found


async def _claimed(claim: Claim, settings: ChannelSettings) -> str | None:
    from bot.system import SystemClock

    clock, code = SystemClock(), f"operator-{secrets.token_hex(8)}"
    say("To approve what the bot asks for, and let others in, show who you are (Ctrl-C leaves it out):")
    say(f"  {await claim.invite(settings, code)}")
    sys.stdout.flush()
    until = clock.monotonic() + WAIT_SECONDS
    while clock.monotonic() < until:
        if found := await claim.look(settings, code):
            return found
        await clock.sleep(0.5)
    return None


def _secret(words: str) -> str:
    return str(typer.prompt(words, default="", show_default=False, hide_input=True)).strip()


def keep(root: Path, found: Credentials, known: Mapping[str, Manifest]) -> None:
    """Put the values into `.env`, beside what is in it, and make the people operators where ship.json does not."""
    from bot.access_list import FILE
    from bot.cli import starter
    from bot.system import SystemDisk

    disk, path = SystemDisk(), root / ".env"
    if found.values:
        words = disk.read(path).decode("utf-8", "replace") or starter.env_example(known)
        for name, value in found.values.items():
            line = f"{name}={value if _PLAIN.fullmatch(value) else json.dumps(value)}"
            empty = re.search(rf"(?m)^{name}=[ \t]*$", words)
            words = f"{words[: empty.start()]}{line}{words[empty.end() :]}" if empty else f"{words}{line}\n"
        disk.replace(path, words.encode())
        say(f"wrote  .env ({', '.join(found.values)})")
    lists = access_list(root)
    for person in dict.fromkeys(found.operators):
        if person not in operators(root):
            lists.appoint(UserRef.parse(person))
            say(f"wrote  {HOME}/{FILE} ({person} is an operator)")
