"""The prompt of a chat: its parts in order, the same bytes for one epoch, and an error if a required part does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.core import prompt
from bot.core.prompt import Frozen, InstructionFiles, Prompts, assemble
from bot.storage.jsonl import file_name
from bot.testing.log import MemoryLog
from bot.tools.file_guard import FileGuard
from bot.tools.skills import Skill, SkillFolder
from tests.shares import examples

KEY = ChatKey.parse("telegram:chat:-100")


@dataclass
class Known:
    """A fake of `SkillFolder` with the methods that a prompt needs."""

    skills: Sequence[Skill] = ()
    failure: Exception | None = None

    async def overview(self) -> list[Skill]:
        if self.failure is not None:
            raise self.failure
        return list(self.skills)


@dataclass
class Desk:
    root: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    skills: Known = field(default_factory=Known)
    everywhere: tuple[Path, ...] = ()

    def write(self, name: str, words: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words, encoding="utf-8")

    def prompts(self, **how: Any) -> Prompts:
        files = InstructionFiles(
            self.root, log=self.log, everywhere=self.everywhere, guard=FileGuard(self.root)
        )
        return Prompts(
            name="Robby {x}",
            skills=cast("SkillFolder", self.skills),
            instructions=files,
            **how,
        )

    async def freeze(self, *, budget: int = 60_000, chat: ChatKey = KEY, **how: Any) -> Frozen:
        prompts = self.prompts(**how)
        return await prompts.freeze(chat, chat.channel, "claude-opus-5-5", budget=budget, size=len)

    @property
    def warnings(self) -> list[str]:
        return [line.message for line in self.log.of("prompt") if line.level == "warn"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def said_by(user_id: str, channel: str = "telegram") -> Inbound:
    return Inbound(
        channel=channel,
        chat_id="-100",
        chat_key=KEY,
        chat_type="group",
        user_id=user_id,
        keys=("k",),
        ts=1,
        target={},
        text="hello",
    )


def chat_part(frozen: Frozen) -> str:
    return str(frozen.system(Path("/project"), said_by("77"), "Markdown.")[-1]["text"])


async def test_the_parts_stand_in_their_order(desk: Desk) -> None:
    desk.skills.skills = [Skill("sailing", "How to sail.")]
    desk.write("Agent.md", "You are the ship's cat. 你是船上的猫。")
    desk.write(".ship/instructions/models/claude-opus-5-5.md", "Think briefly.")
    frozen = await desk.freeze()
    places = [
        frozen.static.index(words)
        for words in (
            "# How you work here",
            "Think briefly.",
            "# Instructions",
            "船上的猫",
            "- sailing: How to sail.",
        )
    ]
    assert places == sorted(places)
    assert frozen.static.startswith("You are Robby {x}.\n\n# How you work here")


async def test_channel_and_chat_have_their_own_part_behind_the_one_that_all_chats_share(desk: Desk) -> None:
    desk.write("Agent.md", "Be kind.")
    before = await desk.freeze()
    desk.write(".ship/instructions/channels/telegram.md", "No tables.")
    desk.write(f".ship/instructions/chats/{file_name(KEY)}.md", "This is the crew's chat.")
    frozen, other = (
        await desk.freeze(append="Stay calm."),
        await desk.freeze(chat=ChatKey.parse("slack:chat:C1")),
    )
    assert frozen.static == before.static == other.static
    chat = chat_part(frozen)
    places = [
        chat.index(words) for words in ("Markdown.", "No tables.", "This is the crew's chat.", "Stay calm.")
    ]
    assert places == sorted(places)
    assert chat.endswith("Stay calm.")
    assert "crew" not in chat_part(other)


async def test_a_custom_prompt_replaces_the_rules(desk: Desk) -> None:
    desk.write("Agent.md", "Be kind.")
    frozen = await desk.freeze(custom="  You are a parrot.\n")
    assert frozen.static.startswith("You are a parrot.\n\n# Instructions")
    assert "Be kind." in frozen.static
    assert "chat_send" not in frozen.static


async def test_prompts_in_files_are_read_with_their_includes_and_again_for_each_epoch(desk: Desk) -> None:
    desk.write("prompts/own.md", "You are a parrot.\n@include more.txt")
    desk.write("prompts/more.txt", "重复一切。")
    how: dict[str, Any] = {"custom": desk.root / "prompts/own.md", "append": desk.root / "prompts/more.txt"}
    frozen = await desk.freeze(**how)
    assert frozen.static == "You are a parrot.\n重复一切。"
    assert frozen.appended == "重复一切。"
    desk.write("prompts/more.txt", "Repeat.")
    assert (await desk.freeze(**how)).appended == "Repeat."
    (desk.root / "prompts/own.md").unlink()
    frozen = await desk.freeze(**how)
    assert prompt.RULES.strip() in frozen.static
    assert desk.warnings == ["left out of the prompt: prompt.custom"]


async def test_a_part_that_fails_takes_nothing_else_with_it(desk: Desk) -> None:
    desk.skills.failure = OSError("gone")
    desk.write("Agent.md", "Be kind.")
    frozen = await desk.freeze()
    for words in ("Be kind.", "chat_send"):
        assert words in frozen.static
    assert desk.warnings == ["left out of the prompt: skills"]


async def test_what_does_not_fit_is_shortened_or_left_out_and_told(desk: Desk) -> None:
    desk.skills.skills = [Skill(f"skill-{number}", "words " * 50) for number in range(9)]
    desk.write("Agent.md", "船" * 50_000)
    frozen = await desk.freeze(budget=35_000)
    assert len(frozen.static) <= 35_000
    assert "`skills_load` knows: skill-0, skill-1" in frozen.static
    (line,) = desk.log.of("prompt")
    assert (line.level, line.details["shortened"]) == ("warn", ["instructions", "skills"])
    assert line.details["dropped"] == []


async def test_secrets_do_not_pass(desk: Desk) -> None:
    def redact(words: str) -> str:
        return words.replace("hunter2", "[hidden]")

    for name in (
        "Agent.md",
        ".ship/instructions/channels/telegram.md",
        ".ship/instructions/people/telegram-77.md",
    ):
        desk.write(name, "The word is hunter2.")
    frozen = await desk.freeze(redact=redact, append="hunter2")
    person = await desk.prompts(redact=redact).of_person(said_by("77"))
    for words in (frozen.static, frozen.own, frozen.appended, person):
        assert "hunter2" not in words
        assert "[hidden]" in words


async def test_a_person_has_instructions_of_their_own_on_each_channel(desk: Desk) -> None:
    desk.write(".ship/instructions/people/telegram-77.md", "Call her 船长.")
    prompts = desk.prompts()
    assert await prompts.of_person(said_by("77")) == "Call her 船长."
    assert await prompts.of_person(said_by("78")) == ""
    assert await prompts.of_person(said_by("77", "slack")) == ""
    assert await prompts.of_person(said_by("../channels/x")) == ""


RULES = {"rules": ["r" * 100]}
TREE = {"tree": ["t" * 90, "t" * 50, "t" * 20, "t" * 5]}
TOOLS = {"tools": ["x" * 80, "x" * 40, "x" * 10]}
GIT = {"git": ["g" * 30]}


def test_what_is_optional_takes_what_is_left_whole_or_shorter_or_not_at_all() -> None:
    assert assemble(RULES | TREE, 192)["tree"] == "t" * 90
    assert assemble(RULES | TREE, 191)["tree"] == "t" * 50
    assert assemble(RULES | TREE, 122)["tree"] == "t" * 20
    assert assemble(RULES | TREE, 106) == {"rules": "r" * 100}
    assert list(assemble(RULES | GIT | TREE, 150)) == ["rules", "git", "tree"]
    assert list(assemble(RULES | GIT | TREE, 135)) == ["rules", "git"]


def test_what_is_required_and_does_not_fit_is_refused_in_an_operators_words() -> None:
    with pytest.raises(
        errors.TurnFailed, match=r"`tools` of the prompt takes 12 of the 8 that are left"
    ) as caught:
        assemble(RULES | TOOLS | GIT, 108, required=("rules", "tools"))
    assert "instruction files" in str(caught.value)
    assert "rules" not in caught.value.person


SECTIONS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.text("x你👍", max_size=60), max_size=4), max_size=9
)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(SECTIONS, st.sets(st.text("abc", min_size=1, max_size=3)), st.integers(0, 400))
def test_it_fits_keeps_what_is_required_and_is_the_same_each_time(
    sections: dict[str, list[str]], required: set[str], budget: int
) -> None:
    said = [name for name, forms in sections.items() if any(forms)]
    try:
        made = assemble(sections, budget, required=required)
    except errors.TurnFailed:
        assert required.intersection(said)
        return
    assert len(prompt.BETWEEN.join(made.values())) <= max(budget, 0)
    assert all(one in made for one in said if one in required)
    roomy = assemble(sections, 10_000)
    assert roomy == {name: next(filter(None, sections[name])) for name in said}
