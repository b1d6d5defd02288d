"""Long and hard Markdown texts."""

from __future__ import annotations


def markdown_bombs(length: int = 40_000) -> list[str]:
    """Return texts that make careless Markdown parsers slow."""
    return [
        "[" * length,
        "> " * 400 + "x\n",
        "*a **b " * (length // 7),
        "`" * length + "a",
        "".join("`" * (number % 50 + 1) + "a" for number in range(length // 25)),
        "![a](<b" * (length // 7),
        "\n".join("  " * depth + "- x" for depth in range(200)),
        "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n" + ("|" + "b|" * 2_000 + "\n") * 5,
        "<a " * (length // 3),
        "&amp;" * (length // 5),
        "".join(f"[{number}]: http://x/{number}\n" for number in range(2_000)) + "[1]" * 1_000,
        "👨‍👩‍👧‍👦" * 4_000,
    ]


def long_markdown(length: int) -> str:
    """Return Markdown text that contains every kind of markup."""
    section = (
        "## Section {n}\n\nSome **bold** and *slanted* words, `code`, a [link](https://example.org/{n}), 几个字 😀.\n\n"
        "- one\n- two\n  - nested `item`\n- three\n\n> quoted words\n\n```python\nprint({n})\n```\n\n"
        "| a | b |\n|---|---|\n| {n} | ~~x~~ |\n\n"
    )
    sections = (section.replace("{n}", str(n)) for n in range(length // 100))
    return "".join(sections)[:length]
