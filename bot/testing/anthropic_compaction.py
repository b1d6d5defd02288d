"""Conversation summaries that the fake provider writes. A summary is one signed block, which must be the first block of later requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from bot.contracts.base import Json, Message
from bot.testing.anthropic_cache import plain
from bot.testing.anthropic_rules import Refused, blocks_of, unmarked
from bot.testing.anthropic_script import Reply

BETA = "compact-2026-09-04"
KIND = "compaction"
MAX_INSTRUCTIONS = 16_384
_REJECTED = ("context_management", "stop_sequences")


class Compactions:
    """Makes and checks summary blocks. The check is stricter than the real service: model, system prompt and
    tools must be the same as in the request that made the block.
    """

    def __init__(self) -> None:
        self._signed: dict[str, tuple[Json, str]] = {}

    def check(self, body: Json, betas: str, *, able: bool = True) -> None:
        """Raise `Refused` for the first rule that the request breaks."""
        known = BETA in betas.replace(" ", "").split(",")
        if KIND in body:
            _config(body, known=known, able=able)
        places = [
            (at, number, block)
            for at, message in enumerate(_messages(body))
            for number, block in enumerate(_blocks(message))
            if block.get("type") == KIND
        ]
        if places and not known:
            at, number, _ = places[0]
            raise Refused(
                f"messages.{at}.content.{number}: Input tag '{KIND}' found using 'type' does not match any of the "
                "expected tags"
            )
        if len(places) > 1:
            raise Refused("only one `compaction` block may be sent", code="compaction_block_ambiguous")
        for at, number, block in places:
            if (at, number) != (0, 0) or _messages(body)[0].get("role") == "system":
                raise Refused(
                    "`compaction` block must be sent first, in place of the messages it summarizes; remove those "
                    "messages",
                    code="compaction_block_misplaced",
                )
            self._verbatim(unmarked(block), body)
        if KIND in body:
            _conversation(body)

    def answer(self, reply: Reply, body: Json) -> Reply:
        """Return the answer to a summary request. The answer has one summary block, or no block if `reply` has no text or did
        not end normally.
        """
        words = "".join(block["text"] for block in reply.blocks if block["type"] == "text")
        if reply.reason != "end_turn" or not words.strip():
            return replace(reply, blocks=(), stop_reason=reply.reason)
        return replace(reply, blocks=(self.sign(words, body),), stop_reason=KIND)

    def sign(self, words: str, body: Json) -> Json:
        """Return a signed summary block. `words` is the summary of this request's conversation."""
        signature = hashlib.sha256(f"{len(self._signed)} {words}".encode("utf-8", "replace")).hexdigest()
        block: Json = {
            "type": KIND,
            "content": words,
            "encrypted_content": None,
            "signature": signature,
            "tool_changes": [],
        }
        self._signed[signature] = (dict(block), _frame(body))
        return block

    def _verbatim(self, block: Json, body: Json) -> None:
        issued, frame = self._signed.get(str(block.get("signature")), ({}, ""))
        if not issued:
            raise Refused(
                "the `compaction` block's `signature` is invalid", code="compaction_signature_invalid"
            )
        for name, code in (
            ("content", "compaction_content_mismatch"),
            ("tool_changes", "compaction_tool_changes_mismatch"),
        ):
            if block.get(name) != issued[name]:
                raise Refused(f"the `compaction` block's `{name}` differs from what was returned", code=code)
        if block != issued:
            raise Refused(
                "the `compaction` block's `signature` is invalid", code="compaction_signature_invalid"
            )
        if _frame(body) != frame:
            raise Refused("the `compaction` block was made for another model, `system` or `tools`")


def capabilities(*, able: bool) -> Json:
    """Return the compaction entry of a model's capabilities."""
    return {KIND: {"supported": able, "summarize": {"supported": able}}}


def usage(found: Json, output: int) -> Json:
    figures = {name: value for name, value in found.items() if name != "service_tier"}
    nothing = {name: 0 for name in figures if name.endswith("input_tokens")}
    return nothing | {"output_tokens": 0, "iterations": [{"type": KIND, "output_tokens": output} | figures]}


def _config(body: Json, *, known: bool, able: bool) -> None:
    if not known:
        raise Refused("compaction: Extra inputs are not permitted")
    config = body[KIND]
    if (
        not isinstance(config, dict)
        or config.get("type") != "summarize"
        or set(config) - {"type", "instructions"}
    ):
        raise Refused("compaction: Input tag does not match any of the expected tags: 'summarize'")
    words = config.get("instructions")
    if words is not None and (not isinstance(words, str) or len(words) > MAX_INSTRUCTIONS):
        raise Refused(f"compaction.instructions: String should have at most {MAX_INSTRUCTIONS} characters")
    if not able:
        raise Refused(f"compaction: not supported on {body.get('model')}")
    for name in _REJECTED:
        if name in body:
            raise Refused(f"`{name}` cannot be combined with `compaction`")
    if (body.get("output_config") or {}).get("format") is not None:
        raise Refused("`output_config.format` cannot be combined with `compaction`")
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        raise Refused("`tool_choice` of this type cannot be combined with `compaction`")


def _conversation(body: Json) -> None:
    messages = _messages(body)
    last = next((one for one in reversed(messages) if one.get("role") == "assistant"), None)
    if last is not None and last is messages[-1] and any(b.get("type") == "tool_use" for b in _blocks(last)):
        raise Refused(
            "the last assistant turn ends in a tool call without its result",
            code="compaction_incomplete_turn",
        )
    if all(block.get("type") == KIND for message in messages for block in _blocks(message)):
        raise Refused("there is nothing to summarize", code="compaction_nothing_to_summarize")


def _messages(body: Json) -> list[Message]:
    found = body.get("messages")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _blocks(message: Message) -> Iterator[Json]:
    if isinstance(message.get("content"), str | list):
        yield from (block for block in blocks_of(message) if isinstance(block, dict))


def _frame(body: Json) -> str:
    return plain([body.get("model"), body.get("system") or [], body.get("tools") or []])
