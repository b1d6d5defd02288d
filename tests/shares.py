"""What `make test` runs of tests that try many cases: a share of them, the same one each time. `make torture`, or `-m torture`,
runs all examples of property tests, and the other cases, which are marked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import find, is_hypothesis_test, settings, strategies

SHORT, WHOLE = "short", "whole"
_ALL = 100

# How long an example takes says how busy the machine is.
settings.register_profile(SHORT, deadline=None, max_examples=10)
settings.register_profile(WHOLE, deadline=None, max_examples=_ALL)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile"):
        settings.load_profile(WHOLE if config.option.markexpr == "torture" else SHORT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With all of their examples, property tests are part of the torture."""
    if settings.get_current_profile_name() == WHOLE:
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("torture")


def pytest_collection_finish(session: pytest.Session) -> None:
    """The first example of a process reads all of its modules for constants, for seconds: once, before workers are forked off."""
    if any(is_hypothesis_test(getattr(item, "obj", None)) for item in session.items):
        find(strategies.text(), lambda _: True, settings=settings(database=None))


def examples(whole: int) -> int:
    """So many examples of a property, or what the profile leaves of them: never fewer than 10 of it."""
    return max(min(whole, 10), whole * settings().max_examples // _ALL)


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.torture)])
def stride(request: pytest.FixtureRequest) -> int:
    """How far apart the places are at which something is tried: each of them is in `make torture`."""
    return int(request.param)


def one_in(few: int, cases: Iterable[Any]) -> list[Any]:
    """These cases for `parametrize`: every so-many-th for `make test` too, the others for `make torture` alone."""
    return [
        case
        if at % few == 0
        else pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.torture)
        for at, case in enumerate(cases)
    ]
