"""What several results come to without a model: findings, confidence, agreement, conflict, coverage."""

from __future__ import annotations

import pytest

from bot.agent.subagents.findings import Result, Status, confidence, key_findings, overview

FINDINGS = [
    ("", ()),
    ("Just prose, nothing listed.", ()),
    ("- one\n* two\n• three\n・四つ目", ("one", "two", "three", "四つ目")),
    ("1. first\n2) second\n３．no\n4、第四", ("first", "second", "no", "第四")),
    ("- a\n  - what is indented belongs to it\n- b", ("a", "b")),
    ("- Same thing!\n- same  THING\n1. ＳＡＭＥ thing", ("Same thing!",)),
    ("I looked. Found: the key is in b.py. Then I left.", ("the key is in b",)),
    ("We concluded: it is slow\nIt was DETERMINED: no index.", ("it is slow", "no index")),
    ("结论：服务器在东京。", ("服务器在东京",)),
    ("- 1\n- 2\n- 3\n- 4\n- 5\n- 6", ("1", "2", "3", "4", "5")),
    # Lists do not crowd out what was concluded.
    ("- 1\n- 2\n- 3\n- 4\n- 5\n- 6\nWe found: the leak", ("1", "2", "3", "4", "the leak")),
    ("- found: the leak", ("found: the leak",)),
]


@pytest.mark.parametrize(("content", "found"), FINDINGS)
def test_key_findings(content: str, found: tuple[str, ...]) -> None:
    assert key_findings(content) == found


def test_a_finding_is_cut_between_letters_that_belong_together() -> None:
    (found,) = key_findings("- " + "👩‍👩‍👧‍👦" * 100)
    assert len(found) <= 301
    assert found.removesuffix("…").endswith("👩‍👩‍👧‍👦")


def result(content: str, *, tools: int = 0, failed: int = 0, status: Status = "whole") -> Result:
    return Result("c", "label", "task", content, status, ("dig",) * tools, failed)


@pytest.mark.parametrize(
    ("one", "sure"),
    [
        (result("it is"), 3),
        (result("it is", tools=3), 3),
        (result("it is", tools=4), 4),
        (result("it is", tools=6), 5),
        (result("it is", tools=9, failed=1), 4),
        (result("I was unable to look"), 2),
        (result("I was UNABLE TO look", failed=2), 1),
        (result("could not find it", failed=9), 1),
        (result("Confirmed by two files"), 4),
        (result("this is not confirmed"), 3),
        (result("successfully done", tools=7), 5),
        (result("已确认"), 4),
        (result("未找到"), 2),
    ],
)
def test_confidence(one: Result, sure: int) -> None:
    assert confidence(one) == sure


def test_agreement_conflict_and_what_only_one_has_found() -> None:
    told = overview([
        result("- The server has 3 disks.\n- Kernel 6.1 is installed"),
        result("- the server has 4 disks\n- 备份没有完成"),
        result("- The server has 3 disks\n- 备份完成", status="cut"),
        result("", status="silent"),
        result("The language model is busy.\n- the server has 9 disks", status="failed"),
    ])  # fmt: skip
    (agreed,) = told.agreements
    assert (agreed.finding, agreed.numbers) == ("The server has 3 disks.", (1, 3))
    assert [(one.one, one.other) for one in told.conflicts] == [
        ((1, "The server has 3 disks."), (2, "the server has 4 disks")),
        ((2, "the server has 4 disks"), (3, "The server has 3 disks")),
        ((2, "备份没有完成"), (3, "备份完成")),
    ]
    assert [one.unique for one in told.results] == [
        ("Kernel 6.1 is installed",),
        ("the server has 4 disks", "备份没有完成"),
        ("备份完成",),
        (),
        (),
    ]
    assert told.coverage == (
        "2 of 5 tasks came to their end; stopped at a limit: 3; without a summary: 4; failed: 5."
    )


def test_a_result_does_not_agree_or_disagree_with_itself() -> None:
    told = overview([result("- it has 3 disks\n- it has 4 disks"), result("- nothing alike")])
    assert (told.agreements, told.conflicts) == ((), ())


def test_numbers_that_only_one_of_them_has_are_no_conflict() -> None:
    told = overview([result("- the backup is done since 03:00"), result("- the backup is done")])
    assert told.conflicts == ()


def test_another_place_or_name_is_neither_agreement_nor_conflict() -> None:
    told = overview([result("- the service in Tokyo is up"), result("- the service in Paris is up")])
    assert (told.agreements, told.conflicts) == ((), ())
