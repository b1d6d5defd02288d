"""Languages: the one in which each person is spoken to (`bot.words`)."""

from __future__ import annotations

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Schedule, SpokenLanguage
from bot.gateway.background import BackgroundTasks
from bot.words import DEFAULT, language_of


class Languages:
    """Tells what a person has chosen, or else the language of their app. That is remembered too: some messages answer nobody."""

    def __init__(self, journal: Schedule, tasks: BackgroundTasks, log: Log) -> None:
        self._journal = journal
        self._tasks = tasks
        self._log = log
        self._known: dict[UserRef, SpokenLanguage] = {}
        self._loaded = False

    async def load(self) -> None:
        """Read once what is on file. Where that cannot be read, everyone's app decides."""
        if self._loaded:
            return
        try:
            self._known = await self._journal.languages() | self._known
            self._loaded = True
        except errors.StorageError as error:
            self._failed(error)

    def of(self, inbound: Inbound) -> str:
        """The language of the person of an inbound; that of a stranger is not remembered."""
        known, app = self._known.get(inbound.person), _of_app(inbound)
        if app is None or (known is not None and known.chosen):
            return known.code if known is not None else DEFAULT
        if inbound.kind != "admission" and app != self.known(inbound.person):
            self._known[inbound.person] = SpokenLanguage(app)
            self._tasks.start(self._remember(inbound.person))
        return app

    def known(self, person: UserRef) -> str:
        """The language of a person who has written before."""
        known = self._known.get(person)
        return known.code if known is not None else DEFAULT

    async def choose(self, inbound: Inbound, code: str | None) -> str:
        """Speak this language with a person from now on, over restarts, None for that of their app; returns it. Raises
        `errors.StorageError`.
        """
        spoken = SpokenLanguage(code or _of_app(inbound) or DEFAULT, chosen=code is not None)
        await self._journal.speak(inbound.person, spoken)
        self._known[inbound.person] = spoken
        return spoken.code

    async def _remember(self, person: UserRef) -> None:
        try:
            await self._journal.speak(person, self._known[person])
        except errors.StorageError as error:
            self._failed(error)

    def _failed(self, error: errors.StorageError) -> None:
        self._log.write("error", "people's languages are not known", level="error", cause=str(error))


def _of_app(inbound: Inbound) -> str | None:
    """The language of a person's app, English where there is no catalogue of it; None where the platform does not tell."""
    return language_of(inbound.language) or DEFAULT if inbound.language else None
