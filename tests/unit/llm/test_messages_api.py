"""Events of a stream become the same blocks, however the stream is cut into pieces."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.contracts.model import TextDelta, ToolInputDelta
from bot.llm import messages_api
from bot.llm.messages_api import Accumulator, EventStream
from bot.testing import anthropic_script as script

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 5,
    "output_tokens": 1,
}
MESSAGE = {"id": "msg_1", "role": "assistant", "model": "claude-x", "content": [], "usage": USAGE}


def wire(answer: script.Reply, chunk: int = 12) -> bytes:
    frames = script.frames(answer, MESSAGE, {"output_tokens": 42}, chunk=chunk, pings=1)
    return b"".join(frame for frame in frames if isinstance(frame, bytes))


def events(*pieces: bytes) -> list[Json]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)]


@pytest.mark.parametrize("frame", [b"data: no end of this line", b"data: {}\n\n"])
def test_a_stream_without_bounds_is_given_up(monkeypatch: pytest.MonkeyPatch, frame: bytes) -> None:
    monkeypatch.setattr(messages_api, "MAX_EVENT", 1_000)
    monkeypatch.setattr(messages_api, "MAX_STREAM", 2_000)
    with pytest.raises(errors.StreamBroken) as caught:
        events(*[frame] * 300)
    assert not caught.value.retryable


def fed(happened: list[Json]) -> tuple[Accumulator, list[TextDelta | ToolInputDelta]]:
    answer = Accumulator()
    deltas = [delta for event in happened if (delta := answer.feed(event)) is not None]
    return answer, deltas


def start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", **usage: int) -> list[Json]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


BEGIN: Json = {"type": "message_start", "message": MESSAGE}


def call(raw: str, reason: str = "tool_use", given: Any = None) -> Accumulator:
    """Return an answer with one tool call whose input has the text `raw`."""
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {} if given is None else given}
    happened = [
        BEGIN,
        start(0, block),
        delta(0, type="input_json_delta", partial_json=raw),
        stop(0),
        *end(reason),
    ]
    return fed(happened)[0]


blocks = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=60).filter(lambda words: words.strip()).map(script.text),
        st.builds(script.thinking, st.text(max_size=40), st.text("abc=", min_size=1, max_size=9)),
        st.dictionaries(
            st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none(), max_size=4
        ).map(lambda given: {"type": "tool_use", "id": "?", "name": "look", "input": given}),
        st.just({"type": "brand_new", "value": [1, None, {"é": "你"}]}),
    ),
    min_size=1,
    max_size=5,
)


@settings(derandomize=True, deadline=None)
@given(content=blocks, chunk=st.integers(1, 30), cuts=st.lists(st.integers(0, 5_000), max_size=30))
def test_any_cutting_of_the_bytes_gives_the_same_answer(
    content: list[Json], chunk: int, cuts: list[int]
) -> None:
    for at, block in enumerate(content):
        if block["type"] == "tool_use":
            block["id"] = f"toolu_{at}"
    whole = wire(script.Reply(tuple(content)), chunk)
    borders = [0, *sorted(cut % len(whole) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(borders)]
    answer, deltas = fed(events(*pieces))
    assert answer.done
    assert answer.content == content
    assert answer.cut == frozenset()
    assert answer.usage.output_tokens == 42
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens, answer.usage.cache_write_tokens) == (
        10,
        3,
        5,
    )
    shown = "".join(item.text for item in deltas if isinstance(item, TextDelta))
    assert shown == "".join(block["text"] for block in content if block["type"] == "text")


@pytest.mark.parametrize(
    "raw",
    [
        '{"text": "hel',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": 1} and more',
        "[1]",
        "null",
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        '{"a": ' + "9" * 10_000 + "}",
    ],
    ids=lambda raw: f"{len(raw)} {raw[:20]}",
)
def test_input_that_is_no_whole_strict_object_is_not_run(raw: str) -> None:
    answer = call(raw)
    assert answer.content[0]["input"] == {}
    assert answer.cut == {"toolu_1"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", {}),
        ("{}", {}),
        (' {"a": [1, 2.5, true, null, "é"]} ', {"a": [1, 2.5, True, None, "é"]}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ],
)
def test_input_that_is_whole_is_read(raw: str, expected: Json) -> None:
    answer = call(raw)
    assert answer.content[0]["input"] == expected
    assert answer.cut == frozenset()


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_the_last_call_of_a_cut_answer_is_not_trusted_even_where_it_looks_whole(reason: str) -> None:
    answer = call('{"path": "/tmp"}', reason)
    assert answer.cut == {"toolu_1"}
    assert answer.content[0]["input"] == {}
    assert call('{"path": "/tmp"}', "end_turn").cut == frozenset()


def test_a_call_whose_block_never_ended_is_cut_and_its_text_neighbour_stays() -> None:
    happened = [
        BEGIN,
        start(0, {"type": "text", "text": "Look", "citations": None}),
        delta(0, type="text_delta", text="ing"),
        start(1, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}),
        delta(1, type="input_json_delta", partial_json='{"a": 1}'),
        *end("tool_use"),
    ]
    answer, _ = fed(happened)
    assert answer.content[0] == {"type": "text", "text": "Looking"}
    assert answer.cut == {"toolu_1"}


def test_citations_server_tools_and_redacted_thinking_are_kept() -> None:
    happened = [
        BEGIN,
        start(0, {"type": "redacted_thinking", "data": "xyz"}),
        stop(0),
        start(1, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        delta(1, type="input_json_delta", partial_json='{"query":'),
        delta(1, type="input_json_delta", partial_json=' "é"}'),
        stop(1),
        start(2, {"type": "text", "text": ""}),
        delta(2, type="citations_delta", citation={"url": "https://example.org"}),
        delta(2, type="brand_new_delta", value=1),
        delta(2, type="text_delta", text="Found"),
        stop(2),
        *end(),
    ]
    answer, deltas = fed(happened)
    assert answer.content == [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é"}},
        {"type": "text", "text": "Found", "citations": [{"url": "https://example.org"}]},
    ]
    assert deltas == [TextDelta("Found")]
    assert answer.cut == frozenset()


TEXT = {"type": "text", "text": ""}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}


@pytest.mark.parametrize(
    "happened",
    [
        [BEGIN, BEGIN],
        [start(0, TEXT)],
        [BEGIN, start(0, TEXT), start(0, TEXT)],
        [BEGIN, delta(0, type="text_delta", text="x")],
        [BEGIN, start(0, TEXT), stop(0), delta(0, type="text_delta", text="x")],
        [BEGIN, {"type": "content_block_start", "content_block": TEXT}],
        [BEGIN, start(0, {"no": "type"})],
        [BEGIN, {"type": "content_block_start", "index": 0, "content_block": "text"}],
        [BEGIN, start(0, {"type": "tool_use", "id": "", "name": "look", "input": {}})],
        [BEGIN, start(0, {"type": "tool_use", "id": "toolu_1", "name": None, "input": {}})],
        [BEGIN, *end(None)],
        [{"type": "message_stop"}],
    ],
)
def test_a_stream_that_breaks_the_protocol_is_broken(happened: list[Json]) -> None:
    with pytest.raises(errors.StreamBroken):
        fed(happened)


def test_the_cost_is_linear_in_what_arrives() -> None:
    def seconds(pieces: int) -> float:
        happened = [BEGIN, start(0, TOOL)]
        happened += [delta(0, type="input_json_delta", partial_json='{"a": "')]
        happened += [delta(0, type="input_json_delta", partial_json="x" * 12) for _ in range(pieces)]
        happened += [delta(0, type="input_json_delta", partial_json='"}'), stop(0), *end("tool_use")]
        begun = time.process_time()
        answer, _ = fed(happened)
        assert len(answer.content[0]["input"]["a"]) == pieces * 12
        return time.process_time() - begun

    # A quadratic accumulator always takes hundreds of times as long. A busy machine may take as long once, so one of three
    # tries must be fast.
    small = min(seconds(2_000) for _ in range(3))
    assert any(seconds(40_000) < small * 20 * 6 + 0.5 for _ in range(3))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_at_all_give_events_or_a_broken_stream(pieces: list[bytes]) -> None:
    try:
        fed(events(*pieces))
    except errors.StreamBroken:
        return


@pytest.mark.parametrize(
    "frame",
    [b"data: {nope\n\n", b"data: [1]\n\n", b'data: "\xff"\n\n', b"data: " + b"[" * 100_000 + b"\n\n"],
    ids=["no JSON", "no object", "no UTF-8", "too deep"],
)
def test_a_frame_that_is_no_object_of_json_is_a_broken_stream(frame: bytes) -> None:
    with pytest.raises(errors.StreamBroken):
        events(frame)


def test_frames_in_every_dialect() -> None:
    raw = (
        b": a comment\n\n"
        b"event: ping\r\ndata: {}\r\n\r\n"
        b"event: unused\n\n"
        b'data:{"type": "a",\ndata: "b": 1}\n\n'
        b"id: 7\nretry: 10\nnonsense\ndata: [DONE]\n\n"
        b'data: {"type": "never ended"}\n'
    )
    assert events(raw) == [{"type": "ping"}, {"type": "a", "b": 1}]
    assert events(*(bytes([byte]) for byte in raw)) == events(raw)
