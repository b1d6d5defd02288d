from __future__ import annotations

import pytest

from bot.identity_cache import IdentityCache


def test_the_same_object_is_asked_once_and_an_equal_one_by_itself() -> None:
    asked: list[list[int]] = []

    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    known = IdentityCache(total)
    one, equal = [1, 2], [1, 2]
    assert [known(one), known(one), known(equal), known(one)] == [3, 3, 3, 3]
    assert [it is one for it in asked] == [True, False]


def test_several_are_asked_for_together() -> None:
    known = IdentityCache[list[int], int](sum, most=3)
    lists = [[at, at] for at in range(5)]
    assert known.each(lists) == [0, 2, 4, 6, 8]
    assert known.each([]) == []


def test_only_a_few_are_kept_and_those_that_have_gone_are_asked_again() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    known = IdentityCache(first, most=2)
    kept = [[at] for at in range(5)]
    # One whose id would be taken by the next, were it not kept itself.
    assert [known([at]) for at in range(50)] == list(range(50))
    asked.clear()
    assert [known(one) for one in kept] == list(range(5))
    assert known(kept[0]) == 0
    assert asked == [0, 1, 2, 3, 4, 0]


def test_the_oldest_alone_goes_for_a_new_one() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    known = IdentityCache(first, most=3)
    kept = [[at] for at in range(4)]
    known.each(kept)
    assert known.each(kept[1:]) == [1, 2, 3]
    assert asked == [0, 1, 2, 3]


def test_what_fails_is_tried_again() -> None:
    answers = iter([ValueError("no"), None])

    def make(_: object) -> int:
        if (error := next(answers)) is not None:
            raise error
        return 1

    known, it = IdentityCache(make), object()
    with pytest.raises(ValueError, match="no"):
        known(it)
    assert known(it) == 1
