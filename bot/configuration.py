"""Loads the configuration from a folder with `ship.json`. It also reports the mistakes and warnings that `bot.config` alone cannot find."""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import get_args

from bot import config, discovery, errors
from bot.config.load import finding, shown
from bot.config.ship_file import ShipFile
from bot.contracts.channel import Manifest
from bot.contracts.tools import MCP
from bot.core.access import ACCESS_FILE, AccessList
from bot.core.prompt import AGENT_FILE, operator_files
from bot.invocation import command
from bot.llm.costs import AS_OF, Price, PriceTable
from bot.system import SystemClock, SystemDisk
from bot.text import folded
from bot.tools.file_guard import LARGEST
from bot.tools.permissions.patterns import Paths, RuleMalformed, glob
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import CORE, Outcome, check, parse


def load(root: Path, *, defaults: bool = False) -> config.Settings:
    """Return the settings from ship.json, this process's environment and the known channels. Raises
    `errors.ConfigError`.
    """
    manifests = discovery.manifests()
    settings = config.load(root, manifests, os.environ, mistakes, defaults=defaults)
    return settings.model_copy(update={"warnings": (*settings.warnings, *_warnings(settings, manifests))})


def mistakes(file: ShipFile) -> Iterator[str]:
    """Yield one line for each invalid permission rule, and one line if the library for MCP servers is missing."""
    # Only the form of the rules is checked, so no links are read.
    paths = Paths("/", lambda _: None)
    for outcome in get_args(Outcome):
        for index, text in enumerate(getattr(file.permissions, outcome)):
            try:
                parsed = parse(text)
                _check_tool_name(parsed.tool, file.mcp.servers)
                check(parsed, outcome, paths)
            except RuleMalformed as error:
                yield finding(f"permissions.{outcome}[{index}]", shown(text), error.expected, error.mend)
    names = [name for name, server in file.mcp.servers.items() if server.enabled]
    if names and importlib.util.find_spec("mcp") is None:
        yield finding(
            "mcp.servers",
            f"{len(names)} that are on, and no library for them",
            "the Python package mcp",
            "run `pip install 'mcp>=2.3,<3' 'jsonschema>=4.25,<5'`, or set enabled to false",
        )


def _check_tool_name(written: str, servers: Collection[str]) -> None:
    name = folded(written)
    if not name.startswith(MCP):
        if any(map(glob(written), CORE)) or ("*" in name and glob(name)(MCP)):
            return
        near = difflib.get_close_matches(name, CORE, n=1, cutoff=0.5)
        mend = f'did you mean "{near[0]}"?' if near else f"the tools are {', '.join(CORE)}"
        raise RuleMalformed("the name of a tool, or of one of an MCP server as in mcp__server__tool", mend)
    server, _, tool = name.removeprefix(MCP).partition("__")
    if server.strip("*") and not any(map(glob(server), map(folded, servers))):
        mend = " or ".join(f"{MCP}{one}__" for one in servers) or "to add it there"
        raise RuleMalformed("a tool of a server in mcp.servers", f"did you mean {mend}?")
    if not tool and "*" not in server:
        raise RuleMalformed("mcp__server__tool", f"for all tools write {MCP}{server and f'{server}__'}*")


def _warnings(settings: config.Settings, manifests: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield a warning for each setting that is valid but may surprise the operator."""
    root = settings.root
    for index, path in enumerate(settings.skills.paths):
        if not (root / path).is_dir():
            key = f"skills.paths[{index}]"
            yield finding(key, shown(path), "a folder that is there", "make it, or take it out")
    if protected_code(root).closed:
        yield (
            "this folder is part of Shipmate's own code or holds it, so tools that write and commands are refused here; "
            f"{command('run --dir DIR', Path())} takes another one"
        )
    yield from _empty(settings, manifests)
    if settings.llm.provider != "demo":
        llm, prices = settings.llm, prices_of(settings.llm)
        uses = [(f"llm.purposes.{one}.model", use.model) for one, use in llm.purposes.items() if use.model]
        uses += [(f"llm.fallback[{at}].model", one.model) for at, one in enumerate(llm.fallback) if one.model]
        for key, model in (("llm.model", llm.model), ("llm.fastModel", llm.fast_model), *uses):
            if prices.million(model) is None:
                yield (
                    f"{key}: found {model}, whose price is not known, so its cost is not shown, "
                    "and budgets and the limits of tasks count it by the dearest one; "
                    f"set it in llm.prices; the models with a price (of {AS_OF}) are {', '.join(prices.names)}"
                )
    # Warn about long instruction files, because the model sees only their beginning.
    sources = settings.prompt.sources(root).values()
    files = [*operator_files(os.environ), root / AGENT_FILE]
    files += sorted((settings.home / "instructions").glob("*/*.md"))
    for file in (*files, *(one for one in sources if isinstance(one, Path))):
        size = file.stat().st_size if file.is_file() else 0
        if size > LARGEST:
            name = file.relative_to(root) if file.is_relative_to(root) else file
            yield f"{name}: found {size:,} bytes, of which the first {LARGEST:,} are used; shorten it"


def _empty(settings: config.Settings, manifests: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield a warning for each channel in which nobody has access to the bot."""
    try:
        lists = AccessList(settings.home / ACCESS_FILE, SystemDisk(), SystemClock())
    except errors.ConfigError:
        return  # the start of the gateway reports an unreadable list
    operators = {one.channel for one in settings.operators | lists.operators()}
    for name in settings.enabled:
        let_in = name in operators or config.allowed(settings.channels[name]) or lists.allowed(name)
        if manifests[name].access == "allowlist" and not let_in:
            yield (
                f"channels.{name}.allow: is empty, so nobody may talk there yet; "
                f"let people in with `{command(f'allow {name} ID', settings.root)}`"
            )


def prices_of(llm: config.Llm) -> PriceTable:
    """Return the prices of models. Prices in ship.json replace the built-in prices of the same models."""
    return PriceTable(
        {
            name: Price(
                one.input,
                one.output,
                one.input if one.cache_read is None else one.cache_read,
                write=one.cache_write,
                hour=one.cache_write_hour,
            )
            for name, one in llm.prices.items()
        }
    )
