from __future__ import annotations

import pytest

from bot.identity_cache import MESSAGES, IdentityCache, MessageFact


def test_the_same_object_is_asked_once_and_an_equal_one_by_itself() -> None:
    asked: list[list[int]] = []

    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    known = IdentityCache(total)
    one, equal = [1, 2], [1, 2]
    assert [known(one), known(one), known(equal), known(one)] == [3, 3, 3, 3]
    assert [it is one for it in asked] == [True, False]


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
    assert [known(one) for one in [*kept, *kept[1:]]] == [0, 1, 2, 3, 1, 2, 3]
    assert asked == [0, 1, 2, 3]


def test_facts_of_several_objects_are_found_once_each() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    fact, total = MessageFact(first), MessageFact[list[int], int](sum)
    lists = [[at, at] for at in range(5)]
    assert fact.each(lists) == [0, 1, 2, 3, 4]
    assert total.each(lists) == [0, 2, 4, 6, 8]
    later = MessageFact[list[int], int](len)
    assert later.each(lists) == [2, 2, 2, 2, 2]
    assert fact(lists[3]) == 3
    assert fact.each([]) == []
    assert asked == [0, 1, 2, 3, 4]


def test_all_facts_of_the_oldest_object_go_for_a_new_one() -> None:
    asked: list[int] = []

    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    fact, total = MessageFact(first), MessageFact[list[int], int](sum)
    kept = [[at] for at in range(MESSAGES + 1)]
    assert [fact.each(kept), total.each(kept[1:])] == [
        list(range(MESSAGES + 1)),
        list(range(1, MESSAGES + 1)),
    ]
    asked.clear()
    assert fact.each(kept[1:]) == list(range(1, MESSAGES + 1))
    assert asked == []
    assert fact(kept[0]) == 0
    assert asked == [0]


def test_a_fact_that_fails_is_tried_again() -> None:
    answers = iter([ValueError("no"), None])

    def make(_: object) -> int:
        if (error := next(answers)) is not None:
            raise error
        return 1

    fact, it = MessageFact(make), object()
    with pytest.raises(ValueError, match="no"):
        fact(it)
    assert fact(it) == 1


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
