"""`shipmate replay` shows the recorded model requests of a turn or a task, or sends them again."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bot import configuration, errors, ulids
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    RequestId,
    complain,
    counted,
    say,
    say_json,
    say_raw,
    say_rows,
    text_of,
)
from bot.cli.project import event_log
from bot.cli.project import model as build_model
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core import events, transcript
from bot.core.chat import chat_of_task
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.features.replay import FILE, TROUBLE, RecordedRequests, rerun
from bot.features.replay.rerun import Call, RecordedTurn, RerunResult
from bot.llm import blocks
from bot.storage.artifacts import ArtifactStore
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog, LogRedactor, Redactor, turn_scope
from bot.telemetry.usage import TOKENS

_ROWS = {
    "calls": "calls",
    "inputTokens": "uncached input tokens",
    "cacheReadTokens": "cache read tokens",
    "cacheWriteTokens": "cache write tokens",
    "outputTokens": "output tokens",
}


Offline = Annotated[bool, typer.Option("--offline", help="Only show and verify, without a model (default).")]
Name = Annotated[str | None, typer.Option(metavar="M", help="Send the requests to this model, and compare.")]
PROMPT = "Send the requests with this system prompt, and compare."
Prompt = Annotated[Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help=PROMPT)]
Body = Annotated[int | None, typer.Option(metavar="N", min=1, help="Print only the bytes of request N.")]


def replay(
    request_id: RequestId,
    root: Dir = Here,
    offline: Offline = False,
    model: Name = None,
    prompt: Prompt = None,
    body: Body = None,
    as_json: AsJson = False,
) -> None:
    live = model is not None or prompt is not None
    if live and (offline or body is not None):
        raise typer.BadParameter("--model and --prompt cannot be combined with --offline or --body")
    found = find(root, request_id)
    if body is not None:
        _print_body(found.calls, body)
        return
    if not as_json:
        session = f", session {found.session}" if found.session is not None else ""
        of_turn = f"turn {found.request_id} in {found.chat_key}{session}"
        say(of_turn if found.task is None else f"{_title(found)} of the {of_turn}")
    rows = [_row(found, number, call) for number, call in enumerate(found.calls, 1)]
    say_rows([*rows, *map(_task_row, found.tasks)], as_json=as_json)
    if live:
        again = asyncio.run(_send_again(root, found, model, prompt))
        _compare(found, again, model, prompt, as_json=as_json)
        return
    calls = [call for one in (found, *found.tasks) for call in one.calls]
    if different := sum(not call.exact for call in calls):
        complain(f"{different} of {len(calls)} requests differ from what was sent.")
        raise typer.Exit(1)


def _print_body(calls: Sequence[Call], number: int) -> None:
    if number > len(calls):
        raise errors.NotFound(f"there is no request {number}; there are {len(calls)}")
    record = calls[number - 1].record
    body = record.body or b""
    if sys.stdout.isatty():
        say_raw(body.decode())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
    if record.wrong is not None:
        complain(f"This is not what was sent: {record.wrong}.")
        raise typer.Exit(1)


def _row(found: Recording, number: int, call: Call) -> tuple[dict[str, Any], str]:
    record, request = call.record, call.request
    answer, content = record.answer or {}, call.answer["content"] if call.answer is not None else []
    usage, tools = answer.get("usage"), [one.name for one in blocks.tool_calls(content)]
    facts: dict[str, Any] = {
        "type": "call",
        "requestId": found.request_id,
        "chatKey": found.chat_key,
        "session": found.session,
        "task": found.task,
        "call": number,
        "purpose": record.purpose,
        "step": record.id,
        "exact": call.exact,
        "wrong": [record.wrong] if record.wrong is not None else [],
        "sha256": hashlib.sha256(record.body).hexdigest() if record.body is not None else None,
        "sentSha256": record.sha256,
        "bytes": len(record.body or b""),
        "model": record.model,
        "maxTokens": request.max_tokens if request is not None else None,
        "messages": len(request.messages) if request is not None else None,
        "stopReason": answer.get("stopReason"),
        "usage": usage,
        "costUsd": answer.get("costUsd"),
        "answer": blocks.plain_text(content),
        "tools": tools,
    }
    outcome, tokens = "no answer", Counter[str](usage or {})
    if usage:
        outcome = f"{facts['stopReason']} {', '.join(tools)}".strip()
    line = [
        f"{number:>3}  {'exact' if call.exact else 'DIFFERENT':<9}  {facts['bytes']:>9,} bytes  {record.model}",
        "? messages" if request is None else counted(len(request.messages), "message"),
        f"for a {record.purpose}" if record.purpose not in {"turn", "subagent"} else "",
        f"-> {outcome}",
        f"{sum(tokens[name] for name in TOKENS[:3]):,} in, {tokens['outputTokens']:,} out, {_cost(facts['costUsd'])}",
    ]
    return facts, "\n     ".join(["  ".join(filter(None, line)), *facts["wrong"]])


def _task_row(task: Recording) -> tuple[dict[str, Any], str]:
    """Return the row of a task. `shipmate replay TASK_ID` shows the task's requests."""
    exact = sum(call.exact for call in task.calls)
    wrong = list(dict.fromkeys(call.record.wrong for call in task.calls if call.record.wrong is not None))
    facts: dict[str, Any] = {
        "type": "task",
        "requestId": task.request_id,
        "chatKey": task.chat_key,
        "task": task.task,
    }
    facts |= {key: task.facts.get(key) for key in ("mode", "label", "callId")}
    facts |= {"requests": len(task.calls), "exact": exact, "wrong": wrong}
    line = f"{_title(task)}: {exact} of {len(task.calls)} requests exact"
    return facts, "\n     ".join([line, *wrong])


def _title(task: Recording) -> str:
    return f"task {task.task} “{task.facts.get('label', '')}” ({task.facts.get('mode', '?')})"


async def _send_again(root: Path, found: Recording, name: str | None, prompt: Path | None) -> RerunResult:
    """Send the requests to the configured provider. The operator's log records these calls and their cost,
    as for all model calls.
    """
    settings, turn = configuration.load(root), found.turn
    llm, redact = settings.llm, Redactor(settings.secrets)
    static = None if prompt is None else redact(text_of(prompt).strip())
    parts: dict[str, Any] = {"clock": SystemClock(), "disk": SystemDisk(), "ids": UlidSource()}
    log = JsonlLog(root / HOME / "logs", redact=LogRedactor(settings.secrets), **parts)
    with closing(log), turn_scope(chat_key=ChatKey.parse(found.chat_key), request_id=found.request_id):
        model = build_model(
            llm.provider,
            llm.api_key,
            llm.base_url,
            log=log,
            log_messages=llm.log_messages,
            log_payload=llm.log_payload,
            prices=configuration.prices_of(llm),
            artifacts=ArtifactStore(root / HOME / "artifacts", log=log, **parts),
        )
        try:
            return await rerun.rerun(turn, model, name=name, static=static, redact=redact)
        finally:
            await model.close()


def _compare(
    found: Recording, after: RerunResult, model: str | None, prompt: Path | None, *, as_json: bool
) -> None:
    before = rerun.recorded(found.turn)
    if as_json:
        facts: dict[str, Any] = {"type": "replay", "requestId": found.request_id, "task": found.task}
        facts["model"] = model or found.turn.calls[0].record.model
        facts["prompt"] = None if prompt is None else str(prompt)
        facts |= {"same": before.answer == after.answer, "notRecorded": after.unknown}
        for name, one in (("recorded", before), ("again", after)):
            reasons = [call["stopReason"] for call in one.calls]
            facts[name] = {"answer": one.answer, "stopReasons": reasons, **one.totals}
        say_json(facts)
        return
    say()
    say(f"{'':<22}{'recorded':>12}{'again':>12}")
    for name, words in _ROWS.items():
        say(f"{words:<22}{before.totals[name]:>12,}{after.totals[name]:>12,}")
    say(f"{'cost':<22}{_cost(before.totals['costUsd']):>12}{_cost(after.totals['costUsd']):>12}")
    if after.unknown:
        say(f"tool calls without a recorded result: {', '.join(after.unknown)}")
    say()
    if before.answer == after.answer:
        say("The answer is the same.")
    rows = before.answer.splitlines(), after.answer.splitlines()
    for row in difflib.unified_diff(*rows, "recorded", "again", lineterm="", n=1_000):
        say(row)


def _cost(usd: float | None) -> str:
    return "price unknown" if usd is None else f"${usd:.4f}"


# ------------------------------------------------------------ what is recorded

NOT_RECORDED = (
    "no request of {} is recorded: it is older than the recording, the disk refused, or it has expired (requests are kept for 90 days, "
    "and per chat the newest 32 MB)"
)
UNKNOWN = (
    "no turn or task {!r} is in the log or in the recorded requests. The log names turns and commands by `requestId`, tasks by "
    "`details.task`."
)


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """A turn, read from its chat's log. If the user asked for one task of this turn, `task` is the task's id."""

    turn: str
    task: str | None
    events: Sequence[Event]
    """Events of the turn, and of the messages that the turn answers."""
    lines: Sequence[Json]
    """Transcript lines of the turn."""
    tasks: Mapping[str, Json]
    """Fields `callId`, `mode` and `label` of each task of the turn; the key is the task's id."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded model requests of a turn; if `task` is set, only the requests of that task."""

    request_id: str
    chat_key: str
    calls: Sequence[Call]
    session: str | None = None
    task: str | None = None
    facts: Json = field(default_factory=dict)
    """Fields `callId`, `mode` and `label` of the task."""
    tasks: Sequence[Recording] = ()

    @property
    def turn(self) -> RecordedTurn:
        """Return the turn's requests that can be sent again. Raises `errors.NotFound` if there are none."""
        own = [call for call in self.calls if self.task is not None or call.record.purpose == "turn"]
        if not own:
            raise errors.NotFound(
                f"{self.request_id} sent no request for an answer, so there is nothing to repeat"
            )
        return RecordedTurn(own)


def find(root: Path, asked: str) -> Recording:
    """Return the requests of the turn or task with this id. Raises `errors.NotFound` and `errors.StorageError`."""
    wanted, path = asked.upper(), root / HOME / FILE
    logged = asyncio.run(find_logged(root, wanted)) if ulids.FORM.fullmatch(wanted) else None
    name = wanted if logged is None or logged.task is not None else logged.turn
    calls = list[Call]()
    if path.is_file():
        with (
            errors.as_storage_error("the recorded requests cannot be read", *TROUBLE),
            closing(RecordedRequests(path, readonly=True)) as file,
        ):
            calls = list(map(Call, file.find(name)))
    if not calls:
        raise errors.NotFound(UNKNOWN.format(asked) if logged is None else NOT_RECORDED.format(name))
    lines, facts = (logged.lines, logged.tasks) if logged is not None else ((), {})
    first = calls[0].record

    def part(task: str | None, **more: object) -> Recording:
        own = [call for call in calls if call.record.task == task]
        request = name if task is None else str(first.request_id)
        return Recording(request, first.chat_key, own, task=task, **more)  # type: ignore[arg-type]  # fields

    if first.task == name:
        return part(name, facts=facts.get(name, {}))
    tasks = dict.fromkeys([*facts, *(call.record.task for call in calls if call.record.task is not None)])
    return part(
        None,
        session=lines[0]["sessionId"] if lines else None,
        tasks=[part(one, facts=facts.get(one, {})) for one in tasks],
    )


async def find_logged(root: Path, name: str) -> LoggedTurn | None:
    """Return the turn with the id `name`, or the turn that contains the message or task with this id. Return None if there is
    no such turn. Raises `errors.StorageError`.
    """
    async with event_log(root) as log:
        chat = await log.chat_of(name) if log is not None else None
        if log is None or chat is None:
            return None
        task = None
        if chat.kind == "task":
            task, order = name, await _order(log, chat)
            chat = order.inbound.chat_key if order is not None else chat.chat
        found, turn, members = await log.read(chat), name, {name}
        for one in found:
            started = isinstance(one.data, events.ToolStarted) and task and one.data.task == task
            if started or name in getattr(one.data, "members", ()):
                turn = one.turn or name
        tasks: dict[str, Json] = {}
        for one in (one for one in found if one.turn == turn):
            members.update(getattr(one.data, "members", ()))
            if isinstance(one.data, events.ToolStarted) and one.data.task:
                order = await _order(log, chat_of_task(chat, one.data.task))
                facts = {"mode": order.mode, "label": order.label} if order is not None else {}
                tasks[one.data.task] = {"callId": one.data.call, **facts}
    own = [one for one in found if one.turn == turn or {one.id, getattr(one.data, "request", "")} & members]
    lines = [one for one in transcript.lines(chat, found) if one.get("requestId") == turn]
    return LoggedTurn(turn, task, own, lines, tasks)


async def _order(log: EventLog, chat: ChatKey) -> events.Ordered | None:
    return next((one.data for one in await log.read(chat) if isinstance(one.data, events.Ordered)), None)
