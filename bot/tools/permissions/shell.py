"""Commands that mean the same with and without a shell."""

from __future__ import annotations

LONGEST = 10_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


def literal_words(command: str) -> tuple[str, ...] | None:
    """The words of a command without any character that a shell would read as more than a letter; None for all
    others. Only such a command can be judged by its text, and it is to be run from these words, without a shell.
    """
    if len(command) > LONGEST:
        return None
    words = tuple(word for word in command.split(" ") if word)
    if not words or "=" in words[0] or not all(map(_is_plain, words)):
        return None
    return words


def _is_plain(word: str) -> bool:
    return all(sign in _PLAIN or (ord(sign) > 127 and sign.isalnum()) for sign in word)
