"""Long code and wide tables of an answer become files, and a sentence replaces them. Tests of the choice and the names."""

from __future__ import annotations

import csv
import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.channel import ReadingLimits
from bot.contracts.messages import OutgoingFile
from bot.core.reply import shortened
from bot.text import width
from bot.words import say
from tests.shares import examples

LIMITS = ReadingLimits(lines=4, characters=200, columns=40)
LONG = "\n".join(f"line {number}" for number in range(5))
SHORT = "\n".join(f"line {number}" for number in range(4))


def code(name: str) -> str:
    return say("delivery.code_as_file", name=name)


def table(name: str = "table.csv") -> str:
    return say("delivery.table_as_file", name=name)


def rows(file: OutgoingFile) -> list[list[str]]:
    return list(csv.reader(io.StringIO(file.data.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize(
    "words",
    [
        f"```\n{SHORT}\n```",
        f"> ```\n> {LONG}\n> ```",
        f"```\n{LONG}",
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 3,
        "a | b\nno table | at all " * 20,
        "| a | b |\n|---|\n" + "| 1 | 2 |\n" * 9,
        LONG * 20,
        "",
    ],
    ids=["short", "quoted", "open", "small table", "pipes", "no head", "prose", "nothing"],
)
def test_what_can_be_read_and_what_is_unclear_stays(words: str) -> None:
    assert shortened(words, LIMITS).words == words
    assert shortened(words, LIMITS).files == ()


@pytest.mark.parametrize(
    ("fence", "name"),
    [
        ("python", "code.py"),
        ("Rust", "code.rs"),
        ("sql", "code.sql"),
        ("", "code.txt"),
        ("objective c++!", "code.txt"),
        ("a." * 50_000, "code.txt"),
    ],
)
def test_its_name_says_what_it_is(fence: str, name: str) -> None:
    found = shortened(f"```{fence}\n{LONG}\n```", LIMITS)
    assert [file.name for file in found.files] == [name]
    assert found.words == code(name)


def test_code_in_a_list_keeps_its_place_and_loses_its_indent() -> None:
    inside = LONG.replace("\n", "\n   ")
    found = shortened(f"1. ```sh\n   {inside}\n   ```\n2. Done.", LIMITS)
    assert found.words == f"1. {code('code.sh')}\n2. Done."
    assert found.files[0].data == f"{LONG}\n".encode()


def test_longer_fences_and_line_ends_of_windows() -> None:
    inner = f"```py\n{LONG}\n```"
    found = shortened(f"````markdown\r\n{inner}\r\n````\r\nend", LIMITS)
    assert found.files[0].data.decode().replace("\r", "") == f"{inner}\n"
    assert found.words == f"{code('code.md')}\r\nend"


def test_a_wide_table_is_a_file_for_programs_that_show_tables() -> None:
    wide = "a long sentence that needs its room, and more"
    words = f"So:\n| **Name** | Note |\n|:--|--:|\n| `a\\|b` | {wide} |\n| [here](https://example.org) | x<br>y |\n| short\n\nend"
    found = shortened(words, LIMITS)
    first = r"""| Name | Note |
|---|---|
| a\|b | a long sentence … |
| here (https://ex… | x y |
| short |  |"""
    assert found.words == f"So:\n{first}\n\n{table()}\n\nend"
    assert found.files[0].mime_type == "text/csv"
    assert rows(found.files[0]) == [
        ["Name", "Note"],
        ["a|b", wide],
        ["here (https://example.org)", "x\ny"],
        ["short", ""],
    ]
    assert not found.files[0].data.startswith(b"\xef\xbb\xbf")


def test_wide_characters_take_two_columns() -> None:
    for cells, taken in (("好" * 10, False), ("好" * 20, True), ("x" * 20, False)):
        words = f"| {cells} | b |\n|---|---|\n| 1 | 2 |"
        found = shortened(words, LIMITS)
        assert bool(found.files) is taken
        assert (width(cells) + 4 > LIMITS.columns) is taken
        assert all(file.data.startswith(b"\xef\xbb\xbf") for file in found.files)


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+cmd|' /C calc'!A0".replace("|", "\\|"), "'-2+cmd|' /C calc'!A0"),
        ("＝1+1", "'＝1+1"),
        ("-5", "-5"),
        ("+3.5 %", "+3.5 %"),
        ("-12 kg", "-12 kg"),
        ("-", "-"),
    ],
)
def test_a_cell_is_no_formula(cell: str, kept: str) -> None:
    words = f"| a | {'b' * 50} |\n|---|---|\n| {cell} | x |"
    assert rows(shortened(words, LIMITS).files[0])[1] == [kept, "x"]


@pytest.mark.parametrize(
    "bomb",
    [
        "| a | b |\n|---|---|\n| " + "** " * 40_000 + "| x |",
        "| a | b |\n|---|---|\n| " + "`" * 100_000 + "| x |",
        "| a | b |\n|---|---|\n" + "|".join(["[" * 499] * 300),
        "```\n" * 30_000,
        "|" * 100_000 + "\n" + "|-" * 50_000,
        ("~~~ " + "a." * 100 + "\n") * 500,
        " |-\n" * 30_000,
        "- - - - " * 20_000,
        "|a" * 5_000 + "|\n" + "|-" * 5_000 + "|\n" + "|b\n" * 10_000,
    ],
)
def test_a_bomb_is_looked_through_in_no_time(bomb: str) -> None:
    begun = time.process_time()
    shortened(bomb, LIMITS, goes_on=True)
    assert time.process_time() - begun < 5.0


PIECES = st.sampled_from(
    [
        *(  # noqa: SIM905 - a list would take a page
            "```¦````¦~~~¦\n¦\n\n¦| a | b |\n¦|---|:-:|\n¦- ¦1. ¦    ¦> ¦x = 1\n¦# h¦`¦|"
        ).split("¦"),
        "| 好" * 12,
        LONG,
    ]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join), st.booleans())
def test_nothing_is_lost_and_every_place_is_found_again(words: str, goes_on: bool) -> None:
    found = shortened(words, LIMITS, goes_on=goes_on)
    assert found.files or found.words == words
    assert all(file.data and file.markdown for file in found.files)
    assert len({file.name for file in found.files}) == len(found.files)
    places = [found.at(place) for place in range(len(words) + 1)]
    assert places == sorted(places)
    assert places[-1] == len(found.words)
    if not found.files:
        assert places == list(range(len(words) + 1))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 400))
def test_what_was_long_stays_long_while_it_is_written(end: int) -> None:
    """A preview shows a replacement for a long block, and must not have to show the block again later."""
    whole = (
        f"So:\n\n```py\n{LONG}\n{LONG}\n```\n\nand\n\n| a | b |\n|---|---|\n" + f"| {'好' * 25} | 1 |\n" * 4
    )
    before, now = (shortened(whole[:at], LIMITS, goes_on=True) for at in (end, end + 1))
    assert [file.name for file in before.files] == [file.name for file in now.files][: len(before.files)]
