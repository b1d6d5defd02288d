"""Anthropic's Messages API on loopback. It is as strict as the real service and imitates the service's
prompt cache, limits and failures.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.tags import without_system_messages
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_cache import Binding, PromptCache, check_breakpoints, count_characters, tokens_of
from bot.testing.anthropic_script import Answer, Failure, Frame, Halt, Reply, frames, reply
from bot.testing.loopback import Loopback

KEY = "sk-ant-loopback-0123456789"
MODELS = (
    "claude-fable-5-2",
    "claude-fable-5-1",
    "claude-opus-5-5",
    "claude-opus-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)
THINKS: Mapping[str, frozenset[str]] = {
    name: frozenset({"adaptive", *more})
    for name, more in (
        *((name, ()) for name in MODELS),
        ("claude-sonnet-5-5", ("between_tools",)),
        ("claude-haiku-5-5", ("between_tools", "disabled")),
    )
}
"""Accepted values of `thinking.type` by model. The listed models also accept an effort. All other models
accept neither thinking nor an effort.
"""
WINDOW = 1_000_000
REQUESTS_A_MINUTE = 4_000

Script = Callable[[Json], "Answer | str | Awaitable[Answer | str]"]


@dataclass(slots=True)
class Seen:
    """A request to /v1/messages. `at` is the time (epoch seconds), `status` the status of the answer, and
    `connection` the client's port. `aborted` is True if the client disconnected before the answer's end.
    """

    body: Json
    at: float
    headers: Mapping[str, str]
    status: int = 0
    aborted: bool = False
    connection: int = 0


class AnthropicServer(Loopback):
    """A fake Messages API. It answers from a queue that `answer` and `then` fill. If the queue is empty, it calls
    the `script`; without a script, it echoes the user's last text.

    `windows` are the context windows by model, in tokens. With `bind_thinking`, the server signs thinking blocks
    and rejects a block that was moved to another conversation. Without `system_role`, no model accepts system messages. `active` is the number of requests in
    progress, `peak` its maximum.

    `requests` lists the unchanged requests. `bodies` lists their bodies, converted by `bot.tags.without_system_messages`.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        key: str | None = KEY,
        windows: Mapping[str, int] | None = None,
        window: int = WINDOW,
        bind_thinking: bool = False,
        system_role: bool = True,
        pings: int = 1,
        chunk: int = 12,
        minimum: int = 1_024,
        count: Callable[[str], int] = count_characters,
    ) -> None:
        super().__init__(clock=clock)
        self.key = key
        self.windows = dict(windows or {})
        self.window = window
        self.bind_thinking = bind_thinking
        self.pings = pings
        self.chunk = chunk
        self.count = count
        self.max_output = 128_000
        self.requests: list[Seen] = []
        self.active = 0
        self.peak = 0
        self.queue: deque[Answer] = deque()
        self._script: Script | None = None
        self.fallback: tuple[str, Reply] | None = None
        """Name of the provider's fallback model, and its answer. Each request that allows a fallback gets this answer."""
        self._cache = PromptCache(self.clock, lambda _: minimum)
        self._binding = Binding()
        self.system_role = system_role
        self._leave = rules.Leave()
        self.ids = 0

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{id}", self._model)
        app.router.add_route("*", "/{rest:.*}", self._unknown)

    def answer(self, *blocks: Json | str, **how: Any) -> None:
        """Queue one reply made of these blocks."""
        self.then(reply(*blocks, **how))

    def then(self, *answers: Answer) -> None:
        """Queue several answers. An answer may be a failure."""
        self.queue.extend(answers)

    def script(self, script: Script | None) -> None:
        """Set the function that answers requests while the queue is empty."""
        self._script = script

    @property
    def bodies(self) -> list[Json]:
        return [_folded(seen.body) for seen in self.requests]

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        request_id = self._id("req")
        self.active += 1
        self.peak = max(self.peak, self.active)
        seen: Seen | None = None
        try:
            body = await self._read(request)
            seen = Seen(body, self.clock.now(), dict(request.headers))
            peer = request.transport.get_extra_info("peername") if request.transport is not None else None
            seen.connection = peer[1] if peer else 0
            self.requests.append(seen)
            await self.record("messages", body, request.headers)
            fault = self.take_fault("messages")
            if fault is not None:
                return self.drop(request) if fault.action == "lose" else await self.broken(request, fault)
            self._check(body, request)
            return await self._answer(request, seen, request_id)
        except rules.Refused as refused:
            if seen is not None:
                seen.status = refused.status
            return self._json(refused.body(request_id), refused.status, request_id)
        except ConnectionError:
            if seen is not None:
                seen.aborted = True
            return self.drop(request)
        finally:
            self.active -= 1
            await self.changed()

    async def _read(self, request: web.Request) -> Json:
        self._authorise(request)
        raw = await request.read()
        if len(raw) > rules.MAX_BYTES:
            raise rules.Refused("Request exceeds the maximum size", status=413, kind="request_too_large")
        self._versioned(request)
        try:
            body = json.loads(raw)
            json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise rules.Refused(f"The request body is not valid JSON: {type(error).__name__}") from None
        if not isinstance(body, dict):
            raise rules.Refused("Input should be a valid dictionary")
        return body

    def _authorise(self, request: web.Request) -> None:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix(
            "Bearer "
        )
        if not given:
            raise rules.Refused("x-api-key header is required", status=401, kind="authentication_error")
        if self.key is not None and given != self.key:
            raise rules.Refused("invalid x-api-key", status=401, kind="authentication_error")

    def _versioned(self, request: web.Request) -> None:
        version = request.headers.get("anthropic-version")
        if version is None:
            raise rules.Refused("anthropic-version: header is required")
        if version not in rules.VERSIONS:
            raise rules.Refused(f'anthropic-version: "{version}" is not a valid version')

    def _check(self, body: Json, request: web.Request) -> None:
        leave = replace(self._leave, max_output=self.max_output)
        leave.system_role = self.system_role and body.get("model") in (*MODELS, "claude-opus-4-8")
        rules.check(body, leave)
        check_breakpoints(body)
        rules.check_fallbacks(body, request.headers.get("anthropic-beta", ""))
        self._check_model(body["model"])
        rules.check_manner(body, THINKS.get(body["model"]))
        if self.bind_thinking:
            self._binding.check(body)
        window = self.windows.get(body["model"], self.window)
        tokens = tokens_of(body, self.count)
        if tokens > window:
            raise rules.Refused(f"prompt is too long: {tokens} tokens > {window} maximum")
        if tokens + body["max_tokens"] > window:
            raise rules.Refused(
                f"input length and `max_tokens` exceed context limit: {tokens} + {body['max_tokens']} > {window}, "
                "decrease input length or `max_tokens` and try again"
            )

    def _check_model(self, model: str) -> None:
        if not model.startswith("claude-") and model not in self.windows:
            raise rules.Refused(f"model: {model}", status=404, kind="not_found_error")

    async def _answer(self, request: web.Request, seen: Seen, request_id: str) -> web.StreamResponse:
        answer = await self._next(_folded(seen.body))
        if isinstance(answer, Failure):
            seen.status = answer.status
            return self._failure(answer, request_id)
        model = seen.body["model"]
        if answer.reason == "refusal" and "fallbacks" in seen.body and self.fallback is not None:
            model, answer = self.fallback
        if answer.delay:
            await self.clock.sleep(answer.delay)
        if answer.hold is not None:
            await answer.hold.wait()
        seen.status = 200
        written = self.count(json.dumps(answer.blocks))
        answer = self._signed(answer, seen.body)
        usage, keep = self._cache.look(seen.body, self.count)
        usage |= {"output_tokens": 1} | answer.usage
        message: Json = {
            "id": self._id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        last = {key: value for key, value in usage.items() if key.endswith("input_tokens")}
        last["output_tokens"] = answer.usage.get("output_tokens", written)
        if not seen.body.get("stream"):
            keep()
            whole = {"content": list(answer.blocks), "stop_reason": answer.reason, "usage": usage | last}
            return self._json(message | whole, 200, request_id)
        tools = seen.body.get("tools", ())
        held = {one["name"] for one in tools if not one.get("eager_input_streaming")}
        wire = frames(answer, message, last, chunk=self.chunk, pings=self.pings, whole=held)
        response = web.StreamResponse(headers=self._headers(request_id))
        response.content_type = "text/event-stream"
        await response.prepare(request)
        return await self._stream(request, response, wire, gap=answer.gap, keep=keep)

    async def _next(self, body: Json) -> Answer:
        if self.queue:
            return self.queue.popleft()
        if self._script is None:
            return reply(f"echo: {_last_words(body)}")
        found = self._script(body)
        answer = await found if inspect.isawaitable(found) else found
        return reply(answer) if isinstance(answer, str) else answer

    def _signed(self, answer: Reply, body: Json) -> Reply:
        """Return the reply with ids and signatures, and allow its blocks in later requests."""
        blocks = [dict(block) for block in answer.blocks]
        for block in blocks:
            if block["type"] == "tool_use" and block.get("id") is None:
                block["id"] = self._id("toolu")
            self._leave.types.add(block["type"])
        if self.bind_thinking:
            self._binding.sign(body, blocks)
        if answer.reason == "pause_turn":
            self._leave.resumable.append(blocks)
        return replace(answer, blocks=tuple(blocks), stop_reason=answer.reason)

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        wire: Sequence[Frame],
        *,
        gap: float,
        keep: Callable[[], None],
    ) -> web.StreamResponse:
        for at, frame in enumerate(wire):
            if gap and at:
                await self.clock.sleep(gap)
            if isinstance(frame, asyncio.Event):
                await self._wait(request, frame)
            elif isinstance(frame, bytes):
                # A frame is empty if the model holds its text back. The server then sends nothing, but waits as usual.
                await (response.write(frame) if frame else asyncio.sleep(0))
            elif frame is Halt.CUT:
                return self.drop(request)
            else:
                await self._wait(request, asyncio.Event())
            if at == 0:
                keep()
        await response.write_eof()
        return response

    async def _wait(self, request: web.Request, gate: asyncio.Event) -> None:
        """Wait until the gate opens; raises `ConnectionResetError` if the client disconnects first."""
        while not gate.is_set():
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError
            try:
                async with asyncio.timeout(0.01):
                    await gate.wait()
            except TimeoutError:
                continue

    def _failure(self, failure: Failure, request_id: str) -> web.Response:
        body = failure.body if isinstance(failure.body, str) else json.dumps(failure.body)
        kind, _, rest = failure.content_type.partition(";")
        headers = self._headers(request_id) | dict(failure.headers)
        return web.Response(
            status=failure.status,
            text=body,
            content_type=kind,
            charset="utf-8" if rest else None,
            headers=headers,
        )

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return await self._get(request, "models", self._model_list)

    async def _model(self, request: web.Request) -> web.StreamResponse:
        thinks = THINKS.get(request.match_info["id"])
        told = {"capabilities": rules.manner_capabilities(thinks)}
        return await self._get(request, "model", lambda: self._model_object(request.match_info["id"]) | told)

    async def _get(self, request: web.Request, method: str, make: Callable[[], Json]) -> web.StreamResponse:
        request_id = self._id("req")
        await self.record(method, dict(request.query), request.headers)
        fault = self.take_fault(method)
        if fault is not None:
            return await self.broken(request, fault)
        try:
            self._authorise(request)
            self._versioned(request)
            return self._json(make(), 200, request_id)
        except rules.Refused as refused:
            return self._json(refused.body(request_id), refused.status, request_id)

    def _model_list(self) -> Json:
        names = [*MODELS, *(name for name in self.windows if name not in MODELS)]
        data = [self._model_object(name) for name in names]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}

    def _model_object(self, name: str) -> Json:
        if name not in MODELS and name not in self.windows:
            raise rules.Refused(f"model: {name}", status=404, kind="not_found_error")
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2026-10-01T00:00:00Z",
            "max_input_tokens": self.windows.get(name, self.window),
            "max_tokens": self.max_output,
        }

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        await self.record("unknown", {"path": request.path}, request.headers)
        refused = rules.Refused("Not Found", status=404, kind="not_found_error")
        return self._json(refused.body(self._id("req")), 404, self._id("req"))

    def _json(self, body: Json, status: int, request_id: str) -> web.Response:
        return web.json_response(body, status=status, headers=self._headers(request_id))

    def _headers(self, request_id: str) -> dict[str, str]:
        now = self.clock.now()
        used = sum(1 for seen in reversed(self.requests[-REQUESTS_A_MINUTE:]) if seen.at > now - 60)
        reset = datetime.fromtimestamp(now + 60, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        headers = {"request-id": request_id}
        for name, limit in (
            ("requests", REQUESTS_A_MINUTE),
            ("input-tokens", 2_000_000),
            ("output-tokens", 400_000),
        ):
            left = limit - used if name == "requests" else limit
            headers[f"anthropic-ratelimit-{name}-limit"] = str(limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(max(0, left))
            headers[f"anthropic-ratelimit-{name}-reset"] = reset
        return headers

    def _id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}_{self.ids:024d}"


def _folded(body: Json) -> Json:
    messages = body.get("messages")
    return {**body, "messages": without_system_messages(messages)} if isinstance(messages, list) else body


def _last_words(body: Json) -> str:
    blocks = rules.blocks_of(body["messages"][-1])
    words = [block["text"] for block in blocks if block["type"] == "text"]
    return words[-1] if words else "(no words)"
