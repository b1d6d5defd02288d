"""The page that a person opens to see what the bot does for them: its state, their jobs, their settings."""

from __future__ import annotations

from bot.contracts.agent import Agent
from bot.contracts.approvals import ApprovalStore
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Clock
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.gateway.access import Access
from bot.gateway.jobs.service import JobService
from bot.gateway.locales import Locales
from bot.gateway.turn_queue import TurnQueue
from bot.words import say, speaking, times, zone

MOST_JOBS = 10
"""Jobs that are shown; `/jobs` shows the others in their chats."""


class HomePages:
    """Makes the page of each person, in their language."""

    def __init__(
        self,
        *,
        name: str,
        agent: Agent,
        access: Access,
        approvals: ApprovalStore,
        jobs: JobService,
        locales: Locales,
        turn_queue: TurnQueue,
        clock: Clock,
    ) -> None:
        self._name = name
        self._agent = agent
        self._access = access
        self._approvals = approvals
        self._jobs = jobs
        self._locales = locales
        self._turn_queue = turn_queue
        self._clock = clock

    async def page(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """As `contracts.channel.Intake.home`."""
        standing = self._access.standing(opened.channel, opened.user_id, opened.chat_id, "direct")
        if not standing.allowed:
            # Nothing of a stranger is remembered.
            with speaking(*self._locales.of(opened.model_copy(update={"kind": "admission"}))):
                return (HomeSection(self._name, (say("strangers.hello"),)),)
        with speaking(*self._locales.of(opened)):
            return (
                HomeSection(self._name, await self._state(opened)),
                HomeSection(say("home.jobs"), await self._planned(opened.person)),
                HomeSection(say("home.settings"), self._settings()),
            )

    async def _state(self, opened: Inbound) -> tuple[str, ...]:
        person = opened.person
        turns = [chat.running for _, chat in self._turn_queue.chats()]
        working = sum(turn is not None and turn.first.person == person for turn in turns)
        asked = [record.asked for record in await self._approvals.open_approvals()]
        waits = sum(
            (one.channel, one.user_id) == (person.channel, person.user_id) and not one.admits for one in asked
        )
        doing = [say("status.working", count=working)] if working else []
        doing += [say("home.waits", count=waits)] if waits else []
        info = await self._agent.describe(opened.chat_key)
        return (*(doing or [say("status.ready")]), say("home.model", model=info.model))

    async def _planned(self, person: UserRef) -> tuple[str, ...]:
        lines = await self._jobs.of_person(person)
        more = len(lines) - MOST_JOBS
        shown = lines[:MOST_JOBS] or [say("home.no_jobs")]
        return (*shown, *([say("home.more_jobs", count=more)] if more > 0 else []))

    def _settings(self) -> tuple[str, ...]:
        return (
            say("home.language", language=say("language.name")),
            say("home.zone", zone=zone(), time=times.clock(self._clock.now())),
            say("home.listen"),
        )
