"""The demo model in a small simulation of its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.core import memory
from bot.llm.demo import DemoModel
from tests.unit.llm.asking import ask, items, reply_of, tool, user

ALL = tuple(tool(name) for name in ("chat_send", "chat_load_history", "skills_list"))
CONTEXT = '<turn_context>{"requestId":"01X","time":"2027-01-15T08:00:00Z"}</turn_context>'


async def play(
    words: str,
    *,
    results: Mapping[str, tuple[str, bool]] | None = None,
    history: Sequence[Json] = (),
    injected: Sequence[Json] = (),
    tools: Sequence[Json] = ALL,
    context: str = CONTEXT,
) -> list[Json]:
    """Run a whole turn, and return the model's blocks, one per step. `injected` is added to the history after
    `chat_load_history`.
    """
    before, given = list(history), list[Json]()
    turn = [user(context, words) if words else user(context)]
    answers = {"chat_send": ("Delivered (message 1).", False), "chat_load_history": ("Loaded 2", False)}
    answers |= dict(results or {})
    for _ in range(10):
        reply = await reply_of(DemoModel(), ask(*before, *turn, tools=tuple(tools)))
        (block,) = reply.content
        given.append(block)
        if reply.stop_reason == "end_turn":
            return given
        content, error = answers[block["name"]]
        if block["name"] == "chat_send" and not error:
            return given  # a delivered message ends the turn
        if block["name"] == "chat_load_history":
            before += injected
        result: Json = {"type": "tool_result", "tool_use_id": block["id"], "content": content}
        turn += [
            {"role": "assistant", "content": [block]},
            {"role": "user", "content": [result | ({"is_error": True} if error else {})]},
        ]
    raise AssertionError("the demo does not end")


def called(blocks: Sequence[Json]) -> list[str]:
    return [block["name"] for block in blocks if block["type"] == "tool_use"]


def sent(blocks: Sequence[Json]) -> str:
    return str(next(block["input"]["text"] for block in blocks if block.get("name") == "chat_send"))


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        ("Hello ship!", ["Hello ship!", "**demo model**", "ANTHROPIC_API_KEY", "/help"]),
        ("你好，请介绍一下自己", ["演示模型", "你好，请介绍一下自己", "ANTHROPIC_API_KEY"]),
        ("今日はいい天気ですね", ["demo model"]),
    ],
)
async def test_it_says_what_it_is_and_how_to_get_a_real_model(words: str, holds: list[str]) -> None:
    blocks = await play(words)
    assert called(blocks) == ["chat_send"]
    assert [part for part in holds if part not in sent(blocks)] == []


@pytest.mark.parametrize(
    "words",
    [
        "What did I say?",
        "Show me the history",
        "do you remember my cat",
        "earlier we spoke",
        "我之前说过什么？",
    ],
)
async def test_asked_for_an_old_turn_it_loads_history_and_answers_from_it(words: str) -> None:
    injected = [
        user(f'<loaded_history>{{"time": "2026-11-01T10:00:00Z", "speaker": "{who}"}}</loaded_history>', said)
        for who, said in (("Ana", "My cat is called Mimi 🐈"), ("you", "Nice"))
    ]
    blocks = await play(words, injected=injected, history=[user(CONTEXT, "In view")])
    assert called(blocks) == ["chat_load_history", "chat_send"]
    assert "2026-11-01T10:00:00Z · **Ana**: My cat is called Mimi 🐈" in sent(blocks)
    assert "In view" not in sent(blocks)


async def test_where_sending_fails_the_answer_comes_as_text() -> None:
    blocks = await play("Hello", results={"chat_send": ("The chat is gone.", True)})
    assert called(blocks) == ["chat_send"]
    assert "demo model" in blocks[-1]["text"]


async def test_files_are_named_and_what_they_hold_is_not_taken_for_words() -> None:
    context = (
        '<turn_context>{"attachments":[{"kind":"photo","readable":false},'
        '{"kind":"file","name":"报告.pdf","readable":true}]}</turn_context>'
    )
    held = '<attached_files note="">\n{"text": "what did I say earlier?"}\n</attached_files>'
    for words in ("my caption", held):
        answer = sent(await play(words, context=context))
        assert "photo, file 报告.pdf" in answer
        assert ("my caption" in answer) is (words != held)


async def test_it_is_a_pure_function_that_streams_in_small_pieces() -> None:
    request = ask(user(CONTEXT, "Hello"), tools=ALL)
    *deltas, reply = await items(DemoModel(), request)
    assert await items(DemoModel(), request) == [*deltas, reply]
    assert isinstance(reply, ModelReply)
    assert len(deltas) > 5
    assert all(isinstance(delta, ToolInputDelta) for delta in deltas)
    assert min(reply.usage.input_tokens, reply.usage.output_tokens) > 10
    *words, _ = await items(DemoModel(), ask(user(CONTEXT, "Hello")))
    assert all(isinstance(delta, TextDelta) for delta in words)
    again = ask(user(CONTEXT, "Hello"), user("x"), user(CONTEXT, "Hello"), tools=ALL)
    assert (await reply_of(DemoModel(), again)).content[0]["id"] != reply.content[0]["id"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("<turn_context>{broken</turn_context>", "hi")],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": None}]}],
    ],
)
async def test_any_request_has_an_answer(messages: list[Any]) -> None:
    request = ModelRequest(model="demo", max_tokens=1, system=(), messages=messages, tools=ALL)
    assert (await reply_of(DemoModel(), request)).content


@pytest.mark.parametrize("purpose", ["memory", "compaction"])
async def test_what_it_writes_down_of_a_conversation_is_what_people_said(purpose: str) -> None:
    head = user('<conversation_summary note="x">old</conversation_summary>')
    messages = (head, user(CONTEXT, "The ship is called 海"), user("<memory_task>write</memory_task>"))
    (block,) = (await reply_of(DemoModel(), ask(*messages, tools=ALL, purpose=purpose))).content
    if purpose == "memory":
        assert memory.read(block["text"]).facts == ("The ship is called 海",)
    else:
        assert "海" in memory.read_summary(block["text"])


@pytest.mark.parametrize(
    ("words", "results", "calls", "shown"),
    [
        ("Which skills do you have?", {"skills_list": "- tea: makes tea"}, ["skills_list"], "makes tea"),
        ("look at readme", {"list_dir": "README.md  2 KB\nsrc/", "read_file": "# Ship"}, None, "# Ship"),
        ("look at nothing", {"list_dir": "README.md  2 KB"}, ["list_dir"], "There's no nothing here."),
        ("Run ls", {"run_shell": "!No such folder"}, ["run_shell"], "The tool `run_shell` failed:"),
    ],
)
async def test_the_outcome_of_a_plain_request_is_shown(
    words: str, results: dict[str, str], calls: list[str] | None, shown: str
) -> None:
    """A result that begins with `!` stands for an error."""
    answers = {name: (said.removeprefix("!"), said.startswith("!")) for name, said in results.items()}
    blocks = await play(words, results=answers, tools=(*ALL, *map(tool, results)))
    assert called(blocks) == [*(calls or results), "chat_send"]
    assert shown in sent(blocks)


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("please run `ls -la`", [("run_shell", {"command": "ls -la"})]),
        ("write notes/a.md: 你好", [("write_file", {"path": "notes/a.md", "content": "你好\n"})]),
        ("写 hello.txt", [("write_file", {"path": "hello.txt", "content": "Shipmate 向你问好。\n"})]),
        ("运行 ls", [("run_shell", {"command": "ls"})]),
        (
            "5分钟后提醒我喝水",
            [("schedule_create", {"prompt": "⏰ 喝水", "when": "2027-01-15T08:05:00+00:00"})],
        ),
        ("show me docs/x.md", [("list_dir", {"path": "docs"})]),
        ("I ran home to write code", [("chat_send", None)]),
        ("⏰ remind me in a minute", [("chat_send", {"text": "⏰ remind me in a minute"})]),
        ("同时做三件事", [("task", None)] * 3),
    ],
)
async def test_a_plain_request_is_the_call_of_a_tool(
    words: str, calls: list[tuple[str, Json | None]]
) -> None:
    names = ("run_shell", "write_file", "schedule_create", "list_dir", "read_file", "task")
    request = ask(user(CONTEXT, words), tools=(*ALL, *map(tool, names)))
    blocks = (await reply_of(DemoModel(), request)).content
    assert [
        (block["name"], wanted and block["input"]) for block, (_, wanted) in zip(blocks, calls, strict=True)
    ] == calls
    assert len({block["id"] for block in blocks}) == len(blocks)
