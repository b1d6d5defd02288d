"""Texts of admissions: the request for operators, the answer to the operator, and the outcome."""

from __future__ import annotations

from bot.contracts.approvals import Approval, Verdict
from bot.contracts.inbound import Inbound
from bot.core.operators import who_decided
from bot.tools.permissions.display import named
from bot.words import say, times

MOST = 20
"""Max requests per day sent to operators, so that a public bot does not flood them with messages. `/allow`
lists all other requests.
"""
MOST_OPEN = 200
"""Max undecided requests; the oldest requests are dropped."""


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
    """Return the text of a request for operators."""
    who = str(inbound.person)
    # People choose their names freely, so no formatting, link or id in a name is rendered.
    name = f"`{named(inbound.user_name)}` ({who})" if inbound.user_name else who
    return say("strangers.question", who=name, id=who, place=place, prefix=prefix)


def answer_to_decider(verdict: Verdict) -> str:
    """Return the answer to the operator who pressed a button."""
    return say("strangers.admits" if verdict.ended == "approved" else "strangers.stays_out")


def ended(verdict: Verdict, at: float) -> str:
    """Return the line with the decision, shown below the request."""
    when = times.hour(at)
    by = say("strangers.by", who=who_decided(verdict, "approval.an_operator")) if verdict.by else ""
    if verdict.ended == "approved":
        return say("strangers.let_in", by=by, time=when)
    if verdict.scope == "always":
        return say("strangers.kept_out", by=by, time=when)
    if verdict.ended == "expired":
        return say("strangers.expired", count=MOST_OPEN, time=when)
    return say("strangers.not_now", by=by, time=when)
