"""Admissions: strangers ask to use the bot, and operators decide."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.admissions.commands import AccessCommands
from bot.features.admissions.service import AdmissionService


def _build(runtime: Runtime) -> Hooks:
    service = AdmissionService(runtime)
    commands = AccessCommands(
        lists=runtime.lists, access=runtime.access, manifests=runtime.manifests, decide=service.decide
    )
    return Hooks(
        commands={"allow": Command(commands.allow), "block": Command(commands.block)},
        signals={"admission": Command(service.ask)},
        outcomes={"person": service.ended},
        settles={"person": service.settle},
        serves=(service.watch,),
        waiting=service.waiting,
    )


FEATURE = Feature("admissions", _build)
