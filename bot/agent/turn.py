"""The turn: ask the model, run the tools it calls, and again, until it is done; then say what is left to say."""

from __future__ import annotations

from bot import errors
from bot.agent import recovery
from bot.agent.active import ActiveTurn
from bot.agent.kit import Kit
from bot.context import blocks
from bot.contracts import Json, ModelReply, TurnOutcome
from bot.telemetry.context import step_scope
from bot.tools.context import ToolExecutionContext, tool_scope

MAX_STEPS = 50
MAX_PAUSES = 5
MAX_CUTS = 3
TRUNCATED = "\n\n(truncated: the answer reached the length limit)"
NOTHING_TO_SAY = (
    "I have worked on that but have nothing to show for it. Please ask again, perhaps in other words."
)
TOO_MANY_STEPS = (
    f"I stopped after {MAX_STEPS} steps without getting to the end. Say “go on” if I should continue."
)
TOO_MANY_CUTS = (
    "My answer kept reaching the length limit before it was complete. Please ask for something smaller."
)
REFUSED = "The language model declined to answer this. Please put it differently."


class Refused(errors.ShipmateError):
    """The model refused: the turn is withdrawn from the history, as the provider advises."""

    person = REFUSED


async def take_turn(turn: ActiveTurn, system: list[Json], kit: Kit) -> TurnOutcome:
    """Run a turn that has begun. Raises `errors.ShipmateError` where the model failed for good."""
    pauses = cuts = 0
    with tool_scope(_tool_context(turn)):
        reply = turn.last_reply()
        if reply is not None and reply.stop_reason == "refusal":
            raise Refused
        if (
            reply is not None
            and not await _finish_step(turn, reply, kit)
            and reply.stop_reason != "pause_turn"
        ):
            outcome = await _say_the_rest(turn, reply)
            if not await turn.take_late():
                return outcome
        for step in range(1, MAX_STEPS + 1):
            with step_scope(step):
                reply = await recovery.ask(turn, system, kit)
                if reply.stop_reason == "refusal":
                    turn.refused(reply)
                    raise Refused(f"refusal, category {(reply.detail or {}).get('category')}")
                calls = turn.add_reply(reply)
                if calls:
                    turn.add_results(await kit.dispatcher.run(calls, reply.cut, turn))
                    cuts += bool(reply.cut)
                    if cuts >= MAX_CUTS:
                        return _outcome(turn, TOO_MANY_CUTS)
                    await turn.take_more()
                elif reply.stop_reason == "pause_turn" and pauses < MAX_PAUSES:
                    pauses += 1
                else:
                    await _make_room(turn, reply)
                    return await _say_the_rest(turn, reply)
    return _outcome(turn, TOO_MANY_STEPS)


async def _finish_step(turn: ActiveTurn, reply: ModelReply, kit: Kit) -> bool:
    """Answer the tool calls of a step that a crash cut off; False where it has none.

    What ended keeps its result, what may have run is reported as interrupted, and only what surely did not run
    is run.
    """
    calls = blocks.tool_uses({"content": reply.content})
    results = await kit.dispatcher.run(calls, reply.cut, turn, turn.known_results(calls))
    if calls:
        turn.add_results(results)
        await turn.take_more()
    return bool(calls)


def _tool_context(turn: ActiveTurn) -> ToolExecutionContext:
    inbound = turn.request.inbound
    return ToolExecutionContext(
        chat_key=turn.request.chat_key,
        request_id=turn.request.request_id,
        user_id=inbound.user_id if inbound is not None else None,
        reply=turn.reply,
        injection=turn,
    )


async def _make_room(turn: ActiveTurn, reply: ModelReply) -> None:
    """Where the window itself ended the answer, the next turn needs a smaller history."""
    if reply.stop_reason == "model_context_window_exceeded" and (dropped := turn.store.oldest_half()):
        await turn.cut(dropped, "overflow")


async def _say_the_rest(turn: ActiveTurn, reply: ModelReply) -> TurnOutcome:
    """Deliver the last text, unless `chat_send` has settled the matter; an empty one becomes an honest line."""
    words = turn.last_words().strip()
    if words and reply.stop_reason in {"max_tokens", "model_context_window_exceeded"}:
        words += TRUNCATED
    if turn.reply is None:
        return TurnOutcome("done", detail=words)
    if turn.reply.settled:
        return _outcome(turn, None)
    if not words:
        return _outcome(turn, TOO_MANY_CUTS if reply.stop_reason == "max_tokens" else NOTHING_TO_SAY)
    try:
        await turn.reply.send(words)
    except (errors.DeliveryUncertain, errors.DeliveryDeferred) as error:
        # It may be in the chat, or will be. A notice that it is not could be wrong; the log and the outbox know.
        return TurnOutcome("done", delivered=turn.reply.delivered, detail=str(error))
    return _outcome(turn, None)


def _outcome(turn: ActiveTurn, notice: str | None) -> TurnOutcome:
    return TurnOutcome("done", delivered=turn.reply.delivered if turn.reply is not None else 0, notice=notice)
