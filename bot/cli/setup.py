"""The commands `init`, which sets up a project, and `check`, which checks its configuration.

On a terminal, `init` asks for keys and tokens, tests each with its service, and writes them to `.env`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import dotenv
import typer
from pydantic import ValidationError

from bot import config, configuration, discovery, errors, instance
from bot.cli.common import HOME, AsJson, Defaults, Dir, Here, Yes, complain, say, say_rows
from bot.cli.project import access_list, manifest_of, model, named_operators
from bot.config.load import read_env_file, token_keys, variable
from bot.contracts.channel import ChannelSettings, Claim, Manifest
from bot.contracts.identity import UserRef
from bot.core.access import ACCESS_FILE
from bot.core.sqlite_log import FILE, damage
from bot.invocation import command
from bot.system import SystemClock, SystemDisk

KEY = "ANTHROPIC_API_KEY"
FOLDER = "The project folder."
CLAIM_SECONDS = 300.0
"""Max seconds that `init` waits until the user sends a code to the bot. The sender of the code becomes an operator."""
TEMPLATES = Path(__file__).with_name("new_project")


class Project:
    """A project folder, and the values that the user has entered for it. The folder is possibly not set up yet."""

    def __init__(self, root: Path, known: Mapping[str, Manifest]) -> None:
        self.root = root
        self.known = known
        self.exists = (root / "ship.json").exists()
        self.variables = read_env_file(root / ".env", []) | dict(os.environ)
        self.document: dict[str, Any] = {}
        """Content of ship.json; {} if the file is missing or unreadable."""
        with contextlib.suppress(OSError, ValueError):
            document = json.loads((root / "ship.json").read_text(encoding="utf-8"))
            self.document = document if isinstance(document, dict) else {}
        self.values: dict[str, str] = {}
        """Variables for `.env` that the user has entered."""
        self.operators: list[str] = []
        """Operators that the user has entered, as `channel:id`."""
        self.connected: list[str] = []
        """Names of the channels for which the user has entered tokens."""

    def section(self, *keys: str) -> dict[str, Any]:
        found: Any = self.document
        for key in keys:
            found = found.get(key)
            if not isinstance(found, dict):
                return {}
        return dict(found)

    def known_operators(self) -> set[str]:
        """Return the operators that ship.json (maybe as an unresolved `${NAME}`) or the access list names."""
        named = self.document.get("operators")
        listed = named if isinstance(named, list) else []
        return {str(one) for one in (*access_list(self.root).operators(), *listed)}

    def instructions(self, manifest: Manifest, name: str) -> str:
        """Return instructions that tell the user how to get a channel's tokens for a bot with this name."""
        url = self.section("channels", manifest.name, "webhook").get("url")
        return manifest.connect(name, url if isinstance(url, str) else None)

    def ask_for_credentials(self, name: str) -> None:
        """Ask for the keys and tokens that are not set yet. An empty answer skips a key or channel."""
        if self.variables.get(KEY):
            say(f"{KEY} is set.")
        else:
            while key := _secret("Anthropic API key (sk-ant-…; empty: the built-in demo model)"):
                trouble = asyncio.run(_test_key(key, self.section("llm").get("baseUrl")))
                say(f"  {trouble or 'The provider accepts it.'}")
                if not trouble or _keep("it"):
                    self.values[KEY] = key
                    break
        for channel, manifest in sorted(self.known.items()):
            keys = token_keys(manifest, webhook="webhook" in self.section("channels", channel))
            names = [variable(channel, token) for token in keys]
            if all(self.variables.get(one) for one in names):
                if names:
                    say(f"{' and '.join(names)}: set.")
            elif typer.confirm(f"Connect {channel}?", default=False):
                say(self.instructions(manifest, name))
                self._ask_for_tokens(manifest, keys)

    def _ask_for_tokens(self, manifest: Manifest, keys: Mapping[str, str]) -> None:
        while True:
            values = dict[str, str]()
            for token in keys:
                if not (value := _ask_for_token(manifest, token)):
                    return
                values[token] = value
            document = self.section("channels", manifest.name) | {keys[one]: values[one] for one in keys}
            settings: ChannelSettings | None = None
            accepted = True
            try:
                settings = manifest.settings.model_validate_json(json.dumps(document))
            except ValidationError:
                say(f"  Not tested, since ship.json is not valid there: see `{command('check', self.root)}`.")
            if settings is not None and manifest.examine is not None:
                for one in asyncio.run(manifest.examine(settings)).findings:
                    say(f"  {one.part}: {one.found}" + (f"; {one.remedy}" if one.remedy else ""))
                    accepted &= one.verdict in {"ok", "warn"}
            if accepted or _keep("them"):
                break
        self.values |= {variable(manifest.name, token): value for token, value in values.items()}
        self.connected.append(manifest.name)
        if settings is not None and manifest.claim is not None:
            person = _claim(manifest.claim, manifest.name, settings)
            self.operators += [f"{manifest.name}:{person}"] if person else []

    def ask_for_operators(self) -> None:
        """Ask for operators if the project or a newly connected channel has none."""
        people = {*self.operators, *self.known_operators()}
        without = [one for one in self.connected if not any(who.startswith(f"{one}:") for who in people)]
        if people and not without:
            return
        where = f" There is none on {' and '.join(without)} yet." if without else ""
        say(f"Operators may approve what the bot asks for, and use operators' commands.{where}")
        say(
            "Write them as telegram:123456789 or slack:U0123456789, separated by commas; empty for nobody yet."
        )
        while True:
            words = typer.prompt("Operators", default="", show_default=False)
            entries = [entry.strip() for entry in words.split(",") if entry.strip()]
            if not (mistakes := _mistakes(entries, self.known)):
                self.operators += entries
                return
            say("\n".join(mistakes))

    def write(self, name: str) -> None:
        """Write the project's files. Keep existing files, and only add the entered values to them."""
        disk, home = SystemDisk(), self.root / HOME
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        templates = {one.name: one.read_text(encoding="utf-8") for one in TEMPLATES.iterdir()}
        variables = (
            [
                f"\n# The channel {channel}.\n",
                *(f"{variable(channel, token)}=\n" for token in manifest.tokens),
            ]
            for channel, manifest in sorted(self.known.items())
            if manifest.tokens
        )
        example = templates["env.example"].replace("@channels@", "".join(chain.from_iterable(variables)))
        files = {
            "ship.json": _ship_json(name, self.operators, self.known),
            "Agent.md": templates["Agent.md"],
            ".env.example": example,
            f"{HOME}/.gitignore": templates["gitignore"],
        }
        for file, content in files.items():
            kept = (self.root / file).exists()
            if not kept:
                disk.replace(self.root / file, content.encode())
            say(f"{'kept ' if kept else 'wrote'}  {file}")
        ignore = self.root / ".gitignore"
        words = disk.read(ignore).decode("utf-8", "replace")
        if {".env", "/.env", ".env*", "*.env"}.isdisjoint(map(str.strip, words.splitlines())):
            gap = "" if not words or words.endswith("\n") else "\n"
            disk.replace(ignore, f"{words}{gap}.env\n".encode())
            ignore.chmod(0o644)
            say("wrote  .gitignore (.env)")
        config.write_schemas(home, disk)
        say(f"wrote  {HOME}/schema/")
        if self.values:
            env = self.root / ".env"
            if not env.exists():
                disk.replace(env, example.encode())
            env.chmod(0o600)  # dotenv keeps the mode of an existing file
            for key, value in self.values.items():
                dotenv.set_key(env, key, value, quote_mode="never")
            say(f"wrote  .env ({', '.join(self.values)})")
        written = Project(self.root, self.known).known_operators()
        for person in dict.fromkeys(self.operators):
            if person not in written:
                access_list(self.root).appoint(UserRef.parse(person))
                say(f"wrote  {HOME}/{ACCESS_FILE} ({person} is an operator)")


def init(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", file_okay=False, help=FOLDER)] = None,
    root: Annotated[Path, typer.Option("--dir", metavar="DIR", file_okay=False, help=FOLDER)] = Here,
    name: Annotated[str | None, typer.Option(help="The bot's name.")] = None,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="CHANNEL:ID", help="Who may approve; can be repeated.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Print how to connect slack or telegram.")
    ] = None,
    yes: Yes = False,
) -> None:
    known, root = discovery.manifests(), folder or root
    config.must_be_folder(root / HOME)
    if mistakes := _mistakes(operator or (), known):
        raise typer.BadParameter(mistakes[0], param_hint="--operator")
    if connect is not None:
        manifest_of(connect, known)
    asks, project = sys.stdin.isatty() and not yes, Project(root, known)
    title = _title(project, name, asks=asks)
    project.operators.extend(operator or ())
    if asks:
        project.ask_for_credentials(title)
        project.ask_for_operators()
    project.write(title)
    explained = [connect] if connect is not None else [] if asks or project.exists else list(known)
    for channel in explained:
        if words := project.instructions(known[channel], title):
            say(f"\n{words}")
    if explained:
        say("\nPut the tokens into .env, or run init on a terminal, where it asks for each.")
    say()
    if instance.is_held(root / HOME):
        say("Shipmate is running in this folder. It reads tokens and keys at the start: restart it.")
    say(f"Next: {command('check', root)}, then {command('run', root)}")


def _title(project: Project, given: str | None, *, asks: bool) -> str:
    """Return the bot's name from an existing ship.json, else the given name, else the name that the user types."""
    name = given or ""
    if project.exists:
        name = str(project.document.get("name") or "shipmate")
        if given and given != name:
            complain(f"The bot's name stays {name!r}: change it in ship.json.")
    elif not name:
        name = str(typer.prompt("The bot's name", default="shipmate")) if asks else "shipmate"
    name = name.strip()
    if not name or not name.isprintable() or len(name) > 80:
        raise typer.BadParameter("a name is one line of at most 80 characters", param_hint="--name")
    return name


def _mistakes(operators: Iterable[str], known: Mapping[str, Manifest]) -> list[str]:
    found = ((entry, config.wrong_operator(entry, known)) for entry in operators)
    return [f"found {entry!r}; {wrong}" for entry, wrong in found if wrong]


def _keep(what: str) -> bool:
    return typer.confirm(f"Keep {what} anyway?", default=False)


def _secret(words: str) -> str:
    return str(typer.prompt(words, default="", show_default=False, hide_input=True)).strip()


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


def _ask_for_token(manifest: Manifest, token: str) -> str:
    """Ask for a token until the token has the platform's form, or the user confirms a token of another form.
    Return the token; "" if the user skips the question.
    """
    form, title = manifest.token_forms.get(token), f"{manifest.name.capitalize()} {token.replace('_', ' ')}"
    example = form.example if form else "empty: skip it"
    while value := _secret(f"{title}, {variable(manifest.name, token)} ({example})"):
        if form is None or re.fullmatch(form.pattern, value):
            break
        say(f"  A {title} looks like {form.example}; this is something else.")
        if _keep("it"):
            break
    return value


def _claim(claim: Claim, channel: str, settings: ChannelSettings) -> str | None:
    """Wait until somebody sends the shown code to the bot. Return the sender's platform id; None if nobody sends it."""

    async def claimed() -> str | None:
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

    try:
        found = asyncio.run(claimed())
    except errors.ChannelError as error:
        say(f"  {error}")
        return None
    except KeyboardInterrupt:
        found = None
    say(f"  You are {channel}:{found}, an operator." if found else "  Skipped.")
    return found


def _ship_json(name: str, operators: list[str], known: Mapping[str, Manifest]) -> str:
    """Return a ship.json that works with and without credentials, because it sets neither `enabled` nor `provider`."""
    channels: dict[str, dict[str, Any]] = {
        channel: {key: f"${{{variable(channel, token)}}}" for token, key in token_keys(manifest).items()}
        | ({"allow": []} if "allow" in manifest.settings.model_fields else {})
        for channel, manifest in sorted(known.items())
    }
    document = {
        "$schema": "./.ship/schema/ship.schema.json",
        "name": name,
        "llm": {"model": "claude-sonnet-5-5", "apiKey": "${ANTHROPIC_API_KEY}"},
        "channels": {channel: section for channel, section in channels.items() if section},
        "operators": operators,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def check(root: Dir = Here, defaults: Defaults = False, as_json: AsJson = False) -> None:
    found = configuration.load(root, defaults=defaults)
    path = found.home / FILE
    if found.engine.kind == "embedded" and path.exists() and (why := damage(path)):
        raise errors.StorageError(f"{path}: {why}")
    for line in found.warnings:
        complain(f"warning: {line}")
    llm, engine = found.llm, found.web_search
    facts: dict[str, Any] = {
        "name": found.name,
        "provider": llm.provider,
        "model": llm.model,
        "providerReason": llm.provider_reason,
        "fallback": [
            f"{one.model or llm.model} at {one.address(llm.base_url) or 'api.anthropic.com'}"
            for one in llm.fallback
        ],
        "webSearch": "off" if engine is None else "the provider's" if engine.kind == "auto" else engine.kind,
        "channels": {
            name: {"on": name in found.enabled, "reason": reason} for name, reason in found.reasons.items()
        },
        "operators": list(map(str, named_operators(found))),
        "warnings": list(found.warnings),
    }
    model = f", model {llm.model}" if llm.provider != "demo" else ""
    lines = [
        f"{found.name}: ship.json is valid.",
        f"  provider {llm.provider}{model} ({llm.provider_reason})",
        f"  fallback {', '.join(facts['fallback']) or 'none'}",
        f"  web search {facts['webSearch']}",
        *(
            f"  channel {name} {'on' if name in found.enabled else 'off'} ({reason})"
            for name, reason in found.reasons.items()
        ),
        f"  operators {', '.join(facts['operators']) or 'none'}",
    ]
    say_rows([(facts, "\n".join(lines))], as_json=as_json)
