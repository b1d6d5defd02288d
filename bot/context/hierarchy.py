"""Merges instructions of several files: the nearer file wins, except over what a farther one marks final.

A directive stands on a line of its own right below a heading and holds for that section, with all that stands below
it: `<!-- shipmate: override -->` puts the section in the place of those under the same heading in farther files,
`<!-- shipmate: final -->` keeps nearer files from saying anything under this heading. Where no directive stands,
everything counts, and the nearer is read last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"[ \t]*<!--\s*shipmate:\s*(\w+)\s*-->[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file. `name` is what an operator knows it by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rest of each file, and a line for operators for each section that was overridden."""

    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Block:
    """A heading with its lines, up to the next heading of any level."""

    level: int
    key: str
    lines: list[str] = field(default_factory=list)
    final: bool = False
    override: bool = False
    gone: bool = False


def resolve(sources: Sequence[Source]) -> Resolved:
    """Resolve the directives of these files, the farthest first."""
    files = [_blocks(source.text) for source in sources]
    notes: list[str] = []
    for near, blocks in enumerate(files):
        for far in range(near):
            finals = {block.key for block in files[far] if block.final and block.key}
            for at, block in enumerate(blocks):
                if block.key in finals and not block.gone:
                    _remove(blocks, at, keep_final=False)
                    notes.append(f"{sources[near].name}: {block.key!r} is final in {sources[far].name}")
        overrides = {block.key for block in blocks if block.override and block.key and not block.gone}
        for far in range(near):
            for at, block in enumerate(files[far]):
                if block.key in overrides and not block.gone and not block.final:
                    _remove(files[far], at, keep_final=True)
                    notes.append(f"{sources[far].name}: {block.key!r} is overridden by {sources[near].name}")
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
    for at, block in enumerate(blocks):
        if block.final:
            for inner in _span(blocks, at):
                inner.final = True
    return blocks


def _take(line: str, block: _Block) -> bool:
    """True if a line below a heading is a directive; notes it."""
    directive = _DIRECTIVE.fullmatch(line)
    word = directive[1].lower() if directive is not None else ""
    if block.level == 0 or word not in {"final", "override"}:
        return False
    block.final |= word == "final"
    block.override |= word == "override"
    return True


def _span(blocks: Sequence[_Block], at: int) -> Iterable[_Block]:
    """A section: its heading with everything of lower rank behind it."""
    yield blocks[at]
    for block in blocks[at + 1 :]:
        if block.level <= blocks[at].level:
            return
        yield block


def _remove(blocks: Sequence[_Block], at: int, *, keep_final: bool) -> None:
    for block in _span(blocks, at):
        block.gone |= not (keep_final and block.final)


def _text(blocks: Iterable[_Block]) -> str:
    return "\n".join(line for block in blocks if not block.gone for line in block.lines).strip()
