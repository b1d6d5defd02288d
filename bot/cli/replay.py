"""`shipmate replay`: the requests of a turn or a task made again from what is on disk, and the same asked once more."""

from __future__ import annotations

import asyncio
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli import rebuilt
from bot.cli.common import HOME, AsJson, Dir, Here, complain, say, say_json, say_raw, settings

if TYPE_CHECKING:
    from bot.agent.rebuilding import Call, Rebuilt
    from bot.agent.rerunning import RerunResult
    from bot.cli.rebuilt import Found

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
        bool, typer.Option("--offline", help="Rebuild and compare, and ask no model. This is the default.")
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
    """Rebuild every model request of a turn or a task, byte for byte; ask another model or prompt. No tool runs, nothing
    is sent.
    """
    live = model is not None or prompt is not None
    if live and (offline or body is not None):
        raise typer.BadParameter("--model and --prompt ask a model: not with --offline or --body")
    found = rebuilt.find(root, request_id)
    if body is not None:
        _print_body(found.calls, body)
        return
    for number, call in enumerate(found.calls.calls, 1):
        facts = _facts(found, number, call)
        if as_json:
            say_json(facts)
        else:
            _show(facts, found.told)
    for task in found.tasks:
        _show_task(task, as_json=as_json)
    if live:
        _compare(root, found, model, prompt, as_json=as_json)
        return
    calls = [call for one in (found, *found.tasks) for call in one.calls.calls]
    if different := sum(not call.exact for call in calls):
        complain(f"{different} of {len(calls)} requests are not what was sent.")
        raise typer.Exit(1)


def _print_body(turn: Rebuilt, number: int) -> None:
    if number > len(turn.calls):
        raise errors.NotFound(f"there is no request {number}; there are {len(turn.calls)}")
    call = turn.calls[number - 1]
    if not call.exact:
        complain(f"This is not what was sent: {'; '.join(call.wrong)}.")
    if sys.stdout.isatty():
        say_raw(call.body.decode())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(call.body)
    if not call.exact:
        raise typer.Exit(1)


def _facts(found: Found, number: int, call: Call) -> dict[str, Any]:
    from bot.context import blocks

    told, said = call.facts or {}, call.answer
    return {
        "type": "call",
        "requestId": found.request_id,
        "chatKey": str(found.chat_key),
        "session": found.session,
        "task": found.task,
        "call": number,
        "step": call.record.get("step"),
        "exact": call.exact,
        "wrong": call.wrong,
        "sha256": call.sha256,
        "sentSha256": call.record.get("sha256"),
        "bytes": len(call.body),
        "model": call.record.get("model"),
        "maxTokens": call.record.get("maxTokens"),
        "messages": call.record.get("messages"),
        "stopReason": told.get("stopReason"),
        "usage": told.get("usage"),
        "costUsd": told.get("costUsd"),
        "answer": blocks.plain_text(said["content"]) if said is not None else "",
        "tools": [one["name"] for one in blocks.tool_uses(said)] if said is not None else [],
    }


def _show(facts: dict[str, Any], told: dict[str, Any] | None) -> None:
    if facts["call"] == 1 and told is not None:
        of = f"({told['mode']}) of the turn {facts['requestId']} in {facts['chatKey']}"
        say(f"task {facts['task']} “{told['label']}” {of}")
    elif facts["call"] == 1:
        say(f"turn {facts['requestId']} in {facts['chatKey']}, session {facts['session']}")
    verdict = "exact" if facts["exact"] else "DIFFERENT"
    usage = facts["usage"] or {}
    read = sum(usage.get(name, 0) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    came = f"{facts['stopReason']} {', '.join(facts['tools'])}".strip() if facts["usage"] else "no answer"
    say(
        f"{facts['call']:>3}  {verdict:<9}  {facts['bytes']:>9,} bytes  {facts['model']}  {facts['messages']} messages"
        f"  -> {came}  {read:,} in, {usage.get('outputTokens', 0):,} out, {_cost(facts['costUsd'])}"
    )
    for words in facts["wrong"]:
        say(f"     {words}")


def _show_task(task: Found, *, as_json: bool) -> None:
    """A task of a turn, in a line: its requests are shown under its own id."""
    calls, told = task.calls.calls, task.told
    exact = sum(call.exact for call in calls)
    wrong = list(dict.fromkeys(words for call in calls for words in call.wrong))
    if told is None:
        wrong = [rebuilt.NOT_RECORDED]
    if as_json:
        facts = {
            "type": "task",
            "requestId": task.request_id,
            "chatKey": str(task.chat_key),
            "task": task.task,
        }
        about = {key: (told or {}).get(key) for key in ("mode", "label", "callId")}
        say_json(facts | about | {"requests": len(calls), "exact": exact, "wrong": wrong})
        return
    name = (
        "" if told is None else f" “{told['label']}” ({told['mode']}): {exact} of {len(calls)} requests exact"
    )
    say(f"task {task.task}{name}")
    for words in wrong:
        say(f"     {words}")


def _compare(root: Path, found: Found, model: str | None, prompt: Path | None, *, as_json: bool) -> None:
    from bot.agent import rerunning

    before = rerunning.recorded(found.calls)
    after = asyncio.run(_again(root, found, model, prompt))
    same = before.answer == after.answer
    if as_json:
        say_json(
            {
                "type": "replay",
                "requestId": found.request_id,
                "task": found.task,
                "model": model or found.calls.calls[0].record.get("model"),
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


async def _again(root: Path, found: Found, name: str | None, prompt: Path | None) -> RerunResult:
    """Ask the configured provider. What it costs stands in the operator's log, like all that is asked."""
    import random

    from bot.agent.rerunning import rerun
    from bot.llm.factory import build_model
    from bot.system import SystemClock, SystemDisk, UlidSource
    from bot.telemetry import JsonlLog, LogRedactor, Redactor, turn_scope

    config = settings(root)
    clock, ids, redact = SystemClock(), UlidSource(), Redactor(config.secrets)
    static = None if prompt is None else redact(_text(prompt))
    log = JsonlLog(
        root / HOME / "logs", clock=clock, disk=SystemDisk(), ids=ids, redact=LogRedactor(config.secrets)
    )
    try:
        model = build_model(
            provider=config.llm.provider,
            api_key=config.llm.api_key,
            base_url=config.llm.base_url,
            clock=clock,
            log=log,
            ids=ids,
            rng=random.Random(),  # noqa: S311 - how long to wait before asking again
            log_messages=config.llm.log_messages,
            log_payload=config.llm.log_payload,
        )
        with turn_scope(chat_key=found.chat_key, request_id=found.request_id):
            try:
                return await rerun(found.calls, model, name=name, static=static, redact=redact)
            finally:
                await model.close()
    finally:
        log.close()


def _text(prompt: Path) -> str:
    try:
        return prompt.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{str(prompt)!r} cannot be read as text: {type(error).__name__}") from None


def _cost(usd: float | None) -> str:
    return "price unknown" if usd is None else f"${usd:.4f}"
