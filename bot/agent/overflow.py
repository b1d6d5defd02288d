"""Asks the model, and recovers where its context window overflows: with less output, then less of what is shown.

Each try is strictly smaller than the one before, and the tries end. A time-out or a rate limit is no overflow:
it passes through untouched.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot import errors
from bot.agent import view_changes
from bot.agent.active_turn import ActiveTurn
from bot.agent.continuation import ContinuationPolicy
from bot.agent.deps import AgentDeps
from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.transcript import Boundary, Injection, Mask
from bot.core import blocks, estimate, repair, view
from bot.core.fit import HistoryCleared, PromptFillsWindow, TurnTooLarge
from bot.core.memory import condensed
from bot.core.validate import loose_thinking

MAX_TRIES = 3
"""Attempts to make the prompt smaller before the turn gives up."""
SHORT_RESULT = 500
"""Characters to which a tool result may be shortened."""
MAX_LOWERED = 2
"""Attempts with less output before the history is made smaller: a provider may refuse any size."""
MIN_OUTPUT_TOKENS = 256
LARGE_TURN = 2_000
"""Estimated tokens below which a turn is not taken to be what does not fit."""
MISJUDGED = 3.0
"""Factor by which the provider's count may differ from our estimate and still say something about its parts."""
ENOUGH = 0.75
"""The part of a prompt that probably fits a window of unknown size."""
OUTPUT_MARGIN = 64  # tokens; the provider's own count may differ a little between two calls


@dataclass(slots=True)
class _Tries:
    max_tokens: int
    smaller: int = 0
    lowered: int = 0
    halvings: int = 0
    unbound: bool = False


async def ask(
    turn: ActiveTurn, system: list[Json], deps: AgentDeps, continuation: ContinuationPolicy
) -> ModelReply:
    """Call the model with the turn's view and what is added to it, recovering from overflow.

    Raises `HistoryCleared` or `TurnTooLarge` where nothing helps, and any other `errors.ModelError` as it came.
    """
    tries = _Tries(continuation.max_tokens)
    await turn.compactor.before_asking(turn.shown())
    while True:
        await turn.added(restartable=not continuation.goes_on)
        request = view.render(
            model=deps.models.name,
            max_tokens=tries.max_tokens,
            system=system,
            tools=turn.view_changes.tools,
            history=turn.store.view(),
            injected=turn.injected,
            current=[*turn.view, *continuation.tail],
        )
        request = deps.models.fitted(request)
        if await _came_loose(turn, request, tries, deps):
            continue
        try:
            reply = await _answer(turn, _sound(request, continuation), continuation)
            if reply is not None:
                return reply
        except (errors.RequestInvalid, errors.SummaryUnavailable) as error:
            if not await _without_what_is_bound(turn, tries, error, continuation):
                raise
        except errors.OutputOverflow as error:
            deps.models.windows.refused(request.model, error)
            if not _lower_output(tries, error):
                if error.limit is not None:
                    raise  # A smaller history changes nothing about what the model gives at the most.
                _shrink(turn, request, tries, error, deps)
            else:
                continuation.limit_output(tries.max_tokens)  # the next step had better not be refused again
        except errors.ContextOverflow as error:
            deps.models.windows.refused(request.model, error)
            _shrink(turn, request, tries, error, deps)


async def _came_loose(turn: ActiveTurn, request: ModelRequest, tries: _Tries, deps: AgentDeps) -> bool:
    """Leave out thinking where some of it no longer stands where it did; True where there was any."""
    loose = None if tries.unbound else next(loose_thinking(turn.view_changes.sent, request.messages), None)
    if not loose:
        return False
    tries.unbound = True
    deps.log.write("repair", "thinking came loose and is left out", level="error", cause=loose)
    await turn.strip_thinking()
    return True


async def _without_what_is_bound(
    turn: ActiveTurn, tries: _Tries, error: errors.ModelError, continuation: ContinuationPolicy
) -> bool:
    """Leave out what only the provider that made it takes, and only where it made it; False where nothing of that is left."""
    if isinstance(error, errors.ThinkingUnbound) and not tries.unbound:
        tries.unbound = True
        await turn.strip_thinking()
        return True
    if condensed(turn.store.head):
        turn.view_changes.apply("summary_refused", view_changes.in_words(turn.store.head))
        return True
    if continuation.paused and isinstance(error, errors.RequestInvalid):
        # It takes a paused answer only as it came, and only while it remembers it.
        turn.unpause("pause_turn", continuation.unpaused())
        return True
    return False


def _sound(request: ModelRequest, continuation: ContinuationPolicy) -> ModelRequest:
    """The request as it can be sent. One that has to be mended first is a fault of ours: operators are told."""
    sent, wrong = repair.sound(request, paused=continuation.paused)
    if wrong is not None:
        continuation.deps.log.write(
            "repair", "a request that was not valid was mended", level="error", cause=wrong
        )
    return sent


async def _answer(
    turn: ActiveTurn, request: ModelRequest, continuation: ContinuationPolicy
) -> ModelReply | None:
    """The answer; None where the question is put anew."""
    deps = continuation.deps
    heard = turn.asks(request)
    reply: ModelReply | None = None
    chat, before = turn.reply, turn.last_words() if continuation.goes_on else ""

    async def listen() -> None:
        nonlocal reply
        speaks = False
        async for event in deps.models.model.stream(request):
            heard.take(event)
            if chat is not None and heard.speaks and not speaks:
                speaks = True
                chat.preview(lambda: before + heard.shown())
            if isinstance(event, ModelReply):
                reply = event

    try:
        if not await turn.heard(listen(), restartable=not continuation.goes_on):
            if chat is not None and heard.speaks:
                chat.preview(str)
            turn.steps.failed("begun anew")
            deps.log.write("steer", "the model is asked anew, with what was added meanwhile")
            return None
        if reply is None:
            raise errors.StreamBroken("the model's stream ended without a reply")
    except errors.ModelError as error:
        turn.steps.failed(type(error).__name__)
        raise
    deps.models.learn(request, reply)
    turn.compactor.answered(reply.usage)
    answered = reply.model if reply.note else ""
    turn.view_changes.chat_totals.asked(reply.usage, reply.cost_usd, answered)
    return reply


def _lower_output(tries: _Tries, error: errors.OutputOverflow) -> bool:
    """Ask for less output where input and output together were too much; False where that cannot help."""
    if tries.lowered == MAX_LOWERED:
        return False
    if error.limit is not None:
        fitting = min(error.limit, tries.max_tokens - 1)
    elif error.tokens is None or error.window is None:
        fitting = tries.max_tokens // 2
    else:
        fitting = min(error.window - error.tokens - OUTPUT_MARGIN, tries.max_tokens - 1)
    if fitting < MIN_OUTPUT_TOKENS:
        return False
    tries.max_tokens = fitting
    tries.lowered += 1
    tries.smaller += 1
    return True


def _shrink(
    turn: ActiveTurn, request: ModelRequest, tries: _Tries, error: errors.ContextOverflow, deps: AgentDeps
) -> None:
    """Make the next try smaller: the current turn where that is the large part, else the history."""
    deps.log.write(
        "compaction",
        "the prompt does not fit the model's window",
        level="warn",
        tokens=error.tokens,
        window=error.window,
        messages=len(request.messages),
        tries=tries.smaller,
        provider_request_id=error.request_id,
    )
    tries.smaller += 1
    large = _current_turn_too_large(turn, request, error, deps)
    if tries.smaller <= MAX_TRIES and _masked(turn, error, deps):
        return
    if large:
        if tries.smaller > MAX_TRIES or not (
            _lightened(turn, last=tries.smaller == MAX_TRIES) or turn.view_changes.fewer_tools()
        ):
            raise _too_large(turn, request) from error
        return
    half = _oldest_half(turn)
    possible = half is None and tries.smaller <= MAX_TRIES
    if possible and (_lightened(turn, last=True) or turn.view_changes.fewer_tools()):
        return
    if half is None and not tries.halvings:
        raise _too_large(turn, request) from error
    if half is None or tries.smaller > MAX_TRIES:
        turn.view_changes.apply("overflow", Boundary(dropped="all"))
        raise HistoryCleared from error
    tries.halvings += 1
    turn.view_changes.apply("overflow", half)


def _too_large(turn: ActiveTurn, request: ModelRequest) -> TurnTooLarge:
    """The error of a turn that does not fit, by what is the larger part of it."""
    frame = estimate.frame_tokens(request.system, request.tools)
    return PromptFillsWindow() if frame > estimate.tokens(turn.shown()) else TurnTooLarge()


def _masked(turn: ActiveTurn, error: errors.ContextOverflow, deps: AgentDeps) -> bool:
    """Mask old tool results, of the running turn too; whether that alone can be enough."""
    before = turn.view_changes.tokens()
    if not turn.view_changes.mask_old("overflow", above=0):
        return False
    after, window = turn.view_changes.tokens(), error.window or deps.models.windows.window(deps.models.name)
    if error.tokens is None or window is None:
        return after <= before * ENOUGH
    return after / before * error.tokens < window


def _lightened(turn: ActiveTurn, *, last: bool) -> bool:
    """Give up the older half of what was injected, or cut the longest tool results to a quarter; in the `last` try,
    all of it. False where nothing is left to give up.
    """
    injected, longest = len(turn.injected), blocks.longest_result(turn.view)
    if injected:
        turn.view_changes.apply("overflow", Injection(kept=0 if last else injected // 2))
    if longest > SHORT_RESULT and (last or not injected):
        limit = SHORT_RESULT if last else max(SHORT_RESULT, longest // 4)
        turn.view_changes.apply("overflow", Mask(results=blocks.shortened_results(turn.view, limit)))
    return bool(injected) or longest > SHORT_RESULT


def make_room(turn: ActiveTurn) -> bool:
    """Make the prompt smaller, whatever is large in it; False where nothing can go."""
    half = _oldest_half(turn)
    if half is None:
        return _lightened(turn, last=False)
    turn.view_changes.apply("overflow", half)
    return True


def _oldest_half(turn: ActiveTurn) -> Boundary | None:
    """The oldest half of the history, or what stands for the part that went before; None where there is neither."""
    if dropped := turn.store.oldest_half():
        return Boundary(dropped=tuple(dropped))
    return Boundary(head=None) if turn.store.head is not None else None


def _current_turn_too_large(
    turn: ActiveTurn, request: ModelRequest, error: errors.ContextOverflow, deps: AgentDeps
) -> bool:
    """True if the request would not fit even without any history.

    With the provider's own numbers the share of the current turn is scaled to them. Without numbers, or with
    numbers that have nothing to do with our estimate, the turn is taken to be the cause where it is both large
    and larger than the history.
    """
    frame = estimate.frame_tokens(request.system, request.tools)
    current = frame + estimate.tokens(turn.injected) + estimate.tokens(turn.view)
    history = estimate.tokens(turn.store.view())
    total = current + history
    told = error.tokens or total
    window = error.window or deps.models.windows.window(request.model)
    if window and total / MISJUDGED < told < total * MISJUDGED:
        return current / total * told > window
    return current - frame > max(history, LARGE_TURN)
