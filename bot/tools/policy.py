"""Applies the permission rules to each tool call before it runs. If the rules require an approval, a person is asked."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from itertools import takewhile
from pathlib import Path
from typing import Any

import pydantic

from bot import errors, file_access, text
from bot.contracts.approvals import LASTING, Approval, Approvals, Unattended
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.identity import UserRef
from bot.contracts.messages import NOBODYS, Taint
from bot.contracts.tools import READS, ToolCall, ToolResult
from bot.tools import context
from bot.tools.context import ToolExecutionContext
from bot.tools.dispatch import Registry
from bot.tools.file_guard import FileGuard
from bot.tools.permissions import taint
from bot.tools.permissions.patterns import ARGUMENTS, Paths
from bot.tools.permissions.rules import (
    CORE,
    STRICT,
    Call,
    Decision,
    PolicyContext,
    Role,
    Rules,
    Subject,
    asks,
)
from bot.tools.skills import SkillAllowlist
from bot.words import names, say

LARGEST = 10_000_000
"""Max bytes that are read from a file that a call names or replaces."""
COMPARED = 1 << 20
"""Max bytes of a file that is compared with its replacement."""
LONGEST_SCRIPT = 20_000
"""Max bytes of a command's script that is stored with an approval. A later question shows how the script has changed."""
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
_NEVER = "No approval can change that: do not try another way to the same end; tell the person."


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
    guard: FileGuard
    redact: Redact = str
    approvals: Approvals = field(default_factory=Unattended)
    narrowing: SkillAllowlist | None = None

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        asked = self._asked(call)
        if asked is None:
            # The tool is unknown or its input is invalid. `run` executes nothing and returns the error for the model.
            return await run()
        turn = context.current()
        decision = await self._decision(asked, turn)
        if decision.outcome == "ask":
            refusal = await self._approved(asked, call, turn, decision)
        else:
            refusal = f"{_because(decision)} {_NEVER}" if decision.outcome == "deny" else None
            self._note(call, decision, "allowed" if refusal is None else "denied")
        if refusal is None:
            return await run()
        return ToolResult(call.id, refusal, failed=True, origin=NOBODYS)

    def _asked(self, call: ToolCall) -> Call | None:
        tool = self.registry.get(call.name)
        if tool is None:
            return None
        try:
            given = tool.input.model_validate(call.input)
        except pydantic.ValidationError:
            return None
        return Call(tool.name, {**call.input, **given.model_dump(mode="json")}, tool.effects)

    async def _decision(self, asked: Call, turn: ToolExecutionContext) -> Decision:
        """Return the strictest of three decisions on a call: of the loaded skills, of the rules, and of the check for
        instruction files. Writing such a file needs an operator's approval or a rule marked `@trusted:`.
        """
        decision, subjects = None, self._subjects(turn)
        if self.narrowing is not None:
            decision = await self.narrowing.refuses(asked, subjects, self._now(), turn.view())
        if decision is None:
            # Sending a file also requires the right to read it.
            sent = asked.arguments.get("attachments", ()) if asked.tool == "chat_send" else ()
            reads = [Call("read_file", {"path": path}, READS) for path in sent if isinstance(path, str)]
            decisions = [self._judge(one, subjects, turn) for one in (asked, *reads)]
            decision = min(decisions, key=lambda one: STRICT[one.outcome])
        path = asked.arguments.get("path")
        if asked.tool not in {"write_file", "edit_file"} or not isinstance(path, str) or "\0" in path:
            return decision
        if decision.outcome == "deny" or decision.trusted:
            return decision
        place = Path(self._root, path)
        if not await asyncio.to_thread(lambda: self.guard.find_instruction_files().holds(place)):
            return decision
        return replace(asks(decision.source, "instructs", decision.rule), lasting=decision.lasting)

    def _now(self, **more: Any) -> PolicyContext:
        return PolicyContext(datetime.fromtimestamp(self.clock.now(), self.zone), **more)

    def _judge(self, asked: Call, subjects: Sequence[Subject], turn: ToolExecutionContext) -> Decision:
        """Return the rules' decision on one call. Text by people without the right to make this call counts as foreign."""
        origin = taint.seen(turn.view())
        now = self._now(taint=origin.taint, private=turn.private)
        decision = self.rules.judge(asked, subjects, now)
        others = [self._subject(turn, person) for person in sorted(origin.people - set(turn.people))]
        if decision.outcome == "deny" or not others:
            return decision
        if self.rules.judge(asked, others, now).outcome in {"allow", decision.outcome}:
            return decision
        return self.rules.judge(asked, subjects, replace(now, taint=Taint.FOREIGN))

    def _subject(self, turn: ToolExecutionContext, person: str) -> Subject:
        role: Role = "operator" if UserRef(turn.channel or "", person) in self.operators else "member"
        return Subject(turn.channel, person, role, turn.chat_key)

    def _subjects(self, turn: ToolExecutionContext) -> list[Subject]:
        """Return the people who caused the turn. If no chat caused the turn, return one subject that has no rights."""
        people = dict.fromkeys((*turn.people, *([turn.user_id] if turn.user_id is not None else [])))
        nobody = Subject(None, None, "nobody", turn.chat_key)
        return [self._subject(turn, person) for person in people] or [nobody]

    async def _approved(
        self, asked: Call, call: ToolCall, turn: ToolExecutionContext, decision: Decision
    ) -> str | None:
        approval = await asyncio.to_thread(self._approval, asked, call, turn, decision)
        others = await self._later(call, turn)
        while True:
            # People may take long to decide. Write the turn to disk first, in case the gateway crashes while it waits.
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
                return f"{_because(decision)} {_NEVER}"
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
        """Return the approval questions for the later calls of this step, so that all are asked at once. Return [] if an
        earlier call of the step has asked these questions.
        """
        found, step = [], context.STEP.get([])
        calls = step[step.index(call) + 1 :] if call in step else []
        step.clear()
        for later in calls:
            asked = self._asked(later)
            if asked is not None and (decision := await self._decision(asked, turn)).outcome == "ask":
                found.append(await asyncio.to_thread(self._approval, asked, later, turn, decision))
        return found

    def _approval(
        self, asked: Call, call: ToolCall, turn: ToolExecutionContext, decision: Decision
    ) -> Approval:
        """Return the approval question. An approval is valid only for the present content of the files that the call names or
        replaces. For an edit, the file's content does not matter, because the edit itself contains the text that it replaces.
        """
        place, runs, others = self._place(asked), list[Path](), list[Path]()
        if asked.tool == "run_shell":
            runs, others = named_files(str(asked.arguments["command"]), Path(self._root))
        elif asked.tool == "write_file" and Path(place).is_file():
            others = [Path(place)]
        hashes = [digest(some) for some in (runs, [*runs, *others])]
        defined = filter(None, [getattr(self.registry.get(asked.tool), "defined", None)])
        whole = fingerprint(asked.tool, call.input, place, *defined)
        about = taint.about(turn.view(), turn.people) if decision.why == "tainted" else ""
        return Approval(
            request_id=turn.request_id,
            call_id=call.id,
            chat_key=turn.chat_key,
            tool=asked.tool,
            fingerprint=":".join([whole, *(hashes if any(hashes) else ())]),
            shown=self.shown(asked, call),
            why=decision.why,
            rule=decision.rule,
            channel=turn.channel,
            user_id=turn.user_id,
            granted=decision.granted,
            lasting=decision.lasting,
            own=decision.own,
            about=text.escaped(self.redact(about)),
            script=self._script(runs, turn) if decision.lasting else "",
            **(_replaced(Path(place), asked) if asked.tool == "write_file" else {}),
        )

    def _script(self, paths: Collection[Path], turn: ToolExecutionContext) -> str:
        """Return the text of the script that a command runs; "" if the text is too long, or if the people of the turn are not
        allowed to read the script.
        """
        reads = [Call("read_file", {"path": str(path)}, READS) for path in paths]
        if any(self.rules.judge(one, self._subjects(turn), self._now()).outcome != "allow" for one in reads):
            return ""
        try:
            raw = b"\n".join(file_access.read(path, LONGEST_SCRIPT) for path in paths)
        except OSError:
            return ""
        return text.escaped(self.redact(raw.decode(errors="replace"))) if len(raw) < LONGEST_SCRIPT else ""

    def _place(self, asked: Call) -> str:
        kind, name = ARGUMENTS.get(asked.tool, ("", ""))
        path = asked.arguments.get(name)
        if kind in {"path", "tree"} and isinstance(path, str):
            return "/" + "/".join(self.paths.place(path).real or ())
        return self._root

    def shown(self, asked: Call, call: ToolCall) -> str:
        """Return a call as text for people: every argument, without secrets and invisible characters. If the call has only one
        argument, with a value of one line, the argument's name is omitted.
        """
        values = {
            name: text.escaped(
                self.redact(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False))
            )
            for name, one in call.input.items()
        }
        if asked.tool in {"edit_file", "memory"} and (old := values.pop("old_str", "")):
            values["changes"] = "\n" + changed_lines(old, values.pop("new_str", ""))
        kind, name = ARGUMENTS.get(asked.tool, ("", ""))
        place = self._place(asked)
        if kind in {"path", "tree"} and place != f"{self._root}/{asked.arguments.get(name)}":
            values["which_is"] = text.escaped(self.redact(place.removeprefix(self._root + "/")))
        if asked.tool == "schedule_create" and not asked.arguments.get("timezone"):
            values["timezone"] = label("their_zone")
        if len(values) == 1 and asked.tool in ARGUMENTS and "\n" not in (only := next(iter(values.values()))):
            return only
        # Values are indented, so that no value can look like the name of an argument.
        return "\n".join(
            f"{label(name) if asked.tool in CORE else text.escaped(self.redact(name))}: {value}".replace(
                "\n", "\n  "
            )
            for name, value in values.items()
        )

    @property
    def _root(self) -> str:
        return "/" + "/".join(self.paths.root)

    def _note(self, call: ToolCall, decision: Decision, ended: str, **more: Any) -> None:
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


def _replaced(path: Path, asked: Call) -> dict[str, Any]:
    """Compare the file that a call replaces with the new text, and return the line counts for `Approval`. A large
    file is not compared. The file's text is not returned, because the approver may lack the right to read it.
    """
    try:
        raw = file_access.read(path, LARGEST)
    except OSError:
        return {}
    lines = raw.count(b"\n") + (raw[-1:] not in {b"", b"\n"})
    if len(raw) >= COMPARED:
        return {"replaces": lines}
    old = raw.splitlines()
    new = str(asked.arguments.get("content")).encode("utf-8", "replace").splitlines()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
    counts = {"gone": gone.total(), "new": come.total(), "differs_from": same + 1}
    return {"replaces": lines, **counts}


def _because(decision: Decision) -> str:
    rule = f" (rule: {decision.rule})" if decision.rule else ""
    return f"This was not run: {decision.reason}{rule}."


def fingerprint(tool: str, arguments: Mapping[str, Any], directory: str, *definition: Any) -> str:
    """Return the hash for which an approval is valid. The hash covers the tool, the arguments, the folder and an MCP tool's
    definition.
    """
    whole = json.dumps([tool, arguments, directory, *definition], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()


# The code below writes a call as text for people. Placeholders in the text are translated when the text is shown.

TAIL = 400
"""Min characters that `shortened` keeps of the end of a text."""
_MARK = "\ue000"
"""Private-use character that marks placeholders in a text. `escaped` escapes this character in all other text."""
_LABEL = re.compile(f"{_MARK}([A-Za-z_]{{1,40}}){_MARK}")
_LABELS = frozenset(names("fields"))
_WHEN = re.compile(f"(?<={_MARK}when{_MARK}: ).+")
_LEFT_OUT = re.compile(f"{_MARK}([0-9]{{1,12}}){_MARK}")


def shortened(words: str, limit: int) -> str:
    """Return visible text shortened to about `limit` characters. A placeholder says how much was omitted; `in_words`
    translates the placeholder.
    """
    if len(words) <= limit:
        return words
    head = text.head(words, limit - TAIL)
    tail = words[text.border_after(words, len(words) - TAIL) :]
    missing = len(words) - len(head) - len(tail)
    return f"{head}\n{_MARK}{missing}{_MARK}\n{tail}"


def label(name: str) -> str:
    """Return a placeholder for the name of a built-in tool's argument. `in_words` translates the placeholder."""
    return f"{_MARK}{name}{_MARK}" if name in _LABELS else name


def changed_lines(old: str, new: str, around: int = 10**6) -> str:
    """Return a unified diff of two texts with `around` lines of context."""
    lines = difflib.unified_diff(old.split("\n"), new.split("\n"), n=around, lineterm="")
    return "\n".join([*lines][3:])


def in_words(shown: str, times: Callable[[str], str] = str) -> str:
    """Return the text in which words of the current language replace the placeholders of `shortened` and `label`.
    `times` formats due times.
    """
    told = _WHEN.sub(lambda mark: times(mark[0]), shown)
    labelled = _LABEL.sub(lambda mark: say(f"fields.{mark[1]}") if mark[1] in _LABELS else mark[1], told)
    return _LEFT_OUT.sub(lambda mark: say("marks.left_out", count=int(mark[1])), labelled)


# The code below finds the files that a command line names or runs. The code knows only a part of the shell's syntax: it finds
# no file names that are built from wildcards or variables.

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_ENDS_COMMAND = frozenset(";|&()\n`")
_RUNS = re.compile(
    r"(?:python|pypy|ruby|perl|node|php|lua|Rscript|deno|bun)[\d.]*|(?:ba|da|z|k)?sh|source|\.|exec|-exec|xargs"
)
_BETWEEN = re.compile(r"env|nice|nohup|poetry|run|time|timeout|uv|[\d.]+[smh]?|\w+=.*|-.*")
"""Pattern of words that may come before the name of a program or script in a command line."""


def named_files(command: str, root: Path) -> tuple[list[Path], list[Path]]:
    """Return the programs and scripts that a command in the folder `root` runs, and the other files that it names. This call
    blocks the thread.
    """
    words = list(_words(command))
    # The command might `cd` into a folder that it names, so look up files there too. `Path` would raise for some words.
    folders = dict.fromkeys([root, *(root / word for word in words if os.path.isdir(root / word))])  # noqa: PTH112
    runs, others, begins, before = dict[Path, None](), dict[Path, None](), True, ""
    for word in words:
        program = word.rpartition("/")[2]
        names = [word, word.rpartition("=")[2].lstrip("@"), *(_MAKEFILES if program == "make" else ())]
        if before == "-m":
            names += [f"{word.replace('.', '/')}{end}" for end in (".py", "/__main__.py")]
        places = [folder / name for name in names if name for folder in folders]
        found = dict.fromkeys(place for place in places if os.path.isfile(place))  # noqa: PTH113
        (runs if begins else others).update(found)
        between = begins and not found and _BETWEEN.fullmatch(program)
        begins = bool(between or _RUNS.fullmatch(program) or not _ENDS_COMMAND.isdisjoint(word))
        before = word
    return list(runs), [path for path in others if path not in runs]


def _words(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(_ENDS_COMMAND) + "<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        words = command.split()
    for word in words:
        yield word.strip("$\"'")
        if " " in word and word != command:  # a quoted word may contain a command
            yield from (";", *_words(word))


def digest(paths: Sequence[Path]) -> str:
    """Return a hash of the paths and the contents of these files. Unreadable files are skipped. Return "" if there are
    no files. This call blocks the thread.
    """
    whole = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(OSError):
            raw = file_access.read(path, LARGEST)
            whole.update(f"{path}\n{len(raw)}\n".encode(errors="replace") + raw)
    return whole.hexdigest() if paths else ""
