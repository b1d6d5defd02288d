"""`shipmate replay` shows the recorded model requests of a turn or a task, or sends them again to another model or with
another prompt. A rerun runs no tool and sends no message. A tool call in the recording gets the recorded result.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from dataclasses import replace as changed
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from bot import configuration, errors, tags
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
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelRequest
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import events
from bot.core.context import LENGTH
from bot.features.replay import FILE, REDACTED, TROUBLE, RecordedRequest, RecordedRequests
from bot.llm import blocks
from bot.llm.wrapper import reply_of, spent
from bot.storage.artifacts import ArtifactStore
from bot.system import ULID, SystemClock, SystemDisk, UlidSource
from bot.telemetry.log import JsonlLog, turn_scope
from bot.telemetry.redaction import LogRedactor, Redactor
from bot.telemetry.usage import TOKENS
from bot.tools.builtin.chat_send import chat_send, promises_more

MAX_STEPS = 50  # max model requests of a rerun
NO_RESULT = "Not recorded: this is a replay in which no tool runs, and the turn did not make this call. Go on without it."
TAKEN = "Taken as delivered: this is a replay in which nothing is sent."
UNKNOWN = (
    "no request of {!r} is recorded: no turn or task has this id, the disk refused, or the request has expired (requests are "
    "kept for 90 days, and per chat the newest 32 MB). The log names turns by `requestId`, tasks by `details.task`."
)
_COLUMNS = {
    "calls": "calls",
    "inputTokens": "uncached input tokens",
    "cacheReadTokens": "cache read tokens",
    "cacheWriteTokens": "cache write tokens",
    "outputTokens": "output tokens",
}

Name = Annotated[str | None, typer.Option(metavar="M", help="Send the requests to this model, and compare.")]
Offline = Annotated[bool, typer.Option("--offline", help="Only show and verify, without a model (default).")]
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
    name, found = find(root, request_id.upper())
    first = found[0]
    task = name if first.task == name else None
    own = [one for one in found if one.task == task]
    if body is not None:
        _print_body(own, body)
        return
    about: Json = {"requestId": first.request_id, "chatKey": first.chat_key, "task": task}
    if not as_json:
        say(f"{'' if task is None else f'task {task} of the '}turn {first.request_id} in {first.chat_key}")
    tasks = sorted((one for one in found if one.task != task), key=lambda one: str(one.task))
    rows = [_row(about, number, one) for number, one in enumerate(own, 1)]
    for key, calls in groupby(tasks, lambda one: str(one.task)):
        faults = [one.wrong for one in calls]
        exact, wrong = faults.count(None), [*dict.fromkeys(one for one in faults if one is not None)]
        facts = {
            "type": "task",
            **about,
            "task": key,
            "requests": len(faults),
            "exact": exact,
            "wrong": wrong,
        }
        words = f"task {key}: {exact} of {len(faults)} requests exact"
        rows.append((facts, "\n     ".join([words, *wrong])))
    say_rows(rows, as_json=as_json)
    if live:
        _compare(root, about, own, model, prompt, as_json=as_json)
    elif different := sum(one.wrong is not None for one in found):
        complain(f"{different} of {len(found)} requests differ from what was sent.")
        raise typer.Exit(1)


def find(root: Path, asked: str) -> tuple[str, list[RecordedRequest]]:
    """Return the id of a turn or task, and its requests. For a message that joined a turn, return that turn. Raises
    `errors.NotFound` and `errors.StorageError`.
    """
    path = root / HOME / FILE
    turn = asyncio.run(turn_of(root, asked)) if ULID.fullmatch(asked) else asked
    if path.is_file():
        with (
            errors.as_storage_error("the recorded requests cannot be read", *TROUBLE),
            closing(RecordedRequests(path, readonly=True)) as file,
        ):
            for name in dict.fromkeys((asked, turn)):
                if found := file.find(name):
                    return name, found
    raise errors.NotFound(UNKNOWN.format(asked))


async def turn_of(root: Path, name: str) -> str:
    """Return a turn's id. `name` is the id of the turn, of one of its messages or of one of its tasks. Raises
    `errors.StorageError`.
    """
    async with event_log(root) as log:
        chat = await log.chat_of(name) if log is not None else None
        if log is None or chat is None:
            return name
        found, turn = await log.read(chat), name
        if chat.kind == "task":
            orders = (one.data for one in found if isinstance(one.data, events.Ordered))
            chat = next((one.inbound.chat_key for one in orders), chat)
            found = await log.read(chat)
    for one in found:
        ordered = isinstance(one.data, events.ToolStarted) and one.data.task == name
        if ordered or name in getattr(one.data, "members", ()):
            turn = one.turn or name
    return turn


def _print_body(calls: Sequence[RecordedRequest], number: int) -> None:
    if number > len(calls):
        raise errors.NotFound(f"there is no request {number}; there are {len(calls)}")
    record = calls[number - 1]
    body = record.body or b""
    if sys.stdout.isatty():
        say_raw(body.decode())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
    if record.wrong is not None:
        complain(f"This is not what was sent: {record.wrong}.")
        raise typer.Exit(1)


def _row(about: Json, number: int, record: RecordedRequest) -> tuple[Json, str]:
    request, answer, content = _request(record), record.answer or {}, _content(record)
    usage, tools = answer.get("usage"), [one.name for one in blocks.tool_calls(content)]
    facts: Json = {
        "type": "call",
        **about,
        "call": number,
        "purpose": record.purpose,
        "step": record.id,
        "exact": record.wrong is None,
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
    tokens = Counter[str](usage or {})
    line = [
        f"{number:>3}  {'exact' if facts['exact'] else 'DIFFERENT':<9}  {facts['bytes']:>9,} bytes  {record.model}",
        "? messages" if request is None else counted(len(request.messages), "message"),
        f"for a {record.purpose}" if record.purpose not in {"turn", "subagent"} else "",
        f"-> {facts['stopReason']} {', '.join(tools)}".strip() if usage else "-> no answer",
        f"{sum(tokens[name] for name in TOKENS[:3]):,} in, {tokens['outputTokens']:,} out, {_cost(facts['costUsd'])}",
    ]
    return facts, "\n     ".join(["  ".join(filter(None, line)), *facts["wrong"]])


def _compare(
    root: Path,
    about: Json,
    calls: Sequence[RecordedRequest],
    model: str | None,
    prompt: Path | None,
    *,
    as_json: bool,
) -> None:
    own = [one for one in calls if about["task"] is not None or one.purpose == "turn"]
    if not own:
        raise errors.NotFound("no request for an answer is recorded, so there is nothing to repeat")
    before, after = recorded(own), asyncio.run(_send_again(root, own, model, prompt))
    if as_json:
        facts: Json = {"type": "replay", **about, "model": model or own[0].model}
        facts["prompt"] = None if prompt is None else str(prompt)
        facts |= {"same": before.answer == after.answer, "notRecorded": after.unknown}
        for name, one in (("recorded", before), ("again", after)):
            reasons = [call["stopReason"] for call in one.calls]
            facts[name] = {"answer": one.answer, "stopReasons": reasons, **one.totals}
        say_json(facts)
        return
    say(f"\n{'':<22}{'recorded':>12}{'again':>12}")
    for name, words in _COLUMNS.items():
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


# ------------------------------------------------------------ rerun


@dataclass(slots=True)
class RerunResult:
    """The answer, the stop reason and cost of each model call, and the tools that were called without a recorded result."""

    answer: str = ""
    calls: list[Json] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def totals(self) -> Json:
        """Return the sums of tokens and costs. `costUsd` is None if the price of any call is unknown."""
        usage = [call.get("usage") or {} for call in self.calls]
        costs = [call.get("costUsd") for call in self.calls]
        total = None if None in costs else round(sum(map(float, costs)), 6)  # type: ignore[arg-type]  # no None
        tokens = {name: sum(int(one.get(name, 0)) for one in usage) for name in TOKENS}
        return {"calls": len(self.calls), **tokens, "costUsd": total}


def _request(record: RecordedRequest) -> ModelRequest | None:
    """Return the request; None if the recorded body is missing, damaged or changed by a removal."""
    if record.body is None or record.wrong not in {None, REDACTED}:
        return None
    body: Any = json.loads(record.body)
    return ModelRequest(
        model=body["model"],
        max_tokens=body["max_tokens"],
        system=body.get("system", []),
        messages=tags.without_system_messages(body["messages"]),
        tools=body.get("tools", []),
        purpose=record.purpose,
        effort=body.get("output_config", {}).get("effort"),
        thinking=body.get("thinking"),
    )


def _content(record: RecordedRequest) -> list[Json]:
    return (record.answer or {}).get("content") or []


def recorded(calls: Sequence[RecordedRequest]) -> RerunResult:
    """Return the recorded answer and model calls of the turn as a `RerunResult`, to compare with a rerun."""
    answers = [one.answer for one in calls if one.answer is not None]
    said = list[list[Json]]([[]])
    for one in answers:
        said[-1] = blocks.joined(said[-1], one.get("content") or [])
        if one.get("stopReason") not in {*LENGTH, "pause_turn"} or blocks.tool_calls(said[-1]):
            said.append([])  # the answer is complete; otherwise the next request continued it
    return RerunResult(_answer([content for content in said if content]), answers)


async def _send_again(
    root: Path, calls: Sequence[RecordedRequest], name: str | None, prompt: Path | None
) -> RerunResult:
    """Send the requests to the configured provider. The operator's log records these calls and their cost."""
    settings = configuration.load(root)
    llm, redact = settings.llm, Redactor(settings.secrets)
    static = None if prompt is None else redact(text_of(prompt).strip())
    parts: dict[str, Any] = {"clock": SystemClock(), "disk": SystemDisk(), "ids": UlidSource()}
    log = JsonlLog(root / HOME / "logs", redact=LogRedactor(settings.secrets), **parts)
    chat, turn = ChatKey.parse(calls[0].chat_key), calls[0].request_id
    with closing(log), turn_scope(chat_key=chat, request_id=turn):
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
            return await rerun(calls, model, name=name, static=static, redact=redact)
        finally:
            await model.close()


async def rerun(
    calls: Sequence[RecordedRequest],
    model: Model,
    *,
    name: str | None,
    static: str | None,
    redact: Redact = str,
) -> RerunResult:
    """Run the turn again from its first request. `name` is the model to ask instead. `static` replaces the part of the
    system prompt that all chats share. The first request already has the messages that joined later, the older messages
    that the turn loaded, and the tools that it found. Raises `errors.ModelError`.
    """
    first, result = _request(calls[0]), RerunResult()
    if first is None:
        raise errors.RequestInvalid(f"the first request cannot be asked again: {calls[0].wrong}")
    requests = [request for one in calls if (request := _request(one)) is not None]
    system, tools = first.system, {tool["name"]: tool for one in requests for tool in one.tools}
    if static is not None:
        shared = {"type": "text", "text": static, "cache_control": {"type": "ephemeral"}}
        system = (shared, *first.system[1:])
    model_name = name or first.model
    request = changed(first, purpose="replay", model=model_name, system=system, tools=tuple(tools.values()))
    results = _results(calls, requests)
    before, own = _said(first.messages, requests[-1].messages)
    if request.system != first.system or request.model != first.model or len(before) >= len(first.messages):
        # Models reject thinking blocks of another model, and blocks whose position in the conversation has changed.
        before, own = blocks.without_thinking(before), blocks.without_thinking(own)
    said = list[list[Json]]()
    for _ in range(MAX_STEPS):
        reply = await reply_of(model.stream(changed(request, messages=(*before, *own))))
        result.calls.append({"stopReason": reply.stop_reason} | spent(reply))
        content = blocks.sayable(blocks.redacted(reply.content, redact))
        uses = blocks.tool_calls(content)
        said += [content] if content else []
        if not uses:
            break
        done = [_result(use, results, result.unknown, cut=use.id in reply.cut) for use in uses]
        own += [{"role": "assistant", "content": content}, {"role": "user", "content": done}]
        sends = all(use.name == chat_send.name for use in uses)
        if sends and not any(one.get("is_error") for one in done) and not promises_more(uses[-1].input):
            break
    result.answer = _answer(said)
    return result


def _results(
    calls: Sequence[RecordedRequest], requests: Sequence[ModelRequest]
) -> dict[tuple[str, str], list[Json]]:
    """Return the recorded results of tool calls, keyed by (tool, arguments)."""
    found, results = dict[str, Json](), defaultdict[tuple[str, str], list[Json]](list)
    for block in (block for one in requests for message in one.messages for block in message["content"]):
        if block.get("type") == "tool_result":
            found.setdefault(block["tool_use_id"], _plain(block))
    for use in (use for one in calls for use in blocks.tool_calls(_content(one))):
        if use.id in found:
            results[_key(use)].append(found[use.id])
    return results


def _plain(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _said(first: Sequence[Message], last: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return two lists: the messages before the turn's question, and the question with people's later messages. `first` and `last`
    are the messages of the turn's first and last request.
    """
    bare = [[_plain(block) for block in message["content"]] for message in last]
    question = [_plain(block) for block in first[-1]["content"]]
    if question not in bare:
        return list(first[:-1]), list(first[-1:])
    at, own = bare.index(question), [first[-1]]
    for message, content in zip(last[at + 1 :], bare[at + 1 :], strict=True):
        words = [block for block in content if block.get("type") != "tool_result"]
        if message["role"] == "user" and words:
            own.append({**message, "content": words})
    return list(last[:at] if at >= len(first) else first[:-1]), own


def _result(
    call: ToolCall, results: dict[tuple[str, str], list[Json]], unknown: list[str], *, cut: bool
) -> Json:
    """Return the recorded result of a tool call. If there is none, add the tool's name to `unknown`."""
    if not cut and (found := results.get(_key(call))):
        return {**found.pop(0), "tool_use_id": call.id}
    if not cut and call.name == chat_send.name:
        return ToolResult(call.id, TAKEN).block
    unknown.append(call.name)
    return ToolResult(call.id, NO_RESULT, failed=True).block


def _answer(said: Sequence[Sequence[Json]]) -> str:
    calls = [call for content in said for call in blocks.tool_calls(content) if call.name == chat_send.name]
    sent = [str(call.input.get("text", "")) for call in calls]
    return "\n\n".join(sent) or (blocks.plain_text(said[-1]) if said else "")


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, json.dumps(call.input, sort_keys=True)
