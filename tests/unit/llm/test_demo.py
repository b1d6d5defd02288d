"""The demo model, played against a small world of tools."""

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


def loaded(time: str, speaker: str, words: str) -> Json:
    return user(f'<loaded_history>{{"time": "{time}", "speaker": "{speaker}"}}</loaded_history>', words)


async def play(
    words: str,
    *,
    results: Mapping[str, tuple[str, bool]] | None = None,
    history: Sequence[Json] = (),
    injected: Sequence[Json] = (),
    tools: Sequence[Json] = ALL,
    context: str = CONTEXT,
) -> list[Json]:
    """A whole turn: the blocks that the model gave, one a step. `injected` is in view once history was loaded."""
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
            return given  # A delivered message ends a turn.
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


async def test_it_answers_through_chat_send_and_says_what_it_is() -> None:
    blocks = await play("Hello ship!")
    assert called(blocks) == ["chat_send"]
    answer = sent(blocks)
    assert "Hello ship!" in answer
    assert "**demo model**" in answer
    assert "ANTHROPIC_API_KEY" in answer
    assert "/help" in answer


async def test_it_answers_chinese_in_chinese() -> None:
    answer = sent(await play("你好，请介绍一下自己"))
    assert "演示模型" in answer
    assert "你好，请介绍一下自己" in answer
    assert "language model" not in answer


async def test_it_answers_japanese_in_english() -> None:
    assert "demo model" in sent(await play("今日はいい天気ですね"))


@pytest.mark.parametrize(
    "words",
    [
        "What did I say?",
        "Show me the history",
        "do you remember my cat",
        "an OLD turn please",
        "what was before",
        "earlier we spoke",
        "我之前说过什么？",
        "以前的消息",
        "看一下历史",
        "你记得吗",
    ],
)
async def test_asked_for_an_old_turn_it_loads_history_and_answers_from_it(words: str) -> None:
    injected = [
        loaded("2026-11-01T10:00:00Z", "Ana", "My cat is called Mimi 🐈"),
        loaded("2026-11-01T10:01:00Z", "you", "Nice"),
    ]
    blocks = await play(words, injected=injected, history=[user(CONTEXT, "In view")])
    assert called(blocks) == ["chat_load_history", "chat_send"]
    assert "My cat is called Mimi 🐈" in sent(blocks)
    assert "2026-11-01T10:00:00Z" in sent(blocks)


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ('What did I say about "zebra"?', "zebra"),
        ("what did I write about “the big zebra”", "the big zebra"),
        ("我之前说过「斑马」吗", "斑马"),
        ("what did i say about 'zebra'?", "zebra"),
        ("what's my history, don't you know", None),
    ],
)
async def test_a_quoted_word_is_the_keyword(words: str, keyword: str | None) -> None:
    reply = await reply_of(DemoModel(), ask(user(CONTEXT, words), tools=ALL))
    assert reply.content[0]["input"].get("keyword") == keyword


async def test_asked_for_the_persons_words_it_leaves_out_its_own() -> None:
    injected = [loaded("t", "Ana", "zebra of Ana"), loaded("t", "you", "zebra of the bot")]
    blocks = await play('What did I say about "zebra"?', injected=injected)
    assert blocks[0]["input"]["role"] == "user"
    assert "zebra of Ana" in sent(blocks)
    assert "zebra of the bot" not in sent(blocks)


async def test_what_is_in_view_counts_where_nothing_was_loaded() -> None:
    history = [
        user(CONTEXT, "My dog is called Rex"),
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "chat_send", "input": {"text": "Hello Rex"}}
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Delivered"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sent."}]},
    ]
    answer = sent(await play("what was said earlier?", history=history))
    assert "My dog is called Rex" in answer
    assert "Hello Rex" in answer
    assert "turn_context" not in answer


async def test_nothing_found_is_said() -> None:
    assert "found nothing" in sent(await play('do you remember "unicorns"?'))


async def test_it_lists_skills() -> None:
    blocks = await play("Which skills do you have?", results={"skills_list": ("- tea: makes tea", False)})
    assert called(blocks) == ["skills_list", "chat_send"]
    assert "- tea: makes tea" in sent(blocks)


async def test_where_sending_fails_the_answer_comes_as_text() -> None:
    blocks = await play("Hello", results={"chat_send": ("The chat is gone.", True)})
    assert called(blocks) == ["chat_send"]
    assert blocks[-1]["type"] == "text"
    assert "demo model" in blocks[-1]["text"]


async def test_without_tools_it_answers_in_text() -> None:
    (block,) = await play("what did I say before?", tools=())
    assert block["type"] == "text"


async def test_files_are_named_and_their_caption_is_answered() -> None:
    context = (
        '<turn_context>{"attachments":[{"kind":"photo","readable":false},'
        '{"kind":"file","name":"报告.pdf","readable":false}]}</turn_context>'
    )
    answer = sent(await play("my caption", context=context))
    assert "photo, file 报告.pdf" in answer
    assert "my caption" in answer
    assert "no words" in sent(await play("", context=context))


async def test_a_file_that_was_read_is_named_and_what_it_holds_is_not_taken_for_words() -> None:
    context = (
        '<turn_context>{"attachments":[{"kind":"file","name":"a.txt","readable":true},'
        '{"kind":"photo","readable":false}]}</turn_context>'
    )
    held = '<attached_files note="">\n{"text": "what did I say earlier?"}\n</attached_files>'
    request = ask(user(context, held), tools=ALL)
    answer = sent((await reply_of(DemoModel(), request)).content)
    assert "I was shown what this holds: file a.txt." in answer
    assert "I cannot open files yet: photo." in answer
    assert "no words" not in answer


async def test_words_that_come_while_it_works_are_answered_too() -> None:
    request = ask(user(CONTEXT, "Hello"), tools=ALL)
    first = await reply_of(DemoModel(), request)
    result = {"type": "tool_result", "tool_use_id": first.content[0]["id"], "content": "Delivered"}
    more = ask(
        *request.messages,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
        user(CONTEXT, "And which skills?"),
        tools=ALL,
    )
    assert (await reply_of(DemoModel(), more)).content[0]["name"] == "skills_list"


async def test_it_is_a_pure_function_with_ids_of_its_own() -> None:
    request = ask(user(CONTEXT, "Hello"), tools=ALL)
    assert await items(DemoModel(), request) == await items(DemoModel(), request)
    other = await reply_of(
        DemoModel(), ask(user(CONTEXT, "Hello"), user("x"), user(CONTEXT, "Hello"), tools=ALL)
    )
    assert other.content[0]["id"] != (await reply_of(DemoModel(), request)).content[0]["id"]


async def test_it_streams_in_small_pieces_and_counts_tokens() -> None:
    *deltas, reply = await items(DemoModel(), ask(user(CONTEXT, "Hello"), tools=ALL))
    assert isinstance(reply, ModelReply)
    assert len(deltas) > 5
    assert all(isinstance(delta, ToolInputDelta) for delta in deltas)
    assert reply.usage.input_tokens > 10
    assert reply.usage.output_tokens > 10
    *words, _ = await items(DemoModel(), ask(user(CONTEXT, "Hello")))
    assert all(isinstance(delta, TextDelta) for delta in words)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user", "content": "plain"}],
        [{"role": "user", "content": None}],
        [user("<turn_context>{broken</turn_context>", "hi")],
        [user('<turn_context>{"attachments": [1]}</turn_context>', "hi")],
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
    request = ModelRequest(
        model="demo", max_tokens=1, system=(), messages=messages, tools=ALL, purpose=purpose
    )
    (block,) = (await reply_of(DemoModel(), request)).content
    written = block["text"]
    if purpose == "memory":
        assert memory.read(written).facts == ("The ship is called 海",)
    else:
        assert "海" in memory.read_summary(written)


NO_BUBBLEWRAP = (
    "Commands run only where … whoever runs me can install bubblewrap 0.7 or newer (apt install bubblewrap)"
)


async def test_where_no_command_can_run_it_writes_a_file_and_says_how_to_install_bubblewrap() -> None:
    results = {"run_shell": (NO_BUBBLEWRAP, True), "write_file": ("hello.txt is written: 21 bytes.", False)}
    tools = (*ALL, tool("run_shell"), tool("write_file"))
    blocks = await play("Run ls", results=results, tools=tools)
    assert called(blocks) == ["run_shell", "write_file", "chat_send"]
    assert "sudo apt install bubblewrap" in sent(blocks)
    assert "hello.txt is written" in sent(blocks)


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("please run `ls -la`", [("run_shell", {"command": "ls -la"})]),
        ("write notes/a.md: 你好", [("write_file", {"path": "notes/a.md", "content": "你好\n"})]),
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
