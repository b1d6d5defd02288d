"""Texts of approvals: questions, buttons and outcomes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot import text
from bot.contracts.approvals import LASTING, Approval, Choice, QuestionButtons, Verdict
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, OutgoingFile
from bot.contracts.tools import MCP
from bot.core import plans
from bot.core.feature import Runtime
from bot.core.operators import who_decided
from bot.core.outgoing import SECONDS, Question
from bot.text import named, quoted
from bot.tools.policy import in_words, shortened
from bot.words import paragraph, say, times

SHOWN = 1_500
"""Max characters of a call inside its question, on channels with a message limit. A longer call is sent as a file."""
GLIMPSE = 300  # max characters of a call that are shown to people who are not allowed to decide
LONGEST_PASSAGE = (
    20_000  # max characters of a call that is sent as text because the platform rejected its file
)
SHORT = 6  # number of letters of an approval's short name, which people type in commands
_ACTS: Mapping[str, str] = {
    "edit_file": "edit",
    "memory": "remember",
    "run_shell": "command",
    "schedule_cancel": "cancel",
    "schedule_create": "plan",
    "web_fetch": "fetch",
    "web_search": "search",
    "write_file": "write",
}
"""For each built-in tool, the end of a text's key. The text `approval.act_<end>` describes what the tool does."""


def that_hold(asked: Approval, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Return the choices that can take effect for this call. If untrusted text is in the model's context, add the choice to
    start over.
    """
    held = tuple(one for one in choices if asked.lasting or one not in LASTING)
    return (*held, "afresh") if asked.about else held


def buttons_of(found: Question, choices: tuple[Choice, ...]) -> QuestionButtons:
    """Return the buttons of a question. A question about several calls also has a button to decide them one by one."""
    return QuestionButtons(found.id, (*choices, "each") if choices and found.asked.step else choices)


def decides_each(verdict: Verdict) -> bool:
    """Return True if a person pressed the button to decide about each call separately."""
    return verdict.ended == "steered" and verdict.by is not None


def call_in_words(asked: Approval) -> str:
    """Return the complete call as text. Several calls are numbered, each below a sentence about its purpose."""
    if not asked.step:
        return in_words(asked.shown, plans.said)
    told = [
        f"{number}. {paragraph(act(one), replacement(one))}\n{in_words(one.shown, plans.said)}"
        for number, one in enumerate((replace(asked, step=(), **facts) for facts in asked.step), 1)
    ]
    return "\n".join(one.replace("\n", "\n   ") for one in told)


def file_of(asked: Approval) -> OutgoingFile:
    """Return the complete call as a file for the people who may decide."""
    words = call_in_words(asked)
    passage = f"```\n{plain(words)}\n```" if len(words) <= LONGEST_PASSAGE else ""
    return OutgoingFile(f"{asked.tool}.txt", "text/plain", words.encode(), markdown=passage)


def plain(words: str) -> str:
    """Return a call's text in which no sequence can close the code block around the text."""
    return words.replace("```", "\\u0060" * 3)


def outcome(found: Question) -> str:
    """Return the sentence about the decision, shown below the question; "" if the question is open."""
    asked, verdict, at = found.asked, found.verdict, times.hour(found.decided_at)
    if verdict is None or asked.subject == "question":
        return ""
    if asked.subject == "person":
        by = say("strangers.by", who=who_decided(verdict, "approval.an_operator")) if verdict.by else ""
        denied = "kept_out" if verdict.ended == "denied" and verdict.scope == "always" else "not_now"
        key = {"approved": "let_in", "expired": "expired"}.get(verdict.ended, denied)
        return say(f"strangers.{key}", by=by, time=at)
    if verdict.ended in {"approved", "denied"}:
        how = verdict.scope if verdict.ended == "approved" else verdict.ended
        own = verdict.by is not None and verdict.by == asked.person
        by = who_decided(verdict, "approval.the_asker" if own else "approval.an_operator")
        return say(f"approval.ended_{how}", by=by, time=at)
    if decides_each(verdict):
        return say("approval.steered")
    why = verdict.ended if verdict.ended in {"expired", "stopped"} else "other"
    return say(f"approval.ended_{why}", time=at)


def act(asked: Approval, *, names_tool: bool = True) -> str:
    """Return what a call would do, as a phrase after the word “to”. Only people who may decide see the tool's name."""
    if asked.subject == "budget":
        return say("approval.act_budget")
    if asked.step:
        return say("approval.act_step", count=len(asked.step))
    if known := "replace" if asked.replaces is not None else _ACTS.get(asked.tool):
        return say(f"approval.act_{known}")
    if not names_tool:
        return say("approval.act_any_tool")
    if asked.tool.startswith(MCP):
        server, _, tool = asked.tool.removeprefix(MCP).partition("__")
        return say("approval.act_server", tool=quoted(tool), server=quoted(server))
    return say("approval.act_tool", tool=quoted(asked.tool))


def waiting_notice(found: Question) -> tuple[str, str]:
    """Return the notice for people who are not allowed to decide the question, and its line to remove after the decision."""
    task, wish = found.asked.task, act(found.asked, names_tool=False)
    words = say("approval.waits_task", task=task, act=wish) if task else say("approval.waits", act=wish)
    until = say("approval.asked", count=int(SECONDS // 60))
    what = quoted(text.preview(call_in_words(found.asked), GLIMPSE))
    return "\n".join(filter(None, [words, what and f"\n`{what}`", until])), until


def wish(asked: Approval, who: str) -> str:
    """Return the first sentences of a question. `who` is the person who needs the call; "" addresses the reader."""
    if asked.subject == "budget":
        question = say("approval.question_budget" if who else "approval.question_budget_here", who=who)
        return paragraph(question, say("approval.budget_scopes"))
    key = "approval.question" if who else "approval.question_here"
    task = say("approval.for_task", task=asked.task) if asked.task else ""
    return paragraph(say(key, who=who, act=act(asked)), task, replacement(asked))


def replacement(asked: Approval) -> str:
    """Return a sentence about how the call changes an existing file; "" if the call replaces no text."""
    if asked.replaces is None:
        return ""
    if asked.gone is None:
        return say("approval.replaces", count=asked.replaces)
    differs = {"gone": asked.gone, "new": asked.new, "line": asked.differs_from}
    order = "approval.changes_order" if asked.differs_from <= asked.replaces else "approval.changes_nothing"
    key = "approval.changes" if asked.gone or asked.new else order
    return say(key, count=asked.replaces, **differs)


def reasons(asked: Approval) -> str:
    """Return sentences about why the call needs an approval; "" if no reason is recorded."""
    why = "about" if asked.about else asked.why
    reason = say(f"approval.reason_{why}", about=named(asked.about)) if why else ""
    because = say("approval.reason", reason=reason) if why else ""
    return paragraph(because, say("approval.rule", rule=asked.rule) if asked.rule else "")


def question(
    run: Runtime,
    found: Question,
    first: Inbound,
    chat_key: ChatKey,
    choices: tuple[Choice, ...],
    *,
    cut: bool = False,
) -> tuple[str, str]:
    """Return a question's text for one chat, and the part of the text to remove once the question is decided.

    The text says who asked, exactly what would run, why approval is needed, and who decides. On channels without
    buttons the text also names the commands. On a local channel, ids of unnamed people are left out. `cut` is True if
    the complete call is in a file above the question.
    """
    asked, manifest = found.asked, run.manifests[chat_key.channel]
    here = first.chat_type == "direct" and first.chat_key == chat_key
    who = "" if here or run.manifests[first.channel].access == "local" else str(asked.user_id)
    if first.user_name and not here:
        # People choose their names freely. So the name is quoted as code, and the id follows.
        who = f"`{named(first.user_name)}` ({asked.user_id})"
    words = call_in_words(asked)
    shown = plain(in_words(shortened(words, SHOWN)) if cut else words)
    decides = "operators" if not asked.granted else "asker" if who else "you"
    if here and (asked.own or first.person in run.operators):
        decides = "you_alone"
    while_open = say(f"approval.who_{decides}", count=int(SECONDS // 60), who=who)
    if not manifest.buttons:
        typed = say("approval.typed", id=found.id[-SHORT:], prefix=manifest.command_prefix)
        while_open = paragraph(while_open, typed)
    lasts = any(one in LASTING for one in choices)
    whole = say("approval.whole_above" if lasts else "approval.part_hidden") if cut else ""
    below = "\n".join(filter(None, (whole, reasons(asked), while_open)))
    block = f"```\n{shown}\n```" if shown else ""
    return "\n\n".join(filter(None, (wish(asked, who), block, below))), while_open


def together(calls: Sequence[Approval]) -> Approval:
    """Merge several calls of one model step, which the same people may decide, into one question."""
    first, keys = calls[0], [one.key for one in calls]
    same = len({(one.why, one.rule) for one in calls}) == 1
    facts = ("tool", "shown", "replaces", "gone", "new", "differs_from")
    return replace(
        first if same else replace(first, why="", rule=""),
        fingerprint=hashlib.sha256(repr(keys).encode()).hexdigest(),
        shown="\n".join(one.shown for one in calls),
        about=next((one.about for one in calls if one.about), ""),
        lasting=all(one.lasting for one in calls),
        replaces=None,
        step=tuple({name: getattr(one, name) for name in facts} for one in calls),
    )


def runs(asked: Approval) -> str:
    """Return the part of a call's fingerprint that says which programs the call runs; "" if the programs are unknown."""
    return asked.fingerprint.partition(":")[2].partition(":")[0]
