"""Finds the files in a project that contain instructions for the model. A file is an instruction file
because of its name, or because another instruction file includes or links to it.

Only names and text are read. Names are compared without regard to case and Unicode form, so that a
differently written name cannot bypass the protection.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bot import regular_files
from bot.hidden_paths import hidden
from bot.text import folded

INCLUDE = re.compile(r"@include[ \t]+(\S.*?)[ \t]*")
_LINK = re.compile(r"\]\(\s*(?:<([^<>\n]+)>|([^\s()]+(?:\([^\s()]*\)[^\s()]*)*))")
_NAMED = re.compile(r"^ {0,3}\[[^\]\n]+\]:[ \t]*(?:<([^<>\n]+)>|(\S+))", re.MULTILINE)
_HTML = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
"""Pattern of `href` in any HTML tag. A search that starts at each `<a` would take quadratic time."""
_FILE = re.compile(r"^file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)
"""Start of a file URL on this machine (RFC 8089)."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_NAMING = frozenset({"cite", "data", "href", "longdesc", "poster", "src"})
"""HTML attributes whose value is a URL."""
_NAMES = frozenset({"agent.md", "skill.md"})
_SKIPPED = frozenset({".git", ".ship"})
LARGEST = 256 * 1024
"""Max bytes that are read of a file."""
MOST = 2_000
"""Max number of files that are followed."""
VISITS = 500_000
"""Max entries of the project that are searched."""

Parts = tuple[str, ...]
_READ: dict[bytes, Sequence[tuple[str, bool]]] = {}
"""Cache of the names that a text includes or links to, by the text's hash. Parsing 256 KB takes a second,
and each command needs the result.
"""


Judge = Callable[[Path, int], bool]
"""Function that returns True if a file is followed. Its arguments are the name under which the file is read,
and the time at which the file was changed (`changed_at`).
"""


@dataclass(frozen=True, slots=True)
class InstructionFileSet:
    """The normalised absolute paths of instruction files, as tuples of parts. Paths of missing files are included."""

    paths: frozenset[Parts] = frozenset()
    nodes: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of each file."""
    linked: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of each followed file that has several hard links."""
    files: tuple[str, ...] = ()
    """Paths of the followed files in the project, with links resolved."""
    changed: Mapping[Path, int] = field(default_factory=dict)
    """Time at which each file was changed (`changed_at`), by the name under which the file is read."""
    read: frozenset[Path] = frozenset()
    """Names of the files that are instructions by name or by inclusion. The other instruction files are only linked."""
    cut: bool = False
    """True if a limit stopped the search."""

    def holds(self, path: Path) -> bool:
        """Return True if a path is an instruction file under any of its names. Blocking."""
        if not self.paths.isdisjoint({_parts(path), _parts(Path(os.path.realpath(path)))}):
            return True
        found = _stat(path)
        return found is not None and (found.st_dev, found.st_ino) in self.nodes


def find_instruction_files(
    root: Path,
    more: Iterable[Path] = (),
    skills: Iterable[Path] = (),
    followed: Judge = lambda _path, _changed: True,
) -> InstructionFileSet:
    """Return the instruction files of a project. `more` are instruction files elsewhere, and `skills` are
    folders of skills. The links and inclusions of a file that is not followed are ignored. Blocking.
    """
    real = Path(os.path.realpath(root))
    begin, cut = _begin(real)
    begin += [*more, *_skills((real / ".claude" / "skills", *skills))]
    left = collections.deque((path, True) for path in begin)
    paths: set[Parts] = set()
    nodes: set[tuple[int, int]] = set()
    linked: set[tuple[int, int]] = set()
    changed: dict[Path, int] = {}
    reads: set[Path] = set()
    seen: set[str] = set()
    files: set[str] = set()
    while left:
        path, read = left.popleft()
        if path in reads or (path in changed and not read):
            continue
        end = Path(os.path.realpath(path))
        paths |= {_parts(path), _parts(Path(os.path.normpath(path))), _parts(end)}
        looked = _look(end)
        if looked is None:
            continue
        found, raw = looked
        nodes.add(node := (found.st_dev, found.st_ino))
        changed[path] = changed_at(path, found)
        if read:
            reads.add(path)
        if not followed(path, changed[path]):
            continue
        if found.st_nlink > 1:
            linked.add(node)
        if end.is_relative_to(real):
            files.add(str(end))
        if str(end) in seen and not read:
            continue
        if len(seen) >= MOST:
            cut = True
            continue
        seen.add(str(end))
        left += [(target, read and included) for target, included in _named(real, end, raw)]
    return InstructionFileSet(
        frozenset(paths),
        frozenset(nodes),
        frozenset(linked),
        tuple(sorted(files)),
        changed,
        frozenset(reads),
        cut,
    )


def changed_at(path: Path, found: os.stat_result) -> int:
    """Return the time of the last change (ctime in ns), given the path and the state of a file. If the path
    is a link, the later change of link and file counts.
    """
    try:
        return max(found.st_ctime_ns, path.lstat().st_ctime_ns)
    except OSError:
        return found.st_ctime_ns


def _named(root: Path, path: Path, raw: bytes) -> Iterator[tuple[Path, bool]]:
    """Yield the files in the project that a file names, each with True if the file is included. Files
    outside of the project are skipped, because a chat cannot write them.
    """
    folder = root if hidden(root, path.parent) else path.parent
    for named, included in _targets(raw):
        # A link that begins with a slash is relative to the project's folder, as on repository pages.
        rooted = [root / named.lstrip("/")] if named.startswith("/") and not included else []
        for target in (folder / named, *rooted):
            if any(
                Path(one).is_relative_to(root) for one in (os.path.normpath(target), os.path.realpath(target))
            ):
                yield target, included


def prose(raw: bytes) -> str:
    """Return the text of an instruction file."""
    return raw.decode("utf-8-sig", "replace").replace("\0", "").replace("\r\n", "\n").strip()


def _begin(root: Path) -> tuple[list[Path], bool]:
    """Return the files of a project that are instructions by name or are instructions of chats, nearest to
    the root first. The second value is True if the search was incomplete.
    """
    left, visits = collections.deque([root, root / ".ship" / "instructions"]), 0
    found: list[Path] = []
    cut = False
    while left and visits < VISITS:
        folder = left.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    visits += 1
                    name = folded(entry.name)
                    if name in _SKIPPED:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                    elif name in _NAMES or ".ship" in folder.parts:
                        found.append(Path(entry.path))
        except PermissionError:
            cut = cut or _ours(folder)
        except OSError:
            continue  # the folder is missing
    return found, cut or bool(left)


def _ours(folder: Path) -> bool:
    """Return True if the entries of a folder that cannot be listed can be read by name, either now or after a
    command changes the folder's mode.
    """
    try:
        if folder.stat().st_uid == os.geteuid():
            return True
        os.stat(f"{folder}/.")  # noqa: PTH116 - a Path would remove the dot
    except OSError:
        return False
    return True


def _skills(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of the skills in these folders. Links are followed."""
    for place in places:
        try:
            with os.scandir(place) as entries:
                yield from [Path(entry.path) / "SKILL.md" for entry in entries if entry.is_dir()]
        except OSError:
            continue


def _look(path: Path) -> tuple[os.stat_result, bytes] | None:
    """Return the state and the content of a regular file; None for anything else."""
    found = _stat(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    try:
        with open(path, "rb", opener=regular_files.opener) as file:
            return os.fstat(file.fileno()), file.read(LARGEST)
    except OSError:
        return found, b""  # unreadable


def _targets(raw: bytes) -> Sequence[tuple[str, bool]]:
    """Return the names that a text includes or links to, each with True if the name is included."""
    key = hashlib.sha256(raw).digest()
    if key not in _READ:
        if len(_READ) >= MOST:
            _READ.clear()
        _READ[key] = _read(prose(raw))
    return _READ[key]


def _read(words: str) -> Sequence[tuple[str, bool]]:
    found = [
        (os.path.expanduser(included[1]), True)  # noqa: PTH111 - the text may not be a valid path
        for line in words.splitlines()
        if (included := INCLUDE.fullmatch(line)) is not None
    ]
    for link in _links(words):
        named = _FILE.sub("", link.strip()).partition("#")[0].partition("?")[0]
        found += [
            (one, False)
            for one in dict.fromkeys((named, unquote(named)))
            if one and "\0" not in one and not _ADDRESS.match(one)
        ]
    return tuple(dict.fromkeys(found))


def _links(words: str) -> Iterator[str]:
    """Yield the targets of links and images in Markdown and embedded HTML, and of link definitions that are
    not used.

    Links in code blocks and HTML blocks are included, because the model reads the source text.
    """
    if "[" not in words and "<" not in words:
        return
    for form in (_LINK, _NAMED, _HTML):
        yield from (match[1] or match[2] or "" for match in form.finditer(words))
    from markdown_it import (
        MarkdownIt,
    )  # imported here, because the import takes 40 ms and few files have links

    env: dict[str, Any] = {}
    left = collections.deque(MarkdownIt("commonmark").parse(words, env))
    html = _Html()
    while left:
        token = left.popleft()
        left += token.children or ()
        if token.type in {"html_block", "html_inline"}:
            html.reset()
            html.feed(token.content)
        yield from (str(token.attrs[key]) for key in ("href", "src") if key in token.attrs)
    yield from html.targets
    yield from (str(one["href"]) for one in env.get("references", {}).values())


class _Html(HTMLParser):
    """HTML parser that collects the targets of links and images."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.targets += [value for name, value in attrs if name in _NAMING and value]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _parts(path: Path) -> Parts:
    return tuple(map(folded, path.parts))
