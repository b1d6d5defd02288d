"""`shipmate stats`: requests, tokens, cost and latency of the model, from the log of the chats."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, clustered, counted, hint_of_folder, moment, say, say_json
from bot.cli.history import people, persons

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bot.core.usage import UsageSums
    from bot.telemetry.usage import UsageTotals

SHOWN = 10
"""Chats that are listed, the dearest first; of more than these no names are looked up."""


class Group(StrEnum):
    """The parts that `--by` shows."""

    DAY = "day"
    PERSON = "person"
    CHAT = "chat"
    MODEL = "model"


def stats(
    root: Dir = Here,
    chat: Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="T", help="From the hour of a time on, or 2d for two days ago.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="BY", help="One line for each day (UTC), person, chat or model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tokens, share of the cache, cost, errors and latency. Sums stay when conversations are removed."""
    from bot.core.usage import UsageSums

    group = None if by is None else _group(by)
    hint_of_folder(root)
    sums = UsageSums(root / HOME, clustered(root))
    start = 0.0 if since is None else moment(since).timestamp()
    if group is not None:
        parts = sums.by(group.value, chat=chat, since=start)
        if as_json:
            for name, part in parts:
                say_json({group.value: name} | _facts(part))
        else:
            _show_groups(group, parts, _names(root, group, sums, [name for name, _ in parts[:SHOWN]]))
        return
    whole = sums.total(chat=chat, since=start)
    if as_json:
        latency = {"p50": whole.latency(0.5), "p99": whole.latency(0.99)}
        facts = {
            "errors": dict(whole.errors),
            "models": dict(whole.models),
            "latencyMs": latency,
            "ratings": dict(whole.ratings),
        }
        say_json({"chat": chat} | _facts(whole) | facts)
        return
    _show(whole)
    dearest = (
        [] if chat is not None else [one for one in sums.by("chat", since=start) if one[0] and one[1].calls]
    )
    if dearest:
        say("chats, the dearest first:")
        names = people(root, [name for name, _ in dearest[:SHOWN]])
        for name, part in dearest[:SHOWN]:
            who = f" ({names[name]})" if name in names else ""
            say(
                f"  {name}{who}: {counted(part.turns, 'turn')}, {_share(part)} from the cache, {cost_of(part)}"
            )


def _group(word: str) -> Group:
    try:
        return Group(word)
    except ValueError:
        known = ", ".join(one.value for one in Group)
        raise typer.BadParameter(f"{word!r} is none of {known}", param_hint="--by") from None


def _names(root: Path, by: Group, sums: UsageSums, shown: list[str]) -> dict[str, str]:
    """The names of people, and of who spoke in chats, by their ids."""
    if by is Group.CHAT:
        return people(root, shown)
    return persons(root, sums.last_chats(shown)) if by is Group.PERSON else {}


def _show_groups(by: Group, parts: list[tuple[str, UsageTotals]], names: Mapping[str, str]) -> None:
    width = max([len(by.value), *(len(name) for name, _ in parts)])
    say(f"{by.value:<{width}} {'turns':>7} {'answers':>8} {'read':>13} {'cache':>5} {'written':>11}  cost")
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
    say(f"turns    {sums.turns}" + (f", {sums.failed} of them failed" if sums.failed else ""))
    failures = ", ".join(f"{name} {count}" for name, count in sums.errors.most_common())
    models = ", ".join(f"{name} {count}" for name, count in sums.models.most_common())
    answers = counted(sums.calls, "answer") + (f" ({models})" if models else "")
    say(f"model    {answers}" + (f"; failures: {failures}" if failures else ""))
    say(
        f"tokens   {sums.prompt:,} read, {_share(sums)} of them from the cache; {sums.tokens['outputTokens']:,} written"
    )
    if sums.ratings:
        say(
            f"ratings  👍 {sums.ratings['good']}, 👎 {sums.ratings['bad']}, taken back {sums.ratings['none']}"
        )
    say(f"cost     {cost_of(sums)}")
    if sums.latencies:
        say(f"latency  {sums.latency(0.5):,} ms (p50), {sums.latency(0.99):,} ms (p99)")


def _share(sums: UsageTotals) -> str:
    return "none" if sums.cached is None else f"{sums.cached:.0%}"


def cost_of(sums: UsageTotals, decimals: int = 2) -> str:
    """The cost in US dollars, and the number of answers that are not in it."""
    unpriced = f", and {counted(sums.unpriced, 'answer')} of unknown price" if sums.unpriced else ""
    return f"${sums.cost:.{decimals}f}{unpriced}"
