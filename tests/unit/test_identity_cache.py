from __future__ import annotations

import pytest

from bot.identity_cache import IdentityCache


def test_only_a_few_are_kept_and_those_that_have_gone_are_asked_again() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    known = IdentityCache(first, most=2)
    kept = [[at] for at in range(5)]
    # Without a reference in the cache, the next object could get the same id.
    assert [known([at]) for at in range(50)] == list(range(50))
    asked.clear()
    assert [known(one) for one in kept] == list(range(5))
    assert known(kept[0]) == 0
    assert asked == [0, 1, 2, 3, 4, 0]


def test_facts_of_several_objects_are_found_once_each() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    fact, total = IdentityCache(first), IdentityCache[list[int], int](sum)
    lists = [[at, at] for at in range(5)]
    assert fact.each(lists) == [0, 1, 2, 3, 4]
    assert total.each(lists) == [0, 2, 4, 6, 8]
    later = IdentityCache[list[int], int](len)
    assert later.each(lists) == [2, 2, 2, 2, 2]
    assert fact(lists[3]) == 3
    assert fact.each([]) == []
    assert asked == [0, 1, 2, 3, 4]


def test_a_fact_that_fails_is_tried_again() -> None:
    answers = iter([ValueError("no"), None])

    def make(_: object) -> int:
        if (error := next(answers)) is not None:
            raise error
        return 1

    fact, it = IdentityCache(make), object()
    with pytest.raises(ValueError, match="no"):
        fact(it)
    assert fact(it) == 1
