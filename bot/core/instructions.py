"""Reads instruction files for the model with their includes, ordered from the whole machine down to one person.

First come `/etc/shipmate/Agent.md`, `~/.config/shipmate/Agent.md` and the project's `Agent.md`. Then come files for the
model, the channel, the chat and the person in `.ship/instructions/`. All of them apply. A line `<!-- shipmate: override
-->` right below a heading makes this section, with its subsections, replace sections with the same heading in earlier
files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.file_access import hidden
from bot.tags import CONTEXT, Tag
from bot.vetting import INCLUDE, LARGEST, NotVetted, Vetting, prose

NAME = "Agent.md"
TOTAL_LIMIT = 512 * 1024
"""Max bytes used of an instruction file together with all of its includes."""
DEPTH = 5
"""Max depth of nested includes."""
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"[ \t]*<!--\s*shipmate:\s*override\s*-->[ \t]*", re.IGNORECASE)


class Unreadable(errors.ShipmateError):
    """An instruction file exists but cannot be used."""


@dataclass(slots=True)
class _Reader:
    """Reads one file with its includes. `root` is the project's folder without symlinks."""

    root: Path
    log: Log
    vetting: Vetting
    opened: list[Path] = field(default_factory=list)
    """Files that are open now: each includes the next one."""
    left: int = TOTAL_LIMIT
    cut: list[str] = field(default_factory=list)
    """Names of files that were too large, so that only their beginning is used."""

    def text(self, name: Path) -> str | None:
        """Return the file's text with its includes; None if there is no file. Log and skip an unreadable include."""
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
            raw = self.vetting.read(name, real, most + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, NotVetted) as error:
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
        """Return the file's text; "" if there is no file. Log a file that cannot be read."""
        try:
            return self.text(path) or ""
        except (Unreadable, OSError, RuntimeError) as error:
            told, cause = "an instruction file cannot be read", str(error)
            self.log.write("prompt", told, level="warn", file=str(path), cause=cause)
            return ""

    def _expanded(self, words: str, by: Path) -> Iterator[str]:
        # An include is relative to the including file if that is in the project, else to the project's root.
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


def must_read(root: Path, path: Path, log: Log, vetting: Vetting) -> str:
    """Return the text of a project file with its includes. Blocks on disk reads. Raises `Unreadable`."""
    root = root.resolve()
    words = None if hidden(root, path.resolve()) else _Reader(root, log, vetting).text(path)
    if words is None:
        raise Unreadable("there is no such file in the project")
    return words


@dataclass(slots=True)
class _Section:
    """A heading with the lines below it, up to the next heading of any level."""

    level: int
    key: str
    lines: list[str] = field(default_factory=list)
    override: bool = False
    gone: bool = False


def resolve(texts: Sequence[str]) -> list[str]:
    """Return these texts without the sections that later texts override. The texts go from widest to narrowest scope."""
    files = [_sections(one) for one in texts]
    for near, sections in enumerate(files):
        overrides = {one.key for one in sections if one.override and one.key}
        for farther in files[:near]:
            level = 7  # no heading
            for one in farther:
                if one.level <= level:
                    level = one.level if one.key in overrides else 7
                one.gone |= level < 7
    return ["\n".join(line for one in file if not one.gone for line in one.lines).strip() for file in files]


def _sections(words: str) -> list[_Section]:
    sections, fence = [_Section(0, "")], ""
    for line in words.splitlines():
        mark = _FENCE.match(line)
        if mark is not None and (not fence or (mark[1].startswith(fence) and not line[mark.end() :].strip())):
            fence = "" if fence else mark[1]
        last = sections[-1]
        if not fence and (heading := _HEADING.fullmatch(line)) is not None:
            key = " ".join((heading[2] or "").casefold().split())
            sections.append(_Section(len(heading[1]), key, [line]))
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
    own = (Path(home) / "shipmate" / NAME,) if home.startswith("/") else ()
    return (Path("/etc/shipmate") / NAME, *own)


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for all chats (`shared`), the chat (`own`) and the model. `cut` names files that were too large."""

    shared: str = ""
    own: str = ""
    model: str = ""
    cut: tuple[str, ...] = ()


class InstructionFiles:
    """The instruction files of one project. `encode` turns an id into a safe file name."""

    def __init__(
        self,
        root: Path,
        *,
        encode: Callable[[str], str],
        log: Log,
        vetting: Vetting,
        everywhere: Sequence[Path] = (),
    ) -> None:
        self._root = root.resolve()
        self._encode = encode
        self._log = log
        self._far = [*everywhere, self._root / NAME]
        self._vetting = vetting

    async def of_chat(self, channel: str | None, chat_key: ChatKey, model: str) -> Instructions:
        """Return the instructions for a chat. `channel` is None for a turn that belongs to no channel."""
        cut: list[str] = []
        near = [self._path("channels", channel or ""), self._path("chats", str(chat_key))]
        *found, adapted = await self._texts([*self._far, *near, self._path("models", model)], cut)
        texts, far = resolve(found), len(self._far)
        shared, own = ("\n\n".join(filter(None, part)) for part in (texts[:far], texts[far:]))
        return Instructions(shared, own, adapted, tuple(cut))

    async def of_person(self, channel: str, chat_key: ChatKey, user_id: str) -> str:
        mine = self._path("people", channel, user_id)
        if not mine.exists():
            return ""
        # Only this file's own text is returned. Sections that it overrides stay in the prompt, which is cached.
        near = [self._path("channels", channel), self._path("chats", str(chat_key)), mine]
        return resolve(await self._texts([*self._far, *near], []))[-1]

    def _path(self, scope: str, *names: str) -> Path:
        return self._root / ".ship" / "instructions" / scope / f"{'-'.join(map(self._encode, names))}.md"

    async def _texts(self, paths: Sequence[Path], cut: list[str]) -> list[str]:
        """Return the texts of files, in order; "" for a missing file. If all are missing, no thread is started."""
        if not any(map(os.path.lexists, paths)):
            return [""] * len(paths)
        readers = [_Reader(self._root, self._log, self._vetting, cut=cut) for _ in paths]
        return await asyncio.to_thread(
            lambda: [one.logged(path) for one, path in zip(readers, paths, strict=True)]
        )


def of_folders(root: Path, touched: Iterable[Path], log: Log, vetting: Vetting) -> list[Tag]:
    """Return the `Agent.md` files in the folders above these paths, except the project's root. Blocks on disk reads."""
    root = root.resolve()
    found: set[Path] = set()
    for path in touched:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            real = (root / path).resolve()
            folders = (real, *real.parents) if not hidden(root, real) else ()
            found |= {one / NAME for one in folders if one.is_relative_to(root) and one != root}
    made = list[Tag]()
    for file in sorted(found, key=lambda one: (len(one.parts), one)):
        if file.is_file() and (words := _Reader(root, log, vetting).logged(file)):
            name = file.relative_to(root)
            note = f"Instructions for what lies in {name.parent}/, from {name}."
            made.append(Tag(CONTEXT, f"\n{words}\n", note))
    return made
