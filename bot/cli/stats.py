"""`shipmate stats` shows totals of turns, tokens, cost and waiting times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, cost_of, counted, moment, say, say_json
from bot.cli.project import archive, database, hint_of_folder
from bot.core.usage import By, UsageSums
from bot.telemetry.usage import UsageTotals

SHOWN = 10
"""Max chats in the list."""


def stats(
    root: Dir = Here,
    chat: Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="T", help="From this hour on, or 2d for two days ago.")
    ] = None,
    by: Annotated[
        By | None, typer.Option(metavar="BY", help="One row per day (UTC), person, chat or model.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    hint_of_folder(root)
    sums = UsageSums(root / HOME, database(root))
    start = 0.0 if since is None else moment(since).timestamp()
    if by is not None:
        _show_groups(root, by, sums, sums.by(by, chat=chat, since=start), as_json=as_json)
        return
    total = sums.total(chat=chat, since=start)
    if not as_json:
        _show(total)
        return
    facts = {"chat": chat} | _facts(total)
    facts |= {"errors": dict(total.errors), "models": dict(total.models)}
    facts["waitedMs"] = {"p50": total.wait(0.5), "p99": total.wait(0.99)}
    facts["modelShare"] = None if total.model_share is None else round(total.model_share, 4)
    say_json(facts | {"ratings": dict(total.ratings)})


def _show_groups(
    root: Path, by: By, sums: UsageSums, parts: list[tuple[str, UsageTotals]], *, as_json: bool
) -> None:
    if as_json:
        for name, part in parts:
            say_json({by: name} | _facts(part))
        return
    from bot.core.archive_files import names_of, people_of

    shown, names = [name for name, _ in parts[:SHOWN]], dict[str, str]()
    if by == "chat":
        names = asyncio.run(people_of(archive(root), shown))
    elif by == "person":
        names = asyncio.run(names_of(archive(root), sums.last_chats(shown)))
    width = max([len(by), *(len(name) for name, _ in parts)])
    say(f"{by:<{width}} {'turns':>7} {'answers':>8} {'read':>13} {'cache':>5} {'written':>11}  cost")
    for name, part in parts:
        who = f"  {names[name]}" if name in names else ""
        share = "" if part.cached is None else f"{part.cached:.0%}"
        say(
            f"{name or '-':<{width}} {part.turns:>7,} {part.calls:>8,} {part.prompt:>13,} {share:>5} "
            f"{part.tokens['outputTokens']:>11,}  {cost_of(part)}{who}"
        )


def _facts(sums: UsageTotals) -> dict[str, Any]:
    return {
        "turns": sums.turns,
        "failedTurns": sums.failed,
        "calls": sums.calls,
        **sums.tokens,
        "cacheReadShare": None if sums.cached is None else round(sums.cached, 4),
        "costUsd": round(sums.cost, 6),
        "unpricedCalls": sums.unpriced,
    }


def _show(sums: UsageTotals) -> None:
    failures, models = (
        ", ".join(f"{name} {count}" for name, count in counts.most_common())
        for counts in (sums.errors, sums.models)
    )
    cached = "none" if sums.cached is None else f"{sums.cached:.0%}"
    good, bad, none = (sums.ratings[name] for name in ("good", "bad", "none"))
    say(f"turns    {sums.turns}" + (f", {sums.failed} of them failed" if sums.failed else ""))
    answers = counted(sums.calls, "answer") + (f" ({models})" if models else "")
    say(f"model    {answers}" + (f"; failures: {failures}" if failures else ""))
    say(
        f"tokens   {sums.prompt:,} read, {cached} of them from the cache; {sums.tokens['outputTokens']:,} written"
    )
    if sums.ratings:
        say(f"ratings  👍 {good}, 👎 {bad}, taken back {none}")
    say(f"cost     {cost_of(sums)}")
    if sums.waits:
        share = f"; {sums.model_share:.0%} of it is the model" if sums.model_share is not None else ""
        say(f"answers  in {sums.wait(0.5):,} ms (p50), {sums.wait(0.99):,} ms (p99){share}")
