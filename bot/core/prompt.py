"""Builds the system prompt of a chat, and reads the instruction files. The prompt does not depend on time, request or person,
because one changed byte invalidates the provider's cache. Texts that depend on time, request or person are in user messages.

Instruction files are ordered from the whole machine down to one person: `/etc/shipmate/Agent.md`,
`~/.config/shipmate/Agent.md` and the project's `Agent.md`, then files for the model, the channel, the chat and the person
in `.ship/instructions/`. All of them apply. A line `<!-- shipmate: override -->` right below a heading makes this section,
with its subsections, replace sections with the same heading in earlier files.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import tomllib
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.file_access import hidden
from bot.llm import blocks
from bot.storage.jsonl import file_name
from bot.tags import CONTEXT, Tag
from bot.tools.file_guard import INCLUDE, LARGEST, FileGuard, prose
from bot.tools.skills import SkillFolder

T = TypeVar("T")
_TEXTS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
RULES, SYSTEM_RULE = _TEXTS["rules"], f"\n{_TEXTS['system_rule']}"
DEFAULT_ROLE = "You are {name}, a helpful assistant in a team chat."
BETWEEN = "\n\n"
LEAST_BUDGET, MOST_BUDGET, SHARE = 4_000, 60_000, 0.5
"""Token budget of the system prompt and tool definitions: its minimum, its maximum, and its share of the context window."""
SHORTER = (192_000, 128_000, 96_000, 64_000, 48_000, 32_000, 16_000, 8_000)
"""Lengths in characters to which instructions are shortened if they are too long. The first length that fits is used."""
SHARED = 32  # Max cached prompt texts. Chats with equal texts share one string object.
INSTRUCTIONS = "instructions"
TITLE = "# Instructions\n\nWhere they contradict each other, the later ones hold."
NEARER = "# Instructions for this conversation\n\nWhere they contradict the ones above, these hold."

AGENT_FILE = "Agent.md"
TOTAL_LIMIT = 512 * 1024  # Max bytes that are used of an instruction file and all of its includes together
DEPTH = 5  # Max depth of nested includes
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"[ \t]*<!--\s*shipmate:\s*override\s*-->[ \t]*", re.IGNORECASE)

# ------------------------------------------------------------ sections within a budget


def assemble(
    sections: Mapping[str, Sequence[str]],
    budget: float,
    size: Callable[[str], float] = len,
    required: Container[str] = (),
) -> dict[str, str]:
    """Return the text of each section, in order: the longest of its forms that fits the rest of the budget. `sections`
    has each section's text and shorter versions, longest first; an empty form is ignored. A section of which no form
    fits is left out. Raises `errors.TurnFailed` if a required section does not fit.
    """
    chosen = dict[str, str]()
    gap = size(BETWEEN)
    left = budget + gap
    for name, forms in sections.items():
        costs = [(form, size(form) + gap) for form in forms if form]
        if (fits := next((found for found in costs if found[1] <= left), None)) is not None:
            chosen[name] = fits[0]
            left -= fits[1]
        elif costs and name in required:
            raise errors.TurnFailed(
                f"the section `{name}` of the prompt takes {costs[-1][1]:.0f} of the {left:.0f} that are left: "
                "shorten the instruction files, or use a model with a larger window",
                "prompt_too_large",
            )
    return chosen


# ------------------------------------------------------------ instruction files


class Unreadable(errors.ShipmateError):
    """An instruction file exists but cannot be used."""


@dataclass(slots=True)
class _Reader:
    """Reads one file with its includes. `root` is the project's folder without symlinks."""

    root: Path
    log: Log
    guard: FileGuard
    opened: list[Path] = field(default_factory=list)  # Files that are being read: each includes the next one
    left: int = TOTAL_LIMIT
    cut: list[str] = field(default_factory=list)
    """Names of files that were too large, so that only their beginning is used."""

    def text(self, name: Path) -> str | None:
        """Return the file's text with its includes; None if the file does not exist. Log and skip an unreadable include."""
        real = name.resolve()
        chats = self.root / ".ship" / "instructions"
        in_chats = not self.opened and name.is_relative_to(chats) and real.is_relative_to(chats.resolve())
        operators = not self.opened and not name.is_relative_to(self.root)
        if not operators and not in_chats and hidden(self.root, real):
            raise Unreadable("it is outside of the project, or in a place that instructions may not show")
        if real in self.opened:
            raise Unreadable("it includes itself")
        if len(self.opened) > DEPTH:
            raise Unreadable(f"includes are nested more than {DEPTH} deep")
        most = min(LARGEST, self.left)
        try:
            raw = self.guard.read(name, real, most + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise Unreadable(str(error)) from None
        words = prose(raw[:most])
        if 20 * (raw.count(0) + words.count("\ufffd")) > len(words) + 200:
            raise Unreadable("it is no text")
        if len(raw) > most:
            self.cut.append(name.name)
            told = "an instruction file is too large: its beginning is used"
            self.log.write("prompt", told, level="warn", file=name.name)
        self.left -= len(raw[:most])
        self.opened.append(real)
        try:
            return "\n".join(self._expanded(words, real)).strip()
        finally:
            self.opened.pop()

    def logged(self, path: Path) -> str:
        """Return the file's text; "" if the file does not exist. Log a file that cannot be read."""
        try:
            return self.text(path) or ""
        except (Unreadable, OSError, RuntimeError) as error:
            told, cause = "an instruction file cannot be read", str(error)
            self.log.write("prompt", told, level="warn", file=str(path), cause=cause)
            return ""

    def _expanded(self, words: str, by: Path) -> Iterator[str]:
        # An include is relative to the including file's folder. If this folder is not in the project, the root is used.
        folder = self.root if hidden(self.root, by.parent) else by.parent
        fenced = False
        for line in words.splitlines():
            fenced ^= _FENCE.match(line) is not None
            if fenced or (named := INCLUDE.fullmatch(line)) is None:
                yield line
                continue
            try:
                if (found := self.text(folder / Path(named[1]).expanduser())) is None:
                    raise Unreadable("there is no such file")
                yield found
            except (Unreadable, OSError, ValueError, RuntimeError) as error:
                told = f"an include is left out: {error}"
                self.log.write("prompt", told, level="warn", file=by.name, include=named[1][:200])


def must_read(root: Path, path: Path, log: Log, guard: FileGuard) -> str:
    """Return the text of a project file with its includes. Blocks on disk reads. Raises `Unreadable`."""
    root = root.resolve()
    words = None if hidden(root, path.resolve()) else _Reader(root, log, guard).text(path)
    if words is None:
        raise Unreadable("there is no such file in the project")
    return words


@dataclass(slots=True)
class _Part:
    """A heading with the lines below it, up to the next heading of any level."""

    level: int
    key: str
    lines: list[str] = field(default_factory=list)
    override: bool = False
    gone: bool = False


def resolve(texts: Sequence[str]) -> list[str]:
    """Return these texts without the sections that later texts override. The texts go from widest to narrowest scope."""
    files = [_parts(one) for one in texts]
    for near, sections in enumerate(files):
        overrides = {one.key for one in sections if one.override and one.key}
        for farther in files[:near]:
            level = 7  # deeper than any heading
            for one in farther:
                if one.level <= level:
                    level = one.level if one.key in overrides else 7
                one.gone |= level < 7
    return ["\n".join(line for one in file if not one.gone for line in one.lines).strip() for file in files]


def _parts(words: str) -> list[_Part]:
    sections, fence = [_Part(0, "")], ""
    for line in words.splitlines():
        mark = _FENCE.match(line)
        if mark is not None and (not fence or (mark[1].startswith(fence) and not line[mark.end() :].strip())):
            fence = "" if fence else mark[1]
        last = sections[-1]
        if not fence and (heading := _HEADING.fullmatch(line)) is not None:
            key = " ".join((heading[2] or "").casefold().split())
            sections.append(_Part(len(heading[1]), key, [line]))
        elif (
            not fence
            and last.level
            and _DIRECTIVE.fullmatch(line)
            and not any(map(str.strip, last.lines[1:]))
        ):
            last.override = True
        else:
            last.lines.append(line)
    return sections


def operator_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    own = (Path(home) / "shipmate" / AGENT_FILE,) if home.startswith("/") else ()
    return (Path("/etc/shipmate") / AGENT_FILE, *own)


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for all chats (`shared`), the chat (`own`) and the model. `cut` names files that were too large."""

    shared: str = ""
    own: str = ""
    model: str = ""
    cut: tuple[str, ...] = ()


@dataclass(slots=True)
class InstructionFiles:
    """The instruction files of one project. `everywhere` are the operator's files for all projects."""

    root: Path
    log: Log
    guard: FileGuard
    everywhere: Sequence[Path] = ()

    def __post_init__(self) -> None:
        self.root = self.root.resolve()

    async def of_chat(self, channel: str | None, chat_key: ChatKey, model: str) -> Instructions:
        """Return the instructions for a chat. `channel` is None for a turn that belongs to no channel."""
        cut: list[str] = []
        near = [self._path("channels", channel or ""), self._path("chats", str(chat_key))]
        far = [*self.everywhere, self.root / AGENT_FILE]
        *found, adapted = await self._texts([*far, *near, self._path("models", model)], cut)
        texts = resolve(found)
        shared, own = ("\n\n".join(filter(None, part)) for part in (texts[: len(far)], texts[len(far) :]))
        return Instructions(shared, own, adapted, tuple(cut))

    async def of_person(self, channel: str, chat_key: ChatKey, user_id: str) -> str:
        mine = self._path("people", channel, user_id)
        if not mine.exists():
            return ""
        # Return only the text of the person's file. The cached prompt keeps even the sections that this file overrides.
        far = [*self.everywhere, self.root / AGENT_FILE]
        near = [self._path("channels", channel), self._path("chats", str(chat_key)), mine]
        return resolve(await self._texts([*far, *near], []))[-1]

    def _path(self, scope: str, *names: str) -> Path:
        return self.root / ".ship" / "instructions" / scope / f"{'-'.join(map(file_name, names))}.md"

    async def _texts(self, paths: Sequence[Path], cut: list[str]) -> list[str]:
        """Return the texts of files, in order; "" for a missing file. If all are missing, no thread is started."""
        if not any(map(os.path.lexists, paths)):
            return [""] * len(paths)
        readers = [_Reader(self.root, self.log, self.guard, cut=cut) for _ in paths]
        return await asyncio.to_thread(
            lambda: [one.logged(path) for one, path in zip(readers, paths, strict=True)]
        )


def of_folders(root: Path, touched: Iterable[Path], log: Log, guard: FileGuard) -> list[Tag]:
    """Return the `Agent.md` files in the folders above these paths, except the project's root. Blocks on disk reads."""
    root = root.resolve()
    found: set[Path] = set()
    for path in touched:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            real = (root / path).resolve()
            folders = (real, *real.parents) if not hidden(root, real) else ()
            found |= {one / AGENT_FILE for one in folders if one.is_relative_to(root) and one != root}
    made = list[Tag]()
    for file in sorted(found, key=lambda one: (len(one.parts), one)):
        if file.is_file() and (words := _Reader(root, log, guard).logged(file)):
            name = file.relative_to(root)
            note = f"Instructions for what lies in {name.parent}/, from {name}."
            made.append(Tag(CONTEXT, f"\n{words}\n", note))
    return made


# ------------------------------------------------------------ the system prompt


@dataclass(frozen=True, slots=True)
class Frozen:
    """System prompt of a chat. The chat's turns share this object until a new prompt is built."""

    static: str
    own: str = ""  # Instructions that apply only to this chat
    appended: str = ""
    cut: tuple[str, ...] = ()
    """Names of instruction files that were shortened, and `INSTRUCTIONS` if the instructions as a whole were shortened."""

    def system(self, root: Path, first: Inbound, rules: str = "", *, hour: bool = False) -> list[Json]:
        """Return the `system` blocks of a chat's requests. Each block ends in a cache breakpoint. `first` is any message of
        the chat. If `hour` is True, the provider caches the tools and the static block, which all chats share, for an hour.
        """
        facts = {"projectRoot": root, "chatKey": first.chat_key, "channel": first.channel}
        facts |= {"chatId": first.chat_id, "chatType": first.chat_type}
        lines = [f"{name}: {value}" for name, value in facts.items()]
        own = f"{NEARER}\n\n{self.own}" if self.own else ""
        chat = ["# This conversation", "\n".join(lines), rules.strip(), own, self.appended]
        marks = (
            (self.static, blocks.HOUR if hour else blocks.CACHE),
            (BETWEEN.join(filter(None, chat)), blocks.CACHE),
        )
        return [{"type": "text", "text": part, "cache_control": mark} for part, mark in marks if part]


@dataclass(slots=True)
class Prompts:
    """Builds system prompts. `custom` replaces the built-in rules; `append` is added at the end. Each is text or a file path."""

    name: str
    skills: SkillFolder
    instructions: InstructionFiles
    redact: Redact = str
    custom: str | Path = ""
    append: str | Path = ""
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
        """Read the files again and build the prompt. `budget` limits the static part, which `size` measures. A section that
        cannot be read is left out. Raises `errors.TurnFailed`.
        """
        told = self.instructions.of_chat(channel, chat_key, model)
        found = await self._part("instructions", told, Instructions())
        skills = await self._part("skills", self.skills.overview(), [])
        custom, append = await self._text("prompt.custom"), await self._text("prompt.append")
        # Shared instruction files describe the bot's role, so the default role is used only without them.
        role = ("You are {name}." if found.shared else DEFAULT_ROLE).format(name=self.name)
        rules = custom or f"{role}\n\n{RULES}" + SYSTEM_RULE * system_role
        lengths = (len(found.shared), *(most for most in SHORTER if most < len(found.shared)))
        shared = [f"{TITLE}\n\n{text.shorten_middle(found.shared, most)}" for most in lengths if most]
        listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        known = f"# Skills\n\n`skills_load` knows: {', '.join(skill.name for skill in skills)}."
        load = "# Skills\n\nLoad one with `skills_load` before you do what it describes.\n\n"
        sections = {
            "rules": [rules],
            "model": [found.model],
            INSTRUCTIONS: shared,
            "skills": [load + listed, known] if listed else [],
        }
        made = assemble(sections, budget, size, required=("rules", "model", INSTRUCTIONS))
        dropped = [name for name, forms in sections.items() if any(forms) and name not in made]
        shortened = [name for name, words in made.items() if words != sections[name][0]]
        if dropped or shortened:
            told_now = "the prompt was too large: parts are left out or shortened"
            log = self.instructions.log
            log.write("prompt", told_now, level="warn", dropped=dropped, shortened=shortened)
        cut = (*found.cut, *(name for name in shortened if name == INSTRUCTIONS))
        own = self.redact(found.own)
        return Frozen(self._shared(BETWEEN.join(made.values())), own, self._shared(append), cut)

    async def of_person(self, inbound: Inbound) -> str:
        """Return the instructions for the sender of a message. These instructions become part of the user message."""
        told = self.instructions.of_person(inbound.channel, inbound.chat_key, inbound.user_id)
        return self.redact(await self._part("instructions for a person", told, ""))

    async def _text(self, key: str) -> str:
        source = self.custom if key == "prompt.custom" else self.append
        if isinstance(source, str):
            return source.strip()
        files = self.instructions
        work = asyncio.to_thread(must_read, files.root, source, files.log, files.guard)
        return await self._part(key, work, "")

    async def _part(self, name: str, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except (OSError, ValueError, errors.ShipmateError) as error:
            cause = f"{type(error).__name__}: {error}"
            log = self.instructions.log
            log.write("prompt", f"left out of the prompt: {name}", level="warn", cause=cause)
        return otherwise
