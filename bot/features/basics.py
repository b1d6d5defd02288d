"""Basic commands: greeting, help, identity, language, time zone, and `/waiting`, which lists what waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from bot import text
from bot.contracts.approvals import OpenLoop, Viewer
from bot.contracts.channel import HomeSection
from bot.contracts.messages import Inbound
from bot.core.access import id_form
from bot.core.chat import chat_of_task
from bot.core.chats import Fact
from bot.core.events import FactSet
from bot.core.feature import UNKNOWN, Command, Done, Feature, Hooks, Runtime
from bot.core.locales import near_zones, zone_named
from bot.core.outgoing import examples
from bot.text import named, quoted
from bot.words import (
    CATALOGUES,
    DEFAULT,
    is_traditional,
    language_of,
    paragraph,
    reader,
    say,
    sentence,
    speaking,
    times,
)

MEANT = {"cancel": "stop", "delete": "forget"} | dict.fromkeys(("reset", "restart"), "new")
"""For each command name of other bots, the corresponding command of this bot."""
MOST_ZONE = 60  # max characters of a time zone name that is looked up
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "talk": ("start", "help", "new", "stop", "undo", "forget"),
    "history": ("history", "compact", "resume", "fork"),
    "jobs": ("jobs", "waiting"),
    "permissions": ("whoami", "approve", "deny", "approvals"),
    "answers": ("status", "model", "effort", "stats", "usage", "receipt"),
    "settings": ("language", "timezone", "listen"),
    "operators": ("allow", "block"),
}
"""Commands that `/help` lists, by section. Their texts in `bot/words` have the keys `help.…`, `arguments.…` and `explained.…`."""
OPERATORS = frozenset(SECTIONS["operators"])  # commands for operators only
CHANGED_BY_OPERATORS = frozenset({"effort", "listen", "model"})
"""Commands that show a setting to everybody, but change the setting only for operators."""
_LISTED = tuple(name for listed in SECTIONS.values() for name in listed)
MOST_SHOWN = 8  # max entries of each kind that `/waiting` lists
GLIMPSE = 80  # max characters of a tool call that `/waiting` shows
AUTO = "auto"  # argument of `/language` and `/timezone` that restores the chat app's own setting


@dataclass(eq=False)
class Basics:
    """Runs the basic commands. Each method returns the bot's answer."""

    run: Runtime

    def _prefix(self, inbound: Inbound) -> str:
        return self.run.manifests[inbound.channel].command_prefix

    async def start(self, inbound: Inbound) -> Done:
        """Run `/start`: greet a person who has never written before."""
        takes_files = self.run.manifests[inbound.channel].files
        key = "commands.hello" if takes_files else "commands.hello_no_files"
        hello = say(key, name=self.run.settings.name, prefix=self._prefix(inbound))
        buttons = examples(inbound, self.run.manifests)
        return Done(f"{hello}\n\n{say('start.tap')}" if buttons else hello, buttons=buttons)

    async def home(self, _: Inbound) -> HomeSection:
        """Return a person's language and time zone, for the person's home page."""
        language = say("home.language", language=say("language.name"))
        local = say("home.zone", zone=reader().zone, time=times.clock(self.run.clock.now()))
        return HomeSection(say("home.settings"), (language, local, say("home.listen")))

    async def introduce(self, inbound: Inbound) -> str:
        """Return the bot's first message in a chat to which somebody added the bot. Tell operators which rights the bot
        lacks in this chat.
        """
        introduction = await self.run.channels[inbound.channel].introduce(inbound)
        if introduction is None:
            return ""
        by, chat = inbound.person, inbound.chat_key
        if introduction.hindrance:
            words = sentence("operators.added", by=by, chat=chat, hindrance=introduction.hindrance)
            self.run.alerts.tell(f"rights in {chat}", words)
        if self.run.access.is_open(inbound.channel, inbound.chat_id):
            return introduction.words
        words = sentence(
            "operators.added_closed", by=by, chat=chat, channel=inbound.channel, id=inbound.chat_id
        )
        self.run.alerts.tell(f"members of {chat}", words)
        return paragraph(introduction.words, say("strangers.group"))

    async def help(self, inbound: Inbound) -> str:
        """Run `/help`: list all commands by section, or explain one command."""
        prefix, operator = self._prefix(inbound), self.run.access.is_operator(inbound.person)

        def line(name: str) -> str:
            return f"{usage(name, prefix, operator=operator)} – {say(f'help.{name}')}"

        if inbound.args:
            name = inbound.args.split()[0].lstrip("/!").casefold()
            if name not in _LISTED:
                return await self.unknown(inbound, name)
            if name in OPERATORS and not operator:
                return say("commands.operators_admit")
            known = f"explained.{name}" in CATALOGUES[DEFAULT]
            explained = say(f"explained.{name}", prefix=prefix) if known else ""
            form = id_form(self.run.manifests[inbound.channel]) if name in OPERATORS else ""
            return "\n".join(filter(None, (line(name), paragraph(explained, form))))
        parts = list[str]()
        for section, listed in SECTIONS.items():
            lines = [line(name) for name in listed if operator or name not in OPERATORS]
            parts += ["\n".join([f"**{say(f'sections.{section}')}**", *lines])] if lines else []
        return "\n\n".join([*parts, say("commands.help_end", prefix=prefix)])

    async def unknown(self, inbound: Inbound, name: str = "") -> str:
        """Return the answer to an unknown command. The answer suggests a similar command if there is one."""
        if not name and inbound.command is not None:
            name = inbound.command.name
        prefix, shown = self._prefix(inbound), text.preview(name, 40)
        operator = self.run.access.is_operator(inbound.person)
        listed = [one for one in _LISTED if operator or one not in OPERATORS]
        near = MEANT.get(name) or text.nearest(name, listed)
        if near is None:
            return say("commands.unknown", name=shown, prefix=prefix)
        return say("commands.unknown_near", name=shown, near=near, prefix=prefix)

    async def language(self, inbound: Inbound) -> str:
        """Run `/language`: show or set the person's language."""
        asked, prefix = inbound.args, self._prefix(inbound)
        codes = ", ".join(CATALOGUES)
        if not asked:
            told = say("language.choices", language=say("language.name"), codes=codes, prefix=prefix)
            return paragraph(_other_script(inbound.language), told)
        code = None if asked.casefold() == AUTO else language_of(asked)
        if code is None and asked.casefold() != AUTO:
            return say("language.unknown", asked=text.preview(asked, 40), codes=codes)
        with speaking(*self.run.locales.choose(inbound, "language", code)):
            now = say("language.now") if code else say("language.auto", language=say("language.name"))
            return paragraph(now, _other_script(asked if code else inbound.language))

    async def timezone(self, inbound: Inbound) -> str:
        """Run `/timezone`: show or set the person's time zone."""
        asked, prefix, now = inbound.args, self._prefix(inbound), self.run.clock.now()
        if not asked:
            known = self.run.locales.locale(inbound.person).zone is not None
            key = "timezone.known" if known else "timezone.unknown"
            return paragraph(
                say(key, zone=reader().zone, time=times.clock(now)), say("timezone.how", prefix=prefix)
            )
        name = None
        if asked.casefold() != AUTO:
            name = await asyncio.to_thread(zone_named, asked, now)
            if name is None:
                near = await asyncio.to_thread(near_zones, text.head(asked, MOST_ZONE))
                shown = text.preview(asked, 40)
                if not near:
                    return say("timezone.no_zone", asked=shown, prefix=prefix)
                return say("timezone.near", asked=shown, zones=", ".join(near))
        with speaking(*self.run.locales.choose(inbound, "zone", name)):
            known = self.run.locales.locale(inbound.person).zone is not None
            key = "now" if name is not None else "auto" if known else "unknown"
            return say(f"timezone.{key}", zone=reader().zone, time=times.clock(now))

    async def whoami(self, inbound: Inbound) -> str:
        """Run `/whoami`: show the person's id, name and role."""
        operator = self.run.access.is_operator(inbound.person)
        key = "commands.whoami_operator" if operator else "commands.whoami_member"
        name = named(inbound.user_name or "").strip()
        who = f"`{name}` ({inbound.person})" if name else str(inbound.person)
        return say(key, who=who, chat=inbound.chat_key)

    async def waiting(self, inbound: Inbound) -> Done:
        """Run `/waiting`: list what waits for the person (in a group, for the group). `/waiting done NAME` ends a promise."""
        private, operator = inbound.chat_type == "direct", inbound.person in self.run.operators
        verb, _, name = inbound.args.partition(" ")
        if verb.casefold() == "done":
            name = name.strip().upper()
            for loop in await self.run.waiting(Viewer(inbound.person, operator)):
                if loop.id == name and "done" in loop.acts:
                    by, promises = str(inbound.person), self.run.chats.facts[loop.kind]
                    self.run.log.write("promise", "a promise is closed", chat_key=loop.chat_key, by=by)
                    gone = [one for one in promises if one.endswith(name)]
                    facts = [Fact(inbound.chat_key, FactSet(loop.kind, one, None)) for one in gone]
                    return Done(say("waiting.closed", words=loop.what), facts)
            return Done(say("waiting.unknown"))
        viewer = Viewer(inbound.person, operator, None if private else inbound.chat_key)
        parts = list[str]()
        for kind, group in groupby(await self.run.waiting(viewer), key=lambda one: one.kind):
            found = list(group)
            lines = [f"- {self._line(one, viewer, self._prefix(inbound))}" for one in found[:MOST_SHOWN]]
            more = len(found) - MOST_SHOWN
            lines += [f"- {say('home.more_jobs', count=more)}"] if more > 0 else []
            parts.append("\n".join([f"**{say(f'waiting.kind_{kind}')}**", *lines]))
        return Done("\n\n".join(parts) or say("waiting.nothing" if private else "waiting.nothing_here"))

    def _line(self, loop: OpenLoop, viewer: Viewer, prefix: str) -> str:
        parts = [f"“{loop.what}”" if loop.kind == "promise" else named(loop.what)]
        if loop.kind == "approval" and loop.detail:
            parts.append(f"`{quoted(text.preview(loop.detail, GLIMPSE))}`")
        if loop.person is not None and loop.person != viewer.person:
            parts.append(f"`{named(loop.name)}`" if loop.name else str(loop.person))
        if loop.kind != "job":
            parts.append(times.recent(loop.since, self.run.clock.now()))
        elif loop.state:
            parts.append(say(f"jobs.state_{loop.state}"))
        else:
            parts.append(say("jobs.state_next", time=times.date(loop.due or 0.0)))
        return " · ".join([*parts, *(f"`{prefix}{loop.command(act)}`" for act in loop.acts)])

    async def tasks(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the running subagent tasks that this person sees."""
        found, chats = list[OpenLoop](), self.run.chats
        for key, turn in [(chat.key, chat.turn) for chat in chats if chat.turn is not None]:
            first = turn.first
            for task in turn.tasks.values() if viewer.sees(first.person, key) else ():
                child = chats.loaded(chat_of_task(key, task))
                label = child.task.label if child is not None and child.task is not None else ""
                what = text.preview(label, 120) or say("waiting.some_task")
                about = what, first.ts / 1000, first.person, first.user_name or ""
                found.append(OpenLoop("task", task[-6:], key, *about, state="running"))
        return found


def usage(name: str, prefix: str, *, operator: bool) -> str:
    """Return a command with the arguments that this person may give, e.g. `/resume [id]`."""
    takes = f"arguments.{name}" in CATALOGUES[DEFAULT] and (operator or name not in CHANGED_BY_OPERATORS)
    return f"{prefix}{name} {say(f'arguments.{name}')}" if takes else f"{prefix}{name}"


def _other_script(tag: str | None) -> str:
    """Return a notice if the language tag means Traditional Chinese, because the bot writes Simplified Chinese."""
    return say("language.simplified") if is_traditional(tag) and reader().language == "zh" else ""


def _build(runtime: Runtime) -> Hooks:
    basics = Basics(runtime)
    return Hooks(
        commands={
            "start": Command(basics.start),
            UNKNOWN: Command.saying(basics.unknown),
            "help": Command.saying(basics.help),
            "language": Command.saying(basics.language),
            "timezone": Command.saying(basics.timezone),
            "whoami": Command.saying(basics.whoami),
            "waiting": Command(basics.waiting),
        },
        signals={"added": Command.saying(basics.introduce)},
        home={3: basics.home},
        waiting=basics.tasks,
    )


FEATURE = Feature("basics", _build)
