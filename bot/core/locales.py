"""Locales: the language (see `bot.words`) and time zone of each person."""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC as AT_UTC
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from zoneinfo import available_timezones

from bot.contracts.base import ChatType
from bot.contracts.identity import UserRef
from bot.contracts.messages import Inbound
from bot.core.chat import Chat
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.events import FactSet
from bot.words import CATALOGUES, DEFAULT, UTC, Reader, language_of, times

NEAR = 3  # Max time zones suggested for an unknown name


@dataclass(frozen=True, slots=True)
class Locale:
    """A person's language and tz database zone. Each value is the person's choice (then `…_chosen` is True), or else the last
    known value; None if unknown.
    """

    language: str | None = None
    language_chosen: bool = False
    zone: str | None = None
    zone_chosen: bool = False


KIND = "locale"  # Kind of the `FactSet` events that store locales. The key of an event is the person.


@dataclass(eq=False)
class Locales:
    """Returns the locale of a person. What the person chose comes first, then what the person's app reported last, then
    `words.DEFAULT` and the configured zone. Reports of the app are stored, because some texts answer no message.
    """

    chats: Chats
    _: KW_ONLY
    zone: str = UTC
    _chat: Chat | None = None
    """The gateway's own chat, kept in memory because locales are stored in its log."""
    _scripts: dict[UserRef, str] = field(default_factory=dict)
    """Script of each person's last message: `latin` or `chinese`."""

    async def load(self) -> None:
        """Load the gateway's own chat. Before this call, no locale is stored. Raises `errors.StorageError`."""
        self._chat = await self.chats.get(NO_CHAT)

    def locale(self, person: UserRef) -> Locale:
        return Locale(**(self.chats.facts[KIND].get(str(person)) or {}))

    def of(self, inbound: Inbound) -> Reader:
        """Return the locale of a message's sender. Store a change, but not for a stranger."""
        before = self.locale(inbound.person)
        now = _by_app(before, inbound)
        if now != before and inbound.kind != "admission":
            self._store(inbound.person, now)
        if inbound.due is None and inbound.command is None and (script := _script(inbound.text)):
            self._scripts[inbound.person] = script
        return self._spoken(inbound.person, now, inbound.chat_type)

    def of_person(self, person: UserRef, zone: str | None = None, chat_type: ChatType = "direct") -> Reader:
        """Return the last known locale of a person. `zone` is used if the person's zone is unknown."""
        return self._spoken(person, self.locale(person), chat_type, zone)

    def choose(self, inbound: Inbound, name: Literal["language", "zone"], value: str | None) -> Reader:
        """Store a person's choice of language or time zone. If `value` is None, use what the person's app reports."""
        person = inbound.person
        chosen: dict[str, Any] = {name: value, f"{name}_chosen": value is not None}
        locale = _by_app(replace(self.locale(person), **chosen), inbound)
        self._store(person, locale)
        return self._spoken(person, locale, inbound.chat_type)

    def note_zone(self, inbound: Inbound, zone: str) -> None:
        """Store a time zone that a person mentioned, unless a chosen zone or the app's zone is known."""
        before = self.locale(inbound.person)
        if before.zone_chosen or inbound.zone is not None or before.zone == zone:
            return
        self._store(inbound.person, replace(before, zone=zone))

    def _store(self, person: UserRef, locale: Locale) -> None:
        if self._chat is not None:
            self.chats.append(Fact(NO_CHAT, FactSet(KIND, str(person), asdict(locale))))

    def _spoken(
        self, person: UserRef, locale: Locale, chat_type: ChatType, zone: str | None = None
    ) -> Reader:
        # Other members of a group may live in another zone, so show the zone's name there.
        own = locale.zone is not None and chat_type == "direct"
        # If the person chose no language, the script of their messages counts more than the app's language.
        wanted = None if locale.language_chosen else self._scripts.get(person)
        codes = (locale.language or DEFAULT, DEFAULT, *CATALOGUES)
        fits = (one for one in codes if wanted in {None, _script(str(CATALOGUES[one]["language.now"]))})
        return Reader(next(fits, codes[0]), locale.zone or zone or self.zone, own)


MOST_READ = 500  # Max characters of a message from which its script is detected


def _script(words: str) -> str | None:
    words = re.sub(
        r"\S*[/@_\\.:]\S", " ", words[:MOST_READ]
    )  # without addresses and file names, which are Latin in every language
    chinese, latin = len(re.findall(r"[\u3400-\u9fff]", words)), len(re.findall(r"[A-Za-z]{3,}", words))
    others = len(re.findall(r"[^\W\d_A-Za-z\u3400-\u9fff]", words))
    kana_or_hangul = re.search(r"[\u3040-\u30ff\uac00-\ud7af]", words)
    if chinese and chinese >= max(4 * latin, others) and not kana_or_hangul:
        return "chinese"
    return "latin" if latin > 1 and latin > chinese else None


def _by_app(known: Locale, inbound: Inbound) -> Locale:
    """Return the locale, with the app's values for what the person has not chosen. Unknown languages become the default."""
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
    """Return the time zone for a zone name, a place or a UTC offset; None if no zone or several zones match. Reads the disk."""
    if (offset := _OFFSET.fullmatch(unicodedata.normalize("NFKC", asked).strip())) is not None:
        sign, apart = offset[1], timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if not apart % timedelta(hours=1):
            # Zones named Etc/GMT… have the opposite sign: Etc/GMT-2 is UTC+2.
            name = f"Etc/GMT{'-' if sign == '+' else '+'}{apart // timedelta(hours=1)}" if apart else UTC
            return name if name in _zone_names() else None
        # For other offsets, take the first zone that has this offset now.
        wanted, moment = apart if sign == "+" else -apart, datetime.fromtimestamp(now, AT_UTC)
        return next(
            (zone for zone in _places() if moment.astimezone(times.zone(zone)).utcoffset() == wanted), None
        )
    found = _zones().get(_key(asked), ())
    return found[0] if len(found) == 1 else None


def near_zones(asked: str) -> list[str]:
    """Return at most `NEAR` zones: zones with exactly this name, else zones with a similar name, most similar first."""
    wanted = _key(asked)
    found = _zones().get(wanted, ())
    # A zone with a similar name but another number has another time, so it is not suggested.
    if found or any(letter.isdigit() for letter in wanted):
        return list(found[:NEAR])
    names = difflib.get_close_matches(wanted, _zones(), n=NEAR, cutoff=0.6)
    inside = [name for name in _zones() if len(wanted) > 2 and wanted in name]
    near = (zone for name in (*names, *inside) for zone in _zones()[name])
    return list(dict.fromkeys(near))[:NEAR]


@functools.cache
def _zone_names() -> frozenset[str]:
    return frozenset({*available_timezones(), UTC})  # reads the disk


@functools.cache
def _zones() -> Mapping[str, tuple[str, ...]]:
    """Map normalised names to zones. A zone's names are its full name, the last part of it, and places in the zone."""
    names = sorted(_zone_names())
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
    """Return the places and abbreviations in `cities.tsv`, keyed by zone. Zones unknown to this machine are left out."""
    lines = Path(__file__).with_name("cities.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {zone: places.split("|") for zone, places in rows if zone in _zone_names()}


def _key(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).casefold()
    return re.sub(r"[^\w/+-]|_|[+-](?!\d)", "", plain).removesuffix("市")


_OFFSET = re.compile(r"(?:gmt|utc|z)?\s*([+−–-])\s*(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
_NO_PLACES = frozenset({"Etc", "US", "Canada", "Mexico", "Brazil", "Chile"})
"""Regions whose zones are not named after cities."""
