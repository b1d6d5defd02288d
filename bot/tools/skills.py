"""Skills: folders that contain a `SKILL.md`, in `.claude/skills` and in the configured paths."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import regex
import yaml

from bot import errors, tags, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Log
from bot.file_access import hidden
from bot.tools.file_guard import FileGuard, NotFollowed
from bot.tools.permissions.patterns import Paths, RuleMalformed
from bot.tools.permissions.rules import Call, Decision, PolicyContext, Rules, Subject, check, parse


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `allowed_tools` can restrict a turn but cannot grant rights. `body` contains the instructions."""

    name: str
    description: str
    allowed_tools: tuple[str, ...] = ()
    body: str = field(default="", compare=False, repr=False)


_NAME = regex.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = regex.compile(r"\A\uFEFF?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)(.*)\Z", regex.DOTALL)
_ENTRY = regex.compile(r"[^\s,()]+(?:\([^()]*\))?")
"""Pattern of one entry in `allowed-tools`: a name, and optionally an argument pattern in parentheses."""
NAME_LIMIT, DESCRIPTION_LIMIT, BODY_LIMIT = 64, 1_024, 100_000  # max characters
FILE_LIMIT = 1024 * 1024  # max bytes of a `SKILL.md`
_Stamp = tuple[int, int, int]


class SkillFolder:
    """Finds skills: folders that contain a `SKILL.md`.

    A folder in `.claude/skills` is used only if it is inside the project after resolving symlinks and is not hidden. A
    configured path may be anywhere. If two skills have the same name, the first skill is used.
    """

    def __init__(self, root: Path, paths: Sequence[str], log: Log, guard: FileGuard) -> None:
        self._places = [(root / ".claude" / "skills", root), *((root / path, None) for path in paths)]
        self._log = log
        self._guard = guard
        self._known: dict[Path, tuple[_Stamp | None, Skill | None]] = {}
        """Parsed skills by file, each with the file's stamp."""
        # After a start, many chats may need the skills at the same time. One chat reads the files; the other chats wait.
        self._scanning = asyncio.Lock()

    async def overview(self) -> list[Skill]:
        return list((await self._all()).values())

    async def load(self, name: str) -> str:
        found = await self._all()
        if name in found:
            return found[name].body
        near = difflib.get_close_matches(name, found, n=3, cutoff=0.4)
        hint = f"The nearest are: {', '.join(near)}." if near else "`skills_list` shows what there is."
        raise errors.ToolError(f"There is no skill named {text.preview(name, 80)!r}. {hint}")

    async def _all(self) -> dict[str, Skill]:
        async with self._scanning:
            # Most projects have no skill folder, so they need no thread here.
            if any(os.path.lexists(place) for place, _ in self._places):  # noqa: ASYNC240 - takes microseconds
                self._known = await asyncio.to_thread(self._scan)
            else:
                self._known = {}
        skills: dict[str, Skill] = {}
        for _, skill in self._known.values():
            if skill is not None and skill.name in skills:
                self._log.write("skill", f"a second skill {skill.name!r} is left out", level="warn")
            elif skill is not None:
                skills[skill.name] = skill
        return skills

    def _scan(self) -> dict[Path, tuple[_Stamp | None, Skill | None]]:
        """Read every `SKILL.md` one level below the skill folders, in order, unless it is known and unchanged."""
        found = dict[Path, tuple[_Stamp | None, Skill | None]]()
        for place, inside in self._places:
            home = inside.resolve() if inside is not None else None
            for file in sorted(place.glob("*/SKILL.md")):
                with contextlib.suppress(OSError):
                    seen = file.stat()
                    if stat.S_ISREG(seen.st_mode) and (home is None or not hidden(home, file.resolve())):
                        stamp, known = (seen.st_mtime_ns, seen.st_size, seen.st_ino), self._known.get(file)
                        found[file] = known if known and known[0] == stamp else self._read(file, stamp)
        return found

    def _read(self, file: Path, stamp: _Stamp) -> tuple[_Stamp | None, Skill | None]:
        try:
            raw = self._guard.read(file, file.resolve(), FILE_LIMIT)
            return stamp, _parse(raw.decode("utf-8", "replace"), file.parent.name)
        except (OSError, ValueError, yaml.YAMLError) as error:
            told = f"the skill {file.parent.name!r} cannot be used: {error}"
            self._log.write("skill", told, level="warn")
            # When the running commands have ended, the file may be followed. So it is read again then.
            return None if isinstance(error, NotFollowed) else stamp, None


def _parse(source: str, folder: str) -> Skill:
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
    body = text.shorten_middle((match.group(2) if match else source).strip(), BODY_LIMIT)
    return Skill(name, text.head(description, DESCRIPTION_LIMIT), tuple(_ENTRY.findall(listed)), body)


# ------------------------------------------------------------ allowed tools

ALWAYS = frozenset(
    {"chat_load_history", "chat_send", "read_artifact", "skills_list", "skills_load", "tool_search"}
)
"""Tools that every skill allows: they answer people, or read history, artifacts and skills."""
NAMES = {
    "bash": "run_shell",
    "edit": "edit_file",
    "glob": "search_files",
    "grep": "search_files",
    "ls": "list_dir",
    "multiedit": "edit_file",
    "read": "read_file",
    "task": "task",
    "webfetch": "web_fetch",
    "websearch": "web_search",
    "write": "write_file",
}
"""Shipmate's tool names, keyed by the tool names in skills that were written for other AI agents."""
_LOAD = "skills_load"


@dataclass(eq=False)
class SkillAllowlist:
    """Restricts a turn to the `allowed-tools` of the skills that it has loaded. The permission rules must allow a call too. The
    restriction begins when a skill is loaded and ends when the person writes again. The restriction is computed from the
    messages, so it survives a restart.
    """

    skills: SkillFolder
    paths: Paths
    _compiled: dict[tuple[str, ...], Rules] = field(default_factory=dict)

    async def refuses(
        self, call: Call, subjects: Sequence[Subject], now: PolicyContext, messages: Sequence[Message]
    ) -> Decision | None:
        """Return a refusal if none of the loaded skills lists the call. Return None if a loaded skill lists the call, or if
        no loaded skill restricts tools.
        """
        names = loaded(messages) if call.tool not in ALWAYS else ()
        if not names:
            return None
        lists = {skill.name: skill.allowed_tools for skill in await self.skills.overview()}
        narrow = [name for name in names if lists.get(name)]
        for name in narrow:
            if all(self._rules(lists[name]).permits(call, one, now) for one in subjects):
                return None
        if not narrow:
            return None
        reason = f"the skill {narrow[-1]} does not work with it, until the person writes again"
        return Decision("deny", "skill", reason, f"allowed-tools {' '.join(lists[narrow[-1]])}")

    def _rules(self, listed: tuple[str, ...]) -> Rules:
        if listed not in self._compiled:
            sound = list[str]()
            for rule in (rule for entry in listed for rule in rules_of(entry)):
                with contextlib.suppress(RuleMalformed):  # an invalid entry allows nothing
                    check(parse(rule), "allow", self.paths)
                    sound.append(rule)
            self._compiled[listed] = Rules(self.paths, allow=sound)
        return self._compiled[listed]


def loaded(messages: Sequence[Message]) -> list[str]:
    """Return the names of the skills that were loaded since a person last wrote, in order."""
    calls: dict[str, str] = {}
    done: list[str] = []
    for message in messages:
        blocks: Sequence[Json] = message["content"] if isinstance(message["content"], list) else ()
        if message["role"] == "assistant":
            used = [one for one in blocks if one.get("type") == "tool_use" and one.get("name") == _LOAD]
            calls |= {one["id"]: str(one["input"].get("name")) for one in used}
        elif tags.begins(message, tags.CONTEXT) is not None:
            calls, done = {}, []
        else:
            answered = (one for one in blocks if one.get("type") == "tool_result" and not one.get("is_error"))
            done += [name for one in answered if (name := calls.get(one["tool_use_id"]))]
    return list(dict.fromkeys(done))


def rules_of(entry: str) -> list[str]:
    """Return the rules for one entry of `allowed-tools`, such as `Read`, `Bash(git log:*)` or `mcp__files__*`."""
    name, bracket, pattern = entry.partition("(")
    ours = NAMES.get(name.lower(), name)
    if not bracket:
        return [ours]
    begins = pattern.removesuffix(")").removesuffix(":*")
    if pattern.endswith(":*)"):
        return [f"{ours}({begins})", f"{ours}({begins} *)"]
    return [f"{ours}({pattern}"]
