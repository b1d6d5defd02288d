"""`shipmate replay`: the requests of a turn or a task as they were recorded, and the same asked once more."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli import common, recorded
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    complain,
    counted,
    say,
    say_json,
    say_raw,
    settings,
    text_of,
)
from bot.contracts.identity import ChatKey

if TYPE_CHECKING:
    from bot.cli.recorded import Found
    from bot.features.replay.rerun import Call, RecordedTurn, RerunResult

_TABLE = (
    ("calls", "calls"),
    ("inputTokens", "new tokens in"),
    ("cacheReadTokens", "  from the cache"),
    ("cacheWriteTokens", "  to the cache"),
    ("outputTokens", "tokens out"),
)


def replay(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST_ID", help="As logs and `/receipt` show it; of a task, `details.task`."
        ),
    ],
    root: Dir = Here,
    offline: Annotated[
        bool, typer.Option("--offline", help="Read and compare, and ask no model. This is the default.")
    ] = False,
    model: Annotated[str | None, typer.Option(metavar="M", help="Ask this model, and compare.")] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="Ask with this system prompt, and compare."
        ),
    ] = None,
    body: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Print the bytes of the Nth request alone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the model was asked, byte for byte. Every request of a turn or a task; or ask another model or prompt. No tool
    runs, nothing is sent.
    """
    live = model is not None or prompt is not None
    if live and (offline or body is not None):
        raise typer.BadParameter("--model and --prompt ask a model: not with --offline or --body")
    found = recorded.find(root, request_id)
    if body is not None:
        _print_body(found.calls, body)
        return
    for number, call in enumerate(found.calls, 1):
        facts = _facts(found, number, call)
        if as_json:
            say_json(facts)
        else:
            _show(facts, found)
    for task in found.tasks:
        _show_task(task, as_json=as_json)
    if live:
        _compare(root, found, model, prompt, as_json=as_json)
        return
    calls = [call for one in (found, *found.tasks) for call in one.calls]
    if different := sum(not call.exact for call in calls):
        complain(f"{different} of {len(calls)} requests are not what was sent.")
        raise typer.Exit(1)


def _print_body(calls: Sequence[Call], number: int) -> None:
    if number > len(calls):
        raise errors.NotFound(f"there is no request {number}; there are {len(calls)}")
    call = calls[number - 1]
    if not call.exact:
        complain(f"This is not what was sent: {call.record.wrong}.")
    body = call.record.body or b""
    if sys.stdout.isatty():
        say_raw(body.decode())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
    if not call.exact:
        raise typer.Exit(1)


def _facts(found: Found, number: int, call: Call) -> dict[str, Any]:
    from bot.core import blocks

    record, request, said = call.record, call.request, call.answer
    told = record.answer or {}
    return {
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
        "stopReason": told.get("stopReason"),
        "usage": told.get("usage"),
        "costUsd": told.get("costUsd"),
        "answer": blocks.plain_text(said["content"]) if said is not None else "",
        "tools": [one.name for one in blocks.tool_calls(said["content"])] if said is not None else [],
    }


def _show(facts: dict[str, Any], found: Found) -> None:
    if facts["call"] == 1 and found.task is not None:
        say(f"{_named(found)} of the turn {found.request_id} in {found.chat_key}")
    elif facts["call"] == 1:
        session = f", session {found.session}" if found.session is not None else ""
        say(f"turn {found.request_id} in {found.chat_key}{session}")
    verdict = "exact" if facts["exact"] else "DIFFERENT"
    usage = facts["usage"] or {}
    read = sum(usage.get(name, 0) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    came = f"{facts['stopReason']} {', '.join(facts['tools'])}".strip() if facts["usage"] else "no answer"
    what = f"  for a {facts['purpose']}" if facts["purpose"] not in {"turn", "subagent"} else ""
    count = facts["messages"]
    messages = "? messages" if count is None else counted(count, "message")
    say(
        f"{facts['call']:>3}  {verdict:<9}  {facts['bytes']:>9,} bytes  {facts['model']}  {messages}{what}"
        f"  -> {came}  {read:,} in, {usage.get('outputTokens', 0):,} out, {_cost(facts['costUsd'])}"
    )
    for words in facts["wrong"]:
        say(f"     {words}")


def _show_task(task: Found, *, as_json: bool) -> None:
    """A task of a turn, in a line: its requests are shown under its own id."""
    calls = task.calls
    exact = sum(call.exact for call in calls)
    wrong = list(dict.fromkeys(call.record.wrong for call in calls if call.record.wrong is not None))
    if as_json:
        facts = {"type": "task", "requestId": task.request_id, "chatKey": task.chat_key, "task": task.task}
        about = {key: task.told.get(key) for key in ("mode", "label", "callId")}
        say_json(facts | about | {"requests": len(calls), "exact": exact, "wrong": wrong})
        return
    say(f"{_named(task)}: {exact} of {len(calls)} requests exact")
    for words in wrong:
        say(f"     {words}")


def _named(task: Found) -> str:
    return f"task {task.task} “{task.told.get('label', '')}” ({task.told.get('mode', '?')})"


def _compare(root: Path, found: Found, model: str | None, prompt: Path | None, *, as_json: bool) -> None:
    from bot.features.replay import rerun as recording

    turn = found.turn
    before = recording.recorded(turn)
    after = asyncio.run(_again(root, found, turn, model, prompt))
    same = before.answer == after.answer
    if as_json:
        say_json(
            {
                "type": "replay",
                "requestId": found.request_id,
                "task": found.task,
                "model": model or turn.calls[0].record.model,
                "prompt": None if prompt is None else str(prompt),
                "same": same,
                "notRecorded": after.unknown,
                "recorded": _came(before),
                "again": _came(after),
            }
        )
        return
    say()
    say(f"{'':<18}{'recorded':>12}{'again':>12}")
    for name, words in _TABLE:
        say(f"{words:<18}{before.totals[name]:>12,}{after.totals[name]:>12,}")
    say(f"{'cost':<18}{_cost(before.totals['costUsd']):>12}{_cost(after.totals['costUsd']):>12}")
    if after.unknown:
        say(f"calls of tools without a recorded result: {', '.join(after.unknown)}")
    say()
    _show_difference(before, after)


def _came(came: RerunResult) -> dict[str, Any]:
    return {"answer": came.answer, "stopReasons": [one["stopReason"] for one in came.calls]} | came.totals


def _show_difference(before: RerunResult, after: RerunResult) -> None:
    if before.answer == after.answer:
        say("The answer is the same.")
        return
    rows = difflib.unified_diff(
        before.answer.splitlines(), after.answer.splitlines(), "recorded", "again", lineterm="", n=1_000
    )
    for row in rows:
        say(row)


async def _again(
    root: Path, found: Found, turn: RecordedTurn, name: str | None, prompt: Path | None
) -> RerunResult:
    """Ask the configured provider. What it costs stands in the operator's log, like all that is asked."""
    from bot.configuration import prices_of
    from bot.features.replay.rerun import rerun
    from bot.storage.artifacts import ArtifactStore
    from bot.system import SystemClock, SystemDisk, UlidSource
    from bot.telemetry import JsonlLog, LogRedactor, Redactor, turn_scope

    config = settings(root)
    clock, ids, redact = SystemClock(), UlidSource(), Redactor(config.secrets)
    static = None if prompt is None else redact(text_of(prompt).strip())
    log = JsonlLog(
        root / HOME / "logs", clock=clock, disk=SystemDisk(), ids=ids, redact=LogRedactor(config.secrets)
    )
    try:
        model = common.model(
            provider=config.llm.provider,
            api_key=config.llm.api_key,
            base_url=config.llm.base_url,
            log=log,
            ids=ids,
            log_messages=config.llm.log_messages,
            log_payload=config.llm.log_payload,
            prices=prices_of(config.llm),
            artifacts=ArtifactStore(
                root / HOME / "artifacts", disk=SystemDisk(), ids=ids, clock=clock, log=log
            ),
        )
        with turn_scope(chat_key=ChatKey.parse(found.chat_key), request_id=found.request_id):
            try:
                return await rerun(turn, model, name=name, static=static, redact=redact)
            finally:
                await model.close()
    finally:
        log.close()


def _cost(usd: float | None) -> str:
    return "price unknown" if usd is None else f"${usd:.4f}"
