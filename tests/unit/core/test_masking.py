"""Old tool results are replaced by a line. Words of people and the model, ids, and results that do not age stay."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.base import Json, Message
from bot.contracts.model import ShownFile
from bot.contracts.tools import OMISSION, Omission
from bot.core.fit import CROWD, GONE, KEPT_BYTES, crowded, masks, placeholder
from bot.llm import blocks
from tests.shares import examples

LONG = "\n".join(f"Zeile {number} 見た 👀" for number in range(60))


def called(number: int, name: str = "look", content: object = LONG, **more: object) -> list[Message]:
    """Return one round: a call, the model's thought and the result."""
    said = {"type": "text", "text": f"I call {number}"}
    call = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"path": "العربية"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content} | more
    return [{"role": "assistant", "content": [said, call]}, {"role": "user", "content": [result]}]


def history(count: int, **more: object) -> list[Message]:
    asked: Message = {"role": "user", "content": [{"type": "text", "text": "do it"}]}
    done: Message = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    return [asked, *(one for number in range(count) for one in called(number, **more)), done]  # type: ignore[arg-type]


def old(
    messages: list[Message],
    keep: int = 4,
    ages: frozenset[str] = frozenset({"look"}),
    masked: Collection[str] = (),
) -> dict[str, str]:
    return masks(messages, ages=ages.__contains__, keep=keep, masked=masked)


def test_all_but_the_newest_become_a_line_that_counts_what_went() -> None:
    found = old(history(9))
    assert found == {f"t{number}": "[observation masked — 60 lines omitted]" for number in range(5)}


def test_what_does_not_age_is_neither_masked_nor_counted() -> None:
    messages = [
        *history(6)[:-1],
        *(one for number in range(6, 12) for one in called(number, name="skills_load")),
    ]
    assert sorted(old(messages)) == ["t0", "t1"]


def test_what_the_model_has_not_seen_yet_stays_however_many() -> None:
    calls: list[Json] = []
    results: list[Json] = []
    for number in range(9):
        call, result = called(number)
        calls += call["content"]
        results += result["content"]
    unseen: list[Message] = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    assert old(unseen) == {}
    assert len(old([*unseen, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])) == 5


def test_errors_of_the_last_round_stay() -> None:
    calls: list[Json] = []
    results: list[Json] = []
    for number in range(9):
        call, result = called(number, is_error=number == 2)
        calls += call["content"]
        results += result["content"]
    told: Message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    last: list[Message] = [
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        told,
    ]
    assert sorted(old(last)) == ["t0", "t1", "t3", "t4"]
    later = [*last, *(one for number in range(9, 14) for one in called(number))]
    assert "t2" in old(later), "an error grows old too"


def test_what_is_masked_is_not_decided_again() -> None:
    messages = history(9)
    first = old(messages)
    shown = [blocks.masked(message, first) for message in messages]
    assert old(shown, masked=first) == {}
    again = old([*shown, *(one for number in range(9, 12) for one in called(number))], masked=first)
    assert sorted(again) == ["t5", "t6", "t7"]


def test_a_result_that_only_looks_like_a_mask_is_masked_like_any_other() -> None:
    found = old(history(9, content=f"[observation masked — 3 lines omitted]\n{LONG}"))
    assert sorted(found) == [f"t{number}" for number in range(5)]


def test_the_line_counts_images_and_names_the_artifact() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    parts = [{"type": "text", "text": "a\nb"}, image, image]
    assert placeholder({"content": parts}) == "[observation masked — 2 lines, 2 images omitted]"
    assert placeholder({"content": [image]}) == "[observation masked — 0 lines, 1 image omitted]"
    left_out = Omission("01ABC", lines=97, characters=900, begin=4, end=7)
    pointed = placeholder({"content": "head\n…\ntail", OMISSION: dataclasses.asdict(left_out)})
    assert pointed == "[observation masked — 100 lines omitted; artifact 01ABC]"


def test_a_quoted_note_is_no_artifact() -> None:
    """A file that mentions an artifact's id is ordinary text."""
    note = f"[… 7 lines, 9 characters omitted; whole result: artifact {'0' * 26}, read it with read_artifact]"
    assert placeholder({"content": f"a\n{note}\nb"}) == "[observation masked — 3 lines omitted]"


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.sampled_from(["look", "chat_send"]), st.integers(0, 80), st.booleans()), max_size=20
    ),
    st.integers(0, 8),
)
def test_only_contents_of_old_results_that_age_change_and_the_rest_stays_byte_for_byte(
    rounds: list[tuple[str, int, bool]], keep: int
) -> None:
    messages: list[Message] = []
    for number, (name, lines, failed) in enumerate(rounds):
        more = {"is_error": True} if failed else {}
        messages += called(number, name, "\n".join(["行 ok"] * lines), **more)
    before = copy.deepcopy(messages)
    found = old(messages, keep)
    assert messages == before, "the history itself is never touched"
    shown = [blocks.masked(message, found) for message in messages]
    assert blocks.tokens(shown) <= blocks.tokens(messages)
    for (name, _, _), (call, result) in zip(rounds, zip(shown[::2], shown[1::2], strict=True), strict=True):
        at = call["content"][1]["id"]
        plain = before[shown.index(result)]
        assert json.dumps(call) == json.dumps(before[shown.index(call)])
        assert result["content"][0]["tool_use_id"] == at
        if at in found:
            assert name == "look"
            assert found[at] == placeholder(plain["content"][0])
            assert {**result["content"][0], "content": ""} == {**plain["content"][0], "content": ""}
        else:
            assert result == plain


def shown(number: int, size: int = 1_000) -> list[Message]:
    """Return a message with a picture, and its answer."""
    picture = blocks.attached(ShownFile(f"A{number}", "image/png", size, 100))
    return [
        {"role": "user", "content": [picture, {"type": "text", "text": "look"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "seen"}]},
    ]


def test_pictures_go_but_the_newest_and_those_without_an_answer() -> None:
    messages = [one for number in range(6) for one in shown(number)]
    gone = GONE.format("image/png")
    assert old(messages) == {"A0": gone, "A1": gone}
    assert old(messages[:-1]) == {"A0": gone, "A1": gone}
    unanswered = [one for number in range(6) for one in shown(number)[:1]]
    assert old(unanswered) == {}
    masked = [blocks.masked(one, old(messages)) for one in messages]
    assert masked[0]["content"][0] == {"type": "text", "text": gone}
    assert masked[4] is messages[4]
    assert old(masked) == {}


def test_large_pictures_go_before_small_ones() -> None:
    messages = [*shown(0), *shown(1, KEPT_BYTES), *shown(2)]
    assert sorted(old(messages)) == ["A0", "A1"]
    assert crowded(messages)
    assert not crowded(shown(0) * CROWD)
    assert crowded(shown(0) * (CROWD + 1))
