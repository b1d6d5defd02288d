"""Loads the configuration of a folder. It also reports the mistakes and warnings that `bot.config` alone cannot find."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from bot import config, discovery, errors
from bot.access_list import FILE, AccessList
from bot.contracts.channel import Manifest
from bot.core.prompt import AGENT_FILE, operator_files
from bot.invocation import command
from bot.llm.costs import AS_OF, Price, PriceTable
from bot.system import SystemClock, SystemDisk
from bot.tools import findings
from bot.tools.file_guard import LARGEST


def load(root: Path, *, defaults: bool = False) -> config.Settings:
    """Return the settings from ship.json, this process's environment and the known channels. Raises
    `errors.ConfigError`.
    """
    manifests = discovery.manifests()
    settings = config.load(root, manifests, os.environ, findings.mistakes, defaults=defaults)
    also = (*findings.warnings(root, settings.skills), *empty(settings, manifests), *unpriced(settings.llm))
    also += tuple(too_large(settings))
    return settings.model_copy(update={"warnings": (*settings.warnings, *also)})


def empty(settings: config.Settings, manifests: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield a warning for each channel in which nobody has access to the bot."""
    try:
        lists = AccessList(settings.home / FILE, SystemDisk(), SystemClock())
    except errors.ConfigError:
        return  # the start of the gateway reports an unreadable list
    operators = settings.operators | lists.operators()
    for name in settings.enabled:
        let_in = (
            *config.allowed(settings.channels[name]),
            *lists.allowed(name),
            *(one for one in operators if one.channel == name),
        )
        if manifests[name].access == "allowlist" and not let_in:
            yield (
                f"channels.{name}.allow: is empty, so nobody may talk there yet; "
                f"let people in with `{command(f'allow {name} ID', settings.root)}`"
            )


def too_large(settings: config.Settings) -> Iterator[str]:
    """Yield a warning for each instruction file that is too long. The model sees only its beginning."""
    sources = settings.prompt.sources(settings.root).values()
    files = [*operator_files(os.environ), settings.root / AGENT_FILE]
    files += sorted((settings.home / "instructions").glob("*/*.md"))
    for file in (*files, *(one for one in sources if isinstance(one, Path))):
        size = file.stat().st_size if file.is_file() else 0
        if size > LARGEST:
            name = file.relative_to(settings.root) if file.is_relative_to(settings.root) else file
            yield f"{name}: found {size:,} bytes, of which the first {LARGEST:,} are used; shorten it"


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


def unpriced(llm: config.Llm) -> Iterator[str]:
    """Yield a warning for each configured model without a price."""
    if llm.provider == "demo":
        return
    prices = prices_of(llm)
    uses = [(f"llm.purposes.{one}.model", use.model) for one, use in llm.purposes.items() if use.model]
    uses += [(f"llm.fallback[{at}].model", one.model) for at, one in enumerate(llm.fallback) if one.model]
    for key, model in (("llm.model", llm.model), ("llm.fastModel", llm.fast_model), *uses):
        if prices.million(model) is None:
            yield (
                f"{key}: found {model}, whose price is not known, so its cost is not shown, "
                "and budgets and the limits of tasks count it by the dearest one; "
                f"set it in llm.prices; the models with a price (of {AS_OF}) are {', '.join(prices.names)}"
            )
