"""Writes what is generated from the code: pages of `docs/` and the schemas in `bot/config/schema` (`make schema`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from bot.cli.commands import app
from bot.features.basics import SECTIONS, usage
from bot.words import say
from tests.log_kinds import KINDS
from tests.schemas import schemas

ROOT = Path(__file__).parents[1]
SETTINGS_HEAD = """# Settings

This page lists every key of `ship.json`. `make schema` writes it from the code. An unknown key is an error, which names the key that was
probably meant. `shipmate check` prints one line for each error. `${NAME}` in a value is replaced by the variable NAME of the environment or
`.env`. The schema for editors is `.ship/schema/ship.schema.json`.
"""
BEGIN, END = "<!-- kinds: made by `make schema` -->\n", "<!-- end of kinds -->\n"
COMMANDS_HEAD = """# Commands

This page lists all commands. `make schema` writes it from the code.
"""


def pages() -> dict[str, str]:
    """Return the generated pages by path from the repository root."""
    return {"docs/settings.md": _settings(), "docs/commands.md": _commands(), "docs/logs.md": _logs()}


def _settings() -> str:
    schema = json.loads(schemas()["ship.schema.json"])
    parts = [SETTINGS_HEAD, *_section("", schema, schema["$defs"])]
    return "\n".join(parts).rstrip() + "\n"


def _section(prefix: str, model: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of a model's keys, then one section for each nested model."""
    rows, inner = [], []
    for key, found in sorted(model["properties"].items()):
        name = f"{prefix}{key}"
        of, each = _model_of(found, definitions), found.get("additionalProperties", False)
        if isinstance(each, Mapping) and (one := _model_of(each, definitions)) is not None:
            inner.append((f"{name}.<name>", found, one))
        elif of is None:
            rows.append(f"| `{name}` | {_kind(found)} | {_default(found)} | {_cell(found['description'])} |")
        else:
            inner.append((name, found, of))
    if rows:
        yield "| key | value | default | |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    for name, found, of in inner:
        yield f"## {name}\n\n{_line(found.get('description') or of['description'])}\n"
        yield from _section(f"{name}.", of, definitions)


def _model_of(found: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a key's value if the value is an object with fixed keys; otherwise None."""
    either = (found, *found.get("anyOf", ()))
    reference = next((one["$ref"] for one in either if "$ref" in one), None)
    return definitions[reference.rpartition("/")[2]] if reference is not None else None


def _kind(found: Mapping[str, Any]) -> str:
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(map(_kind, found["anyOf"])))
    if "enum" in found:
        return ", ".join(f"`{one}`" for one in found["enum"])
    kind = str(found.get("type", "object"))
    if kind == "array":
        return "list"
    if kind == "null":
        return "null"
    low, high = found.get("minimum", found.get("exclusiveMinimum")), found.get("maximum")
    if low is None and high is None:
        return {"string": "text", "boolean": "true, false"}.get(kind, kind)
    above = "above " if "exclusiveMinimum" in found else ""
    return f"{above}{low:,}" + (f" to {high:,}" if high is not None else " or more" if not above else "")


def _default(found: Mapping[str, Any]) -> str:
    if "default" not in found and found.get("type") != "array":
        return "none"
    return f"`{json.dumps(found.get('default', []), ensure_ascii=False)}`"


def _line(words: str) -> str:
    return " ".join(words.split())


def _cell(words: str) -> str:
    return _line(words).replace("|", "\\|")


def _logs() -> str:
    """Return docs/logs.md with new tables of log kinds between its two marks."""
    before, _, rest = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8").partition(BEGIN)
    parts: list[str] = []
    for name, kind in KINDS.items():
        parts.append(f"### `{name}`\n\n{kind.meaning}\n")
        if kind.details:
            rows = (
                f"| `{one}` | {' or '.join(of.types)} | {of.meaning} |" for one, of in kind.details.items()
            )
            parts += ["| detail | type | |\n| --- | --- | --- |", *rows, ""]
    tables = "\n".join(parts)
    return f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}"


def _commands() -> str:
    chat = "\n\n".join(_commands_of(section, listed) for section, listed in SECTIONS.items())
    said = f"## In a chat\n\nIn Slack write `!new`, or `/shipmate new`. `/help new` explains the command `new`.\n\n{chat}\n"
    group = typer.main.get_command(app)
    shell = "\n".join(_shell("shipmate", group))
    return f"{COMMANDS_HEAD}\n{said}\n## On the machine\n\n{shell}".rstrip() + "\n"


def _commands_of(section: str, listed: Sequence[str]) -> str:
    rows = (f"| `{usage(name, '/', operator=True)}` | {_cell(say(f'help.{name}'))} |" for name in listed)
    return "\n".join([f"**{say(f'sections.{section}')}**\n", "| | |", "| --- | --- |", *rows])


def _shell(name: str, command: Any) -> Iterator[str]:
    """Yield a section for a command, or for each of its subcommands."""
    below = getattr(command, "commands", None)
    if below is not None:
        for word in sorted(below):
            yield from _shell(f"{name} {word}", command.get_command(None, word))
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([name, *(one.metavar or f"[{one.name.upper()}]" for one in arguments)])
    yield f"### {name}\n\n{_line(command.help or '')}\n\n    {usage}\n"
    options = [one for one in command.params if one.param_type_name == "option" and one.help]
    if options:
        rows = "\n".join(f"| {_option(one)} | {_cell(one.help)} |" for one in options)
        yield f"| option | |\n| --- | --- |\n{rows}\n"


def _option(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"`{', '.join(sorted(option.opts, key=len))}{value}`"


if __name__ == "__main__":
    made = {f"bot/config/schema/{name}": content for name, content in schemas().items()}
    for path, content in (made | pages()).items():
        (ROOT / path).write_text(content, encoding="utf-8")
