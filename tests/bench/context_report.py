"""The section `context` of the bench: the cost per turn of a chat over months."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.config.ship_file import Compaction, Context
from tests.bench.context_bill import Bill
from tests.bench.context_chat import Chat
from tests.bench.context_trace import days, trace

SEED = 1
FULL_MEMORY = 2_900
KEPT = Compaction().keep_tokens
OTHER = 4_000
"""Alternative number of tokens that a compaction keeps, for comparison with the default."""
CENTS, READ, STABLE, TOKENS, GROWTH = 2.1, 0.84, 0.96, 35_000, 0.01
"""Limits that the figures of the section are compared with: cents per turn, cache read share, prefix
stability, tokens per turn, growth.
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """Number of turns. `long` is the number of turns for measuring growth; 0 skips that measurement."""

    turns: int
    long: int


QUICK = Size(60, 0)
ORDINARY = Size(1_000, 0)
FULL = Size(1_000, 10_000)


async def measured(folder: Path, size: Size, say: Say) -> dict[str, Any]:
    """Run all measurements in the new folder `folder`; print each result when it is found, and return the figures."""
    turns = trace(size.turns, SEED)
    say(f"context: {size.turns:,} turns in {days(turns):.0f} days, prices of Sonnet 5.5")
    say(f"{'':<42}{'cents':>8}{'memory':>8}{'read':>8}{'stable':>8}{'tokens':>9}{'largest':>9}{'breaks':>8}")
    ways = {
        "shipmate": Chat(_folder(folder, "sends")),
        "  answers in plain text": Chat(_folder(folder, "plain"), sends=False),
        "  with a memory that is full": Chat(_folder(folder, "full"), memory_tokens=FULL_MEMORY),
        f"  keepTokens {OTHER:,}": Chat(_folder(folder, "other"), limits=_keeps(OTHER)),
    }
    found: dict[str, Any] = {}
    began = time.monotonic()
    for name, chat in ways.items():
        bill = await chat.replay(turns)
        found[name.strip()] = _told(name, bill, size.turns, say)
    took = time.monotonic() - began
    frame = ways["shipmate"].model.frame
    for line in _against(found["shipmate"], found[f"keepTokens {OTHER:,}"]):
        say(line)
    if size.long:
        found["growth"] = await _growth(folder, size, say)
    say(f"  tools {frame[0]:,} and system {frame[1]:,} tokens in every line; took {took:.0f} s")
    return found


def _keeps(tokens: int) -> Context:
    return Context(compaction=Compaction(keep_tokens=tokens))


def _told(name: str, bill: Bill, turns: int, say: Say) -> dict[str, float]:
    found = {
        "centsPerTurn": bill.cents(turns),
        "memoryCentsPerTurn": bill.cents_of("memory", turns),
        "cacheReadShare": bill.read_share,
        "prefixStability": bill.stability,
        "tokensPerTurn": bill.tokens(0, turns),
        "largest": float(bill.largest),
        "undeclaredBreaks": float(bill.breaks),
    }
    say(
        f"  {name:<40}{found['centsPerTurn']:>8.2f}{found['memoryCentsPerTurn']:>8.3f}{found['cacheReadShare']:>8.3f}{found['prefixStability']:>8.3f}"
        f"{found['tokensPerTurn']:>9,.0f}{found['largest']:>9,.0f}{bill.breaks:>8}"
    )
    return found


def _against(ours: dict[str, float], other: dict[str, float]) -> list[str]:
    """Return report lines: which aims are missed, and which number of kept tokens is cheaper."""
    missed = [
        words
        for words, value, met in (
            (f"cents a turn at most {CENTS}", ours["centsPerTurn"], ours["centsPerTurn"] <= CENTS),
            (f"read share at least {READ}", ours["cacheReadShare"], ours["cacheReadShare"] >= READ),
            (f"stability at least {STABLE}", ours["prefixStability"], ours["prefixStability"] >= STABLE),
            (f"tokens a turn at most {TOKENS:,}", ours["tokensPerTurn"], ours["tokensPerTurn"] <= TOKENS),
            ("no undeclared break", ours["undeclaredBreaks"], not ours["undeclaredBreaks"]),
        )
        if not met
    ]
    cheaper = OTHER if other["centsPerTurn"] < ours["centsPerTurn"] else KEPT
    costs = f"{ours['centsPerTurn']:.3f} cents, {OTHER:,} costs {other['centsPerTurn']:.3f}: {cheaper:,} is cheaper"
    return [
        "  every aim is met" if not missed else f"  missed: {'; '.join(missed)}",
        f"  keepTokens {KEPT:,} (the default) costs {costs}",
    ]


async def _growth(folder: Path, size: Size, say: Say) -> dict[str, float]:
    """Return the tokens per turn early in a chat, and after years."""
    part = trace(size.turns, SEED)
    bill = await Chat(_folder(folder, "long")).replay(part * (size.long // size.turns))
    early, late = bill.tokens(0, size.turns), bill.tokens(size.long - size.turns, size.long)
    grows = late / early - 1
    say(
        f"  from turn {size.turns:,} to {size.long:,}: {early:,.0f} tokens a turn become {late:,.0f}, {grows:+.1%}"
    )
    return {"early": early, "late": late, "growth": grows}


def _folder(folder: Path, name: str) -> Path:
    """Create a project folder with the default instructions; return its path."""
    made = folder / name
    made.mkdir(parents=True)
    if Path("Agent.md").exists():
        shutil.copy("Agent.md", made / "Agent.md")
    return made


def main() -> None:
    """Run this section alone: `python -m tests.bench.context_report`.

    `--full` includes the long chat, which takes seven minutes of one processor.
    """
    size = FULL if sys.argv[1:2] == ["--full"] else ORDINARY
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as made:
        asyncio.run(measured(Path(made), size, _print))


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - it is the report


if __name__ == "__main__":
    main()
