"""Wording of admissions: the request as operators read it, its answer, and how it ended."""

from __future__ import annotations

from bot.contracts.approvals import Approval, Verdict
from bot.contracts.inbound import Inbound
from bot.core.operator_chats import who_decided
from bot.tools.permissions.display import named
from bot.words import say, times

MOST = 20
"""Requests about which operators are written to in a day: a bot that anybody can find must not drown them. `/allow` shows the
others.
"""
MOST_OPEN = 200
"""Requests that are kept at once, as many as `/allow` can know of each channel: the oldest of them give way."""


def approval_of(inbound: Inbound) -> Approval:
    return Approval(
        request_id=inbound.request_id,
        call_id="",
        chat_key=inbound.chat_key,
        tool="",
        fingerprint="",
        shown="",
        why="",
        rule="",
        channel=inbound.channel,
        user_id=inbound.user_id,
        granted=False,
        lasting=False,
        subject="person",
    )


def question(inbound: Inbound, place: str, prefix: str) -> str:
    """The request as operators read it."""
    who = str(inbound.person)
    # Their name is their own choice: nothing in it is formatting, a link or an id.
    name = f"`{named(inbound.user_name)}` ({who})" if inbound.user_name else who
    return say("strangers.question", who=name, id=who, place=place, prefix=prefix)


def answer_to_decider(verdict: Verdict) -> str:
    """The answer to the operator who decided by a button."""
    return say("strangers.admits" if verdict.ended == "approved" else "strangers.stays_out")


def ended(verdict: Verdict, at: float) -> str:
    """The decision, in the line below the request."""
    when = times.hour(at)
    by = say("strangers.by", who=who_decided(verdict, "approval.an_operator")) if verdict.by else ""
    if verdict.ended == "approved":
        return say("strangers.let_in", by=by, time=when)
    if verdict.scope == "always":
        return say("strangers.kept_out", by=by, time=when)
    if verdict.ended == "expired":
        return say("strangers.expired", count=MOST_OPEN, time=when)
    return say("strangers.not_now", by=by, time=when)
