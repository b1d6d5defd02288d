"""One model call that ends in an answer, in something smaller, or in the truth.

Each try is strictly smaller than the one before, and the tries end. A time-out or a rate limit is no overflow:
it passes through untouched.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot import errors
from bot.agent.active import ActiveTurn
from bot.agent.continuing import Asking
from bot.agent.kit import Kit
from bot.context import estimate, view
from bot.contracts import Json, ModelReply, ModelRequest

MAX_HALVINGS = 3
MIN_OUTPUT_TOKENS = 256
LARGE_TURN = 2_000
"""Estimated tokens below which a turn is not taken to be what does not fit."""
MISJUDGED = 3.0
"""How far the provider's count may be from our estimate and still say something about its parts."""
OUTPUT_MARGIN = 64  # tokens; the provider's own count may differ a little between two calls


class HistoryCleared(errors.ShipmateError):
    """The history did not fit even after three halvings, and was set aside."""

    person = (
        "Our conversation no longer fitted into what the language model can read, even shortened. I have set it "
        "aside and start afresh; everything is still on file. Please send your last message again."
    )


class TurnTooLarge(errors.ShipmateError):
    """The current turn alone does not fit. The history stays."""

    person = (
        "This message, with what I looked up for it, is too large for the language model. Please send it in "
        "smaller pieces. Our conversation so far is kept."
    )


@dataclass(slots=True)
class _Tries:
    max_tokens: int
    halvings: int = 0
    unbound: bool = False


async def ask(turn: ActiveTurn, system: list[Json], kit: Kit, asking: Asking) -> ModelReply:
    """Call the model with the turn's view and what is added to it, recovering from overflow.

    Raises `HistoryCleared` or `TurnTooLarge` where nothing helps, and any other `errors.ModelError` as it came.
    """
    tries = _Tries(asking.max_tokens)
    while True:
        request = view.render(
            model=kit.model_name,
            max_tokens=tries.max_tokens,
            system=system,
            tools=kit.registry.definitions,
            history=turn.store.view(),
            injected=turn.injected,
            current=[*turn.view, *asking.tail],
        )
        try:
            return await _answer(turn, request, kit)
        except errors.ThinkingUnbound:
            if tries.unbound:
                raise
            tries.unbound = True
            await turn.cut([], "thinking")
        except errors.OutputOverflow as error:
            kit.windows.refused(request.model, error)
            if not _lower_output(tries, error):
                await _shrink(turn, request, tries, error, kit)
        except errors.ContextOverflow as error:
            kit.windows.refused(request.model, error)
            await _shrink(turn, request, tries, error, kit)


async def _answer(turn: ActiveTurn, request: ModelRequest, kit: Kit) -> ModelReply:
    heard = turn.asks(kit.ids.ulid(), request.model)
    reply: ModelReply | None = None
    try:
        async for event in kit.model.stream(request):
            heard.take(event)
            if isinstance(event, ModelReply):
                reply = event
        if reply is None:
            raise errors.StreamBroken("the model's stream ended without a reply")
    except errors.ModelError as error:
        turn.steps.failed(type(error).__name__)
        raise
    kit.learn(request, reply)
    return reply


def _lower_output(tries: _Tries, error: errors.OutputOverflow) -> bool:
    """Ask for less output where input and output together were too much; False where that cannot help."""
    if error.limit is not None:
        fitting = min(error.limit, tries.max_tokens - 1)
    elif error.tokens is None or error.window is None:
        fitting = tries.max_tokens // 2
    else:
        fitting = min(error.window - error.tokens - OUTPUT_MARGIN, tries.max_tokens - 1)
    if fitting < MIN_OUTPUT_TOKENS:
        return False
    tries.max_tokens = fitting
    return True


async def _shrink(
    turn: ActiveTurn, request: ModelRequest, tries: _Tries, error: errors.ContextOverflow, kit: Kit
) -> None:
    """Make the next try smaller: the current turn where that is the large part, else the history."""
    kit.log.write(
        "compaction",
        "the prompt does not fit the model's window",
        level="warn",
        tokens=error.tokens,
        window=error.window,
        messages=len(request.messages),
        halvings=tries.halvings,
        provider_request_id=error.request_id,
    )
    if _current_turn_too_large(turn, request, error, kit):
        if turn.drop_oldest_injected() or turn.shorten_results():
            return
        raise TurnTooLarge from error
    dropped = turn.store.oldest_half()
    if not dropped and (turn.drop_oldest_injected() or turn.shorten_results()):
        return
    if not dropped and not tries.halvings:
        raise TurnTooLarge from error
    if not dropped or tries.halvings == MAX_HALVINGS:
        await turn.cut("all", "overflow")
        raise HistoryCleared from error
    tries.halvings += 1
    await turn.cut(dropped, "overflow")


def _current_turn_too_large(
    turn: ActiveTurn, request: ModelRequest, error: errors.ContextOverflow, kit: Kit
) -> bool:
    """Whether the request would not fit even without any history.

    With the provider's own numbers the share of the current turn is scaled to them. Without numbers, or with
    numbers that have nothing to do with our estimate, the turn is taken to be the cause where it is both large
    and larger than the history.
    """
    frame = estimate.frame_tokens(request.system, request.tools)
    current = frame + estimate.tokens(turn.injected) + estimate.tokens(turn.view)
    history = estimate.tokens(turn.store.view())
    total = current + history
    told = error.tokens or total
    window = error.window or kit.windows.window(request.model)
    if window and total / MISJUDGED < told < total * MISJUDGED:
        return current / total * told > window
    return current - frame > max(history, LARGE_TURN)
