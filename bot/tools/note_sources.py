"""Finds the messages in view that a note may quote, beside those of the turn that writes it, so that deleting them finds
the note. Compares shared words; in doubt it counts a message in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bot import tags
from bot.contracts.base import Json, Message
from bot.tools.catalog import PAIRED, words_of

_LONGEST = 20_000
"""Characters of a message that are looked at."""
_SHARE = 3
"""One of so many words of the shorter of two has to be in the other."""
_SHORTEST = 3  # letters; with a digit in it any word says something
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "about and are but can for from had has have her his how its like not note our out please remember save that the "
        "their them then there they this was were what when where which who why will with would you your",
    )
)


class NoteSources:
    """The messages of a view by what they say; `own` is the requestId of the turn that writes."""

    def __init__(self, view: Iterable[Message], own: str) -> None:
        said = [(facts, _words(text)) for facts, text in map(_read, view) if facts]
        self._own = set[str]().union(*(words for facts, words in said if facts["requestId"] == own))
        self._said = [(facts, words - self._own) for facts, words in said if facts["requestId"] != own]

    def of(self, line: str) -> Iterator[tuple[str, str | None]]:
        """The requestIds of the messages that a line may come from, and who said them."""
        new = _words(line) - self._own
        for facts, words in self._said:
            shared = len(new & words)
            if shared and _SHARE * shared >= min(len(new), len(words)):
                user_id = facts.get("userId")
                yield facts["requestId"], user_id if isinstance(user_id, str) else None


def _read(message: Message) -> tuple[Json, str]:
    """The gateway's facts of a person's message, and its words; nothing for any other message."""
    facts = tags.facts(message)
    if not isinstance(facts.get("requestId"), str) or isinstance(message["content"], str):
        return {}, ""
    texts = [str(block["text"]) for block in message["content"] if block.get("type") == "text"]
    return facts, "\n".join(texts[1:])[:_LONGEST]


def _words(text: str) -> set[str]:
    """The words that say something; of scripts without spaces every two characters."""
    return {word for word in words_of(text[:_LONGEST]) if word not in _COMMON and _says(word)}


def _says(word: str) -> bool:
    return len(word) >= _SHORTEST or PAIRED.match(word) is not None or any(map(str.isdigit, word))
