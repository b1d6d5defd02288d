"""Basic commands: greeting, help, identity, language and time zone."""

from bot.contracts.channel import HomeSection
from bot.contracts.inbound import Inbound
from bot.core.feature import UNKNOWN, Command, Done, Feature, Hooks, Runtime
from bot.core.saying import examples
from bot.features.basics.commands import Basics
from bot.words import say, times, zone


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

    async def home(_: Inbound) -> HomeSection:
        return HomeSection(
            say("home.settings"),
            (
                say("home.language", language=say("language.name")),
                say("home.zone", zone=zone(), time=times.clock(runtime.clock.now())),
                say("home.listen"),
            ),
        )

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
        home={3: home},
    )


FEATURE = Feature("basics", _build)
