"""Fits a turn's requests into the model's context window: masks and limits content before a request, shrinks
the request after the provider rejected it.

Each retry is strictly smaller than the previous request. The history is halved at most three times, then
cleared, and the person is told. Time-outs and rate limits do not count as overflows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.model import ModelReply, ModelRequest
from bot.core import blocks, continuation, estimate, events, masking, view
from bot.core.assembly import Frozen
from bot.core.chat import Chat
from bot.core.context import RunningTurn
from bot.core.memory import condensed, in_plain_words
from bot.core.models import MODEL, Budget, ContextLimits, ModelDeps
from bot.core.validate import validate
from bot.llm import messages_api
from bot.words import say

MOST_HALVINGS = 3
"""Max halvings of the history per turn before the history is cleared."""
SHORT_RESULT = 500
"""Min length in characters to which a tool result is shortened."""
MOST_LOWERED = 2
"""Max retries with a lower output limit before the prompt is shrunk, since a provider may reject any size."""
MIN_OUTPUT_TOKENS = 256
OUTPUT_MARGIN = 64
"""Tokens by which the provider's count may differ between two calls."""
LARGE_TURN = 2_000
"""Min estimated tokens of a turn that may count as the cause of an overflow."""
MISJUDGED = 3.0
"""Max ratio between the provider's count and our estimate; a count beyond that ratio is ignored."""
COLD_AFTER = 300.0
"""Timeout in seconds after a request's start; by then the provider's cache has certainly expired."""
COLD_HIDES = 2_000
"""Min tokens that masking must hide in a chat whose cache has expired. Masking costs nothing there, but each
change rewrites the prefix of later requests.
"""
WARM = 3
"""Factor on the masking threshold while the provider's cache is valid, since masking then rewrites the
cached prefix.
"""
WARM_HIDES = 0.5
"""Min share of the tokens in the context that masking must hide while the provider's cache is valid."""
_BAD = frozenset({"overflow", "thinking", "summary_refused", "invalid"})


Change: TypeAlias = events.Cut | events.Masked | events.Injected | events.Framed


class Withdrawn(errors.ShipmateError):
    """The turn must leave the history, because every later turn would fail if the turn stayed."""


class HistoryCleared(Withdrawn):
    """The chat's history did not fit into the context window even after three halvings, and was cleared."""

    @property
    def person(self) -> str:
        return say("turn.cleared")


class TurnTooLarge(Withdrawn):
    """The current turn does not fit even without the history. The history is kept."""

    @property
    def person(self) -> str:
        return say("turn.too_large")


class PromptFillsWindow(TurnTooLarge):
    """The system prompt and the tool definitions fill most of the context window by themselves."""

    @property
    def person(self) -> str:
        return say("turn.prompt_too_large")


class ModelGone(errors.ShipmateError):
    """The model chosen for the chat no longer exists; later turns use the default model."""

    def __init__(self, chosen: str, default: str) -> None:
        super().__init__(f"the provider has no {chosen}")
        self._named = {"model": chosen, "default": default}

    @property
    def person(self) -> str:
        return say("turn.model_gone", **self._named)


@dataclass(frozen=True, slots=True)
class Frame:
    """Part of a request before its messages. `forms` holds all tool definitions and shorter versions of them."""

    frozen: Frozen
    system: Sequence[Json]
    forms: Sequence[tuple[Json, ...]]


class Fit:
    """Builds the requests of one turn, and shrinks the model's context if a request does not fit."""

    def __init__(
        self,
        chat: Chat,
        models: ModelDeps,
        limits: ContextLimits,
        *,
        ages: Callable[[str], bool],
        append: Callable[[events.EventData], None],
        clock: Clock,
        log: Log,
        redact: Redact = str,
        prefix: Sequence[Message] = (),
        purpose: str = "turn",
    ) -> None:
        """Build requests for `chat`. `prefix` is placed before the chat's messages and is never shrunk.
        `purpose` is the request's label in the operator's log.
        """
        self.models = models
        self.chat = chat
        self.context = chat.context
        self.tools: tuple[Json, ...] = ()
        """Tool definitions that the requests contain."""
        self.limits = limits
        self._ages = ages
        self._append = append
        self._clock = clock
        self.log = log
        self.redact = redact
        self._prefix = prefix
        self._purpose = purpose
        self._frame = Frame(Frozen(""), (), ((),))
        self._output: int | None = None
        self._lowered = 0
        self._tries = Counter[Smaller]()
        self._unbound = False

    def budget(self) -> Budget:
        """Return the token limits of the model that answers."""
        return self.models.budget(self.limits.soft_tokens)

    def declared(self) -> Sequence[Json]:
        return self.tools

    @property
    def system(self) -> Sequence[Json]:
        return self._frame.system

    # ------------------------------------------------------------ before a request

    def begin(self, frame: Frame) -> None:
        """Use this frame (prompt, tools and model settings) for all later requests, and mask old tool
        results if necessary.
        """
        self.take(frame)
        if self._framed():
            return  # masking can wait, since the beginning of the request has already changed
        asked_at, threshold = self.context.asked_at, self.limits.mask_threshold
        if masking.crowded(self._shown()):
            self.mask_old("size", above=0)
        elif asked_at is None or self._clock.now() - asked_at > COLD_AFTER:
            self.mask_old("cold_cache", above=threshold, hides=COLD_HIDES)
        else:
            self.mask_old("size", above=WARM * threshold, hides=WARM_HIDES * self.tokens())

    def take(self, frame: Frame) -> None:
        """Use this frame (prompt, tools and model settings) without changing the messages in the context."""
        self._frame, self.tools = frame, self.models.declared(frame.forms)

    def _framed(self) -> bool:
        """Append a `Framed` event to the log if the frame (prompt and model settings) changed. Returns True
        if the cached prefix of later requests is no longer valid.
        """
        before, head = self.context.frame, self.context.head
        prefix = messages_api.prefix_digest(self._frame.system, self.tools)
        now = events.Framed(self._frame.frozen, self.models.name, str(self.models.sent()), prefix)
        for lasting in self.context.out_of_reach:
            self._append(lasting)
        if now == before:
            return False
        if before is None or not self._shown():
            self._append(now)
            return False
        other = (before.model, before.manner) != (now.model, now.manner)
        if head is not None and condensed(head):
            # A provider's summary is only valid with the prompt, tools and model with which it was made.
            self._append(events.Cut((), in_plain_words(head), "model_change" if other else "instructions"))
        self.apply(now, reason="model_change" if other else "instructions")
        return True

    def request(self) -> ModelRequest:
        """Return the next request to the model in the running turn. Raises `errors.RequestInvalid` and
        `errors.RequestTooLarge`.
        """
        context, running = self.context, self.context.running
        tail = continuation.tail(running) if running is not None else ()
        whole = view.render(
            model=self.models.name,
            max_tokens=self._room(running),
            system=self._frame.system,
            tools=self.tools,
            history=[*self._prefix, *context.view()],
            injected=context.older(),
            current=[*context.current(), *tail],
        )
        sent = self.models.fitted(replace(whole, purpose=self._purpose))
        try:
            validate(sent, paused=running is not None and continuation.paused(running))
        except errors.RequestInvalid as error:
            if not context.view():
                raise
            # Only a bug of ours makes a request invalid. Without this, every later turn of the chat would fail.
            self.log.write(
                "repair", "the request was not valid: the history is dropped", level="error", cause=str(error)
            )
            self.apply(events.Cut("all", None, "invalid"))
            return self.request()
        return sent

    def _room(self, running: RunningTurn | None) -> int:
        budget = self.budget()
        most = budget.max_tokens
        if running is not None:
            most = continuation.most_tokens(running, most, budget.most_output)
        return most if self._output is None else min(most, self._output)

    def more_room(self) -> bool:
        """Return True if the next output limit may be higher than the last one. If the context window itself
        was the limit, shrink the prompt.
        """
        running = self.context.running
        if running is None or running.last is None or not running.last.stop_reason:
            return False
        if running.last.stop_reason == "model_context_window_exceeded":
            return self._change(halve_history) or self._change(drop_injected) or self._change(shorten_results)
        return self._room(running) > self.budget().max_tokens << max(0, running.cuts - 1)

    # ------------------------------------------------------------ after a request

    def answered(self, request: ModelRequest, reply: ModelReply) -> None:
        """Learn the model's token ratio and a request size that fits from an answer."""
        self.models.learn(request, reply)

    def refused(self, request: ModelRequest, error: errors.ModelError) -> None:
        """Shrink the request after the provider rejected it. Raises the error if shrinking cannot help,
        `TurnTooLarge` or `HistoryCleared` if nothing is left to shrink, and `ModelGone` if the chosen
        model does not exist.
        """
        if isinstance(error, errors.RequestInvalid | errors.SummaryUnavailable):
            if not self._without_what_is_bound(error):
                raise error
            return
        if isinstance(error, errors.ModelUnknown) and request.model == self.models.chosen:
            self._append(events.FactSet(MODEL, str(self.chat.key), None))
            raise ModelGone(request.model, self.models.default_model) from error
        if not isinstance(error, errors.ContextOverflow):
            raise error
        self.models.windows.refused(request.model, error)
        if isinstance(error, errors.OutputOverflow):
            if self._lower_output(request.max_tokens, error):
                return
            if error.limit is not None:
                raise error  # a smaller history does not raise the model's output limit
        self.log.write(
            "compaction",
            "the prompt does not fit the model's window",
            level="warn",
            tokens=error.tokens,
            window=error.window,
            messages=len(request.messages),
            tries=self._tries.total(),
            provider_request_id=error.request_id,
        )
        large = self._turn_is_too_large(request, error)
        for smaller in SMALLER:
            if not (large and smaller is halve_history) and self._change(smaller):
                return
        self._give_up(large=large, cause=error)

    def _without_what_is_bound(self, error: errors.ModelError) -> bool:
        """Drop content that only the provider that made it accepts. Returns False if there is no such content."""
        head, running, turn = self.context.head, self.context.running, self.chat.turn
        if isinstance(error, errors.ThinkingUnbound) and not self._unbound:
            self._unbound = True
            self.apply(events.Cut((), head, "thinking"))
        elif head is not None and condensed(head):
            self.apply(events.Cut((), in_plain_words(head), "summary_refused"))
        elif (
            isinstance(error, errors.RequestInvalid)
            and (running is not None and turn is not None and turn.call is not None)
            and continuation.paused(running)
        ):
            # The provider accepts a paused answer only unchanged and for a limited time. Later it is asked to continue.
            content = blocks.sayable(running.entries[-1].message["content"]) or [continuation.UNFINISHED]
            self._append(events.Answered(turn.call, content, "pause_turn", continues=1))
        else:
            return False
        return True

    def _lower_output(self, asked: int, error: errors.OutputOverflow) -> bool:
        """Lower the output limit if input plus output exceeded the context window. Returns False if that
        cannot help.
        """
        if error.limit is not None:
            fitting = min(error.limit, asked - 1)
        elif error.tokens is None or error.window is None:
            fitting = asked // 2
        else:
            fitting = min(error.window - error.tokens - OUTPUT_MARGIN, asked - 1)
        if self._lowered == MOST_LOWERED or fitting < MIN_OUTPUT_TOKENS:
            return False
        self._output = fitting
        self._lowered += 1
        return True

    def _change(self, smaller: Smaller) -> bool:
        """Apply a change. Returns True if the next request is strictly smaller."""
        before, change = self._size(), smaller(self)
        self._tries[smaller] += change is not None
        if change is not None:
            self.apply(change)
        return self._size() < before

    def _give_up(self, *, large: bool, cause: errors.ContextOverflow) -> None:
        if large or not self._tries[halve_history]:
            frame = estimate.frame_tokens(self._frame.system, self.tools)
            own = estimate.tokens([*self.context.older(), *self.context.current()])
            raise (PromptFillsWindow if frame > own else TurnTooLarge) from cause
        self.apply(events.Cut("all", None, "overflow"))
        raise HistoryCleared from cause

    def _turn_is_too_large(self, request: ModelRequest, error: errors.ContextOverflow) -> bool:
        """Return True if the request would not fit even without the history.

        If the provider reported a plausible token count, the turn's share is scaled to that count. Without a
        plausible count, the turn is taken as the cause if it is both large and larger than the history.
        """
        own = estimate.tokens([*self.context.older(), *self.context.current()])
        history = estimate.tokens(self.context.view())
        current = own + estimate.frame_tokens(request.system, request.tools)
        total = current + history
        told = error.tokens or total
        window = error.window or self.models.windows.window(request.model)
        if window and total / MISJUDGED < told < total * MISJUDGED:
            return current / total * told > window
        return own > max(history, LARGE_TURN)

    # ------------------------------------------------------------ changes of the model's context

    def mask_old(self, reason: str, *, above: float, hides: float = 0) -> bool:
        """Mask old tool results if the context has more than `above` tokens and masking hides at least
        `hides` tokens. Returns True if results were masked.
        """
        if self.tokens() <= above:
            return False
        shown, results = self._shown(), self.masks()
        hidden = self.measure(shown) - self.measure([blocks.masked(one, results) for one in shown])
        if not results or hidden < hides:
            return False
        self.apply(events.Masked(results, reason))
        return True

    def masks(self) -> Mapping[str, str]:
        """Return the replacement texts of old tool results by call id, including results of the running turn."""
        keep = self.limits.keep_observations
        return masking.masks(self._shown(), ages=self._ages, keep=keep, masked=self.context.masked)

    def apply(self, change: Change, *, reason: str = "overflow") -> None:
        """Append a change of the model's context and log its effect."""
        messages, before = len(self.context), self.tokens()
        self._append(change)
        kind, told = _TOLD[type(change)]
        reason = change.reason if isinstance(change, events.Cut | events.Masked) else reason
        self.log.write(
            kind,
            f"{told}: {reason}",
            level="warn" if reason in _BAD else "info",
            reason=reason,
            messages_before=messages,
            messages_after=len(self.context),
            masked=len(change.results) if isinstance(change, events.Masked) else 0,
            tokens_before=before,
            tokens_after=self.tokens(),
        )

    def tokens(self) -> int:
        """Return the estimated tokens of the next request: system prompt, tools, prefix and messages."""
        frame = self.models.estimator.frame(self.models.name, self._frame.system, self.tools)
        return frame + self.measure([*self._prefix, *self._shown()])

    def measure(self, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of messages."""
        return self.models.estimator.messages(self.models.name, messages)

    def _size(self) -> float:
        return estimate.frame_tokens((), self.tools) + estimate.tokens(self._shown())

    def _shown(self) -> list[Message]:
        context = self.context
        return [*context.view(), *context.older(), *context.current()]

    # ------------------------------------------------------------ shrinking steps

    def mask_results(self) -> events.Masked | None:
        """Shrinking step: mask old tool results."""
        results = self.masks()
        return events.Masked(results, "overflow") if results else None

    def drop_injected(self) -> events.Injected | None:
        """Shrinking step: drop the older half of the injected messages, and in a second step all injected messages."""
        count = len(self.context.older())
        return events.Injected(kept=0 if self._tries[drop_injected] else count // 2) if count else None

    def halve_history(self) -> events.Cut | None:
        """Shrinking step: drop the older half of the history in whole turns. If no turn is left, drop the
        head message. The step is taken at most three times.
        """
        dropped, head = self.context.oldest_half(), self.context.head
        if self._tries[halve_history] == MOST_HALVINGS or not (dropped or head):
            return None
        return events.Cut(tuple(dropped), head if dropped else None, "overflow")

    def shorten_results(self) -> events.Masked | None:
        """Shrinking step: shorten the longest tool results of the running turn to a quarter, then to
        `SHORT_RESULT` characters.
        """
        current = self.context.current()
        limit = SHORT_RESULT if self._tries[shorten_results] else blocks.longest_result(current) // 4
        results = blocks.shortened_results(current, max(SHORT_RESULT, limit))
        return events.Masked(results, "overflow") if results else None

    def fewer_tools(self) -> None:
        """Shrinking step: send shorter or fewer tool definitions if the context window is too small for all of them."""
        self.tools = self.models.declared(self._frame.forms)


Smaller = Callable[[Fit], Change | None]
mask_results, drop_injected, halve_history = Fit.mask_results, Fit.drop_injected, Fit.halve_history
shorten_results, fewer_tools = Fit.shorten_results, Fit.fewer_tools
SMALLER: Sequence[Smaller] = (mask_results, drop_injected, halve_history, shorten_results, fewer_tools)
"""Steps that shrink a request, in the order in which they are tried."""
_TOLD: Mapping[type[events.EventData], tuple[Literal["compaction", "masking", "injection"], str]] = {
    events.Cut: ("compaction", "history cut"),
    events.Masked: ("masking", "results masked"),
    events.Framed: ("compaction", "another frame"),
    events.Injected: ("injection", "older messages loaded or given up"),
}
