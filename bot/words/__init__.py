"""The sentences that Shipmate says to people, in one catalogue (`<code>.toml`) for each language.

`say` returns a sentence in the language of the running task, which `speaking` sets. `sentence` returns a
text that each reader gets in their own language.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Catalogue = Mapping[str, str | Mapping[str, str]]
"""Format strings, keyed by `section.name`. A sentence with a `count` has two strings: for 1, and for other numbers."""
DEFAULT = "en"  # Language for people who have chosen none, and for sentences that are missing in a catalogue
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
"""Catalogues, keyed by language code such as `en` or `zh`."""
UTC = "UTC"  # Time zone of people who have chosen none


class Reader(NamedTuple):
    """Language and time zone in which texts are written for a reader. `own` is True if every reader is in this zone;
    times are then shown without the zone's name.
    """

    language: str = DEFAULT
    zone: str = UTC
    own: bool = False


_reader: ContextVar[Reader] = ContextVar("reader", default=Reader())  # noqa: B039 - immutable


def say(key: str, /, **values: object) -> str:
    """Return a sentence in the language of the running task."""
    sentence = CATALOGUES[reader().language].get(key) or CATALOGUES[DEFAULT][key]
    if not isinstance(sentence, str):
        sentence = sentence["one"] if values["count"] == 1 and "one" in sentence else sentence[_PLURAL]
    return sentence.format(**values)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that is formatted when it is converted to text, in the language of the task that converts it.
    Its values may be sentences too.
    """

    key: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return say(self.key, **self.values)


def sentence(key: str, /, **values: object) -> Sentence:
    """Return a `Sentence`, which is formatted later in the reader's language."""
    return Sentence(key, values)


def paragraph(*said: str) -> str:
    """Join the sentences that are not empty. The running task's language decides whether spaces separate them."""
    whole = ""
    for one in filter(None, said):
        whole = say("language.between", before=whole, after=one) if whole else one
    return whole


def names(section: str) -> tuple[str, ...]:
    """Return the names of all sentences of a section, in the order of the catalogue."""
    return tuple(
        key.removeprefix(f"{section}.") for key in CATALOGUES[DEFAULT] if key.startswith(f"{section}.")
    )


def reader() -> Reader:
    """Return the reader for whom the running task writes."""
    return _reader.get()


@contextmanager
def speaking(
    code: str,
    zone: str | None = None,
    own: bool = False,  # noqa: FBT001, FBT002 - callers pass a `Reader`
) -> Iterator[None]:
    """Set the reader for the code inside this context, and for tasks that this code starts. If `zone` is None, the
    time zone does not change. A language without a catalogue is replaced by the default.
    """
    code = code if code in CATALOGUES else DEFAULT
    before = _reader.set(Reader(code, zone, own) if zone is not None else reader()._replace(language=code))
    try:
        yield
    finally:
        _reader.reset(before)


def best_language(accepted: str) -> str | None:
    """Return the code of the catalogue that an `Accept-Language` header prefers. Return English if no catalogue
    has a language of the header, and None if the header names no language.
    """
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
    """Return the catalogue's code for a tag such as `zh-hans` or `en_US`, or a language's name; None if no catalogue fits."""
    code = (tag or "").replace("_", "-").partition("-")[0].strip().casefold()
    called = (one for one in CATALOGUES if code in str(CATALOGUES[one]["language.called"]).split(", "))
    return code if code in CATALOGUES else next(called, None)


def is_traditional(tag: str | None) -> bool:
    """Return True for a tag of Chinese in traditional characters. The tag's script decides; without a
    script, its region decides.
    """
    parts = (tag or "").replace("_", "-").casefold().split("-")
    return parts[0] == "zh" and "hans" not in parts and not {"hant", "tw", "hk", "mo"}.isdisjoint(parts)
