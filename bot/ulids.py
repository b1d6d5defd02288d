"""Reads and writes ULIDs (github.com/ulid/spec): 48 bits of milliseconds and 80 random bits, in 26
characters that sort by time.
"""

from __future__ import annotations

import re

DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
FORM = re.compile(rf"[{DIGITS}]{{26}}")
_PAIRS = [high + low for high in DIGITS for low in DIGITS]


def written(number: int) -> str:
    """Return the ULID of a number."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def number_of(digits: str) -> int | None:
    """Return the number of a ULID, or of the beginning of a ULID; None if the text has other characters."""
    number = 0
    for digit in digits:
        value = DIGITS.find(digit)
        if value < 0:
            return None
        number = number << 5 | value
    return number


def made_at(ulid: str) -> float:
    """Return the creation time of a ULID in epoch seconds; 0.0 if the text is not a ULID."""
    return (number_of(ulid[:10]) or 0) / 1000
