"""Skills: folders that contain a `SKILL.md`, in `.claude/skills` and in the configured paths."""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiofiles
import regex
import yaml

from bot import errors, regular_files, text
from bot.contracts.environment import Log
from bot.hidden_paths import hidden
from bot.vetting import NotVetted, Vetting


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: what the overview shows of one folder with a `SKILL.md`. `allowed_tools` can only restrict a
    turn, never grant rights.
    """

    name: str
    description: str
    allowed_tools: tuple[str, ...] = ()


_NAME = regex.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = regex.compile(r"\A\uFEFF?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)(.*)\Z", regex.DOTALL)
_ENTRY = regex.compile(r"[^\s,()]+(?:\([^()]*\))?")
"""Pattern of an entry of `allowed-tools`: a name, with an optional argument pattern in parentheses."""
NAME_LIMIT = 64
DESCRIPTION_LIMIT = 1_024
BODY_LIMIT = 100_000  # characters
FILE_LIMIT = 1024 * 1024  # bytes


_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Found:
    skill: Skill
    body: str


class SkillFolder:
    """Finds skills in folders that contain a `SKILL.md`.

    A folder in `.claude/skills` counts only if it is inside the project after resolving symlinks and is not
    hidden. A configured path may be anywhere. If two skills have the same name, the first one counts.
    """

    def __init__(self, root: Path, paths: Sequence[str], log: Log, vetting: Vetting) -> None:
        self._root = root
        self._places = [(root / ".claude" / "skills", root), *((root / path, None) for path in paths)]
        self._log = log
        self._vetting = vetting
        # Parsed skills by file, each with the file's stamp. Every chat needs the skills, and the files rarely change.
        self._known: dict[Path, tuple[_Stamp, _Found | None]] = {}
        # After a start, many chats may ask at the same time. One of them reads the files, the others wait.
        self._scanning = asyncio.Lock()

    async def overview(self) -> list[Skill]:
        return [found.skill for found in (await self._all()).values()]

    async def load(self, name: str) -> str:
        found = await self._all()
        if name in found:
            return found[name].body
        near = difflib.get_close_matches(name, found, n=3, cutoff=0.4)
        hint = f"The nearest are: {', '.join(near)}." if near else "`skills_list` shows what there is."
        raise errors.ToolError(f"There is no skill named {text.preview(name, 80)!r}. {hint}")

    async def _all(self) -> dict[str, _Found]:
        async with self._scanning:
            return await self._scan()

    async def _scan(self) -> dict[str, _Found]:
        # Most projects have no skill folder and need no thread here.
        files = (
            await asyncio.to_thread(_skill_files, self._places, self._vetting.changes)
            if self._has_places()
            else {}
        )
        known = {path: self._known.get(path) for path in files}
        self._known = {
            path: seen
            if (seen := known[path]) is not None and seen[0] == stamp
            else (stamp, await self._read(path))
            for path, stamp in files.items()
        }
        skills: dict[str, _Found] = {}
        for _, found in self._known.values():
            if found is None:
                continue
            if found.skill.name in skills:
                self._log.write("skill", f"a second skill {found.skill.name!r} is left out", level="warn")
                continue
            skills[found.skill.name] = found
        return skills

    def _has_places(self) -> bool:
        return any(os.path.lexists(place) for place, _ in self._places)

    async def _raw(self, file: Path) -> bytes:
        while True:
            changes = self._vetting.changes
            async with aiofiles.open(file, "rb", opener=regular_files.opener) as handle:
                raw = await handle.read(FILE_LIMIT)
                found = os.fstat(handle.fileno())
            await asyncio.to_thread(self._vetting.must_be_followed, file, found)
            if changes == self._vetting.changes:  # otherwise a command has started or ended meanwhile
                return raw

    async def _read(self, file: Path) -> _Found | None:
        try:
            raw = await self._raw(file)
            return _parse(raw.decode("utf-8", "replace"), file.parent.name)
        except (OSError, ValueError, yaml.YAMLError, NotVetted) as error:
            self._log.write("skill", f"the skill {file.parent.name!r} cannot be used: {error}", level="warn")
            return None


def _skill_files(places: Sequence[tuple[Path, Path | None]], changes: int) -> dict[Path, _Stamp]:
    """Yield every `SKILL.md` that is one level below these paths, in order. Each path is yielded with a
    stamp of the file's state; the stamp depends on `changes` too.
    """
    files: dict[Path, _Stamp] = {}
    for place, inside in places:
        try:
            folders = sorted(entry for entry in place.iterdir() if entry.is_dir())
        except OSError:
            continue
        home = inside.resolve() if inside is not None else None
        for file in (folder / "SKILL.md" for folder in folders):
            try:
                seen = file.stat()
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode) and (home is None or not hidden(home, file.resolve())):
                files[file] = (seen.st_mtime_ns, seen.st_size, seen.st_ino, changes)
    return files


def _parse(source: str, folder: str) -> _Found:
    match = _FRONT_MATTER.match(source)
    head = yaml.safe_load(match.group(1)) if match else {}
    if not isinstance(head, dict):
        raise ValueError("its front matter is no mapping")  # noqa: TRY004 - a bad file, not a bad call
    name = str(head.get("name") or folder)
    if len(name) > NAME_LIMIT or _NAME.fullmatch(name) is None:
        raise ValueError("its name must be at most 64 characters of a-z, 0-9 and single hyphens")
    description = " ".join(str(head.get("description") or "").split())
    if not description:
        raise ValueError("it has no description")
    allowed = head.get("allowed-tools", head.get("allowed_tools", head.get("allowedTools"))) or ()
    listed = allowed if isinstance(allowed, str) else " ".join(map(str, allowed))
    body = (match.group(2) if match else source).strip()
    return _Found(
        Skill(name, text.head(description, DESCRIPTION_LIMIT), tuple(_ENTRY.findall(listed))),
        text.shorten_middle(body, BODY_LIMIT),
    )
