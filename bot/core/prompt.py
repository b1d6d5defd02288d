"""Builds the system prompt of a chat. The prompt does not depend on time, request or person, because one changed byte
invalidates the provider's cache. The user messages contain what depends on these.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import view
from bot.core.instructions import InstructionFiles, Instructions, must_read
from bot.file_access import hidden
from bot.tools.skills import SkillFolder
from bot.vetting import Vetting
from bot.words import say

T = TypeVar("T")
_TEXTS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
RULES, SYSTEM_RULE = _TEXTS["rules"], f"\n{_TEXTS['system_rule']}"
DEFAULT_ROLE = "You are {name}, a helpful assistant in a team chat."
NAME = "You are {name}."
"""First line of the rules if there are shared instruction files. These files then describe the bot's role."""
BETWEEN = "\n\n"
LEAST_BUDGET, MOST_BUDGET, SHARE = 4_000, 60_000, 0.5
"""Token budget of the system prompt and tool definitions: its minimum, its maximum, and its share of the context window."""
SHORTER = (192_000, 128_000, 96_000, 64_000, 48_000, 32_000, 16_000, 8_000)
"""Lengths in characters to which instructions are shortened if they are too long. The first length that fits is used."""
SHARED = 32
"""Max cached prompt texts. Chats with equal texts share one string object."""
LISTED_CHARACTERS = 200
"""Max characters of names in one folder listing; the remaining names are only counted."""
INSTRUCTIONS = "instructions"
TITLE = "# Instructions\n\nWhere they contradict each other, the later ones hold."
NEARER = "# Instructions for this conversation\n\nWhere they contradict the ones above, these hold."
FOLDER = "projectFolder"
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
Names = frozenset[str] | None

# ------------------------------------------------------------ sections within a budget


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a prompt. `forms` are its text and shorter versions, longest first; an empty form is ignored."""

    name: str
    forms: Sequence[str]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Assembled:
    """Sections that were selected for a prompt. `parts` are (name, text); `dropped` and `shortened` are names."""

    parts: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return BETWEEN.join(words for _, words in self.parts)


class PromptTooLarge(errors.ShipmateError):
    """Raised if no form of a required section fits the token budget."""

    @property
    def person(self) -> str:
        return say("turn.prompt_too_large")


def assemble(sections: Iterable[Section], budget: float, size: Callable[[str], float] = len) -> Assembled:
    """Give each section, the most important first, its longest form that fits the rest of the budget. Optional sections
    without such a form are dropped. Raises `PromptTooLarge`.
    """
    parts, dropped, shortened = list[tuple[str, str]](), list[str](), list[str]()
    gap = size(BETWEEN)
    left = budget + gap
    for one in sections:
        costs = [(form, size(form) + gap) for form in one.forms if form]
        chosen = next((found for found in costs if found[1] <= left), None)
        if chosen is not None:
            parts.append((one.name, chosen[0]))
            left -= chosen[1]
            shortened += [one.name] if chosen is not costs[0] else []
        elif costs and one.required:
            raise PromptTooLarge(
                f"the section `{one.name}` of the prompt takes {costs[-1][1]:.0f} of the {left:.0f} that are left: "
                "shorten the instruction files, or use a model with a larger window"
            )
        elif costs:
            dropped.append(one.name)
    return Assembled(tuple(parts), tuple(dropped), tuple(shortened))


# ------------------------------------------------------------ the system prompt


@dataclass(frozen=True, slots=True)
class Frozen:
    """System prompt of a chat. The chat's turns share this object until a new prompt is built."""

    static: str
    own: str = ""
    """Instructions that apply only to this chat."""
    appended: str = ""
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """Short listing of the project's files. If the listing changes, the next user message contains the new one."""
    cut: tuple[str, ...] = ()
    """Names of instruction files that were shortened, and `INSTRUCTIONS` if all of them together were shortened."""

    def system(self, root: Path, first: Inbound, rules: str = "", *, hour: bool = False) -> list[Json]:
        """Return the `system` blocks of a chat's requests. Each block ends in a cache breakpoint. `first` is any message of
        the chat. If `hour` is True, the provider caches the tools and the static block, which all chats share, for an hour.
        """
        facts = {"projectRoot": root, "chatKey": first.chat_key, "channel": first.channel}
        facts |= {"chatId": first.chat_id, "chatType": first.chat_type, **self.surroundings}
        lines = [f"{name}: {value}" for name, value in facts.items()]
        own = f"{NEARER}\n\n{self.own}" if self.own else ""
        chat = ["# This conversation", "\n".join(lines), rules.strip(), own, self.appended]
        marks = (
            (self.static, view.HOUR if hour else view.CACHE),
            (BETWEEN.join(filter(None, chat)), view.CACHE),
        )
        return [{"type": "text", "text": part, "cache_control": mark} for part, mark in marks if part]


def top_level(root: Path, others: Callable[[], Names] = frozenset) -> str:
    """Return the names in a folder as one line, folders first. The model reads the prompt as instructions. Therefore names
    that other people may have chosen are only counted; `others` returns these names, or None for all. Raises OSError.
    """
    theirs, real = others(), root.resolve()
    with os.scandir(real) as found:
        known = [
            entry
            for entry in found
            if not entry.name.startswith(".")
            and entry.name not in _SKIPPED
            and not hidden(real, Path(entry.path))
        ]
    ours = [entry for entry in known if theirs is not None and entry.name not in theirs]
    files = sorted((not one.is_dir(follow_symlinks=False), one.name) for one in ours)
    shown: list[str] = []
    for is_file, name in files:
        if sum(len(one) + 2 for one in shown) + len(name) > LISTED_CHARACTERS:
            break
        shown.append(name if is_file else f"{name}/")
    if more := len(known) - len(shown):
        shown.append(f"{more} more" if shown else f"{more}, not named here")
    return ", ".join(shown) or "none"


@dataclass(slots=True)
class Prompts:
    """Builds system prompts. `custom` replaces the built-in rules and the listing of the project's files; `append` is added
    at the end. Each is a text, or the path of a file. The listing is made only if the model has file tools (`has_files`).
    `top_level` explains `others`.
    """

    root: Path
    name: str
    skills: SkillFolder
    instructions: InstructionFiles
    log: Log
    vetting: Vetting
    redact: Redact = str
    custom: str | Path = ""
    append: str | Path = ""
    has_files: bool = False
    others: Callable[[], Names] = frozenset
    _shared: Callable[[str], str] = field(init=False)

    def __post_init__(self) -> None:
        # Most chats have the same texts. With this cache, each text is redacted and stored only once.
        self._shared = functools.lru_cache(SHARED)(self.redact)

    async def freeze(
        self,
        chat_key: ChatKey,
        channel: str | None,
        model: str,
        *,
        budget: float,
        size: Callable[[str], float],
        system_role: bool = False,
    ) -> Frozen:
        """Read the files again and build the prompt. `budget` is the max `size` of the static part. A section that cannot be
        read is left out. Raises `PromptTooLarge`.
        """
        told = self.instructions.of_chat(channel, chat_key, model)
        found = await self._part("instructions", told, Instructions())
        skills = await self._part("skills", self.skills.overview(), [])
        custom, append = await self._text("prompt.custom"), await self._text("prompt.append")
        role = (NAME if found.shared else DEFAULT_ROLE).format(name=self.name)
        rules = custom or f"{role}\n\n{RULES}" + SYSTEM_RULE * system_role
        lengths = (len(found.shared), *(most for most in SHORTER if most < len(found.shared)))
        shared = [f"{TITLE}\n\n{text.shorten_middle(found.shared, most)}" for most in lengths if most]
        listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        known = f"# Skills\n\n`skills_load` knows: {', '.join(skill.name for skill in skills)}."
        load = "# Skills\n\nLoad one with `skills_load` before you do what it describes.\n\n"
        sections = [
            Section("rules", [rules], required=True),
            Section("model", [found.model], required=True),
            Section(INSTRUCTIONS, shared, required=True),
            Section("skills", [load + listed, known] if listed else []),
        ]
        made = assemble(sections, budget, size)
        if made.dropped or made.shortened:
            told_now = "the prompt was too large: parts are left out or shortened"
            dropped, shortened = list(made.dropped), list(made.shortened)
            self.log.write("prompt", told_now, level="warn", dropped=dropped, shortened=shortened)
        surroundings: dict[str, str] = {}
        if self.has_files and not self.custom:
            work = asyncio.to_thread(top_level, self.root, self.others)
            folder = await self._part("folder", work, "")
            surroundings = {FOLDER: self.redact(folder)} if folder else {}
        cut = (*found.cut, *(name for name in made.shortened if name == INSTRUCTIONS))
        own = self.redact(found.own)
        return Frozen(self._shared(made.text), own, self._shared(append), surroundings, cut)

    async def of_person(self, inbound: Inbound) -> str:
        """Return the instructions for the sender of a message. They become part of the user message."""
        told = self.instructions.of_person(inbound.channel, inbound.chat_key, inbound.user_id)
        return self.redact(await self._part("instructions for a person", told, ""))

    async def _text(self, key: str) -> str:
        source = self.custom if key == "prompt.custom" else self.append
        if isinstance(source, str):
            return source.strip()
        work = asyncio.to_thread(must_read, self.root, source, self.log, self.vetting)
        return await self._part(key, work, "")

    async def _part(self, name: str, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except (OSError, ValueError, errors.ShipmateError) as error:
            cause = f"{type(error).__name__}: {error}"
            self.log.write("prompt", f"left out of the prompt: {name}", level="warn", cause=cause)
        return otherwise
