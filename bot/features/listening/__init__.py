"""Listening: decides which messages of a group are for the bot, and finds what was said before such a message."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.listening.service import ListeningService


def _build(runtime: Runtime) -> Hooks:
    service = ListeningService(runtime)
    return Hooks(
        commands={"listen": Command(service.listen)},
        before_intake=service.counted,
        before_turn=service.before,
        hears_all=service.hears_all,
        turn_ends=service.turn_ends,
    )


FEATURE = Feature("listening", _build)
