"""The sign of work while a turn runs: shown soon, kept alive, cleared at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from bot.contracts.environment import Clock
from bot.gateway.address import Address
from bot.gateway.delivery import Delivery

SHOWN_AFTER = 0.4
"""Seconds: an answer that is quicker than this needs no sign, and a second is all a person should wait for it."""


@contextlib.asynccontextmanager
async def working(
    delivery: Delivery,
    to: Address,
    clock: Clock,
    every: float,
    *,
    shown: bool = False,
    rests: Callable[[], bool] = bool,
) -> AsyncIterator[None]:
    """Show that work is being done on an address for as long as the block runs; what is still shown of an answer then
    is brought to its end, unless the block was cancelled and so goes on later. Never fails the block. `shown`: an
    earlier process may have shown it, and then it is cleared however soon the work is done. While it `rests`, as when a
    person is waited for, nothing is shown anew.
    """

    async def show() -> None:
        nonlocal shown
        await clock.sleep(SHOWN_AFTER)
        while True:
            if not rests():
                shown = True
                await delivery.indicate(to, working=True)
            await clock.sleep(every)

    delivery.progress.begin(to)
    task = asyncio.create_task(show())
    try:
        yield
    except asyncio.CancelledError:
        delivery.leave(to)
        raise
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await delivery.ended(to)
        if shown:
            await delivery.indicate(to, working=False)
