"""Parses Markdown for channels that give it a form of their own, within limits of time and depth."""

from __future__ import annotations

from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels import emphasis

PARSED = 16_384
"""Characters that are parsed at the most. Longer text is shown as it is."""
BRACKETS = 800
"""`[` that are parsed at the most: the parser's work grows with their square."""
DEEPEST = 60
"""Levels of nesting. Below its own limit the parser drops text, so a text that comes near it stays plain."""


class _References(dict[str, Any]):
    """Link definitions that remember which of them are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[str] = set()

    def get(self, label: str, default: Any = None) -> Any:
        self.used.add(label)
        return super().get(label, default)


def _parser(*, references: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(
        ["table", "strikethrough"]
    )
    # Addresses that are no links are still shown: whoever writes the tokens decides, not the parser.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    return emphasis.relaxed(parser if references else parser.disable("reference"))


_WITH_REFERENCES = _parser(references=True)
_WITHOUT_REFERENCES = _parser(references=False)


def parse(said: str, *, most: int = PARSED) -> list[Token] | None:
    """The tokens of a text; None where parsing would take too long or lose something, so that it is to be shown as it is."""
    if len(said) > most or said.count("[") > BRACKETS:
        return None
    references = _References()
    env: dict[str, Any] = {"references": references}
    tokens = _WITH_REFERENCES.parse(said, env)
    if not references.keys() <= references.used or "duplicate_refs" in env:
        # A definition that nothing refers to would vanish.
        tokens = _WITHOUT_REFERENCES.parse(said)
    return None if any(token.level > DEEPEST - 4 for token in tokens) else tokens
