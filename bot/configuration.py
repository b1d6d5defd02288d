"""Loads the configuration of a folder, with everything that any room can find wrong with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from bot import config, discovery
from bot.llm import prices
from bot.tools import findings


def load(root: Path, *, defaults: bool = False) -> config.Settings:
    """`config.load` with the environment of this process and the known channels. Raises `errors.ConfigError`."""
    settings = config.load(root, discovery.manifests(), os.environ, findings.mistakes, defaults=defaults)
    also = (*findings.warnings(root), *unpriced(settings.llm))
    return dataclasses.replace(settings, warnings=(*settings.warnings, *also))


def unpriced(llm: config.Llm) -> Iterator[str]:
    """Yield a warning for each model whose cost cannot be told."""
    if llm.provider == "demo":
        return
    for key, model in (("llm.model", llm.model), ("llm.fastModel", llm.fast_model)):
        if prices.million(model) is None:
            yield (
                f"{key}: found {model}, whose price is not known, so its cost is not counted; "
                f"the models with a price are {', '.join(sorted(prices.PRICES.keys() - {'demo'}))}"
            )
