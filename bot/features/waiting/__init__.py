"""The board of what waits, and the promises that the bot made and that nothing carries."""

import asyncio

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.waiting.board import Board
from bot.features.waiting.promises import LANGUAGES, language


def _build(runtime: Runtime) -> Hooks:
    board = Board(runtime)

    async def warm() -> None:
        # Compiling takes a tenth of a second, and the end of a turn must not wait for it.
        for name in LANGUAGES:
            await asyncio.to_thread(language, name)

    return Hooks(
        commands={"waiting": Command(board.command)},
        serves=(warm,),
        turn_ends=board.turn_ends,
        waiting=board.waiting,
    )


FEATURE = Feature("waiting", _build)
