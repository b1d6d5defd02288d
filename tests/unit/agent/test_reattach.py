"""After a compaction the model has again what it was working with, as far as there is room."""

from __future__ import annotations

from typing import Any

from bot.agent import reattach
from bot.agent.reattach import DroppedMessages
from bot.context import found_tools
from bot.contracts.base import Json, Message
from bot.contracts.tools import ToolResult
from bot.testing.model import text, tool_use
from bot.tools import excerpt
from tests.unit.agent.conftest import Bench

ULID = "01J{:0>23}"


def used(tool: str, content: str | Json, /, *, error: bool = False, **arguments: Any) -> list[Message]:
    call = tool_use(tool) | {"input": arguments}
    shown = {"content": content} if isinstance(content, str) else content
    result = {"type": "tool_result", "tool_use_id": call["id"], **shown}
    if error:
        result["is_error"] = True
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def large(number: int) -> Json:
    content, left_out = excerpt.excerpt("行\n" * 5_000, 3_000, ULID.format(number)).shown
    return ToolResult("", content, omission=left_out).block


def test_pointers_to_large_results_are_kept_the_newest_of_them(bench: Bench) -> None:
    dropped = [message for number in range(25) for message in used("read", large(number))]
    (words,) = reattach.attached(DroppedMessages(dropped, used("read", large(24))), bench.deps)
    assert ULID.format(23) in words
    assert ULID.format(4) in words
    assert ULID.format(3) not in words
    assert ULID.format(24) not in words, "it is in view still"


def test_a_quoted_note_is_no_pointer_and_a_file_that_holds_one_comes_back_whole(bench: Bench) -> None:
    quoted = f"the log said: {large(7)['content']}"
    (words,) = reattach.attached(DroppedMessages(used("read_file", quoted, path="log.txt"), []), bench.deps)
    assert words.startswith("The file log.txt, as it was read before:")


def test_the_text_of_skills_comes_after_it_and_only_once(bench: Bench) -> None:
    dropped = [
        *used("read", large(1)),
        *used("skills_load", "First do 甲.", name="brewing"),
        *used("skills_load", "First do 甲, then 乙.", name="brewing"),
        *used("skills_load", "There is no such skill.", name="nothing", error=True),
        *used("skills_load", "Still here.", name="baking"),
    ]
    kept = used("skills_load", "Still here.", name="baking")
    pointers, skills = reattach.attached(DroppedMessages(dropped, kept), bench.deps)
    assert "artifact" in pointers
    assert skills == "The skill brewing, loaded before:\n\nFirst do 甲, then 乙."


def test_what_does_not_fit_is_named(bench: Bench) -> None:
    bench.configure(soft_tokens=2_000)
    dropped = [
        *used("skills_load", "short", name="small"),
        *used("skills_load", "長い" * 2_000, name="large"),
    ]
    (words,) = reattach.attached(DroppedMessages(dropped, []), bench.deps)
    assert words == "Skills loaded before; load again what you need: small, large"


def test_where_nothing_was_used_nothing_is_attached(bench: Bench) -> None:
    said: Message = {"role": "user", "content": [text("hello 👋")]}
    assert reattach.attached(DroppedMessages([said], []), bench.deps) == []


def test_the_files_that_were_read_last_come_back_whole(bench: Bench) -> None:
    dropped = [
        *used("read_file", "old", path="a.md"),
        *used("read_file", "茶", path="b.md"),
        *used("read_file", "no such file", path="c.md", error=True),
        *used("read_file", "in view still", path="d.md"),
        *used("read_file", "new 版", path="a.md"),
        *used("read_file", "three", path="e.md"),
    ]
    (words,) = reattach.attached(
        DroppedMessages(dropped, used("read_file", "in view still", path="d.md")), bench.deps
    )
    assert words == (
        "The file e.md, as it was read before:\n\nthree\n\n"
        "The file a.md, as it was read before:\n\nnew 版\n\n"
        "The file b.md, as it was read before:\n\n茶"
    )


def test_of_many_files_the_last_three_come_back_and_what_has_no_room_is_named(bench: Bench) -> None:
    dropped = [message for number in range(5) for message in used("read_file", "x", path=f"{number}.md")]
    (words,) = reattach.attached(DroppedMessages(dropped, []), bench.deps)
    assert "2.md" in words
    assert "1.md" not in words
    bench.configure(soft_tokens=2_000)
    large = [*used("read_file", "長い" * 2_000, path="l.md")]
    (words,) = reattach.attached(DroppedMessages(large, []), bench.deps)
    assert words == "Files read before; read again what you need: l.md"


def finding(name: str, words: str = "") -> list[Message]:
    call = tool_use("tool_search")
    tool = {"name": name, "description": words, "input_schema": {"type": "object"}}
    part = {"type": "tool_reference", "tool_name": name, "definition": tool}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [part]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def test_definitions_come_back_as_far_as_they_fit_the_newest_first_and_only_of_tools_that_are_there(
    bench: Bench,
) -> None:
    some = list(bench.registry.names())[:3]
    dropped = [
        *finding(some[0], "old"),
        *finding(some[1], "長い" * 400),
        *finding("mcp__gone__x"),
        *finding(some[2]),
    ]
    assert [
        one["name"] for one in reattach.definitions(DroppedMessages(dropped, []), bench.deps, 10_000)
    ] == some
    assert [one["name"] for one in reattach.definitions(DroppedMessages(dropped, []), bench.deps, 200)] == [
        some[0],
        some[2],
    ]
    kept = finding(some[2])
    assert [
        one["name"] for one in reattach.definitions(DroppedMessages(dropped, kept), bench.deps, 200)
    ] == some[:1]
    (words,) = reattach.attached(DroppedMessages(dropped, [], frozenset(some)), bench.deps)
    assert words == "Tools found before; find again with tool_search what you need: mcp__gone__x"


def saying(**said: str) -> Message:
    return {"role": "user", "content": [found_tools.servers_block(said, "0123abcd")]}


def test_what_servers_say_comes_back_as_far_as_it_fits_the_newest_first_and_only_of_tools_that_do(
    bench: Bench,
) -> None:
    dropped = [saying(one="old", gone="x"), saying(one="新しい"), saying(long="長い" * 400), saying(last="y")]
    declared = frozenset({"mcp__one__a", "mcp__long__a", "mcp__last__a", "mcp__gone_too__a"})
    gone = DroppedMessages(dropped, [], declared)
    assert list(reattach.instructions(gone, bench.deps, 10_000)) == ["one", "long", "last"]
    assert reattach.instructions(gone, bench.deps, 200) == {"one": "新しい", "last": "y"}
    kept = [*finding("mcp__gone__a"), saying(last="in view still")]
    assert reattach.instructions(DroppedMessages(dropped, kept), bench.deps, 200) == {"gone": "x"}


def test_a_kept_result_without_a_text_is_not_attached(bench: Bench) -> None:
    dropped = used("read_file", {}, path="a.py")
    assert reattach.attached(DroppedMessages(dropped, []), bench.deps) == []
