"""Checks requests as the Messages API does, with the error messages of the real service."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.contracts.base import Json, Message

VERSIONS = ("2023-06-01", "2026-10-21")
MAX_BYTES = 32 * 1024 * 1024
MAX_MESSAGES = 100_000

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")

_FIELDS = frozenset(
    {"model", "max_tokens", "messages", "system", "tools", "stream", "thinking", "output_config"}
    | {"cache_control", "fallbacks"}
)
"""Fields that the product sends. The real service accepts more."""
THINKING_TYPES = ("adaptive", "between_tools", "disabled", "enabled")
EFFORTS = ("low", "medium", "high", "xhigh", "max")

_SEARCH = "web_search_20250305"
_SEARCH_FIELDS = frozenset(
    {"type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control"}
)

_BLOCK_FIELDS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "context", "citations", "cache_control"}),
    "search_result": frozenset({"type", "source", "title", "content", "citations", "cache_control"}),
    "tool_reference": frozenset({"type", "tool_name", "cache_control"}),
}
MAX_IMAGE = 5 * 1024 * 1024
_MEDIA: Mapping[str, Mapping[str, bytes]] = {
    "image": {
        "image/png": b"\x89PNG\r\n\x1a\n",
        "image/jpeg": b"\xff\xd8\xff",
        "image/gif": b"GIF8",
        "image/webp": b"RIFF",
    },
    "document": {"application/pdf": b"%PDF-"},
}
"""For each block type: the accepted media types, each with the first bytes of a file of that type."""
_USER_ONLY = frozenset({"tool_result", "image", "document", "search_result"})
_ASSISTANT_ONLY = frozenset({"tool_use", "thinking", "redacted_thinking"})
_CONTENT_FIELDS = frozenset({"role", "content"})


class Refused(Exception):
    """Raised to make the server reject a request with this status and body."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.code = code

    def body(self, request_id: str) -> Json:
        return error_body(self.kind, self.message, request_id, self.code)


def error_body(kind: str, message: str, request_id: str, code: str | None = None) -> Json:
    error: Json = {"type": kind, "message": message}
    if code is not None:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": request_id}


@dataclass(slots=True)
class Leave:
    """Content that only some requests may have. `types`: block types that the server has sent before. `resumable`: contents
    of paused answers. `system_role`: True if the model accepts system messages between user and assistant messages.
    """

    types: set[str] = field(default_factory=set)
    resumable: list[Any] = field(default_factory=list)
    system_role: bool = False
    max_output: int = 128_000


def check(body: Json, leave: Leave) -> None:
    """Raise `Refused` for the first rule that the request breaks."""
    _fields(body)
    _max_tokens(body, leave)
    _tools(body)
    _thinking(body)
    for place, block in system_of(body):
        _block(place, block, leave)
    _messages(body["messages"], leave)
    _pairs(body["messages"])
    _references(body)


def _fields(body: Json) -> None:
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            raise Refused(f"{name}: Field required")
    for name in body:
        if name not in _FIELDS:
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body["model"], str) or not body["model"]:
        raise Refused("model: Input should be a valid string")
    if not isinstance(body.get("stream", False), bool):
        raise Refused("stream: Input should be a valid boolean")


def _max_tokens(body: Json, leave: Leave) -> None:
    asked = body["max_tokens"]
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise Refused("max_tokens: Input should be a valid integer")
    if asked < (1 if body.get("stream") else 0):
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    if asked > leave.max_output:
        raise Refused(
            f"max_tokens: {asked} > {leave.max_output}, which is the maximum allowed number of output tokens for "
            f"{body['model']}"
        )


def check_fallbacks(body: Json, betas: str) -> None:
    """Raise `Refused` if the request asks for the provider's fallbacks in an invalid way."""
    if "fallbacks" not in body:
        return
    if "server-side-fallback-2026-07-01" not in betas.replace(" ", "").split(","):
        raise Refused("fallbacks: Extra inputs are not permitted")
    if body["fallbacks"] != "default":
        raise Refused("fallbacks: Input should be 'default'")


def _kind_of_tool(at: int, tool: Json) -> None:
    kind = tool.get("type", "custom")
    if kind not in {"custom", _SEARCH} or (kind == _SEARCH and not tool.keys() <= _SEARCH_FIELDS):
        raise Refused(
            f"tools.{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )


def _tools(body: Json) -> None:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        raise Refused("tools: Input should be a valid list")
    names: set[str] = set()
    for at, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.", code="tool_name_conflict")
        names.add(name)
        _kind_of_tool(at, tool)
        schema = tool.get("input_schema")
        if "type" not in tool and (not isinstance(schema, dict) or schema.get("type") != "object"):
            raise Refused(f"tools.{at}.custom.input_schema.type: Field required")


def _thinking(body: Json) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in THINKING_TYPES:
        tags = ", ".join(f"'{one}'" for one in THINKING_TYPES)
        raise Refused(f"thinking: Input tag does not match any of the expected tags: {tags}")


def check_manner(body: Json, thinks: Collection[str] | None) -> None:
    """Raise `Refused` if the model does not accept the requested thinking or effort."""
    kind, effort = (body.get("thinking") or {}).get("type"), (body.get("output_config") or {}).get("effort")
    if effort is not None and (thinks is None or effort not in EFFORTS):
        raise Refused("output_config.effort: this model does not support this effort level")
    if thinks is not None and kind is not None and kind not in thinks:
        raise Refused(f"thinking.type: '{kind}' is not supported on this model")


def manner_capabilities(thinks: Collection[str] | None) -> Json:
    """Return the thinking and effort entries of a model's capabilities."""
    able = {"supported": thinks is not None}
    types = {one: {"supported": one in (thinks or ())} for one in THINKING_TYPES}
    return {"thinking": able | {"types": types}, "effort": able | dict.fromkeys(EFFORTS, able)}


def system_of(body: Json) -> Iterator[tuple[str, Any]]:
    """Yield each block of `system` with its path for error messages."""
    system = body.get("system", [])
    if isinstance(system, str):
        system = [{"type": "text", "text": system}] if system else []
    if not isinstance(system, list):
        raise Refused("system: Input should be a valid list")
    for at, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Refused(f"system.{at}.type: Input should be 'text'")
        yield f"system.{at}", block


def _messages(messages: Any, leave: Leave) -> None:
    if not isinstance(messages, list):
        raise Refused("messages: Input should be a valid list")
    if not messages:
        raise Refused("messages: at least one message is required")
    if len(messages) > MAX_MESSAGES:
        raise Refused(f"messages: at most {MAX_MESSAGES} messages are allowed")
    for at, message in enumerate(messages):
        _message(at, message, leave)
        if message["role"] == "system":
            _system(at, messages)
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    last = messages[-1]
    if last["role"] == "assistant" and unmarked(last["content"]) not in leave.resumable:
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _system(at: int, messages: Sequence[Any]) -> None:
    """Check that a system message contains only text, and that the previous message may precede a system message."""
    if any(block["type"] != "text" for block in blocks_of(messages[at])):
        raise Refused(f"messages.{at}: `system` messages may only contain `text` blocks")
    before, behind = messages[max(at - 1, 0)], messages[at + 1 : at + 2]
    of_server = before["role"] == "assistant" and blocks_of(before)[-1]["type"].endswith("_tool_result")
    followed = any(one.get("role") != "assistant" for one in behind if isinstance(one, dict))
    if at and (followed or not (before["role"] == "user" or of_server)):
        raise Refused(
            f"messages.{at}: `system` must follow a user turn and precede an assistant turn or be last"
        )


def _message(at: int, message: Any, leave: Leave) -> None:
    if not isinstance(message, dict):
        raise Refused(f"messages.{at}: Input should be a valid dictionary")
    role = message.get("role")
    if role == "system" and not leave.system_role:
        raise Refused("role 'system' is not supported on this model")
    if role not in {"user", "assistant", "system"}:
        raise Refused(f"messages.{at}.role: Input should be 'user' or 'assistant'")
    for name in message:
        if name not in _CONTENT_FIELDS:
            raise Refused(f"messages.{at}.{name}: Extra inputs are not permitted")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise Refused(f"messages.{at}.content: Input should be a valid list")
    if not content:
        raise Refused(f"messages.{at}: all messages must have non-empty content")
    for number, block in enumerate(blocks_of(message)):
        _block(f"messages.{at}.content.{number}", block, leave)
        kind = block["type"]
        if (role == "user" and kind in _ASSISTANT_ONLY) or (role == "assistant" and kind in _USER_ONLY):
            raise Refused(f"messages.{at}: `{kind}` blocks cannot be in `{role}` messages")


def _block(place: str, block: Any, leave: Leave) -> None:
    kind = str(block.get("type")) if isinstance(block, dict) else "None"
    if kind not in _BLOCK_FIELDS:
        if kind in leave.types:
            return
        tags = ", ".join(f"'{tag}'" for tag in _BLOCK_FIELDS)
        raise Refused(
            f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
        )
    for name in block:
        if name not in _BLOCK_FIELDS[kind]:
            raise Refused(f"{place}.{kind}.{name}: Extra inputs are not permitted")
    if kind == "text":
        _text(place, block)
    elif kind == "tool_use":
        _call(place, block)
    elif kind == "tool_result":
        _result(place, block, leave)
    elif kind in _MEDIA:
        _media(place, kind, block.get("source"))
    elif kind == "thinking" and not (isinstance(block.get("thinking"), str) and block.get("signature")):
        raise Refused(f"{place}.thinking.signature: Field required")


def _media(place: str, kind: str, source: Any) -> None:
    if not isinstance(source, dict) or source.get("type") != "base64":
        raise Refused(f"{place}.{kind}.source: Field required")
    if source.get("media_type") not in _MEDIA[kind]:
        raise Refused(f"{place}.{kind}.source.base64.media_type: Input should be {_MEDIA[kind]}")
    data = str(source.get("data"))
    if kind == "image" and len(data) > MAX_IMAGE:
        raise Refused(
            f"{place}.{kind}.source.base64: image exceeds 5 MB maximum: {len(data)} bytes > {MAX_IMAGE} bytes"
        )
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        raise Refused(f"{place}.{kind}.source.base64.data: invalid base64 data") from None
    cut = source["media_type"] == "image/png" and b"IEND" not in raw[-12:]
    if cut or not raw.startswith(_MEDIA[kind][source["media_type"]]):
        raise Refused(f"{place}.{kind}.source.base64.data: Could not process {kind}")


def _call(place: str, block: Json) -> None:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        raise Refused(f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("name"), str) or not block["name"]:
        raise Refused(f"{place}.tool_use.name: String should have at least 1 character")
    if not isinstance(block.get("input"), dict):
        raise Refused(f"{place}.tool_use.input: Input should be a valid dictionary")


def _text(place: str, block: Json) -> None:
    words = block.get("text")
    if not isinstance(words, str):
        raise Refused(f"{place}.text.text: Input should be a valid string")
    where = place.split(".", 1)[0]
    if not words:
        raise Refused(f"{where}: text content blocks must be non-empty")
    if not words.strip():
        raise Refused(f"{where}: text content blocks must contain non-whitespace text")


def _result(place: str, block: Json, leave: Leave) -> None:
    if not isinstance(block.get("tool_use_id"), str):
        raise Refused(f"{place}.tool_result.tool_use_id: Field required")
    content = block.get("content", "")
    if not isinstance(content, str | list):
        raise Refused(f"{place}.tool_result.content: Input should be a valid list")
    if not isinstance(block.get("is_error", False), bool):
        raise Refused(f"{place}.tool_result.is_error: Input should be a valid boolean")
    for number, inner in enumerate(content if isinstance(content, list) else ()):
        _block(f"{place}.tool_result.content.{number}", inner, leave)


def deferred(body: Json) -> dict[str, Json]:
    """Return the tools that are loaded only when a tool result refers to them; the key is the tool's name."""
    return {tool["name"]: tool for tool in body.get("tools") or () if tool.get("defer_loading")}


def references_of(block: Json) -> list[str]:
    """Return the names of the tools that a tool result refers to."""
    parts = block.get("content") if block.get("type") == "tool_result" else ()
    return [
        part["tool_name"]
        for part in (parts if isinstance(parts, list) else ())
        if part["type"] == "tool_reference"
    ]


def _references(body: Json) -> None:
    known = deferred(body)
    if known and len(known) == len(body["tools"]):
        raise Refused("tools: At least one tool must not have defer_loading set")
    if any("cache_control" in tool for tool in known.values()):
        raise Refused("tools: A tool cannot have both defer_loading and cache_control")
    for message in body["messages"]:
        for name in (name for block in blocks_of(message) for name in references_of(block)):
            if name not in known:
                raise Refused(
                    f"Tool reference '{name}' not found in available tools", code="tool_reference_unresolved"
                )


def _pairs(messages: Sequence[Message]) -> None:
    """Check that the next message has a result for each tool call, and that each result belongs to a call in the
    previous message. Adjacent messages of the same role count as one message.
    """
    seen: set[str] = set()
    open_at, calls = 0, list[str]()
    for merged in _merged(messages):
        if merged[0][1]["role"] == "assistant":
            calls = []
            for at, message in merged:
                for number, block in enumerate(blocks_of(message)):
                    if block["type"] == "tool_use":
                        if block["id"] in seen:
                            raise Refused(f"messages.{at}.content.{number}: `tool_use` ids must be unique")
                        seen.add(block["id"])
                        calls.append(block["id"])
                        open_at = at
        else:
            _results(merged, calls, open_at)
            calls = []
    if calls:
        raise Refused(_unanswered(open_at, calls))


def _results(merged: Sequence[tuple[int, Message]], calls: Sequence[str], open_at: int) -> None:
    answered: set[str] = set()
    leading = True
    for at, message in merged:
        for number, block in enumerate(blocks_of(message)):
            if block["type"] != "tool_result":
                leading = False
                continue
            name = block["tool_use_id"]
            if name not in calls:
                raise Refused(
                    f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            if name in answered:
                raise Refused(
                    f"messages.{at}.content.{number}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {name}"
                )
            if leading:
                answered.add(name)
    missing = [name for name in calls if name not in answered]
    if missing:
        raise Refused(_unanswered(open_at, missing))


def _unanswered(at: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _merged(messages: Sequence[Message]) -> Iterator[list[tuple[int, Message]]]:
    said = [(at, message) for at, message in enumerate(messages) if message["role"] != "system"]
    for _, run in itertools.groupby(said, key=lambda one: one[1]["role"]):
        yield list(run)


def unmarked(value: Any) -> Any:
    """Return a part of a request without its cache breakpoints."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def blocks_of(message: Message) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
