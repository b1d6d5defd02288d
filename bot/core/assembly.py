"""Assembles a chat's system prompt: reads the prompt's sections concurrently and fits them into a token
budget. The prompt is assembled once per epoch, that is until it has to change.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import prompt
from bot.core.instructions import InstructionFiles, Instructions, must_read
from bot.file_access import hidden
from bot.tools.skills import SkillFolder
from bot.vetting import Vetting
from bot.words import say

BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a system prompt. Sections with lower numbers have priority. `alternatives` are shorter
    versions of the text, longest first. A section with empty text is left out.
    """

    name: str
    priority: float
    text: str
    required: bool = False
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """Selected sections of a prompt. `parts` maps names to texts in order of priority. `shortened` maps a
    name to the number of the alternative used, counted from 1.
    """

    parts: tuple[tuple[str, str], ...]
    size: float
    dropped: tuple[str, ...] = ()
    shortened: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        return BETWEEN.join(words for _, words in self.parts)


class PromptTooLarge(errors.ShipmateError):
    """The required sections exceed the token budget even in their shortest versions."""

    @property
    def person(self) -> str:
        return say("turn.prompt_too_large")


@dataclass(slots=True)
class _Choice:
    """A section during selection: its versions in decreasing size, and the index of the version in use."""

    section: Section
    forms: list[tuple[str, float]]
    taken: int | None = None

    @property
    def cost(self) -> float:
        return 0.0 if self.taken is None else self.forms[self.taken][1]

    def shorten(self) -> bool:
        """Switch to the next shorter version. Returns False if there is none."""
        if self.taken is None or self.taken + 1 == len(self.forms):
            return False
        self.taken += 1
        return True


def assemble(sections: Iterable[Section], budget: float, size: Callable[[str], float] = len) -> Assembled:
    """Select sections whose total `size` stays within `budget`. Raises `PromptTooLarge`.

    Required sections come first. If the required sections do not all fit, the least important are shortened
    first. Optional sections get the rest of the budget in order of importance. An optional section is left
    out if none of its versions fits.
    """
    asked = sorted((section for section in sections if section.text), key=lambda section: section.priority)
    gap = size(BETWEEN)
    choices = [_Choice(one, _forms(one, gap, size), 0 if one.required else None) for one in asked]
    _shorten(choices, budget + gap)
    left = budget + gap - sum(choice.cost for choice in choices)
    for choice in choices:
        if not choice.section.required:
            choice.taken = next((at for at, (_, cost) in enumerate(choice.forms) if cost <= left), None)
            left -= choice.cost
    taken = [(choice, choice.taken) for choice in choices if choice.taken is not None]
    return Assembled(
        tuple((choice.section.name, choice.forms[form][0]) for choice, form in taken),
        max(0.0, sum(choice.cost for choice, _ in taken) - gap),
        dropped=tuple(choice.section.name for choice in choices if choice.taken is None),
        shortened=tuple((choice.section.name, form) for choice, form in taken if form),
    )


def _forms(section: Section, gap: float, size: Callable[[str], float]) -> list[tuple[str, float]]:
    forms: list[tuple[str, float]] = []
    for words in (section.text, *section.alternatives):
        cost = size(words) + gap
        if not forms or (words and cost < forms[-1][1]):
            forms.append((words, cost))
    return forms


def _shorten(choices: list[_Choice], budget: float) -> None:
    """Shorten required sections, least important first, until all of them fit into the budget."""
    for choice in reversed(choices):
        while sum(one.cost for one in choices) > budget and choice.shorten():
            pass
    needed = sum(one.cost for one in choices)
    if needed > budget and any(one.section.required for one in choices):
        parts = ", ".join(f"{one.section.name} {one.cost:.0f}" for one in choices if one.taken is not None)
        raise PromptTooLarge(
            f"the required sections of the prompt take {needed:.0f}, more than the budget of {budget:.0f} ({parts}): "
            "shorten the instruction files, or use a model with a larger window"
        )


LISTED_CHARACTERS = 200
"""Max characters of names in one folder listing; the remaining names are only counted."""
Names = frozenset[str] | None
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


def top_level(root: Path, others: Callable[[], Names] = frozenset) -> str:
    """List the names in a folder, folders first. Blocks on disk access; raises OSError.

    `others` returns the paths whose names other people may have chosen (None: all paths). File names that
    other people may have chosen are only counted, because the model reads the prompt as instructions.
    """
    theirs = others()
    real = root.resolve()
    with os.scandir(real) as found:
        known = [entry for entry in found if not _left_out(real, Path(entry.path))]
    ours = [entry for entry in known if theirs is not None and entry.name not in theirs]
    folders = sorted(f"{entry.name}/" for entry in ours if entry.is_dir(follow_symlinks=False))
    files = sorted(entry.name for entry in ours if not entry.is_dir(follow_symlinks=False))
    return listed([*folders, *files], len(known) - len(ours))


def listed(names: Sequence[str], unnamed: int = 0) -> str:
    """Join names up to `LISTED_CHARACTERS` and add the number of the remaining names."""
    shown: list[str] = []
    for name in names:
        if sum(len(one) + 2 for one in shown) + len(name) > LISTED_CHARACTERS:
            break
        shown.append(name)
    more = len(names) - len(shown) + unnamed
    return (
        ", ".join([*shown, *([f"{more} more" if shown else f"{more}, not named here"] if more else [])])
        or "none"
    )


def _left_out(root: Path, path: Path) -> bool:
    return path.name.startswith(".") or path.name in _SKIPPED or hidden(root, path)


T = TypeVar("T")

LEAST_BUDGET = 4_000
"""Min tokens of the static part of the prompt, in case the configured window size is wrong."""
MOST_BUDGET = 60_000
SHARE = 0.5
"""Max share of the context window for the system prompt and tool definitions."""
SHORTER = (192_000, 128_000, 96_000, 64_000, 48_000, 32_000, 16_000, 8_000)
"""Max lengths in characters that instructions are shortened to, tried in order until one fits."""
SHARED = 32
"""Max prompt texts cached so that chats share one copy of the same text."""
INSTRUCTIONS = "instructions"
TITLE = "# Instructions\n\nWhere they contradict each other, the later ones hold."
FOLDER = "projectFolder"
NEARER = "# Instructions for this conversation\n\nWhere they contradict the ones above, these hold."


@dataclass(frozen=True, slots=True)
class Frozen:
    """System prompt of a chat, which stays the same from turn to turn until a new prompt is assembled."""

    static: str
    own: str = ""
    """Instructions for this chat alone."""
    appended: str = ""
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """Short listing of the project's files. Later changes of the listing are sent with the next user message
    (`prompt.known_surroundings`).
    """
    cut: tuple[str, ...] = ()
    """Instruction files left out because they are too large; contains `INSTRUCTIONS` if the instructions
    were shortened.
    """

    def chat(self, facts: prompt.ChatFacts) -> str:
        """Return the part of the prompt that never changes within one chat."""
        own = f"{NEARER}\n\n{self.own}" if self.own else ""
        return "\n\n".join(filter(None, [prompt.chat_text(facts, self.surroundings), own, self.appended]))


class Prompts:
    """Assembles system prompts. `name` is the bot's name. `custom` replaces the built-in rules and the
    listing of the project's files; `append` is added at the end of the prompt. `custom` and `append` are
    either a text or the path of a file. `has_files` says that the model has tools for the project's
    files. `others`: see `top_level`.
    """

    def __init__(
        self,
        root: Path,
        *,
        name: str,
        skills: SkillFolder,
        instructions: InstructionFiles,
        log: Log,
        vetting: Vetting,
        redact: Redact = str,
        custom: str | Path = "",
        append: str | Path = "",
        has_files: bool = False,
        others: Callable[[], Names] = frozenset,
    ) -> None:
        self._root = root
        self._name = name
        self._skills = skills
        self._instructions = instructions
        self._log = log
        self._redact = redact
        # Most chats share these texts, so that each text is redacted and stored once.
        self._shared = functools.lru_cache(SHARED)(redact)
        self._custom = custom.strip() if isinstance(custom, str) else custom
        self._append = append.strip() if isinstance(append, str) else append
        self._files = has_files and not custom
        self._others = others
        self._vetting = vetting

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
        """Build the prompt from freshly read files. `budget` is the token limit of the static part, measured
        by `size`. `system_role` says that the model accepts system messages within the conversation.

        Raises `sections.PromptTooLarge`. A section that cannot be read is left out and reported to operators.
        """
        async with asyncio.TaskGroup() as group:
            told = group.create_task(
                self._part(
                    "instructions", self._instructions.of_chat(channel, chat_key, model), Instructions()
                )
            )
            skills = group.create_task(self._part("skills", self._skills.overview(), []))
            custom = group.create_task(self._text("prompt.custom", self._custom))
            append = group.create_task(self._text("prompt.append", self._append))
            surroundings = group.create_task(self._surroundings())
        found = told.result()
        names = ", ".join(skill.name for skill in skills.result())
        rules = custom.result() or self._rules(found) + prompt.SYSTEM_RULE * system_role
        sections = [
            Section("rules", 1, rules, required=True),
            Section("model", 2, found.model, required=True),
            _instructed(found),
            Section(
                "skills",
                4,
                prompt.skills_section(skills.result()),
                alternatives=(f"# Skills\n\n`skills_load` knows: {names}.",),
            ),
        ]
        made = assemble(sections, budget, size)
        if made.dropped or made.shortened:
            self._log.write(
                "prompt",
                "the prompt was too large: parts are left out or shortened",
                level="warn",
                dropped=list(made.dropped),
                shortened=[name for name, _ in made.shortened],
                size=round(made.size),
                budget=round(budget),
            )
        return Frozen(
            self._shared(made.text),
            self._redact(found.own),
            self._shared(append.result()),
            {name: self._redact(words) for name, words in surroundings.result().items()},
            (*found.cut, *(name for name, _ in made.shortened if name == INSTRUCTIONS)),
        )

    async def of_person(self, inbound: Inbound) -> str:
        """Return the instructions for a message's sender, which are sent along with the message."""
        return self._redact(
            await self._part(
                "instructions for a person",
                self._instructions.of_person(inbound.channel, inbound.chat_key, inbound.user_id),
                "",
            )
        )

    def _rules(self, found: Instructions) -> str:
        role = prompt.NAME if found.shared else prompt.DEFAULT_ROLE
        return f"{role.format(name=self._name)}\n\n{prompt.RULES.strip()}"

    async def _text(self, key: str, source: str | Path) -> str:
        if isinstance(source, str):
            return source
        return await self._part(
            key, asyncio.to_thread(must_read, self._root, source, self._log, self._vetting), ""
        )

    async def _surroundings(self) -> dict[str, str]:
        if not self._files:
            return {}
        work = asyncio.to_thread(top_level, self._root, self._others)
        folder = await self._part("folder", work, "")
        return {FOLDER: folder} if folder else {}

    async def _part(self, name: str, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except* (OSError, ValueError, errors.ShipmateError) as failed:
            cause = failed.exceptions[0]
            self._log.write(
                "prompt",
                f"left out of the prompt: {name}",
                level="warn",
                cause=f"{type(cause).__name__}: {cause}",
            )
        return otherwise


def _instructed(found: Instructions) -> Section:
    forms = [found.shared] + [
        text.shorten_middle(found.shared, limit) for limit in SHORTER if limit < len(found.shared)
    ]
    full, *shorter = (f"{TITLE}\n\n{words}" if words else "" for words in forms)
    return Section(INSTRUCTIONS, 3, full, required=True, alternatives=tuple(shorter))
