"""Wording of approvals: questions, their buttons, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bot import text
from bot.contracts.approvals import (
    LASTING,
    SECONDS,
    Approval,
    ApprovalRecord,
    Choice,
    QuestionButtons,
    Verdict,
)
from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutgoingFile
from bot.contracts.tools import MCP
from bot.core import plans
from bot.core.operator_chats import who_decided
from bot.tools.permissions.display import in_words, named, quoted, shortened
from bot.words import paragraph, say, times

SHOWN = 1_500
"""Characters of a call that its question shows where a message has limits; all of a longer one is in a file above it."""
GLIMPSE = 300
"""The same for those who may not decide."""
LONGEST_PASSAGE = 20_000
"""Characters of a call that comes as text where the platform does not take its file."""
SHORT = 6
"""Letters of an approval's name that people type."""
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
"""The act that a call of each of our tools is, by the names of their sentences (`approval.act_…` of a catalogue)."""


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A question as people read it; `while_open` are those of its lines that hold only until it is decided."""

    words: str
    while_open: tuple[str, ...]

    def with_place(self, place: str) -> QuestionWords:
        """The same with a paragraph that says where it was asked."""
        return replace(self, words=f"{self.words}\n\n{place}")


def that_hold(asked: Approval, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """These answers but for those that would not hold; beside foreign text to begin anew without it."""
    held = tuple(one for one in choices if asked.lasting or one not in LASTING)
    return (*held, "afresh") if asked.about else held


def buttons_of(record: ApprovalRecord, choices: tuple[Choice, ...]) -> QuestionButtons:
    """The buttons of a question; those of one about several calls let each be decided by itself, too."""
    return QuestionButtons(record.id, (*choices, "each") if choices and record.asked.step else choices)


def decides_each(verdict: Verdict) -> bool:
    return verdict.ended == "steered" and verdict.by is not None  # somebody wants to decide about each call


def call_in_words(asked: Approval) -> str:
    """All of a call; of several each with what it wants to do."""
    if not asked.step:
        return in_words(asked.shown, plans.said)
    told = [
        f"{number}. {paragraph(act(one), *replacement(one))}\n{in_words(one.shown, plans.said)}"
        for number, one in enumerate((replace(asked, step=(), **facts) for facts in asked.step), 1)
    ]
    return "\n".join(one.replace("\n", "\n   ") for one in told)


def file_of(asked: Approval) -> OutgoingFile:
    """All of a call, as a file for those who decide; where the platform takes none, it comes as text."""
    words = call_in_words(asked)
    passage = f"```\n{plain(words)}\n```" if len(words) <= LONGEST_PASSAGE else ""
    return OutgoingFile(f"{asked.tool}.txt", "text/plain", words.encode(), markdown=passage)


def plain(words: str) -> str:
    """The words of a call with nothing in them that ends the block in which they stand."""
    return words.replace("```", "\\u0060" * 3)


def is_called(record: ApprovalRecord, wanted: str) -> bool:
    return record.id == wanted or (len(wanted) >= SHORT and record.id.endswith(wanted))


def short_name(record: ApprovalRecord) -> str:
    return record.id[-SHORT:]


def outcome(asked: Approval, verdict: Verdict, now: float) -> str:
    """The decision, in the line below the question."""
    at = times.hour(now)
    if verdict.ended in {"approved", "denied"}:
        how = verdict.scope if verdict.ended == "approved" else verdict.ended
        own = verdict.by is not None and verdict.by == asked.person
        by = who_decided(verdict, "approval.the_asker" if own else "approval.an_operator")
        return say(f"approval.ended_{how}", by=by, time=at)
    if decides_each(verdict):
        return say("approval.steered")
    why = verdict.ended if verdict.ended in {"expired", "stopped"} else "other"
    return say(f"approval.ended_{why}", time=at)


def typed(name: str, manifest: Manifest) -> str:
    """The commands that answer a question."""
    return say("approval.typed", id=name[-SHORT:], prefix=manifest.command_prefix)


def act(asked: Approval, *, names_tool: bool = True) -> str:
    """The thing that a call wants to do, for people: it stands behind “to”. Only those who decide read which tool that is."""
    if asked.subject in {"task", "budget"}:
        return say(f"approval.act_{asked.subject}")
    if asked.step:
        return say("approval.act_step", count=len(asked.step))
    if asked.replaces is not None:
        return say("approval.act_replace")
    if asked.tool.startswith(MCP) and names_tool:
        server, _, tool = asked.tool.removeprefix(MCP).partition("__")
        return say("approval.act_server", tool=quoted(tool), server=quoted(server))
    known = _ACTS.get(asked.tool)
    if known is None and not names_tool:
        return say("approval.act_any_tool")
    return (
        say("approval.act_tool", tool=quoted(asked.tool)) if known is None else say(f"approval.act_{known}")
    )


def waiting_notice(record: ApprovalRecord) -> QuestionWords:
    """The question as those read it who may not answer it."""
    task, wish = record.asked.task, act(record.asked, names_tool=False)
    words = say("approval.waits_task", task=task, act=wish) if task else say("approval.waits", act=wish)
    until = say("approval.asked", count=int(SECONDS // 60))
    what = quoted(text.preview(call_in_words(record.asked), GLIMPSE))
    return QuestionWords("\n".join(filter(None, [words, what and f"\n`{what}`", until])), (until,))


def wish(asked: Approval, who: str) -> str:
    """The first words of a question. `who` is the person it is for, "" where that is whoever reads it."""
    if asked.subject == "budget":
        question = say("approval.question_budget" if who else "approval.question_budget_here", who=who)
        return paragraph(question, say("approval.budget_scopes"))
    key = "approval.question" if who else "approval.question_here"
    said = [say(key, who=who, act=act(asked))]
    said += [say("approval.for_task", task=asked.task)] if asked.task else []
    return paragraph(*said, *replacement(asked))


def replacement(asked: Approval) -> list[str]:
    """Tell how a file changes that a call replaces."""
    if asked.replaces is None:
        return []
    if asked.gone is None:
        return [say("approval.replaces", count=asked.replaces)]
    differs = {"gone": asked.gone, "new": asked.new, "line": asked.differs_from}
    order = "approval.changes_order" if asked.differs_from <= asked.replaces else "approval.changes_nothing"
    key = "approval.changes" if asked.gone or asked.new else order
    return [say(key, count=asked.replaces, **differs)]


def question(
    record: ApprovalRecord,
    first: Inbound,
    chat_key: ChatKey,
    choices: tuple[Choice, ...],
    *,
    manifests: Mapping[str, Manifest],
    cut: bool,
    asker_decides: bool,
) -> QuestionWords:
    """The question as people read it in a chat: for whom, exactly what, why, who decides and how; where the channel has no
    buttons, with the commands that answer it. Of somebody of a local channel without a name an id would say nothing. `cut`: all
    of the call is in a file above it. `asker_decides`: who asked is an operator.
    """
    asked, manifest = record.asked, manifests[chat_key.channel]
    here = first.chat_type == "direct" and first.chat_key == chat_key
    who = "" if here or manifests[first.channel].access == "local" else str(asked.user_id)
    if first.user_name and not here:
        # Their name is their own choice: the id stands beside it, and nothing in the name is formatting, a link or another id.
        who = f"`{named(first.user_name)}` ({asked.user_id})"
    # Nothing in it may end the block that it stands in.
    words = call_in_words(asked)
    shown = plain(in_words(shortened(words, SHOWN)) if cut else words)
    why = "about" if asked.about else asked.why
    because = []
    if why:
        reason = say(f"approval.reason_{why}", about=named(asked.about))
        because.append(say("approval.reason", reason=reason))
    because += [say("approval.rule", rule=asked.rule)] if asked.rule else []
    decides = "operators" if not asked.granted else "asker" if who else "you"
    if here and (asked.own or asker_decides):
        decides = "you_alone"
    until = [say(f"approval.who_{decides}", count=int(SECONDS // 60), who=who)]
    until += [] if manifest.buttons else [typed(record.id, manifest)]
    while_open = paragraph(*until)
    below = [paragraph(*because)] if because else []
    if cut:
        lasts = any(one in LASTING for one in choices)
        below.insert(0, say("approval.whole_above") if lasts else say("approval.part_hidden"))
    told = "\n".join([*below, while_open])
    block = [f"```\n{shown}\n```"] if shown else []
    return QuestionWords("\n\n".join([wish(asked, who), *block, told]), (while_open,))


def answer_to_decider(verdict: Verdict) -> str:
    """The answer to whoever decided."""
    if verdict.ended in {"denied", "steered"}:
        return say(f"approval.{verdict.ended}")
    return say("approval.approved" if verdict.scope == "once" else f"approval.approved_{verdict.scope}")
