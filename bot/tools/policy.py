"""Judges each tool call by the rules before it runs, and asks a person for approval if the rules require it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from itertools import takewhile
from pathlib import Path
from typing import Any

import pydantic

from bot import errors, regular_files, text
from bot.contracts.approvals import LASTING, Approval, Approvals, Unattended
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.identity import UserRef
from bot.contracts.provenance import NOBODYS, Taint
from bot.contracts.tools import READS, Tool, ToolCall, ToolResult
from bot.tools import context
from bot.tools.catalog import ExternallyDefined
from bot.tools.context import ToolExecutionContext
from bot.tools.permissions import defaults, named_files, taint
from bot.tools.permissions.display import changed_lines, label, visible
from bot.tools.permissions.paths import Paths
from bot.tools.permissions.patterns import ARGUMENTS
from bot.tools.permissions.rules import STRICT, Rules
from bot.tools.permissions.skill_allowlist import SkillAllowlist
from bot.tools.permissions.subject import Call, Decision, PolicyContext, Role, Subject, fingerprint
from bot.tools.registry import Registry
from bot.vetting import Vetting

MOST_COUNTED = 50_000_000
"""Max bytes of a file whose lines are counted. The counts tell the approver how much of the file a call
would replace.
"""
LONGEST_SCRIPT = 20_000
"""Max bytes stored of a script that a command runs. The stored text later shows what has changed in the script."""
_PIECE = 1 << 20
"""Bytes per read. A file larger than this is not compared with its replacement."""
_ENDS = {
    "denied": "{by} said no. Do not try it in another way; ask the person what they want instead.",
    "steered": "The person wrote something meanwhile, so nobody was waited for. Read it first. Where you see nothing new it was a "
    "command, which runs once you are done: say in a sentence that this was not run, and end here.",
    "stopped": "The person stopped it.",
    "expired": "Nobody decided within the time. Tell the person that it waits for an approval, and end here.",
    "nobody": "It needs an approval, and there is nobody here who could give it, or who can be reached. Tell the person "
    "that whoever runs Shipmate can name who may in `operators` of ship.json, and go on without it.",
    "unattended": "It needs an approval, and in a job nobody is asked. Go on without it, and say in the answer what was "
    "not done and why: an operator can allow it by a rule, or always when it is asked for in the chat.",
}


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The file that a call would replace, in the fields of `Approval`. `lines` is None if there is no such file."""

    lines: int | None = None
    gone: int | None = None
    new: int = 0
    differs_from: int = 0

    def compared(self, before: bytes, after: bytes) -> _Replaced:
        """Return the counts of added and removed lines, computed in linear time. The order of lines is ignored."""
        old, new = before.splitlines(), after.splitlines()
        gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        return replace(self, gone=gone.total(), new=come.total(), differs_from=same + 1)


@dataclass(frozen=True, slots=True)
class Policy:
    """A `tools.dispatch.CallWrapper` that applies the permission rules. The root of `paths` is the project's folder."""

    registry: Registry
    rules: Rules
    paths: Paths
    operators: Collection[UserRef]
    zone: tzinfo
    clock: Clock
    log: Log
    redact: Redact = str
    approvals: Approvals = field(default_factory=Unattended)
    narrowing: SkillAllowlist | None = None
    vetting: Vetting | None = None
    """Decides which instruction files are valid, in addition to those known by name."""

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run a call, or return a result that says why the call was not run."""
        tool = self.registry.get(call.name)
        asked = _asked(tool, call)
        if asked is None:
            # The tool is unknown or its input invalid. Nothing runs, and the model gets the error.
            return await run()
        turn = context.current()
        decision = await self._decision(asked, turn)
        if decision.outcome == "ask":
            refusal = await self._approved(asked, call, turn, decision)
        else:
            refusal = _refusal(decision) if decision.outcome == "deny" else None
            self._note(call, decision, "allowed" if refusal is None else "denied")
        return await run() if refusal is None else _not_run(call, refusal)

    async def _narrowed(self, asked: Call, turn: ToolExecutionContext) -> Decision | None:
        """Return the refusal by the tool lists of loaded skills; None if they do not refuse the call."""
        if self.narrowing is None:
            return None
        now = PolicyContext(datetime.fromtimestamp(self.clock.now(), self.zone))
        return await self.narrowing.refuses(asked, self._subjects(turn), now, turn.view())

    async def _decision(self, asked: Call, turn: ToolExecutionContext) -> Decision:
        """Return the decision on a call. A file that an instruction file includes or links to needs the same
        permission as the instruction file: an operator's approval, or a rule marked `@trusted:`.
        """
        decision = await self._narrowed(asked, turn) or self._judge(asked, turn)
        path = asked.arguments.get("path")
        if asked.tool not in {"write_file", "edit_file"} or not isinstance(path, str) or "\0" in path:
            return decision
        if decision.outcome == "deny" or decision.trusted:
            return decision
        if not await asyncio.to_thread(self._held, path):
            return decision
        asks = defaults.asks(decision.source, "instructs", decision.rule)
        return replace(asks, lasting=decision.lasting)

    def _held(self, path: str) -> bool:
        root = Path(self._root())
        return (self.vetting or Vetting(root)).find_instruction_files().holds(root / path)

    def _judge(self, asked: Call, turn: ToolExecutionContext) -> Decision:
        """Return the rules' decision. Sending a file also requires the right to read the file; the strictest
        decision counts.
        """
        reads = [Call("read_file", {"path": path}, READS) for path in _paths_sent(asked)]
        return min(
            (self._judge_one(one, turn) for one in (asked, *reads)), key=lambda one: STRICT[one.outcome]
        )

    def _judge_one(self, asked: Call, turn: ToolExecutionContext) -> Decision:
        """Return the rules' decision on one call. Text by people who may not make this call themselves
        counts as foreign text.
        """
        moment = datetime.fromtimestamp(self.clock.now(), self.zone)
        origin = taint.seen(turn.view())
        now = PolicyContext(moment, taint=origin.taint, private=turn.private)
        subjects = self._subjects(turn)
        decision = self.rules.judge(asked, subjects, now)
        others = [self._subject(turn, person) for person in sorted(origin.people - set(turn.people))]
        if decision.outcome == "deny" or not others:
            return decision
        theirs = self.rules.judge(asked, others, now).outcome
        if theirs in {"allow", decision.outcome}:
            return decision
        return self.rules.judge(asked, subjects, replace(now, taint=Taint.FOREIGN))

    def _subject(self, turn: ToolExecutionContext, person: str) -> Subject:
        role: Role = "operator" if UserRef(turn.channel or "", person) in self.operators else "member"
        return Subject(turn.channel, person, role, turn.chat_key)

    def _subjects(self, turn: ToolExecutionContext) -> list[Subject]:
        """Return the people who caused the turn. If no chat caused it, return one subject without rights."""
        people = dict.fromkeys((*turn.people, *([turn.user_id] if turn.user_id is not None else [])))
        nobody = Subject(None, None, "nobody", turn.chat_key)
        return [self._subject(turn, person) for person in people] or [nobody]

    async def _approved(
        self, asked: Call, call: ToolCall, turn: ToolExecutionContext, decision: Decision
    ) -> str | None:
        """Ask for approval; return the text of a refusal, or None if the call is approved."""
        approval = await asyncio.to_thread(self._approval, asked, call, turn, decision)
        others = await self._later(call, turn)
        while True:
            # The decision may take long. If there is a crash meanwhile, the turn that asked must be on disk.
            await turn.flush()
            try:
                verdict = await turn.approvals(self.approvals).decide(approval, *others)
            except errors.StorageError as error:
                self._note(call, decision, "unrecorded", cause=str(error))
                return "Nobody could be asked: the question cannot be written down. Tell the person, or try again later."
            if verdict.ended != "approved":
                break
            decision = await self._decision(asked, turn)
            if decision.outcome == "deny":
                self._note(call, decision, "changed")
                return _refusal(decision)
            now = await asyncio.to_thread(self._approval, asked, call, turn, decision)
            parts = 2 if verdict.scope in LASTING else 3
            if now.fingerprint.split(":")[:parts] == approval.fingerprint.split(":")[:parts]:
                break
            self._note(call, decision, "changed")
            approval, others = now, []
        self._note(call, decision, verdict.ended, by=str(verdict.by or ""), scope=verdict.scope)
        if verdict.ended == "approved":
            return None
        return f"{_because(decision)} {_ENDS[verdict.ended].format(by=verdict.by or 'Somebody')}"

    async def _later(self, call: ToolCall, turn: ToolExecutionContext) -> list[Approval]:
        """Return the approval questions for the calls of the step after this one. Later questions of the same step
        get an empty list.
        """
        found, step = [], context.STEP.get([])
        calls = step[step.index(call) + 1 :] if call in step else []
        step.clear()
        for later in calls:
            asked = _asked(self.registry.get(later.name), later)
            if asked is not None and (decision := await self._decision(asked, turn)).outcome == "ask":
                found.append(await asyncio.to_thread(self._approval, asked, later, turn, decision))
        return found

    def _approval(
        self, asked: Call, call: ToolCall, turn: ToolExecutionContext, decision: Decision
    ) -> Approval:
        """Return the approval question, which is valid only for the current content of the files that the
        call names or replaces. This call blocks the thread.
        """
        (runs, others), replaced = self._files(asked), self._replaced(asked)
        hashes = [named_files.digest(some) for some in (runs, [*runs, *others])]
        about = taint.about(turn.view(), turn.people) if decision.why == "tainted" else ""
        return Approval(
            request_id=turn.request_id,
            call_id=call.id,
            chat_key=turn.chat_key,
            tool=asked.tool,
            fingerprint=":".join([self._fingerprint(asked, call), *(hashes if any(hashes) else ())]),
            shown=self.shown(asked, call),
            why=decision.why,
            rule=decision.rule,
            channel=turn.channel,
            user_id=turn.user_id,
            granted=decision.granted,
            lasting=decision.lasting,
            own=decision.own,
            about=visible(self.redact(about)) if about else "",
            replaces=replaced.lines,
            gone=replaced.gone,
            new=replaced.new,
            differs_from=replaced.differs_from,
            script=self._script(runs, turn) if decision.lasting else "",
        )

    def _files(self, asked: Call) -> tuple[list[Path], list[Path]]:
        """Return the files for which an approval is valid: the programs and scripts that run, and other
        files. An edit names the text that it replaces, so it needs no file.
        """
        if asked.tool == "run_shell":
            return named_files.find(str(asked.arguments["command"]), Path(self._root()))
        path = Path(self._place(asked))
        return [], [path] if asked.tool == "write_file" and path.is_file() else []

    def _script(self, paths: Collection[Path], turn: ToolExecutionContext) -> str:
        """Return the text of the script that a command runs, if the text is short and the people of the turn
        may read it; otherwise "".
        """
        now = PolicyContext(datetime.fromtimestamp(self.clock.now(), self.zone))
        reads = [Call("read_file", {"path": str(path)}, READS) for path in paths]
        if any(self.rules.judge(one, self._subjects(turn), now).outcome != "allow" for one in reads):
            return ""
        try:
            raw = b"\n".join(regular_files.read(path, LONGEST_SCRIPT) for path in paths)
        except OSError:
            return ""
        return visible(self.redact(raw.decode(errors="replace"))) if len(raw) < LONGEST_SCRIPT else ""

    def _fingerprint(self, asked: Call, call: ToolCall) -> str:
        """Return a hash of what would run and in which folder; for an MCP tool, the hash covers the tool's
        definition.
        """
        tool: object = self.registry.get(asked.tool)
        defined = (tool.defined,) if isinstance(tool, ExternallyDefined) else ()
        return fingerprint(asked.tool, call.input, self._place(asked), *defined)

    def _place(self, asked: Call) -> str:
        """Return the path that the call acts on, with links resolved; without a path, return the project's folder."""
        kind, name = ARGUMENTS.get(asked.tool, ("", ""))
        path = asked.arguments.get(name)
        parts = self.paths.root
        if kind in {"path", "tree"} and isinstance(path, str):
            parts = self.paths.place(path).real or ()
        return "/" + "/".join(parts)

    def shown(self, asked: Call, call: ToolCall) -> str:
        """Return a call rendered for people: every argument, without secrets and invisible characters. If
        there is only one argument of one line, its name is omitted.
        """
        values = {name: visible(self.redact(_value(value))) for name, value in call.input.items()}
        if asked.tool in {"edit_file", "memory"} and (old := values.pop("old_str", "")):
            values["changes"] = "\n" + changed_lines(old, values.pop("new_str", ""))
        given = list(values.items())
        kind, name = ARGUMENTS.get(asked.tool, ("", ""))
        if kind in {"path", "tree"} and self._place(asked) != f"{self._root()}/{asked.arguments.get(name)}":
            place = self._place(asked).removeprefix(self._root() + "/")
            given.append(("which_is", visible(self.redact(place))))
        if asked.tool == "schedule_create" and not asked.arguments.get("timezone"):
            given.append(("timezone", label("their_zone")))
        if len(given) == 1 and asked.tool in ARGUMENTS and "\n" not in given[0][1]:
            return given[0][1]
        ours = asked.tool in defaults.CORE
        # Values are indented, so that no value can look like the name of an argument.
        lines = [
            f"{label(name) if ours else visible(self.redact(name))}: {value}".replace("\n", "\n  ")
            for name, value in given
        ]
        return "\n".join(lines)

    def _replaced(self, asked: Call) -> _Replaced:
        """Return line counts about the file that a call replaces. A large file is counted only in part and
        is not compared. The file's text is not returned, because the approver may lack the right to read
        the file.
        """
        if asked.tool != "write_file":
            return _Replaced()
        try:
            with open(self._place(asked), "rb", opener=regular_files.opener) as there:
                lines, end, first = 0, b"\n", there.read(_PIECE)
                piece = first
                while piece:
                    lines, end = lines + piece.count(b"\n"), piece[-1:]
                    piece = there.read(_PIECE) if there.tell() < MOST_COUNTED else b""
                whole = there.tell() == len(first) < _PIECE
        except OSError:
            return _Replaced()
        found, content = _Replaced(lines + (end != b"\n")), asked.arguments.get("content")
        return (
            found.compared(first, content.encode("utf-8", "replace"))
            if whole and isinstance(content, str)
            else found
        )

    def _root(self) -> str:
        return "/" + "/".join(self.paths.root)

    def _note(self, call: ToolCall, decision: Decision, ended: str, **more: Any) -> None:
        """Write the audit log entry: what was decided on which call, by whom, and by which rule."""
        usual = ended == "allowed" and decision.source == "default"
        self.log.write(
            "approval",
            f"{text.preview(call.name, 80)} {ended}",
            level="debug" if usual else "info" if ended in {"allowed", "approved"} else "warn",
            tool=call.name,
            tool_use_id=call.id,
            decision=ended,
            source=decision.source,
            rule=decision.rule or None,
            reason=decision.reason,
            **more,
        )


def _asked(tool: Tool | None, call: ToolCall) -> Call | None:
    """Return a call with its arguments validated; None for an unknown tool or invalid arguments."""
    if tool is None:
        return None
    try:
        given = tool.input.model_validate(call.input)
    except pydantic.ValidationError:
        return None
    arguments: Mapping[str, Any] = {**call.input, **given.model_dump(mode="json")}
    return Call(tool.name, arguments, tool.effects)


def _paths_sent(asked: Call) -> list[str]:
    """Return the files of the project that a message attaches."""
    files = asked.arguments.get("attachments", ()) if asked.tool == "chat_send" else ()
    return [one for one in files if isinstance(one, str)]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _because(decision: Decision) -> str:
    rule = f" (rule: {decision.rule})" if decision.rule else ""
    return f"This was not run: {decision.reason}{rule}."


def _refusal(decision: Decision) -> str:
    return f"{_because(decision)} No approval can change that: do not try another way to the same end; tell the person."


def _not_run(call: ToolCall, words: str) -> ToolResult:
    return ToolResult(call.id, words, failed=True, origin=NOBODYS)
