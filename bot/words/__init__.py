"""Words: the sentences that people in a chat read, one catalogue (`<code>.toml`) a language.

`say` speaks the language of the running task, which `speaking` sets. What is written down (a row of the outbox, say) is
said once and kept as it was said. `sentence` is for what several people read, each in their language.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Catalogue = Mapping[str, str | Mapping[str, str]]
"""Sentences by their keys (`section.name`), each a format string; or, where a `count` stands in it, one for 1 and one for other
numbers.
"""
DEFAULT = "en"
"""The language where nobody has named one, and of a sentence that a catalogue lacks."""
_PLURAL = "other"


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | Mapping[str, str]]]:
    for name, value in section.items():
        if isinstance(value, str) or _PLURAL in value:
            yield f"{prefix}{name}", value
        else:
            yield from _flat(value, f"{prefix}{name}.")


CATALOGUES: Mapping[str, Catalogue] = {
    path.stem: dict(_flat(tomllib.loads(path.read_text("utf-8"))))
    for path in sorted(Path(__file__).parent.glob("*.toml"))
}
"""By the code of the language, as in `en` or `zh`."""
UTC = "UTC"
"""The zone where nobody has named one."""
_language: ContextVar[str] = ContextVar("language", default=DEFAULT)
_zone: ContextVar[str] = ContextVar("zone", default=UTC)
_own_zone: ContextVar[bool] = ContextVar("own_zone", default=False)


def say(key: str, /, **values: object) -> str:
    """A sentence in the language of the running task."""
    sentence = CATALOGUES[_language.get()].get(key) or CATALOGUES[DEFAULT][key]
    if not isinstance(sentence, str):
        sentence = sentence["one"] if values["count"] == 1 and "one" in sentence else sentence[_PLURAL]
    return sentence.format(**values)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that is said later: as text, it is in the language of the task that makes it one. Its values may be sentences."""

    key: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return say(self.key, **self.values)


def sentence(key: str, /, **values: object) -> Sentence:
    """A sentence that is said later, in the language of whoever reads it."""
    return Sentence(key, values)


def paragraph(*said: str) -> str:
    """Sentences one after the other, as the language of the running task writes them."""
    whole, *rest = said
    for one in rest:
        whole = say("language.between", before=whole, after=one)
    return whole


def names(section: str) -> tuple[str, ...]:
    """The names of all sentences of a section, in their order."""
    return tuple(
        key.removeprefix(f"{section}.") for key in CATALOGUES[DEFAULT] if key.startswith(f"{section}.")
    )


def language() -> str:
    """The language of the running task."""
    return _language.get()


def zone() -> str:
    """The name of the time zone in which the running task tells times."""
    return _zone.get()


def own_zone() -> bool:
    """True where that zone is known to be the one of everybody who reads what is said."""
    return _own_zone.get()


@contextmanager
def speaking(
    code: str,
    zone: str | None = None,
    own: bool = False,  # noqa: FBT001, FBT002 - how a person is spoken to comes as one
) -> Iterator[None]:
    """Speak this language inside, and in tasks that are started there, and tell times in this zone, which is the reader's `own`
    or has to be named with them; None leaves that as it is. A language without a catalogue is the default.
    """
    language = _language.set(code if code in CATALOGUES else DEFAULT)
    where = _zone.set(zone if zone is not None else _zone.get())
    whose = _own_zone.set(own if zone is not None else _own_zone.get())
    try:
        yield
    finally:
        _own_zone.reset(whose)
        _zone.reset(where)
        _language.reset(language)


def best_language(accepted: str) -> str | None:
    """The catalogue that fits a header `Accept-Language` best, English where none does; None where it names no language."""
    wanted = list[tuple[float, str]]()
    for one in accepted.split(","):
        tag, _, quality = one.partition(";")
        match = re.fullmatch(r"\s*q=([01](?:\.\d{0,3})?)\s*", quality) if quality else None
        if tag.strip() and (match is not None or not quality):
            wanted.append((float(match[1]) if match is not None else 1.0, tag.strip()))
    if not wanted:
        return None
    by_quality = sorted((one for one in wanted if one[0] > 0), key=lambda one: -one[0])
    return next((code for _, tag in by_quality if (code := language_of(tag))), DEFAULT)


def language_of(tag: str | None) -> str | None:
    """The catalogue of a tag such as `zh-hans` or `en_US`, or of a language's name; None where there is none."""
    code = (tag or "").replace("_", "-").partition("-")[0].strip().casefold()
    called = (one for one in CATALOGUES if code in str(CATALOGUES[one]["language.called"]).split(", "))
    return code if code in CATALOGUES else next(called, None)


def is_traditional(tag: str | None) -> bool:
    """True for the tag of Chinese in traditional characters, by its script or, where it names none, by its region."""
    parts = (tag or "").replace("_", "-").casefold().split("-")
    return parts[0] == "zh" and "hans" not in parts and not {"hant", "tw", "hk", "mo"}.isdisjoint(parts)
