"""Basics: greeting, help, who somebody is, and the language and time zone in which they are spoken to."""

from bot.contracts.inbound import Inbound
from bot.core.feature import UNKNOWN, Command, Done, Feature, Hooks, Runtime
from bot.core.saying import examples
from bot.features.basics.commands import Basics


def _build(runtime: Runtime) -> Hooks:
    basics = Basics(
        runtime.name,
        access=runtime.access,
        channels=runtime.channels,
        manifests=runtime.manifests,
        alerts=runtime.alerts,
        locales=runtime.locales,
        clock=runtime.clock,
    )

    async def start(inbound: Inbound) -> Done:
        return Done(basics.hello(inbound), buttons=examples(inbound, runtime.manifests))

    async def unknown(inbound: Inbound) -> Done:
        return Done(basics.unknown(inbound, inbound.command.name if inbound.command is not None else ""))

    return Hooks(
        commands={
            "start": Command(start),
            UNKNOWN: Command(unknown),
            "help": Command.saying(basics.help),
            "language": Command.saying(basics.language),
            "timezone": Command.saying(basics.timezone),
            "whoami": Command.saying(basics.whoami),
        },
        signals={"added": Command.saying(basics.introduce)},
    )


FEATURE = Feature("basics", _build)
