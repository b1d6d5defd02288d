"""What `make test` runs of tests that try many cases: a share of them, the same one each time. `make torture` runs them all.

Property tests are scaled by Hypothesis' profile (`--hypothesis-profile=whole` is all of it), other cases are marked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

SHORT, WHOLE = "short", "whole"
_ALL = 100

# How long an example takes says how busy the machine is.
settings.register_profile(SHORT, deadline=None, max_examples=25)
settings.register_profile(WHOLE, deadline=None, max_examples=_ALL)
settings.load_profile(SHORT)


def examples(whole: int) -> int:
    """So many examples of a property, or what the profile leaves of them: never fewer than 15 of it."""
    return max(min(whole, 15), whole * settings().max_examples // _ALL)


def one_in(few: int, cases: Iterable[Any]) -> list[Any]:
    """These cases for `parametrize`: every so-many-th for `make test` too, the others for `make torture` alone."""
    return [
        case
        if at % few == 0
        else pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.torture)
        for at, case in enumerate(cases)
    ]
