"""The provider's prompt cache, token count, and signatures that bind thinking blocks to a conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.testing.anthropic_rules import Refused, blocks_of, deferred, references_of, system_of, unmarked

LOOK_BACK = 20
MAX_BREAKPOINTS = 4
LIFETIMES = {"5m": 300.0, "1h": 3600.0}
THINKING = frozenset({"thinking", "redacted_thinking"})


_written = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def plain(value: Any) -> str:
    """Return a block as JSON text without cache breakpoints. The cache compares this text byte by byte."""
    words = _written(value)
    return _written(unmarked(value)) if '"cache_control"' in words else words


IMAGE_TOKENS = 1_600
"""Tokens that the fake counts for each image."""


def count_characters(words: str) -> int:
    """Return the token count of a block: one token for four characters, but at least one."""
    return max(1, len(words) // 4)


@dataclass(frozen=True, slots=True)
class Part:
    digest: str
    end: int  # Number of tokens from the beginning of the request to the end of this part
    ttl: str | None


def _raw_parts(body: Json) -> Iterator[tuple[str, Any, bool]]:
    """Yield (prefix of the cache key, block, True if the block may carry a breakpoint), in the provider's cache order."""
    loaded = deferred(body)
    for tool in body.get("tools", ()):
        if tool["name"] not in loaded:
            yield "tool", tool, True
    system = body.get("system", ())
    for block in [{"type": "text", "text": system}] if isinstance(system, str) and system else system:
        yield "system", block, True
    # A change of these settings invalidates the cache of all messages, so the settings are part of the prefix.
    settings = plain([body.get(name) for name in ("thinking", "output_config")])
    for message in body["messages"]:
        for block in blocks_of(message):
            yield f"{settings}{message['role']}", block, block["type"] not in THINKING
            settings = ""
            for name in references_of(block):
                # This block loads a deferred tool, so the tokens of the tool's definition count here.
                yield "tool", loaded[name], False


def parts_of(body: Json, count: Callable[[str], int]) -> list[Part]:
    digest, end = str(body["model"]), 0
    parts: list[Part] = []
    last = -1
    for prefix, block, may in _raw_parts(body):
        words = plain(block)
        digest = hashlib.sha256(f"{digest}\n{prefix}\n{words}".encode("utf-8", "replace")).hexdigest()
        end += _tokens(block, words, count)
        parts.append(Part(digest, end, _ttl(block)))
        last = len(parts) - 1 if may else last
    automatic = body.get("cache_control")
    if automatic and last >= 0:
        parts[last] = Part(parts[last].digest, parts[last].end, automatic.get("ttl", "5m"))
    return parts


def _ttl(block: Json) -> str | None:
    inner = block.get("content")
    for candidate in (block, *(inner if isinstance(inner, list) else ())):
        mark = candidate.get("cache_control") if isinstance(candidate, dict) else None
        if mark:
            return str(mark.get("ttl", "5m"))
    return None


def tokens_of(body: Json, count: Callable[[str], int]) -> int:
    return sum(_tokens(block, plain(block), count) for _, block, _ in _raw_parts(body))


def _tokens(block: Json, words: str, count: Callable[[str], int]) -> int:
    return IMAGE_TOKENS if block.get("type") == "image" else count(words)


class PromptCache:
    """The provider's prompt cache. Each breakpoint makes an entry for everything before it. A request reads the
    longest entry that ends at most 20 blocks before one of the request's own breakpoints.
    """

    def __init__(self, clock: Clock, minimum: Callable[[str], int]) -> None:
        self._clock = clock
        self._minimum = minimum
        self._entries: dict[str, float] = {}
        self.parts: list[Part] = []
        """Parts of the last request."""

    def look(self, body: Json, count: Callable[[str], int]) -> tuple[Json, Callable[[], None]]:
        """Return a request's usage, and a function that makes the request's new cache entries readable. The
        caller must call this function when the answer starts to stream.
        """
        now = self._clock.now()
        parts = self.parts = parts_of(body, count)
        marks = [at for at, part in enumerate(parts) if part.ttl]
        hit = next(
            (
                at
                for mark in reversed(marks)
                for at in range(mark, max(-1, mark - LOOK_BACK), -1)
                if self._entries.get(parts[at].digest, 0.0) > now
            ),
            -1,
        )
        read = parts[hit].end if hit >= 0 else 0
        written = {"5m": 0, "1h": 0}
        fresh: dict[str, float] = {}
        done = read
        smallest = self._minimum(str(body["model"]))
        for at in marks:
            part = parts[at]
            if part.end < smallest:
                continue
            lifetime = part.ttl or "5m"
            fresh[part.digest] = (
                now + LIFETIMES[lifetime]
            )  # the lifetime of an entry begins when the request starts
            if part.end > done:
                written[lifetime] += part.end - done
                done = part.end
        if hit >= 0:
            fresh.setdefault(parts[hit].digest, now + LIFETIMES["5m"])
        total = parts[-1].end if parts else 0
        return _usage(total - done, read, written), lambda: self._keep(fresh)

    def _keep(self, fresh: Mapping[str, float]) -> None:
        for digest, until in fresh.items():
            self._entries[digest] = max(until, self._entries.get(digest, 0.0))


def _usage(rest: int, read: int, written: Mapping[str, int]) -> Json:
    return {
        "input_tokens": rest,
        "cache_creation_input_tokens": sum(written.values()),
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written["5m"],
            "ephemeral_1h_input_tokens": written["1h"],
        },
        "service_tier": "standard",
    }


def check_breakpoints(body: Json) -> None:
    """Check the cache breakpoints of a request. A request may have at most four breakpoints. Each breakpoint needs a known
    type, and breakpoints with a longer lifetime must come before those with a shorter one.
    """
    marks: list[tuple[str, Any]] = []
    for place, block in _cacheable(body):
        if block.get("cache_control") is not None:
            marks.append((place, block["cache_control"]))
    if body.get("cache_control") is not None:
        marks.append(("", body["cache_control"]))
    if len(marks) > MAX_BREAKPOINTS:
        raise Refused(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
        )
    short = False
    for place, mark in marks:
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or set(mark) - {"type", "ttl"}:
            raise Refused(f"{place}.cache_control: Input should be a valid ephemeral cache control")
        ttl = mark.get("ttl", "5m")
        if ttl not in {"5m", "1h"}:
            raise Refused(f"{place}.cache_control.ttl: Input should be '5m' or '1h'")
        if ttl == "1h" and short:
            raise Refused(
                f"{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        short = short or ttl == "5m"


def _cacheable(body: Json) -> Iterator[tuple[str, Json]]:
    for at, tool in enumerate(body.get("tools", ())):
        yield f"tools.{at}", tool
    yield from system_of(body)
    for at, message in enumerate(body["messages"]):
        for number, block in enumerate(blocks_of(message)):
            place = f"messages.{at}.content.{number}"
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for inner, part in enumerate(block["content"]):
                    yield f"{place}.tool_result.content.{inner}", part
            yield place, block


class Binding:
    """Signs thinking blocks. Each signature covers everything before the block, except that a client may
    remove the first thinking blocks of a conversation.
    """

    def __init__(self) -> None:
        self._checked: tuple[Json, str, str] | None = None
        """Request body that was checked last, with the hashes needed to sign the answer."""

    def sign(self, body: Json, blocks: list[Json]) -> None:
        """Sign the thinking blocks of an answer."""
        if self._checked is not None and self._checked[0] is body:
            _, seen, previous = self._checked
        else:
            seen, previous = _start(body), ""
            for message in body["messages"]:
                for block in blocks_of(message):
                    seen, previous = _step(seen, previous, message["role"], block)
        for block in blocks:
            if block["type"] == "thinking":
                block["signature"] = _signature(seen, previous, block["thinking"])
            seen, previous = _step(seen, previous, "assistant", block)

    def check(self, body: Json) -> None:
        """Raise `Refused` if a thinking block belongs to another conversation."""
        behaviour = ((body.get("thinking") or {}).get("block_binding") or {}).get("prefix_mismatch_behavior")
        if behaviour == "drop_block":
            return
        seen, previous = _start(body), ""
        first = True
        for at, message in enumerate(body["messages"]):
            for number, block in enumerate(blocks_of(message)):
                if block["type"] == "thinking":
                    given = block["signature"]
                    link = given.rpartition(".")[2] if first else _short(previous)
                    if given != _signature_with(seen, link, block["thinking"]):
                        raise Refused(
                            f"messages.{at}.content.{number}: Invalid `signature` in `thinking` block. The block is "
                            "bound to a different conversation. Remove the block, or set "
                            '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                        )
                    first = False
                seen, previous = _step(seen, previous, message["role"], block)
        self._checked = body, seen, previous


def _start(body: Json) -> str:
    later = deferred(body)
    tools = [tool for tool in body.get("tools") or [] if tool["name"] not in later]
    return _hash(f"[{plain(tools)},{plain(body.get('system') or [])}]")


def _step(seen: str, previous: str, role: str, block: Json) -> tuple[str, str]:
    if block["type"] == "thinking":
        return seen, str(block["signature"])
    if block["type"] in THINKING:
        return seen, previous
    return _hash(f"{seen}{role}{plain(block)}"), previous


def _signature(seen: str, previous: str, thinking: str) -> str:
    return _signature_with(seen, _short(previous), thinking)


def _signature_with(seen: str, link: str, thinking: str) -> str:
    return f"{_hash(f'{seen}{link}{thinking}')}.{link}"


def _short(previous: str) -> str:
    return _hash(previous)[:16] if previous else "first"


def _hash(words: str) -> str:
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()
