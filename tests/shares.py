"""For tests that try many cases, `make test` runs a share of the cases, which is always the same.

`make torture`, or `-m torture`, runs all examples of the property tests, and the cases that are marked
`torture`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import find, is_hypothesis_test, settings, strategies

SHORT, WHOLE = "short", "whole"
_ALL = 100

# No deadline: the duration of an example depends on how busy the machine is.
settings.register_profile(SHORT, deadline=None, max_examples=10)
settings.register_profile(WHOLE, deadline=None, max_examples=_ALL)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile"):
        settings.load_profile(WHOLE if config.option.markexpr == "torture" else SHORT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the property tests as torture tests if the profile runs all of their examples."""
    if settings.get_current_profile_name() == WHOLE:
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("torture")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Run one example before the workers are forked."""
    if any(is_hypothesis_test(getattr(item, "obj", None)) for item in session.items):
        find(strategies.text(), lambda _: True, settings=settings(database=None))


def examples(whole: int) -> int:
    """Return the number of examples to try, of the `whole` number."""
    return max(min(whole, 10), whole * settings().max_examples // _ALL)


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.torture)])
def stride(request: pytest.FixtureRequest) -> int:
    """Return the step between tried cases: a test with stride n tries every nth case."""
    return int(request.param)


def one_in(few: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases for `parametrize`. One in `few` always runs; the others run only as torture tests."""
    return [
        case
        if at % few == 0
        else pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.torture)
        for at, case in enumerate(cases)
    ]
