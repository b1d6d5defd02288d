"""Any query of a model or a person is analysed quickly and without an error. No query has a special syntax."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import text
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.features.search import analysis
from bot.features.search.analysis import MOST, stem, time_ranges
from bot.tools.context import RecallQuery
from tests.shares import examples
from tests.talk import Found, indexed

KEY = ChatKey.parse("web:chat:1")
NOW = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)  # a Saturday
ANY = st.text(st.characters(codec=None), max_size=200) | st.lists(
    st.sampled_from(
        [
            '"',
            "*",
            "^",
            "NEAR(",
            "AND",
            "OR",
            "NOT",
            ":",
            "t:",
            "(",
            ")",
            "+",
            "-",
            "\0",
            "\ud800",
            "退款",
            "last tuesday",
            "1,234",
            "a" * 300,
            "é",
            "한국",
            "🎉",
            "x.y_z",
            "{",
            "99999年13月45日",
        ]
    ),
    max_size=12,
).map(" ".join)
RELAXED = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
HOSTILE = (
    "x" * 10_000,
    "退" * 10_000,
    '"' * 10_000,
    "a-" * 5_000,
    "1," * 5_000,
    "last " * 2_000,
    "a'" * 5_000,
    "\0" * 10_000,
    "(" * 10_000,
    "A" * 10_000,
    "e" * 10_000,
    "y" * 10_000,
    "aA" * 5_000,
    " OR ".join("abcdefgh") * 300,
    "\ud800" * 10_000,
    "é\u0301" * 5_000,
    "2026-" * 2_000,
    "A" * 5_000 + "b" * 5_000,
    "\ufdfa" * 10_000,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    path = tmp_path_factory.mktemp("index") / "index.db"
    given_ = {"channel": "web", "chatId": "1", "chatKey": str(KEY), "role": "user"}
    lines = [
        ArchiveLine.model_validate({**given_, "ts": NOW - number * 10**7, "text": text})
        for number, text in enumerate(["refund policy", "退款政策", "last tuesday it rained", "nothing"] * 5)
    ]
    asyncio.run(indexed(path, lines))
    made = Found(path)
    yield made
    made.close()


@RELAXED
@given(ANY)
def test_tokens_are_words_that_can_stand_between_quotes(text: str) -> None:
    for token in {*analysis.tokens(text), *analysis.terms(text)}:
        assert 0 < len(token) <= analysis.LONGEST_TOKEN
        assert not set(token) & set("\"'\0 \n\t~=&()*^{}")
        token.encode()


@RELAXED
@given(ANY)
def test_a_question_finds_the_tokens_of_the_same_words(text: str) -> None:
    assert set(analysis.terms(text)) <= set(analysis.tokens(text[: analysis.LONGEST_QUERY]))


@RELAXED
@given(query=ANY)
def test_no_question_is_an_error(found: Found, query: str) -> None:
    for hit in found.recall([str(KEY)], RecallQuery((query,), NOW)).hits:
        assert hit.line.chat_key == KEY


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_question_keeps_anybody_waiting(found: Found, query: str) -> None:
    """For a query that is twenty times as long, linear time is twenty times as long. In quadratic time this test would not
    end.
    """
    assert len(analysis.terms(query)) <= analysis.MOST_TERMS
    found.recall([str(KEY)], RecallQuery((query,), NOW))
    assert len(analysis.tokens(query * 20)) <= 2 * analysis.LONGEST_TEXT


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\uff9e\u0301"])
def test_any_number_of_marks_over_a_letter_takes_no_time(marks: str) -> None:
    began = time.process_time()
    assert {*analysis.tokens(f"caf\u0065{marks * 30_000} after")} >= {"cafe", "after"}
    assert text.real_host(f"good.example{marks * 30_000}", "https://evil.example/") == "evil.example"
    assert time.process_time() - began < 1


@RELAXED
@given(ANY, st.integers(-(10**18), 10**18))
def test_times_are_ranges_whatever_is_asked_and_when(query: str, now: int) -> None:
    for first, behind in time_ranges(query, now)[0]:
        assert first < behind


def days(query: str) -> list[tuple[str, str]]:
    def day(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")

    return [(day(first), day(behind)) for first, behind in time_ranges(query, NOW)[0]]


@pytest.mark.parametrize(
    ("query", "first", "behind", "rest"),
    [
        ("what did we say last Tuesday", "2026-11-17", "2026-11-18", "what did we say"),
        ("you told me in August", "2026-08-01", "2026-09-01", "you told me in August"),
        ("2026-11-03", "2026-11-03", "2026-11-04", "2026-11-03"),
        ("上周二说的", "2026-11-10", "2026-11-11", "说的"),
        ("去年8月", "2025-01-01", "2026-01-01", "8月"),
    ],
)
def test_dates_are_understood(query: str, first: str, behind: str, rest: str) -> None:
    assert (days(query)[0], time_ranges(query, NOW)[1].strip()) == ((first, behind), rest)


@pytest.mark.parametrize(
    "query", ["may I ask", "they march on", "2025-13-45", "the sun is out", "a mayor", ""]
)
def test_other_words_are_no_dates(query: str) -> None:
    assert time_ranges(query, NOW) == ((), query)


@pytest.mark.parametrize(
    ("words", "shared"),
    [
        ("connect connected connecting connection connections", "connect"),
        ("relate relates related relating relational", "relat"),
        ("bought buy buys buying", "bui"),
        ("hopping hopped hop", "hop"),
        ("policy policies", "polici"),
        ("generalization generalizations", "gener"),
        ("children child", "child"),
        ("agreed agree", "agre"),
        ("as sky", None),
    ],
)
def test_forms_of_a_word_share_a_stem(words: str, shared: str | None) -> None:
    for word in words.split():
        assert stem(word) == (shared or word)


def test_parts_of_identifiers_are_found_beside_the_whole() -> None:
    assert analysis.tokens("getUserName") == ["getusername", "get", "user", "name"]
    assert {"a_b.c", "b", "c"} <= set(analysis.tokens("a_b.c"))
    assert analysis.tokens("O'Brien's don't") == ["obrien", "brien"]
    assert {"c++", "c#"} <= set(analysis.tokens("C++ and C#"))


def test_a_word_in_katakana_is_a_token_and_so_are_its_pairs() -> None:
    assert {"コーヒー", "コー", "ヒー"} <= set(analysis.tokens("駅のコーヒーは苦い"))
    assert "コーヒー" not in analysis.tokens("会社のコーヒーメーカー")
    assert not analysis.is_paired("コーヒー")
    assert analysis.is_paired("ラテ")


def weights(query: str) -> dict[str, float]:
    return analysis.terms(query)


def test_japanese_counts_by_where_words_end() -> None:
    found = weights("犬は薬を飲む、珈琲豆")
    assert found["飲む"] > found["犬は"] == found["を飲"], "an ending belongs to a word, a particle does not"
    assert found["珈琲"] == 1 > found["犬"] == found["飲"] > found["飲む"]


def test_chinese_pairs_with_characters_that_join_words_count_less() -> None:
    found = weights("我家狗和他们")
    assert found["家狗"] == 1 > found["我家"] > found["他们"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("List the boats I have so far", ["boat"]),
        ("Please describe my boat at the moment", ["boat"]),
        ("How far is the boat", ["far", "boat"]),
        ("a list of boats", ["list", "boat"]),
        ("列一下哪些船", ["船"]),
        ("どんな船", ["船"]),
        ("誰の船でしょうか", ["船", "の船"]),
    ],
)
def test_what_only_frames_a_question_is_not_looked_for(query: str, expected: list[str]) -> None:
    assert list(analysis.terms(query)) == expected


@pytest.mark.parametrize(
    ("query", "first", "behind"),
    [
        ("yesterday", "2026-11-20", "2026-11-21"),
        ("what did we say two months ago", "2026-09-01", "2026-10-01"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("on August 3rd, 2025", "2025-08-03", "2025-08-04"),
        ("昨天", "2026-11-20", "2026-11-21"),
        ("三天前", "2026-11-18", "2026-11-19"),
        ("先週の火曜日", "2026-11-10", "2026-11-11"),
        ("어제", "2026-11-20", "2026-11-21"),
        ("the plan from a couple of weeks ago", "2026-11-03", "2026-11-11"),
        ("3 years ago", "2023-01-01", "2024-01-01"),
        ("10 days ago", "2026-11-10", "2026-11-13"),
        ("in the past three weeks", "2026-10-31", "2026-11-22"),
        ("within the last year", "2025-11-20", "2026-11-22"),
        ("during the last few days", "2026-11-18", "2026-11-22"),
        ("last November", "2025-11-01", "2025-12-01"),
        ("in November", "2026-11-01", "2026-12-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("since 2024", "2024-01-01", "2025-01-01"),
        ("2024年", "2024-01-01", "2025-01-01"),
        ("on 30 December", "2025-12-30", "2025-12-31"),
        ("on 30 December, 2023", "2023-12-30", "2023-12-31"),
        ("2026-10", "2026-10-01", "2026-11-01"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("先々週の火曜日", "2026-11-03", "2026-11-04"),
        ("上上周五", "2026-11-06", "2026-11-07"),
        ("这周三", "2026-11-18", "2026-11-19"),
        ("三个月前", "2026-08-01", "2026-09-01"),
        ("3週間前", "2026-10-27", "2026-11-04"),
        ("十一月二", "2026-11-01", "2026-12-01"),
        ("去年", "2025-01-01", "2026-01-01"),
        ("一昨日", "2026-11-19", "2026-11-20"),
    ],
)
def test_a_question_names_days(query: str, first: str, behind: str) -> None:
    assert days(query)[0] == (first, behind)


def test_so_many_times_are_looked_at_and_no_more() -> None:
    many = " ".join(f"2026-{month:02}" for month in range(1, 13))
    assert len(days(many)) == MOST
