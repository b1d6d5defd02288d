"""Locales: the language (`bot.words`) and the time zone in which each person is spoken to."""

from __future__ import annotations

import asyncio
import difflib
import functools
import re
import unicodedata
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC as AT_UTC
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary
from zoneinfo import available_timezones

from bot import errors
from bot.contracts.base import ChatType
from bot.contracts.environment import Log
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.events import FactSet
from bot.words import CATALOGUES, DEFAULT, UTC, language_of, times

NEAR = 3
"""Names of zones that are offered in place of one that is none."""


@dataclass(frozen=True, slots=True)
class Locale:
    """The language (`bot.words`) and the time zone (of the tz database) in which a person is spoken to: those of their app when
    they last wrote, or those they have chosen. None is not known.
    """

    language: str | None = None
    language_chosen: bool = False
    zone: str | None = None
    zone_chosen: bool = False


_UNKNOWN = Locale()


class ReaderLocale(NamedTuple):
    """The language and the zone for `bot.words.speaking`; `own`: that zone is the reader's, so times are told without its name."""

    language: str
    zone: str
    own: bool = False


class FactLocales:
    """The locales that people have chosen, as facts of the log."""

    KIND = "locale"

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def put_locale(self, person: UserRef, locale: Locale) -> None:
        chat = await self._chats.get(NO_CHAT)
        self._chats.append(Fact(chat.key, FactSet(self.KIND, str(person), asdict(locale))))

    async def locales(self) -> dict[UserRef, Locale]:
        known = self._chats.facts.all(self.KIND)
        return {UserRef.parse(name): Locale(**value) for name, value in known.items()}


class Locales:
    """Tells what a person has chosen, or else what their app has. That is remembered too: some messages answer nobody. Of whom
    nothing is known, the language is `words.DEFAULT` and the zone the one given here.
    """

    def __init__(
        self,
        rows: FactLocales,
        start: Callable[[Coroutine[Any, Any, None]], object],
        log: Log,
        *,
        zone: str = UTC,
    ) -> None:
        """`start` runs work that nobody waits for."""
        self._rows = rows
        self._start = start
        self._log = log
        self._zone = zone
        self._known: dict[UserRef, Locale] = {}
        self._loaded = False
        self._scripts: dict[UserRef, str] = {}
        """The script of the last message of a person."""
        self._writing = WeakValueDictionary[UserRef, asyncio.Lock]()

    async def load(self) -> None:
        """Read once what is on file. Where that cannot be read, everyone's app decides."""
        if self._loaded:
            return
        try:
            self._known = await self._rows.locales() | self._known
            self._loaded = True
        except errors.StorageError as error:
            self._failed(error)

    def locale(self, person: UserRef) -> Locale:
        """All that is known of a person."""
        return self._known.get(person, _UNKNOWN)

    def of(self, inbound: Inbound) -> ReaderLocale:
        """Return how the person of an inbound is spoken to; a stranger's locale is not remembered."""
        before = self.locale(inbound.person)
        now = _by_app(before, inbound)
        if now != before and inbound.kind != "admission":
            self._known[inbound.person] = now
            self._start(self._remember(inbound.person))
        if inbound.due is None and inbound.command is None and (script := _script(inbound.text)):
            self._scripts[inbound.person] = script
        return self._spoken(inbound.person, now, inbound.chat_type)

    def of_person(
        self, person: UserRef, zone: str | None = None, chat_type: ChatType = "direct"
    ) -> ReaderLocale:
        """Return how a person is spoken to who has written before; `zone` stands for one that is not known."""
        return self._spoken(person, self.locale(person), chat_type, zone)

    async def choose_language(self, inbound: Inbound, code: str | None) -> ReaderLocale:
        """Speak this language with a person from now on, over restarts, None for that of their app. Raises
        `errors.StorageError`.
        """
        return await self._choose(inbound, language=code, language_chosen=code is not None)

    async def choose_zone(self, inbound: Inbound, zone: str | None) -> ReaderLocale:
        """Tell a person times in this zone from now on, over restarts, None for that of their app. Raises
        `errors.StorageError`.
        """
        return await self._choose(inbound, zone=zone, zone_chosen=zone is not None)

    async def note_zone(self, inbound: Inbound, zone: str) -> None:
        """A person has named a zone for something: it is theirs where nothing better is known."""
        before = self.locale(inbound.person)
        if before.zone_chosen or inbound.zone is not None or before.zone == zone:
            return
        self._known[inbound.person] = replace(before, zone=zone)
        await self._remember(inbound.person)

    async def _choose(self, inbound: Inbound, **chosen: Any) -> ReaderLocale:
        person = inbound.person
        async with self._turn(person):
            locale = _by_app(replace(self.locale(person), **chosen), inbound)
            await self._rows.put_locale(person, locale)
            self._known[person] = locale
        return self._spoken(person, locale, inbound.chat_type)

    def _spoken(
        self, person: UserRef, locale: Locale, chat_type: ChatType, zone: str | None = None
    ) -> ReaderLocale:
        # The others of a group may live elsewhere.
        own = locale.zone is not None and chat_type == "direct"
        # Of a language that nobody has chosen, the script in which they write says more than their app.
        wanted = None if locale.language_chosen else self._scripts.get(person)
        codes = (locale.language or DEFAULT, DEFAULT, *CATALOGUES)
        fits = (one for one in codes if wanted in {None, _script(str(CATALOGUES[one]["language.now"]))})
        return ReaderLocale(next(fits, codes[0]), locale.zone or zone or self._zone, own)

    def _turn(self, person: UserRef) -> asyncio.Lock:
        """The lock under which a choice of a person is written, so that the last one knows the others."""
        return self._writing.setdefault(person, asyncio.Lock())

    async def _remember(self, person: UserRef) -> None:
        try:
            async with self._turn(person):
                await self._rows.put_locale(person, self._known[person])
        except errors.StorageError as error:
            self._failed(error)

    def _failed(self, error: errors.StorageError) -> None:
        self._log.write(
            "error", "people's languages and time zones are not known", level="error", cause=str(error)
        )


MOST_READ = 500
"""Max characters that are looked at for the language of a message."""


def _script(words: str) -> str | None:
    """The script in which words are written, where that tells their language from another one; None where it does not."""
    words = re.sub(
        r"\S*[/@_\\.:]\S", " ", words[:MOST_READ]
    )  # addresses and names of files are in Latin everywhere
    chinese, latin = len(re.findall(r"[\u3400-\u9fff]", words)), len(re.findall(r"[A-Za-z]{3,}", words))
    others = len(re.findall(r"[^\W\d_A-Za-z\u3400-\u9fff]", words))
    kana_or_hangul = re.search(r"[\u3040-\u30ff\uac00-\ud7af]", words)
    if chinese and chinese >= max(4 * latin, others) and not kana_or_hangul:
        return "chinese"
    return "latin" if latin > 1 and latin > chinese else None


def _by_app(known: Locale, inbound: Inbound) -> Locale:
    """A locale with what somebody's app has now, where they have not chosen. A language without a catalogue is the default."""
    language = language_of(inbound.language) or DEFAULT if inbound.language else None
    if language not in {None, known.language or DEFAULT} and not known.language_chosen:
        known = replace(known, language=language)
    if inbound.zone not in {None, known.zone} and not known.zone_chosen and _is_zone(inbound.zone):
        known = replace(known, zone=inbound.zone)
    return known


def _is_zone(name: str | None) -> bool:
    try:
        return name is not None and times.zone(name) is not None
    except ValueError:
        return False


def zone_named(asked: str, now: float) -> str | None:
    """The zone that a person means by its name, by a place in it, or by how far it is from UTC; None where that is none or may be
    several. Reads the tz database.
    """
    if (offset := _OFFSET.fullmatch(unicodedata.normalize("NFKC", asked).strip())) is not None:
        return _with_offset(timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0)), offset[1], now)
    found = _zones().get(_key(asked), ())
    return found[0] if len(found) == 1 else None


def near_zones(asked: str) -> list[str]:
    """The zones that a person may mean: those of that name, else those whose names come near to it, the nearest first."""
    wanted = _key(asked)
    found = _zones().get(wanted, ())
    if found or any(letter.isdigit() for letter in wanted):  # another number is another time
        return list(found[:NEAR])
    names = difflib.get_close_matches(wanted, _zones(), n=NEAR, cutoff=0.6)
    inside = [name for name in _zones() if len(wanted) > 2 and wanted in name]
    near = (zone for name in (*names, *inside) for zone in _zones()[name])
    return list(dict.fromkeys(near))[:NEAR]


def _with_offset(apart: timedelta, sign: str, now: float) -> str | None:
    """The zone whose clocks are so far from UTC: of whole hours one that always is; else the largest one that is now."""
    if not apart % timedelta(hours=1):
        # In names of this kind the sign is the other way round.
        name = f"Etc/GMT{'-' if sign == '+' else '+'}{apart // timedelta(hours=1)}" if apart else UTC
        return next(iter(_zones().get(_key(name), ())), None)
    wanted, moment = apart if sign == "+" else -apart, datetime.fromtimestamp(now, AT_UTC)
    zones = (zone for zone in _places() if moment.astimezone(times.zone(zone)).utcoffset() == wanted)
    return next(zones, None)


@functools.cache
def _zones() -> Mapping[str, tuple[str, ...]]:
    """Every zone by the key of its name, of its last part alone, where a region stands before that, and of the places in it."""
    names = sorted({*available_timezones(), UTC})
    cities: dict[str, dict[str, None]] = {}
    for name in names:
        region, _, city = name.rpartition("/")
        if region and region not in _NO_PLACES:
            cities.setdefault(_key(city), {})[name] = None
    for zone, places in _places().items():
        for place in places:
            cities.setdefault(_key(place), {})[zone] = None
    return {_key(name): (name,) for name in names} | {city: tuple(zones) for city, zones in cities.items()}


@functools.cache
def _places() -> Mapping[str, list[str]]:
    """The places and short names in `cities.tsv` by zone, as far as this machine knows it."""
    lines = Path(__file__).with_name("cities.tsv").read_text("utf-8").splitlines()
    found = dict(line.split("\t") for line in lines if not line.startswith("#"))
    known = available_timezones()  # it reads the disk each time
    return {zone: found[zone].split("|") for zone in found if zone in known}


def _key(name: str) -> str:
    """A name without what people write in several ways: accents, capitals, spaces, hyphens."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return re.sub(r"[^\w/+-]|_|[+-](?!\d)", "", plain).removesuffix("市")


_OFFSET = re.compile(r"(?:gmt|utc|z)?\s*([+−–-])\s*(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
_NO_PLACES = frozenset({"Etc", "US", "Canada", "Mexico", "Brazil", "Chile"})
"""Regions whose zones are called in another way than by their cities."""
