"""Matches the paths, commands and URLs of tool calls against the patterns of rules, in linear time. Reads symlinks but no files.

An allow rule is strict: its pattern is compared exactly with the resolved path. A deny or ask rule is wide: its pattern
is compared with every spelling of the path, in any case and Unicode form.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from bot.text import folded

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
"""For each tool: the kind and the name of the argument with which patterns are compared. The kind `tree` is a path and everything below it."""
Match = Callable[[str], bool]
Parts = tuple[str, ...]
ReadLink = Callable[[str], str | None]
"""Function that returns the target of a symbolic link; None if there is no link at this path."""

ANY_DEPTH = "**"
LONGEST = 10_000
LONGEST_PATH = 4_096
MOST_LINKS = 40
LONGEST_URL = 8_192
PORTS = {"http": 80, "https": 443}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_STEPS = re.compile(r"(?i)%(?:2e|2f|5c|25)|/\.{1,2}(?:/|$)")


class RuleMalformed(ValueError):
    """Raised for an invalid rule. `expected` describes a valid rule; `mend` says how to correct this rule."""

    def __init__(self, expected: str, mend: str) -> None:
        super().__init__(f"expected {expected}; {mend}")
        self.expected = expected
        self.mend = mend


# ------------------------------------------------------------ wildcards, paths and URLs


def glob(pattern: str) -> Match:
    """Return a function that tests if a whole text matches `pattern`. `*` stands for any characters, `?` for one character."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    # `fnmatch` makes an expression that needs linear time. Brackets have no meaning here.
    matches = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
    return lambda words: matches(words) is not None


def path_glob(parts: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Return a function that tests if the parts of a path match a pattern's `parts`. `**` stands for any number of parts."""
    pattern = [None if part == ANY_DEPTH else glob(part) for part in parts]

    def matches(path: Sequence[str]) -> bool:
        # `taken` contains each number of leading path parts that the pattern parts read so far can match.
        taken = {0}
        for part in pattern:
            if not taken:
                return False
            if part is None:
                taken = set(range(min(taken), len(path) + 1))
            else:
                taken = {at + 1 for at in taken if at < len(path) and part(path[at])}
        return len(path) in taken

    return matches


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A resolved path. `real` are the path's parts with all links resolved; None if the path cannot be resolved. `forms` are
    all spellings of the path: as written, and after each replacement of a link by its target.
    """

    real: Parts | None
    forms: tuple[Parts, ...]


class Paths:
    """Resolves paths relative to a root folder. `readlink` reads symbolic links; nothing else is read."""

    def __init__(self, root: str, readlink: ReadLink) -> None:
        self._readlink = readlink
        self.root: Parts = ()
        real = self.place(root).real
        if real is None:
            raise ValueError("the root leads nowhere")
        self.root = real

    def place(self, path: str) -> ResolvedPath:
        """Return the resolved path. A relative path is resolved against the root."""
        if not path or "\0" in path or len(path) > LONGEST_PATH:
            return ResolvedPath(None, ())
        left = _split(path)
        done: list[str] = [] if path.startswith("/") else list(self.root)
        forms = [_lexical(done, left)]
        links = 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            target = self._readlink("/" + "/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MOST_LINKS:
                return ResolvedPath(None, tuple(forms))
            forms.append(_lexical([*done, part], left))
            if target.startswith("/"):
                done = []
            left = _split(target) + left
        return ResolvedPath(tuple(done), tuple(dict.fromkeys([tuple(done), *forms])))


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _lexical(done: list[str], left: list[str]) -> Parts:
    return tuple(_split(posixpath.normpath("/" + "/".join([*done, *left]))))


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that all URL parsers read in the same way. `plain` means that the URL has no user name and no path segment such as
    `..`. `literal` means that the path has only one spelling. A literal path cannot evade a deny rule by another spelling.
    """

    scheme: str
    host: str
    port: int
    path: str
    plain: bool
    literal: bool


def read_url(address: str) -> Url | None:
    """Return the parts of a URL; None if URL parsers may disagree on the URL."""
    if len(address) > LONGEST_URL or _ODD.search(address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode().lower()
    except (ValueError, UnicodeError):
        return None
    if not host or parts.scheme not in PORTS:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    plain = "@" not in parts.netloc and not _STEPS.search(parts.path)
    literal = plain and "%" not in path and "//" not in path and ";" not in path
    return Url(parts.scheme, host, port or PORTS[parts.scheme], path, plain, literal)


def url_glob(pattern: str) -> tuple[Callable[[Url], bool], Match]:
    """Compile a URL pattern such as `*.example.org` or `https://example.org:8443/docs/*` to two functions. The first function
    matches scheme, host and port; the second function matches the path. Raises `ValueError` for an invalid pattern.
    """
    scheme, mark, rest = pattern.partition("://")
    scheme = scheme.lower() if mark else ""
    netloc, slash, path = (rest if mark else pattern).partition("/")
    name, colon, number = netloc.partition(":")
    host = name.lower().rstrip(".")
    host = host if host.isascii() else host.encode("idna").decode()
    if (scheme and scheme not in PORTS) or not _HOST.fullmatch(host) or (colon and not number.isdecimal()):
        raise ValueError("no address and no host")
    port = int(number) if colon else PORTS.get(scheme)

    def place(url: Url) -> bool:
        of_host = url.host.endswith(host[1:]) if host.startswith("*.") else url.host == host
        return of_host and scheme in {"", url.scheme} and port in {None, url.port}

    return place, glob("/" + path) if slash and path else lambda _: True


def literal_words(command: str) -> tuple[str, ...] | None:
    """Return the words of a command that contains no characters that a shell interprets; None for other commands, and for
    commands that are long or begin with an assignment. Rules can judge only a command with known words. The caller must run the
    command without a shell.
    """
    words = tuple(word for word in command.split(" ") if word)
    if len(command) > LONGEST or not words or "=" in words[0]:
        return None
    plain = all(sign in _PLAIN or (ord(sign) > 127 and sign.isalnum()) for word in words for sign in word)
    return words if plain else None


# ------------------------------------------------------------ patterns


@dataclass(frozen=True, slots=True)
class Target:
    """The argument of a call that patterns are compared with. A path is resolved once for all rules; `forms` are its
    spellings for wide rules, without case differences. `shallow` means that the call uses no folder below the path.
    """

    words: str | None
    place: ResolvedPath | None = None
    forms: tuple[Parts, ...] = ()
    shallow: bool = True


def target_of(tool: str, arguments: Mapping[str, Any], paths: Paths) -> Target:
    kind, name = ARGUMENTS.get(tool, ("", ""))
    words = arguments.get(name)
    words = words if isinstance(words, str) and words else None
    if kind == "tree":
        words = words or "."  # a search without a path searches the whole project
    if words is None or kind not in {"path", "tree"}:
        return Target(words)
    place = paths.place(words)
    shallow = kind == "path" or arguments.get("depth") == 1
    return Target(words, place, tuple(map(_folded, place.forms)), shallow)


Answer = bool | None
"""True if a pattern matches a call; None if it is unknown whether a wide pattern matches."""
Pattern = Callable[[Target], Answer]


def compile_pattern(tool: str, pattern: str, paths: Paths, *, wide: bool) -> Pattern:
    """Compile a rule's pattern for a tool. `wide` is True for deny and ask rules. Raises `RuleMalformed`."""
    kind, _ = ARGUMENTS.get(tool, ("", ""))
    if not kind and pattern != "*":
        raise RuleMalformed(
            "no pattern for this tool",
            f"write {tool} alone, or {tool}(*, arg.NAME~=...) for one of its arguments",
        )
    if kind == "command":
        return _command(pattern, wide=wide)
    if pattern == "*":
        return lambda target: not kind or target.words is not None
    if kind == "url":
        return _url(pattern, wide=wide)
    parts, whole = _split(pattern), pattern.startswith("/")
    if ".." in parts or pattern.startswith("~"):
        raise RuleMalformed(
            "a path below the root of the project, or a whole one from /", "write it without .. and ~"
        )
    at = next((at for at, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    base = paths.place("/" + "/".join((*(() if whole else paths.root), *parts[:at])))
    loose = tuple(parts[at:])
    if wide:
        named = len(parts) == 1 and not whole
        anywhere = _within(_folded(paths.root), (ANY_DEPTH, folded(parts[0]))) if named else None
        return _wide_path({_folded(form) for form in base.forms}, _folded(loose), anywhere)
    if base.real is None:
        return lambda _: False
    # The folder before the first wildcard is resolved once, at the start. If somebody creates a link there later, the
    # rule does not allow the link's target.
    matches = _within(base.real, (*loose, ANY_DEPTH) if pattern.endswith("/") else loose, below=False)
    return lambda target: (
        target.place is not None and target.place.real is not None and matches(target.place.real)
    )


def _command(pattern: str, *, wide: bool) -> Pattern:
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

    def judge(target: Target) -> Answer:
        plain = literal_words(target.words or "")
        if not wide or target.words is None:
            return plain is not None and strict(" ".join(plain))
        if plain is None:
            return None
        spellings = (plain, (plain[0].rpartition("/")[2], *plain[1:]))
        return any(form(folded(" ".join(one))) for form in forms for one in spellings)

    return judge


def _url(pattern: str, *, wide: bool) -> Pattern:
    try:
        place, path = url_glob(pattern)
    except (ValueError, UnicodeError):
        raise RuleMalformed(
            "a host or an address such as example.org, *.example.org or https://example.org/docs/*",
            "write it so",
        ) from None

    def judge(target: Target) -> Answer:
        url = read_url(target.words) if target.words is not None else None
        if url is None:
            return wide and target.words is not None
        if wide:
            return place(url) and (not url.literal or path(url.path))
        return url.plain and place(url) and path(url.path)

    return judge


def _wide_path(bases: set[Parts], loose: Parts, anywhere: Callable[[Parts], bool] | None) -> Pattern:
    """Compile a path pattern of a deny or ask rule. `bases` are the spellings of the folder before the first wildcard.
    If the pattern is only a file name, `anywhere` finds that name in any folder.
    """
    within = [_within(base, loose) for base in bases] + ([anywhere] if anywhere is not None else [])

    def judge(target: Target) -> Answer:
        if target.place is None:
            return False
        if target.place.real is None or any(holds(form) for form in target.forms for holds in within):
            return True
        if target.shallow:
            return False
        if any(base[: len(form)] == form for form in target.forms for base in bases):
            return None if loose else True
        inside = any(form[: len(base)] == base for form in target.forms for base in bases)
        return None if anywhere is not None or (loose and inside) else False

    return judge


def _within(base: Parts, loose: Parts, *, below: bool = True) -> Callable[[Parts], bool]:
    """Return a function that tests if a path matches `base` followed by `loose`. If `below` is True, everything below a
    match matches too.
    """
    depth, rest = len(base), path_glob((*loose, ANY_DEPTH) if below else loose)
    return lambda form: form[:depth] == base and rest(form[depth:])


@lru_cache(maxsize=4_096)
def _folded(parts: Parts) -> Parts:
    return tuple(map(folded, parts))
