"""Fitting a turn's requests into the model's window: before each request what is due, and what is smaller where the provider refuses one.

Each try is strictly smaller than the one before, and the tries end: the history is halved three times at the most, then it is cleared and
the person is told. A time-out or a rate limit is no overflow.
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
from bot.core import blocks, continuation, estimate, events, masking, repair, view
from bot.core.assembly import Frozen
from bot.core.budget import Budget
from bot.core.chat import Chat
from bot.core.context import RunningTurn
from bot.core.memory import condensed, in_plain_words
from bot.core.models import MODEL, ContextLimits, ModelDeps
from bot.llm import body
from bot.words import say

MOST_HALVINGS = 3
"""Limit of halvings of the history in one turn, before it is cleared."""
SHORT_RESULT = 500
"""Min characters to which a tool result is shortened."""
MOST_LOWERED = 2
"""Limit of tries with less output before the prompt is made smaller: a provider may refuse any size."""
MIN_OUTPUT_TOKENS = 256
OUTPUT_MARGIN = 64
"""Tokens by which the provider's own count may differ between two calls."""
LARGE_TURN = 2_000
"""Min estimated tokens of a turn that is taken to be what does not fit."""
MISJUDGED = 3.0
"""Max factor by which the provider's count may differ from our estimate and still say something about its parts."""
COLD_AFTER = 300.0
"""Seconds from the start of a request after which the provider's cache of it has surely expired."""
COLD_HIDES = 2_000
"""Min tokens that masks hide in a cold chat. They cost nothing there, but each changes the front of every request."""
WARM = 3
"""The threshold of a warm chat in multiples of that of a cold one: there masks cost a rewrite of what stands behind them."""
WARM_HIDES = 0.5
"""Min part of what is shown that masks hide in a warm chat to be worth that."""
_BAD = frozenset({"overflow", "thinking", "summary_refused"})


Change: TypeAlias = events.Cut | events.Masked | events.Injected | events.Framed


class Withdrawn(errors.ShipmateError):
    """A turn that would make every later one fail, were it kept in the history."""


class HistoryCleared(Withdrawn):
    """The history did not fit even after three tries with less of it, and was set aside."""

    @property
    def person(self) -> str:
        return say("turn.cleared")


class TurnTooLarge(Withdrawn):
    """The current turn alone does not fit. The history stays."""

    @property
    def person(self) -> str:
        return say("turn.too_large")


class PromptFillsWindow(TurnTooLarge):
    """It does not fit because the prompt and the tools alone fill most of the window."""

    @property
    def person(self) -> str:
        return say("turn.prompt_too_large")


class ModelGone(errors.ShipmateError):
    """The model that was chosen for the chat is not there any more: from now on the default one answers."""

    def __init__(self, chosen: str, default: str) -> None:
        super().__init__(f"the provider has no {chosen}")
        self._named = {"model": chosen, "default": default}

    @property
    def person(self) -> str:
        return say("turn.model_gone", **self._named)


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a request before its messages. `forms` are the definitions of all tools, and shorter forms of them."""

    frozen: Frozen
    system: Sequence[Json]
    forms: Sequence[tuple[Json, ...]]


class Fit:
    """Makes the requests of one turn, and changes the view where they do not fit."""

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
        """`prefix` stands before the messages of the chat, and is never made smaller; `purpose` is what the operator's log says."""
        self.models = models
        self.chat = chat
        self.context = chat.context
        self.tools: tuple[Json, ...] = ()
        """The definitions that requests have."""
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
        """The limits of requests to the model that answers."""
        return self.models.budget(self.limits.soft_tokens)

    def declared(self) -> Sequence[Json]:
        return self.tools

    @property
    def system(self) -> Sequence[Json]:
        return self._frame.system

    # ------------------------------------------------------------ before a request

    def begin(self, frame: Frame) -> None:
        """Take the frame of the requests that follow, and mask old results where that is due."""
        self.take(frame)
        if self._framed():
            return  # what is old can wait: the front of the request has changed already
        asked_at, threshold = self.context.asked_at, self.limits.mask_threshold
        if masking.crowded(self._shown()):
            self.mask_old("size", above=0)
        elif asked_at is None or self._clock.now() - asked_at > COLD_AFTER:
            self.mask_old("cold_cache", above=threshold, hides=COLD_HIDES)
        else:
            self.mask_old("size", above=WARM * threshold, hides=WARM_HIDES * self.tokens())

    def take(self, frame: Frame) -> None:
        """Let this stand before the messages; nothing in the view changes."""
        self._frame, self.tools = frame, self.models.declared(frame.forms)

    def _framed(self) -> bool:
        """State what stands before the messages; True where that begins an epoch."""
        before, head = self.context.frame, self.context.head
        prefix = body.prefix_digest(self._frame.system, self.tools)
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
            # A summary of the provider's was made for the prompt, the tools and the model before.
            self._append(events.Cut((), in_plain_words(head), "model_change" if other else "instructions"))
        self.apply(now, reason="model_change" if other else "instructions")
        return True

    def request(self) -> ModelRequest:
        """The next request of the running turn."""
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
        sent, wrong = repair.sound(
            self.models.fitted(replace(whole, purpose=self._purpose)),
            paused=running is not None and continuation.paused(running),
        )
        if wrong is not None:  # a fault of ours
            self.log.write("repair", "a request that was not valid was mended", level="error", cause=wrong)
        return sent

    def _room(self, running: RunningTurn | None) -> int:
        budget = self.budget()
        most = budget.max_tokens
        if running is not None:
            most = continuation.most_tokens(running, most, budget.most_output)
        return most if self._output is None else min(most, self._output)

    def more_room(self) -> bool:
        """True if the next answer may be longer than the last; where the window itself has ended that, the prompt is made smaller."""
        running = self.context.running
        if running is None or running.last is None or not running.last.stop_reason:
            return False
        if running.last.stop_reason == "model_context_window_exceeded":
            return self._change(halve_history) or self._change(drop_injected) or self._change(shorten_results)
        return self._room(running) > self.budget().max_tokens << max(0, running.cuts - 1)

    # ------------------------------------------------------------ after it

    def answered(self, request: ModelRequest, reply: ModelReply) -> None:
        """Learn from an answer how its model counts, and that so much does fit."""
        self.models.learn(request, reply)

    def refused(self, request: ModelRequest, error: errors.ModelError) -> None:
        """The provider has refused a request: make the next one such as it may take. Raises the error where that cannot help,
        `TurnTooLarge` or `HistoryCleared` where nothing helps any more, `ModelGone` where it has not the model that was chosen.
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
                raise error  # a smaller history changes nothing about what the model gives at the most
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
        """Leave out what only the provider that made it takes, and only where it made it; False where nothing of that is left."""
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
            # It takes a paused answer only as it came, and only while it remembers it: it is asked to go on.
            content = blocks.sayable(running.entries[-1].message["content"]) or [continuation.UNFINISHED]
            self._append(events.Answered(turn.call, content, "pause_turn", continues=1))
        else:
            return False
        return True

    def _lower_output(self, asked: int, error: errors.OutputOverflow) -> bool:
        """Ask for less output where input and output together were too much; False where that cannot help."""
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
        """Try a change; True if the next request is strictly smaller for it."""
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
        """True if the request would not fit even without any history.

        With the provider's own numbers the share of the current turn is scaled to them. Without numbers, or with
        numbers that have nothing to do with our estimate, the turn is taken to be the cause where it is both large
        and larger than the history.
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

    # ------------------------------------------------------------ changes of the view

    def mask_old(self, reason: str, *, above: float, hides: float = 0) -> bool:
        """Mask old tool results where the view has more than so many tokens, if that `hides` so many of them."""
        if self.tokens() <= above:
            return False
        shown, results = self._shown(), self.masks()
        hidden = self.measure(shown) - self.measure([blocks.masked(one, results) for one in shown])
        if not results or hidden < hides:
            return False
        self.apply(events.Masked(results, reason))
        return True

    def masks(self) -> Mapping[str, str]:
        """Words in place of old tool results, those of the running turn too."""
        keep = self.limits.keep_observations
        return masking.masks(self._shown(), ages=self._ages, keep=keep, masked=self.context.masked)

    def apply(self, change: Change, *, reason: str = "overflow") -> None:
        """Change the view, and tell the operator what it was."""
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
        """Estimated tokens of the view with the frame."""
        frame = self.models.estimator.frame(self.models.name, self._frame.system, self.tools)
        return frame + self.measure([*self._prefix, *self._shown()])

    def measure(self, messages: Sequence[Message]) -> int:
        """Estimated tokens of messages."""
        return self.models.estimator.messages(self.models.name, messages)

    def _size(self) -> float:
        return estimate.frame_tokens((), self.tools) + estimate.tokens(self._shown())

    def _shown(self) -> list[Message]:
        context = self.context
        return [*context.view(), *context.older(), *context.current()]

    # ------------------------------------------------------------ what can be smaller

    def mask_results(self) -> events.Masked | None:
        """Old tool results."""
        results = self.masks()
        return events.Masked(results, "overflow") if results else None

    def drop_injected(self) -> events.Injected | None:
        """The older half of what was loaded, then all of it."""
        count = len(self.context.older())
        return events.Injected(kept=0 if self._tries[drop_injected] else count // 2) if count else None

    def halve_history(self) -> events.Cut | None:
        """The older half of the history, on borders of turns, or what stands for the part that went before: three times."""
        dropped, head = self.context.oldest_half(), self.context.head
        if self._tries[halve_history] == MOST_HALVINGS or not (dropped or head):
            return None
        return events.Cut(tuple(dropped), head if dropped else None, "overflow")

    def shorten_results(self) -> events.Masked | None:
        """The longest results of the running turn: to a quarter, to `SHORT_RESULT` in the end."""
        current = self.context.current()
        limit = SHORT_RESULT if self._tries[shorten_results] else blocks.longest_result(current) // 4
        results = blocks.shortened_results(current, max(SHORT_RESULT, limit))
        return events.Masked(results, "overflow") if results else None

    def fewer_tools(self) -> None:
        """Definitions of tools, where the window has turned out to have no room for them."""
        self.tools = self.models.declared(self._frame.forms)


Smaller = Callable[[Fit], Change | None]
mask_results, drop_injected, halve_history = Fit.mask_results, Fit.drop_injected, Fit.halve_history
shorten_results, fewer_tools = Fit.shorten_results, Fit.fewer_tools
SMALLER: Sequence[Smaller] = (mask_results, drop_injected, halve_history, shorten_results, fewer_tools)
"""Steps that make a request smaller, in the order in which they are tried."""
_TOLD: Mapping[type[events.EventData], tuple[Literal["compaction", "masking", "injection"], str]] = {
    events.Cut: ("compaction", "history cut"),
    events.Masked: ("masking", "results masked"),
    events.Framed: ("compaction", "another frame"),
    events.Injected: ("injection", "older messages loaded or given up"),
}
