"""`shipmate replay`: the requests of a turn made again from what is on disk, and the turn asked once more."""

from __future__ import annotations

import asyncio
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, complain, say, say_json, say_raw, settings
from bot.cli.history import _Complaints

if TYPE_CHECKING:
    from bot.agent.rebuilding import Call, Rebuilt
    from bot.agent.rerunning import Came
    from bot.history.turns import FoundTurn

_TABLE = (
    ("calls", "calls"),
    ("inputTokens", "new tokens in"),
    ("cacheReadTokens", "  from the cache"),
    ("cacheWriteTokens", "  to the cache"),
    ("outputTokens", "tokens out"),
)


def replay(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As logs and `/receipt` show it.")],
    root: Dir = Here,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask nobody: rebuild and compare. This is the default.")
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
    """Rebuild every model request of a turn, byte for byte; ask another model or prompt. No tool runs, nothing is sent."""
    live = model is not None or prompt is not None
    if live and (offline or body is not None):
        raise typer.BadParameter("--model and --prompt ask a model: not with --offline or --body")
    found, turn = _rebuilt(root, request_id)
    if body is not None:
        _print_body(turn, body)
        return
    for number, call in enumerate(turn.calls, 1):
        facts = _facts(found, number, call)
        if as_json:
            say_json(facts)
        else:
            _show(facts)
    if live:
        _compare(root, found, turn, model, prompt, as_json=as_json)
    elif different := sum(not call.exact for call in turn.calls):
        complain(f"{different} of {len(turn.calls)} requests are not what was sent.")
        raise typer.Exit(1)


def _rebuilt(root: Path, request_id: str) -> tuple[FoundTurn, Rebuilt]:
    """The turn as it is on disk. Nothing on disk is changed."""
    from bot.agent.rebuilding import rebuild
    from bot.context.removed import removed
    from bot.history import frames, turns
    from bot.system import SystemDisk

    disk, folder = SystemDisk(), root / HOME / "transcripts"
    found = turns.find(disk, folder, request_id.upper())
    if found is None:
        raise typer.BadParameter(f"no transcript knows a turn {request_id!r}")
    gone = removed(asyncio.run(_removals(root, found.chat_key)))
    turn = rebuild(found.lines, found.request_id, lambda name: frames.read(disk, folder, name), gone)
    if not turn.calls:
        raise typer.BadParameter(f"nothing is recorded of what {found.request_id} asked a model")
    return found, turn


async def _removals(root: Path, chat_key: str) -> list[Any]:
    from bot.history.archive import ChatStore
    from bot.system import SystemDisk

    if not await asyncio.to_thread((root / HOME / "chats").is_dir):
        return []
    store = ChatStore(root / HOME / "chats", disk=SystemDisk(), log=_Complaints())
    try:
        return await store.removals(chat_key)
    finally:
        await store.close()


def _print_body(turn: Rebuilt, number: int) -> None:
    if number > len(turn.calls):
        raise typer.BadParameter(f"there are {len(turn.calls)} requests")
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


def _facts(found: FoundTurn, number: int, call: Call) -> dict[str, Any]:
    from bot.context import blocks

    told, said = call.facts or {}, call.answer
    return {
        "type": "call",
        "requestId": found.request_id,
        "chatKey": found.chat_key,
        "session": found.session,
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


def _show(facts: dict[str, Any]) -> None:
    if facts["call"] == 1:
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


def _compare(
    root: Path, found: FoundTurn, turn: Rebuilt, model: str | None, prompt: Path | None, *, as_json: bool
) -> None:
    from bot.agent import rerunning

    before = rerunning.recorded(turn)
    after = asyncio.run(_again(root, found, turn, model, prompt))
    same = before.answer == after.answer
    if as_json:
        say_json(
            {
                "type": "replay",
                "requestId": found.request_id,
                "model": model or turn.calls[0].record.get("model"),
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


def _came(came: Came) -> dict[str, Any]:
    return {"answer": came.answer, "stopReasons": [one["stopReason"] for one in came.calls]} | came.totals


def _show_difference(before: Came, after: Came) -> None:
    if before.answer == after.answer:
        say("The answer is the same.")
        return
    rows = difflib.unified_diff(
        before.answer.splitlines(), after.answer.splitlines(), "recorded", "again", lineterm="", n=1_000
    )
    for row in rows:
        say(row)


async def _again(root: Path, found: FoundTurn, turn: Rebuilt, name: str | None, prompt: Path | None) -> Came:
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
                return await rerun(turn, model, name=name, static=static, redact=redact)
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
