"""Compares patterns of rules with calls. The answer is a match, no match, or undecidable.

An allow rule is strict: its pattern is compared exactly with the resolved path. A deny or ask rule is wide: its pattern
is compared with every spelling of the path, in any case and Unicode form. If a wide rule cannot be decided, the answer
is `unclear`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from bot.text import folded
from bot.tools.permissions.grammar import RuleMalformed
from bot.tools.permissions.matching import (
    ANY_DEPTH,
    Parts,
    Paths,
    ResolvedPath,
    glob,
    path_glob,
    read_url,
    url_glob,
)

Answer = Literal["yes", "no", "unclear"]
Kind = Literal["path", "tree", "command", "url"]

ARGUMENTS: Mapping[str, tuple[Kind, str]] = {
    "read_file": ("path", "path"),
    "write_file": ("path", "path"),
    "edit_file": ("path", "path"),
    "list_dir": ("tree", "path"),
    "search_files": ("tree", "path"),
    "run_shell": ("command", "command"),
    "web_fetch": ("url", "url"),
}
"""Argument of each tool that patterns are compared with: kind of value, and argument name. The kind `tree` is a path
and everything below it.
"""
LONGEST = 10_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


@dataclass(slots=True)
class JudgedCall:
    """A tool call that is being judged. Its paths are resolved once for all rules."""

    paths: Paths
    arguments: Mapping[str, Any]
    _places: dict[str, ResolvedPath] = field(default_factory=dict)

    def words(self, name: str) -> str | None:
        value = self.arguments.get(name)
        return value if isinstance(value, str) and value else None

    def place(self, path: str) -> ResolvedPath:
        if path not in self._places:
            self._places[path] = self.paths.place(path)
        return self._places[path]

    def forms(self, path: str) -> list[Parts]:
        """Return all spellings of a path for wide rules, in a form without case differences."""
        return [_folded(form) for form in self.place(path).forms]


Pattern = Callable[[JudgedCall], Answer]


def compile_pattern(tool: str, pattern: str, paths: Paths, *, wide: bool) -> Pattern:
    """Return a compiled pattern. Raises `RuleMalformed`."""
    kind, name = ARGUMENTS.get(tool, ("", ""))
    if not kind and pattern != "*":
        raise RuleMalformed(
            "no pattern for this tool",
            f"write {tool} alone, or {tool}(*, arg.NAME~=...) for one of its arguments",
        )
    if kind == "command":
        return _command(name, pattern, wide=wide)
    if pattern == "*":
        return lambda asked: _answer(holds=not kind or asked.words(name) is not None)
    if kind == "url":
        return _url(name, pattern, wide=wide)
    steps = _steps(pattern, paths)
    return _wide_path(name, steps, paths, tree=kind == "tree") if wide else _strict_path(name, steps, paths)


def _answer(*, holds: bool) -> Answer:
    return "yes" if holds else "no"


def _command(name: str, pattern: str, *, wide: bool) -> Pattern:
    words = pattern.split()
    if literal_words(pattern.replace("*", "x").replace("?", "x")) is None:
        raise RuleMalformed(
            "a command without signs that a shell reads (quotes, ;, |, $, = before the command)",
            "write the command plainly; what has such signs in it is asked for",
        )
    whole = " ".join(words)
    strict = glob(whole)
    forms = [glob(folded(whole))]
    if words[1:] and words[-1] == "*":
        forms.append(glob(folded(" ".join(words[:-1]))))

    def judge(asked: JudgedCall) -> Answer:
        command = asked.words(name)
        plain = literal_words(command or "")
        if not wide or command is None:
            return _answer(holds=plain is not None and strict(" ".join(plain)))
        if plain is None:
            return "unclear"
        spellings = (plain, (plain[0].rpartition("/")[2], *plain[1:]))
        return _answer(holds=any(form(folded(" ".join(one))) for form in forms for one in spellings))

    return judge


def _url(name: str, pattern: str, *, wide: bool) -> Pattern:
    try:
        place, path = url_glob(pattern)
    except (ValueError, UnicodeError):
        raise RuleMalformed(
            "a host or an address such as example.org, *.example.org or https://example.org/docs/*",
            "write it so",
        ) from None

    def judge(asked: JudgedCall) -> Answer:
        address = asked.words(name)
        url = read_url(address) if address is not None else None
        if url is None:
            return _answer(holds=wide and address is not None)
        if wide:
            return _answer(holds=place(url) and (not url.literal or path(url.path)))
        return _answer(holds=url.plain and place(url) and path(url.path))

    return judge


@dataclass(frozen=True, slots=True)
class _Steps:
    """A path pattern: the parts before the first wildcard, and the remaining parts. `below` means that the pattern
    covers everything in the folder. `anywhere` means that the pattern is only a file name. A wide rule finds such a
    name in any folder.
    """

    fixed: Parts
    loose: Parts
    below: bool
    anywhere: bool


def _steps(pattern: str, paths: Paths) -> _Steps:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if ".." in parts or pattern.startswith("~"):
        raise RuleMalformed(
            "a path below the root of the project, or a whole one from /", "write it without .. and ~"
        )
    at = next((at for at, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    whole = pattern.startswith("/")
    fixed = (*(() if whole else paths.root), *parts[:at])
    return _Steps(fixed, tuple(parts[at:]), pattern.endswith("/"), len(parts) == 1 and not whole)


def _strict_path(name: str, steps: _Steps, paths: Paths) -> Pattern:
    # The folder in the rule is resolved now. A link that somebody creates there later therefore allows nothing.
    fixed = paths.place("/" + "/".join(steps.fixed)).real
    if fixed is None:
        return lambda _: "no"
    rest = path_glob((*steps.loose, ANY_DEPTH) if steps.below else steps.loose)
    depth = len(fixed)

    def judge(asked: JudgedCall) -> Answer:
        path = asked.words(name)
        real = asked.place(path).real if path is not None else None
        return _answer(holds=real is not None and real[:depth] == fixed and rest(real[depth:]))

    return judge


def _wide_path(name: str, steps: _Steps, paths: Paths, *, tree: bool) -> Pattern:
    bases = {_folded(form) for form in paths.place("/" + "/".join(steps.fixed)).forms}
    within = [_within(base, _folded(steps.loose)) for base in bases]
    if steps.anywhere:
        last = _folded((*steps.fixed, *steps.loose)[-1:])
        within.append(_within(_folded(paths.root), (ANY_DEPTH, *last)))

    def judge(asked: JudgedCall) -> Answer:
        path = asked.words(name)
        if path is None and not tree:
            return "no"
        # A search without a path searches the whole project.
        path = path or "."
        if asked.place(path).real is None:
            return "yes"
        forms = asked.forms(path)
        if any(holds(form) for form in forms for holds in within):
            return "yes"
        if not tree or asked.arguments.get("depth") == 1:
            return "no"
        if any(base[: len(form)] == form for form in forms for base in bases):
            return "unclear" if steps.loose else "yes"
        inside = any(form[: len(base)] == base for form in forms for base in bases)
        return "unclear" if steps.anywhere or (steps.loose and inside) else "no"

    return judge


def _within(base: Parts, loose: Parts) -> Callable[[Parts], bool]:
    """Return a function that tests if a path or one of its parent folders matches `base` followed by `loose`."""
    depth = len(base)
    if not loose:
        return lambda form: form[:depth] == base
    rest = path_glob((*loose, ANY_DEPTH))
    return lambda form: form[:depth] == base and rest(form[depth:])


@lru_cache(maxsize=4_096)
def _folded(parts: Parts) -> Parts:
    return tuple(map(folded, parts))


def literal_words(command: str) -> tuple[str, ...] | None:
    """Return the words of a command that contains no characters that a shell interprets; None for other commands, long
    ones and assignments. Rules can judge only these words. The command must then be run without a shell.
    """
    words = tuple(word for word in command.split(" ") if word)
    if len(command) > LONGEST or not words or "=" in words[0]:
        return None
    plain = all(sign in _PLAIN or (ord(sign) > 127 and sign.isalnum()) for word in words for sign in word)
    return words if plain else None
