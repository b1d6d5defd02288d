"""The turn: ask the model, run the tools it calls, and again, until it is done; then say what is left to say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bot import errors
from bot.agent import overflow
from bot.agent.active_turn import ActiveTurn
from bot.agent.continuation import ContinuationPolicy
from bot.agent.deps import AgentDeps
from bot.agent.reply import TrackedReply
from bot.agent.subagents.tasks import Tasks
from bot.agent.view_changes import Tail
from bot.contracts.agent import TurnOutcome, is_silent
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks
from bot.core.context import LENGTH
from bot.core.loop import Refused
from bot.telemetry.context import step_scope
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.words import say

MAX_STEPS = 50


async def take_turn(turn: ActiveTurn, system: list[Json], deps: AgentDeps) -> TurnOutcome:
    """Run a turn that has begun. Raises `errors.ShipmateError` where the model failed for good."""
    async with Tasks(turn, system, deps) as tasks:
        with tool_scope(replace(_tool_context(turn), tasks=tasks)):
            return await _steps(turn, system, ContinuationPolicy.begun(deps), tasks)


async def _steps(
    turn: ActiveTurn, system: list[Json], continuation: ContinuationPolicy, tasks: Tasks
) -> TurnOutcome:
    reply = turn.last_reply()
    if reply is not None:
        continuation.continued = turn.continued()
        calls = blocks.tool_calls(reply.content)
        outcome = await _act(turn, reply, calls, continuation, tasks, known=turn.known_results(calls))
        if outcome is not None and not await turn.take_late():
            return outcome
    elif turn.complete():
        # A crash came between the results of its last step and its end.
        return _outcome(turn, None)
    for step in range(1, MAX_STEPS + 1):
        with step_scope(step):
            try:
                reply = continuation.taken(await overflow.ask(turn, system, continuation.deps, continuation))
            except errors.ShipmateError as error:
                return await _say_what_came(turn, continuation, error)
            turn.request.arrivals.unshown(reply.unshown, blind=reply.blind)
            if reply.note:
                turn.request.arrivals.note(reply.note)
            calls = await turn.add_reply(reply, continuation.continued)
            if continuation.tail:
                turn.view_changes.apply("continuation", Tail())
            outcome = await _act(turn, reply, calls, continuation, tasks)
            if outcome is not None:
                return outcome
    return _outcome(turn, say("turn.too_many_steps", count=MAX_STEPS))


async def _act(
    turn: ActiveTurn,
    reply: ModelReply,
    calls: list[ToolCall],
    continuation: ContinuationPolicy,
    tasks: Tasks,
    *,
    known: Mapping[str, ToolResult] = MappingProxyType({}),
) -> TurnOutcome | None:
    """Do what a reply asks for. None where the model is to be asked again, else how the turn ended.

    Of the calls of a step that a crash cut off the `known` keep their result; only what surely did not run is run.
    """
    if reply.stop_reason == "refusal":
        detail = reply.detail or {}
        words = blocks.plain_text(reply.content).strip() or str(detail.get("explanation") or "")
        raise Refused(words, detail.get("category"))
    if calls:
        results = await continuation.deps.dispatcher.run(calls, reply.cut, turn, known)
        turn.add_results(await tasks.merged(results))
        await turn.instruct()
        if not continuation.after_tools(cut=bool(reply.cut)):
            return _outcome(turn, say("turn.too_many_cuts"))
        if reply.cut:
            _make_room(turn, reply)
        await turn.take_more()
        return _outcome(turn, None) if turn.complete() else None
    made_room = _make_room(turn, reply)
    if _goes_on(turn, reply, continuation, made_room=made_room):
        return None
    return await _say_the_rest(turn, reply)


def _goes_on(
    turn: ActiveTurn, reply: ModelReply, continuation: ContinuationPolicy, *, made_room: bool
) -> bool:
    """True if the model has not said all that it is to say."""
    if reply.stop_reason == "pause_turn" and not continuation.continued:
        return continuation.pause()
    if turn.answered():
        return False  # The person waits for nothing more.
    words, begun = turn.last_words().strip(), not _of_user(turn.view[-1])
    if reply.stop_reason in {"max_tokens", "pause_turn"}:
        return (
            _from_where_it_is(turn, reply, continuation) if begun else continuation.retry_with_more_output()
        )
    if words:
        return False
    if reply.stop_reason == "model_context_window_exceeded":
        return made_room and (
            _from_where_it_is(turn, reply, continuation) if begun else continuation.smaller()
        )
    return turn.owes_answer() and _after_results(turn) and continuation.prompt()


def _from_where_it_is(turn: ActiveTurn, reply: ModelReply, continuation: ContinuationPolicy) -> bool:
    """Go on with an answer of which something is in view, and be it what a tool of the provider's has found: a request
    cannot end with it. False where it has gone on often enough.
    """
    if not continuation.continue_text(spoke=bool(blocks.plain_text(reply.content).strip())):
        return False
    turn.unpause(reply.stop_reason, continuation.continued)
    return True


def _after_results(turn: ActiveTurn) -> bool:
    """True if the last thing that came to the model is what tools gave, with or without instructions behind it."""
    return any(map(blocks.is_results, itertools.takewhile(_of_user, reversed(turn.view))))


def _of_user(message: Message) -> bool:
    return bool(message["role"] == "user")


def _tool_context(turn: ActiveTurn) -> ToolExecutionContext:
    inbound = turn.request.inbound
    return ToolExecutionContext(
        chat_key=turn.request.chat_key,
        request_id=turn.request.request_id,
        user_id=inbound.user_id if inbound is not None else None,
        reply=turn.reply,
        injection=turn,
        channel=inbound.channel if inbound is not None else None,
        private=inbound is not None and inbound.chat_type == "direct",
        people=tuple(dict.fromkeys(one.user_id for one in (inbound, *turn.request.also) if one is not None)),
        view=turn.in_sight,
        flush=turn.view_changes.ledger.durable,
        touched=turn.touched.append,
        undeclared=turn.undeclared,
        inbound=inbound,
    )


def _make_room(turn: ActiveTurn, reply: ModelReply) -> bool:
    """Make the history smaller if the window itself ended the answer; returns True if it was."""
    return reply.stop_reason == "model_context_window_exceeded" and overflow.make_room(turn)


async def _say_what_came(
    turn: ActiveTurn, continuation: ContinuationPolicy, error: errors.ShipmateError
) -> TurnOutcome:
    """The model failed. Where it did so while it went on with an answer, what had come of that is said."""
    words = turn.last_words().strip()
    withdrawn = isinstance(error, errors.RequestInvalid | errors.TurnStopped)
    if withdrawn or not continuation.continued or not words or turn.reply is None:
        raise error
    continuation.deps.log.write(
        "continue",
        "the rest of the answer could not be had",
        level="warn",
        cause=f"{type(error).__name__}: {error}",
    )
    return await _say(turn, turn.reply, f"{words}\n\n{say('turn.broken_off')}")


async def _say_the_rest(turn: ActiveTurn, reply: ModelReply) -> TurnOutcome:
    """Deliver the last text, unless `chat_send` has settled the matter; an empty one becomes an honest line."""
    words = turn.last_words().strip()
    if silent := is_silent(words):
        words = ""
    if words and reply.stop_reason in LENGTH:
        words += f"\n\n{say('turn.truncated')}"
    if turn.reply is None:
        return TurnOutcome("done", detail=words)
    if not words and turn.request.arrivals.quiet and (silent or reply.stop_reason not in LENGTH):
        return _outcome(turn, None)
    if turn.answered() or not (words or turn.owes_answer()):
        return _outcome(turn, None)
    if not words:
        cut = reply.stop_reason in LENGTH
        return _outcome(turn, say("turn.too_many_cuts") if cut else say("turn.nothing_to_say"))
    return await _say(turn, turn.reply, words)


async def _say(turn: ActiveTurn, reply: TrackedReply, words: str) -> TurnOutcome:
    try:
        await reply.send(words)
    except (errors.DeliveryUncertain, errors.DeliveryDeferred) as error:
        # It may be in the chat, or will be. A notice that it is not could be wrong; the log and the outbox know.
        return TurnOutcome("done", delivered=reply.delivered, detail=str(error))
    return _outcome(turn, None)


def _outcome(turn: ActiveTurn, notice: str | None) -> TurnOutcome:
    return TurnOutcome("done", delivered=turn.reply.delivered if turn.reply is not None else 0, notice=notice)
