"""The command `/oncall`, which says who is on call this week. The names are in a list in the project's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.contracts.messages import Inbound
from bot.core.feature import Command, Feature, Hooks, Runtime

LIST = Path("oncall.txt")
WEEK = 7 * 24 * 3600


def build(runtime: Runtime) -> Hooks:
    place = runtime.settings.root / LIST

    async def oncall(_: Inbound) -> str:
        try:
            names = (await asyncio.to_thread(place.read_text, "utf-8")).split()
        except OSError:
            names = []
        if not names:
            return f"Nobody is on call: {LIST} has no names."
        return f"{names[int(runtime.clock.now() // WEEK) % len(names)]} is on call this week."

    return Hooks(commands={"oncall": Command.saying(oncall)})


FEATURE = Feature("oncall", build)
