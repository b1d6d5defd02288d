"""Hierarchy of instruction files: whole machine, operator, project, model, channel, chat, person.

| scope | file |
| --- | --- |
| machine | `/etc/shipmate/Agent.md` |
| operator | `~/.config/shipmate/Agent.md` (`$XDG_CONFIG_HOME` counts) |
| project | `Agent.md` |
| model | `.ship/instructions/models/<encoded model>.md` |
| channel | `.ship/instructions/channels/<channel>.md` |
| chat | `.ship/instructions/chats/<encoded chatKey>.md` |
| person | `.ship/instructions/people/<channel>-<encoded id>.md` |

A missing file is skipped. A file that cannot be read is logged, and the other files still apply.

All files apply; a file for a narrower scope comes later in the prompt. A line `<!-- shipmate: override -->`
right below a heading makes that section, including its subsections, replace the sections with the same heading
in files of wider scope.

Instruction files of folders (`of_folders`) are attached once per epoch, when a tool touches a file in the
folder. Attached instructions stay in the history.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.core.files import Including, Unreadable
from bot.hidden_paths import hidden
from bot.tags import CONTEXT, Tag
from bot.vetting import Vetting

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"[ \t]*<!--\s*shipmate:\s*override\s*-->[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """Text of one instruction file. `name` is the file's name as operators see it."""

    name: str
    text: str
    cut: tuple[str, ...] = ()
    """Names of files of which only the beginning is used: the file itself or its includes."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The remaining text of each file, and a line for operators for each overridden section."""

    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Block:
    """A heading with its lines, up to the next heading."""

    level: int
    key: str
    lines: list[str] = field(default_factory=list)
    override: bool = False
    gone: bool = False


def resolve(sources: Sequence[Source]) -> Resolved:
    """Apply the override directives in these files, which are sorted farthest first."""
    files = [_blocks(source.text) for source in sources]
    notes: list[str] = []
    for near, blocks in enumerate(files):
        overrides = {block.key for block in blocks if block.override and block.key}
        for source, farther in zip(sources[:near], files[:near], strict=True):
            for at, block in enumerate(farther):
                if block.key in overrides and not block.gone:
                    for inner in _span(farther, at):
                        inner.gone = True
                    notes.append(f"{source.name}: {block.key!r} is overridden by {sources[near].name}")
    return Resolved(tuple(map(_text, files)), tuple(notes))


def _blocks(text: str) -> list[_Block]:
    blocks = [_Block(0, "")]
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark is not None and (not fence or (mark[1].startswith(fence) and not line[mark.end() :].strip())):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is not None:
            blocks.append(_Block(len(heading[1]), " ".join((heading[2] or "").casefold().split())))
        elif not fence and not any(map(str.strip, blocks[-1].lines[1:])) and _take(line, blocks[-1]):
            continue
        blocks[-1].lines.append(line)
    return blocks


def _take(line: str, block: _Block) -> bool:
    """Return True if a line below a heading is the override directive, and record that in the block."""
    directive = block.level > 0 and _DIRECTIVE.fullmatch(line) is not None
    block.override |= directive
    return directive


def _span(blocks: Sequence[_Block], at: int) -> Iterable[_Block]:
    """Return a section: its heading and everything below it of lower rank."""
    yield blocks[at]
    for block in blocks[at + 1 :]:
        if block.level <= blocks[at].level:
            return
        yield block


def _text(blocks: Iterable[_Block]) -> str:
    return "\n".join(line for block in blocks if not block.gone for line in block.lines).strip()


NAME = "Agent.md"


def operator_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths of the machine-wide instruction files, farthest first."""
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    own = (Path(home) / "shipmate" / NAME,) if home.startswith("/") else ()
    return (Path("/etc/shipmate") / NAME, *own)


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for one chat: `shared` by all chats except for overrides, and the chat's own."""

    shared: str = ""
    own: str = ""
    model: str = ""
    sources: tuple[str, ...] = ()
    """Names of the files that the instructions come from."""
    cut: tuple[str, ...] = ()
    """Names of files of which only the beginning is used."""


class InstructionFiles:
    """Instruction files of one project. `encode` turns text into a file name."""

    def __init__(
        self,
        root: Path,
        *,
        encode: Callable[[str], str],
        log: Log,
        vetting: Vetting,
        everywhere: Sequence[Path] = (),
    ) -> None:
        self._root = root
        self._folder = root / ".ship" / "instructions"
        self._encode = encode
        self._log = log
        self._everywhere = tuple(everywhere)
        self._vetting = vetting

    async def of_chat(self, channel: str | None, chat_key: ChatKey, model: str) -> Instructions:
        """Return the instructions for a chat. `channel` is None for a turn without a chat."""
        far = [*self._everywhere, self._root / NAME]
        near = [self._of_channel(channel), self._of_chat(chat_key)]
        adaptations = self._folder / "models" / f"{self._encode(model)}.md"
        *found, adapted = await self._all([*far, *near, adaptations])
        resolved = self._resolved(found)
        return Instructions(
            shared=_joined(resolved.texts[: len(far)]),
            own=_joined(resolved.texts[len(far) :]),
            model=adapted.text,
            sources=tuple(source.name for source in (*found, adapted) if source.text),
            cut=tuple(name for source in (*found, adapted) for name in source.cut),
        )

    async def of_person(self, channel: str, chat_key: ChatKey, user_id: str) -> str:
        """Return the instructions for a person."""
        mine = self._folder / "people" / f"{self._encode(channel)}-{self._encode(user_id)}.md"
        (own,) = await self._all([mine])
        if not own.text:
            return ""
        far = [*self._everywhere, self._root / NAME, self._of_channel(channel), self._of_chat(chat_key)]
        # The sections that this file overrides stay in the cached part of the prompt.
        return self._resolved([*(await self._all(far)), own]).texts[-1]

    def _of_channel(self, channel: str | None) -> Path | None:
        return None if channel is None else self._folder / "channels" / f"{self._encode(channel)}.md"

    def _of_chat(self, chat_key: ChatKey) -> Path:
        return self._folder / "chats" / f"{self._encode(str(chat_key))}.md"

    async def _all(self, paths: Sequence[Path | None]) -> list[Source]:
        """Return the files in order. Missing files, which are most, need no thread."""
        there = _there(paths)
        found = dict(zip(there, await asyncio.to_thread(self._read, there), strict=True)) if there else {}
        return [found.get(path, Source("", "")) if path is not None else Source("", "") for path in paths]

    def _read(self, paths: Sequence[Path]) -> list[Source]:
        return [self._source(path) for path in paths]

    def _source(self, path: Path) -> Source:
        inside = path.is_relative_to(self._root)
        name = str(path.relative_to(self._root)) if inside else str(path)
        try:
            root = self._root.resolve()
            real = path.resolve()
            # Symlinks must not lead out of the project or to secrets; `.ship` itself may be a symlink.
            home = self._folder.resolve() if path.is_relative_to(self._folder) else root
            if inside and (not real.is_relative_to(home) or (home is root and hidden(root, real))):
                raise Unreadable("it is a link that leads to where instructions may not be")
            including = Including(root, self._log, self._vetting)
            return Source(name, including.text(real, path) or "", tuple(including.cut))
        except (Unreadable, OSError, RuntimeError) as error:
            self._log.write(
                "prompt", "an instruction file cannot be read", level="warn", file=name, cause=str(error)
            )
            return Source(name, "")

    def _resolved(self, sources: Sequence[Source]) -> Resolved:
        resolved = resolve(sources)
        for note in resolved.notes:
            self._log.write(
                "prompt", "a section of the instructions is left out", level="debug", section=note
            )
        return resolved


def _there(paths: Iterable[Path | None]) -> list[Path]:
    """Return the paths that exist. A stat takes microseconds; a thread would cost a hundred times as much."""
    return [path for path in paths if path is not None and os.path.lexists(path)]


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts))


def of_folders(root: Path, touched: Iterable[Path], log: Log, vetting: Vetting) -> list[Tag]:
    """Return the instructions for the folders around these paths, from the root folder down, so that the
    nearest file comes last. The `Agent.md` of the project's root is already in the prompt. Blocks on disk
    access.
    """
    root = root.resolve()
    found: set[Path] = set()
    for path in touched:
        try:
            real = (root / path).resolve()
        except (OSError, ValueError, RuntimeError):
            continue
        if not hidden(root, real):
            folders = [one for one in (real, *real.parents) if one.is_relative_to(root) and one != root]
            found |= {folder / NAME for folder in folders}
    tags = (
        _of_folder(root, file, log, vetting) for file in sorted(found, key=lambda one: (len(one.parts), one))
    )
    return [tag for tag in tags if tag is not None]


def _of_folder(root: Path, file: Path, log: Log, vetting: Vetting) -> Tag | None:
    name = file.relative_to(root)
    try:
        real = file.resolve()
        if not real.is_file():
            return None
        if hidden(root, real):
            raise Unreadable("it is a link that leads to where instructions may not be")
        words = Including(root, log, vetting).text(real, file)
    except (Unreadable, OSError, RuntimeError) as error:
        log.write("prompt", "an instruction file cannot be read", level="warn", cause=str(error))
        return None
    note = f"Instructions for what lies in {name.parent}/, from {name}."
    return Tag(CONTEXT, f"\n{words}\n", note) if words else None
