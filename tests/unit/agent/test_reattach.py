"""After a compaction the model has again what it was working with, as far as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bot.agent import reattach
from bot.agent.reattach import DroppedMessages
from bot.contracts.base import Json, Message
from bot.contracts.tools import ToolResult
from bot.core import found_tools
from bot.testing.model import text, tool_use
from bot.tools import excerpt
from tests.unit.agent.conftest import KEY, Bench

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


async def again(
    bench: Bench, dropped: list[Message], kept: Sequence[Message] = (), most: float = 10_000
) -> list[str]:
    found = await reattach.put_back(DroppedMessages(dropped, kept), bench.deps, most, KEY, None)
    return [words for words, _ in found.texts]


async def test_pointers_to_large_results_are_kept_the_newest_of_them(bench: Bench) -> None:
    dropped = [message for number in range(25) for message in used("read", large(number))]
    (words,) = await again(bench, dropped, used("read", large(24)))
    assert ULID.format(23) in words
    assert ULID.format(4) in words
    assert ULID.format(3) not in words
    assert ULID.format(24) not in words, "it is in view still"


async def test_skills_and_the_last_three_files_come_as_they_are_now_and_what_does_not_fit_is_named(
    bench: Bench,
) -> None:
    for name in "abcde":
        (bench.root / f"{name}.md").write_text(f"茶 {name} now", encoding="utf-8")
    skill = bench.root / ".claude" / "skills" / "brewing" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: brewing\ndescription: Tea.\n---\n" + "First do 甲. " * 20, encoding="utf-8")
    dropped = [
        *used("read_file", "old", path="a.md"),
        *used("read_file", "old", path="b.md"),
        *used("read_file", "old", path="c.md"),
        *used("skills_load", "old", name="brewing"),
        *used("skills_load", "There is no such skill.", name="nothing", error=True),
        *used("read_file", "in view still", path="d.md"),
        *used("read_file", "old", path="a.md"),
        *used("read_file", "gone", path="gone.md"),
    ]
    kept = used("read_file", "in view still", path="d.md")
    skills, files = await again(bench, dropped, kept)
    assert skills.startswith("The skill brewing, loaded before:\n\nFirst do 甲. First")
    assert [name for name in "abcde" if f"茶 {name} now" in files] == ["a", "c"]
    assert files.endswith("Files read before; read again what you need: gone.md")
    assert await again(bench, dropped, kept, most=50) == [
        "Skills loaded before; load again what you need: brewing",
        "Files read before; read again what you need: gone.md, a.md, c.md",
    ]


async def test_where_nothing_was_used_nothing_is_attached(bench: Bench) -> None:
    said: Message = {"role": "user", "content": [text("hello 👋")]}
    quoted = used("run", f"the log said: {large(7)['content']}")
    assert await again(bench, [said, *quoted]) == []


def finding(name: str, words: str = "") -> list[Message]:
    call = tool_use("tool_search")
    tool = {"name": name, "description": words, "input_schema": {"type": "object"}}
    part = {"type": "tool_reference", "tool_name": name, "definition": tool}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [part]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


async def test_definitions_come_back_as_far_as_they_fit_the_newest_first_and_only_of_tools_that_are_there(
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
    (words,) = await again(bench, dropped)
    assert words == "Tools found before; find again with tool_search what you need: mcp__gone__x"


def saying(**said: str) -> Message:
    return {"role": "user", "content": [found_tools.servers_block(said, "0123abcd")]}


def test_what_servers_say_comes_back_as_far_as_it_fits_the_newest_first_and_only_of_tools_that_do(
    bench: Bench,
) -> None:
    dropped = [saying(one="old", gone="x"), saying(one="新しい"), saying(long="長い" * 400), saying(last="y")]
    declared = frozenset({"mcp__one__a", "mcp__long__a", "mcp__last__a", "mcp__gone_too__a"})
    gone = DroppedMessages(dropped, [])
    assert list(reattach.instructions(gone, declared, bench.deps, 10_000)) == ["one", "long", "last"]
    assert reattach.instructions(gone, declared, bench.deps, 200) == {"one": "新しい", "last": "y"}
    kept = [*finding("mcp__gone__a"), saying(last="in view still")]
    assert reattach.instructions(DroppedMessages(dropped, kept), frozenset(), bench.deps, 200) == {
        "gone": "x"
    }
