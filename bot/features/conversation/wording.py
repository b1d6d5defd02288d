"""Wording of the conversation commands."""

from __future__ import annotations

from bot import text
from bot.contracts.agent import ChatStats, ModelInfo, SessionChange, SessionInfo
from bot.words import paragraph, say, times


def answering(info: ModelInfo) -> str:
    """Name the answering model of a chat."""
    key = "commands.model_chosen" if info.chosen else "commands.model_default"
    window, price = info.window, info.price
    reads = say("commands.model_window", window=window) if window else say("commands.model_window_unknown")
    costs = say("commands.model_price_unknown")
    if price is not None:
        costs = say("commands.model_price", read=price[0], written=price[1])
    return paragraph(say(key, model=info.model, default=info.default), reads, costs)


def working(info: ModelInfo) -> str:
    """Name the effort of a chat."""
    if info.effort is None:
        return say("commands.effort_none", model=info.model)
    return say(
        "commands.effort_chosen" if info.effort_chosen else "commands.effort_default", effort=info.effort
    )


def stats_text(stats: ChatStats, *, details: bool) -> str:
    """Return a conversation's usage for a person; `details` are for operators."""
    cost = text.dollars(stats.cost_usd)
    if stats.unpriced and not stats.cost_usd:
        cost = say("stats.price_unknown")
    elif stats.unpriced:
        cost = say("stats.unpriced", count=stats.unpriced, cost=cost)
    lines = [say("stats.answers", count=stats.turns, cost=cost)]
    if details:
        read, written = stats.cache_read_tokens, stats.output_tokens
        prompts = stats.input_tokens + read + stats.cache_write_tokens
        share = f"{read / prompts:.0%}" if prompts else "0%"
        view = {"tokens": stats.tokens, "masked": stats.masked_tokens}
        lines += [
            say("stats.calls", count=stats.calls, read=prompts, share=share, written=written),
            say("stats.view", count=stats.messages, **view),
        ]
    return "\n".join(lines)


def way_back(change: SessionChange, prefix: str) -> list[str]:
    """Say how to return to the conversation that was left."""
    return [say("sessions.return", id=change.left_id, prefix=prefix)] if change.left_id else []


def session_line(one: SessionInfo, now: float) -> str:
    """Return one line of the list of conversations."""
    return say(
        "sessions.line",
        id=one.id,
        time=times.recent(one.last_ts / 1000, now),
        count=one.messages,
        here=say("sessions.current") if one.current else "",
        words=say("sessions.words", words=one.words) if one.words else "",
    )
