"""Restricts a turn to the `allowed-tools` of the skills that it has loaded. A call of a listed tool must
also be permitted by the rules.

The restriction applies from the moment a skill is loaded until the person writes again. The restriction is
computed from the messages, so it survives a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot import tags
from bot.contracts.base import Json, Message
from bot.tools.permissions.grammar import RuleMalformed
from bot.tools.permissions.paths import Paths
from bot.tools.permissions.rules import Rules
from bot.tools.permissions.subject import Call, Decision, PolicyContext, Subject
from bot.tools.skills import SkillFolder

ALWAYS = frozenset(
    {"chat_load_history", "chat_send", "read_artifact", "skills_list", "skills_load", "tool_search"}
)
"""Tools that no skill can restrict: those for answering and for reading history, artifacts and skills."""
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
"""Tool names in skills written for other AI agents, each with the name of our tool."""
_LOAD = "skills_load"
_KEPT = 100


class SkillAllowlist:
    """Judges calls by the loaded skills."""

    def __init__(self, skills: SkillFolder, paths: Paths) -> None:
        self._skills = skills
        self._paths = paths
        self._compiled: dict[tuple[str, ...], Rules] = {}

    async def refuses(
        self, call: Call, subjects: Sequence[Subject], now: PolicyContext, messages: Sequence[Message]
    ) -> Decision | None:
        """Return the refusal of a call that no loaded skill lists; None if a skill lists the call. The lists
        of several skills are combined.
        """
        names = loaded(messages) if call.tool not in ALWAYS else ()
        if not names:
            return None
        lists = {skill.name: skill.allowed_tools for skill in await self._skills.overview()}
        narrow = [name for name in names if lists.get(name)]
        for name in narrow:
            if all(self._rules(lists[name]).permits(call, one, now) for one in subjects):
                return None
        if not narrow:
            return None
        reason = f"the skill {narrow[-1]} does not work with it, until the person writes again"
        return Decision("deny", "skill", reason, f"allowed-tools {' '.join(lists[narrow[-1]])}")

    def _rules(self, listed: tuple[str, ...]) -> Rules:
        found = self._compiled.get(listed)
        if found is None:
            found = self._compiled[listed] = Rules(self._paths, allow=_sound(listed, self._paths))
            if len(self._compiled) > _KEPT:
                del self._compiled[next(iter(self._compiled))]
        return found


def loaded(messages: Sequence[Message]) -> list[str]:
    """Return the skills loaded since a person last wrote, in order."""
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


def _sound(listed: Iterable[str], paths: Paths) -> list[str]:
    """Return the valid rules of these entries; an invalid entry allows nothing."""
    found = []
    for rule in (rule for entry in listed for rule in rules_of(entry)):
        try:
            Rules(paths, allow=[rule])
        except RuleMalformed:
            continue
        found.append(rule)
    return found
