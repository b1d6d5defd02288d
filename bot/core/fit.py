"""Fits a turn's requests into the context window. It masks old tool results (replaces them with placeholders), and shrinks a
rejected request in steps. After three halvings of the history, it clears the history and informs the person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from bot import errors, text
from bot.contracts.approvals import Approvals, Unattended
from bot.contracts.base import Json, Message
from bot.contracts.environment import OperatorNotices
from bot.contracts.model import ATTACHED, ModelRequest
from bot.contracts.tools import omission
from bot.core import events, view
from bot.core.archive_files import ChatStore
from bot.core.chat import Chat
from bot.core.context import RunningTurn
from bot.core.prompt import Frozen, Prompts
from bot.core.services import Services
from bot.llm import blocks, messages_api
from bot.llm.models import MODEL, Budget, ModelDeps
from bot.tools.dispatch import Dispatcher, Registry

if TYPE_CHECKING:
    from bot.core.tasks import TaskEvent

MOST_HALVINGS = 3  # Max times per turn that the history is halved before it is cleared
SHORT_RESULT = 500  # Min length in characters to which a long tool result is shortened
MOST_LOWERED, MIN_OUTPUT_TOKENS, OUTPUT_MARGIN = 2, 256, 64
"""Max retries with a lower output limit, min tokens of that limit, and tokens kept free because counts may be wrong."""
RAISES = 4  # Max factor by which the configured output limit is raised, if the model's own limit is unknown
LARGE_TURN, MISJUDGED = 2_000, 3.0
"""A provider's token count is plausible if it differs from the estimate by less than the factor `MISJUDGED`. Without a plausible
count, only a turn with more than `LARGE_TURN` tokens is too large.
"""
COLD_AFTER = 300.0  # Seconds from a request's start until the provider's cache has certainly expired
COLD_HIDES = 2_000  # Min tokens that masking must save if the provider's cache has expired
WARM, WARM_HIDES = 3, 0.5
"""While the provider's cache is valid: factor on the masking threshold, and min share of tokens that masking must save."""
LEAST_KEPT, KEPT_TOKENS = 3, 2_000
"""Min number of newest tool results that stay unmasked. More results stay while together they have at most `KEPT_TOKENS`."""
KEPT_FILES, KEPT_BYTES = 4, 8_000_000
"""Max number of newest files that stay unmasked, and max total bytes of these files."""
CROWD = 12  # Max files in the context. If there are more, old files are masked. The provider accepts twenty.
GONE = "[a file was shown here ({}); it is not shown any more]"
Change: TypeAlias = events.Cut | events.Masked | events.Injected | events.Framed
_TOLD: Mapping[type[events.EventData], tuple[Literal["compaction", "masking", "injection"], str]] = {
    events.Cut: ("compaction", "history cut"),
    events.Masked: ("masking", "results masked"),
    events.Framed: ("compaction", "another frame"),
    events.Injected: ("injection", "older messages loaded or given up"),
}
_BAD = frozenset({"overflow", "thinking", "invalid"})
"""Reasons for a change of the context that are logged as warnings."""


class Withdrawn(errors.TurnFailed):
    """The turn must leave the history. If the turn stayed, every later turn would fail."""


@dataclass(frozen=True, kw_only=True)
class AgentDeps(Services):
    """The services of the process, and objects that only the agent uses. A reload changes `settings`, `models` and `dispatcher`."""

    models: ModelDeps
    archive: ChatStore
    registry: Registry
    dispatcher: Dispatcher
    prompts: Prompts
    alerts: OperatorNotices
    task_events: Callable[[TaskEvent], object] = lambda _: None
    approvals: Approvals = field(default_factory=Unattended)


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a request before its messages. `forms` holds the tool definitions in full and in shorter versions."""

    frozen: Frozen
    system: Sequence[Json]
    forms: Sequence[tuple[Json, ...]]


@dataclass(eq=False)
class Fit:
    """Builds the requests of one turn, and shrinks the messages if a request does not fit the context window."""

    chat: Chat
    models: ModelDeps
    agent: AgentDeps
    append: Callable[[events.EventData], None]
    _: KW_ONLY
    prefix: Sequence[Message] = ()
    """Messages that precede the chat's own messages in each request. These messages are never shrunk."""
    purpose: str = "turn"  # Label of the requests in the operators' log
    frame: Frame = field(init=False, default=Frame(Frozen(""), (), ((),)))
    tools: tuple[Json, ...] = field(init=False, default=())
    """Tool definitions that the requests contain, in the version that fits."""
    _output: int | None = field(init=False, default=None)
    """Lower output limit that is used after a refused request; None if no request was refused."""
    _tries: Counter[str] = field(init=False, default_factory=Counter)
    """Number of times that each step to shrink a request was taken in this turn."""

    def __post_init__(self) -> None:
        self.context = self.chat.context
        self.limits = self.agent.settings.context
        self.log = self.agent.log

    def budget(self) -> Budget:
        """Return the token limits for the model that answers."""
        return self.models.budget(self.limits.compaction.soft_tokens)

    # ------------------------------------------------------------ before a request

    def take(self, frame: Frame) -> None:
        """Use this frame for later requests. Unlike `begin`, mask nothing."""
        self.frame, self.tools = frame, self.models.declared(frame.forms)

    def begin(self, frame: Frame) -> None:
        """Use this frame for later requests, and mask old tool results if masking saves enough tokens now."""
        self.take(frame)
        if self._framed():
            return  # the new frame made the provider's cache useless; a later turn masks results
        asked_at, threshold = self.context.asked_at, self.limits.mask_threshold_tokens
        if crowded(self.context.shown()):
            self.mask_old("size", above=0)
        elif asked_at is None or self.agent.clock.now() - asked_at > COLD_AFTER:
            self.mask_old("cold_cache", above=threshold, hides=COLD_HIDES)
        else:
            self.mask_old("size", above=WARM * threshold, hides=WARM_HIDES * self.tokens())

    def _framed(self) -> bool:
        """Append a `Framed` event if the frame changed. Return True if the change made the provider's cache useless."""
        before = self.context.frame
        prefix = messages_api.prefix_digest(self.frame.system, self.tools)
        sent = self.models.sent()
        manner = " ".join(filter(None, (sent.effort, (sent.thinking or {}).get("type"))))
        now = events.Framed(self.frame.frozen, self.models.name, manner, prefix)
        for lasting in self.context.out_of_reach:
            self.append(lasting)
        if now == before:
            return False
        if before is None or not self.context.shown():
            self.append(now)
            return False
        other = (before.model, before.manner) != (now.model, now.manner)
        self.apply(now, reason="model_change" if other else "instructions")
        return True

    def request(self) -> ModelRequest:
        """Return the turn's next request. Raises `errors.RequestInvalid` and `errors.RequestTooLarge`."""
        context, running = self.context, self.context.running
        whole = view.render(
            model=self.models.name,
            max_tokens=self._max_tokens(running),
            system=self.frame.system,
            tools=self.tools,
            history=[*self.prefix, *context.view()],
            injected=context.older(),
            current=[*context.current(), *(running.tail if running is not None else ())],
        )
        sent = self.models.fitted(replace(whole, purpose=self.purpose))
        try:
            view.validate(sent, paused=running is not None and running.paused)
        except errors.RequestInvalid as error:
            if not context.view():
                raise
            # Only a bug of the bot makes a request invalid. Drop the history, or every later turn would fail too.
            told = "the request was not valid: the history is dropped"
            self.log.write("repair", told, level="error", cause=str(error))
            self.apply(events.Cut("all", None, "invalid"))
            return self.request()
        return sent

    def _max_tokens(self, running: RunningTurn | None) -> int:
        budget = self.budget()
        most = budget.max_tokens
        if running is not None:
            # Each answer that was cut off doubles the limit, up to the model's own limit.
            own = budget.most_output or RAISES * most
            most = max(most, min(most << running.unfinished, own))
        return most if self._output is None else min(most, self._output)

    def more_room(self) -> bool:
        """Return True if the next answer may be longer. If the last answer filled the window, first shrink the prompt."""
        running = self.context.running
        if running is None or running.last is None or not running.last.stop_reason:
            return False
        if running.last.stop_reason == "model_context_window_exceeded":
            return any(map(self._change, ("halve_history", "drop_injected", "shorten_results")))
        return self._max_tokens(running) > self.budget().max_tokens << max(0, running.unfinished - 1)

    # ------------------------------------------------------------ after a request

    def refused(self, request: ModelRequest, error: errors.ModelError) -> None:
        """Shrink the next request after the provider rejected this one. Raise `errors.TurnFailed` if shrinking was not enough,
        or the provider's error if shrinking cannot help.
        """
        if isinstance(error, errors.ThinkingUnbound) and not self._tries["thinking"]:
            self._tries["thinking"] += 1
            self.apply(events.Cut((), self.context.head, "thinking"))
            return
        if isinstance(error, errors.ModelUnknown) and request.model == self.models.chosen:
            # Later turns use the default model.
            self.append(events.FactSet(MODEL, str(self.chat.key), None))
            names = {"model": request.model, "default": self.models.default_model}
            raise errors.TurnFailed(f"the provider has no {request.model}", "model_gone", **names) from error
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
        frame = blocks.tokens(request.system) + blocks.tokens(request.tools)
        own = blocks.tokens([*self.context.older(), *self.context.current()])
        history = blocks.tokens(self.context.view())
        total = frame + own + history
        told = error.tokens or total
        window = error.window or self.models.windows.window(request.model)
        if window and total / MISJUDGED < told < total * MISJUDGED:
            large = (frame + own) / total * told > window
        else:
            large = own > max(history, LARGE_TURN)  # the provider's token count is not plausible
        if any(self._change(one) for one in SMALLER if not (large and one == "halve_history")):
            return
        if large or not self._tries["halve_history"]:
            key = "prompt_too_large" if frame > own else "too_large"
            raise Withdrawn("the turn does not fit even without the history", key) from error
        self.apply(events.Cut("all", None, "overflow"))
        raise Withdrawn("the history was cleared: halving was not enough", "cleared") from error

    def _lower_output(self, asked: int, error: errors.OutputOverflow) -> bool:
        """Lower the output limit, because input and output exceeded the window. Return False if a lower limit cannot help."""
        fitting = asked // 2
        if error.limit is not None:
            fitting = error.limit
        elif error.tokens is not None and error.window is not None:
            fitting = error.window - error.tokens - OUTPUT_MARGIN
        fitting = min(fitting, asked - 1)
        if self._tries["lower_output"] == MOST_LOWERED or fitting < MIN_OUTPUT_TOKENS:
            return False
        self._tries["lower_output"] += 1
        self._output = fitting
        return True

    # ------------------------------------------------------------ changes of the model's context

    def mask_old(self, reason: str, *, above: float, hides: float = 0) -> None:
        """Mask old tool results if the request has over `above` tokens and masking saves at least `hides` tokens."""
        if self.tokens() > above and (results := self._masks()):
            shown = self.context.shown()
            if self.measure(shown) - self.measure([blocks.masked(one, results) for one in shown]) >= hides:
                self.apply(events.Masked(results, reason))

    def _masks(self) -> dict[str, str]:
        keep, context, registry = self.limits.keep_recent_observations, self.context, self.agent.registry
        return masks(
            context.shown(),
            ages=lambda name: (tool := registry.get(name)) is not None and tool.ages,
            keep=keep,
            masked=context.masked,
        )

    def apply(self, change: Change, *, reason: str = "overflow") -> None:
        """Append an event that changes the model's context, and log its effect."""
        messages, before = len(self.context), self.tokens()
        self.append(change)
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
        parts = (self.frame.system, self.tools, self.prefix, self.context.shown())
        return self.models.estimator.tokens(self.models.name, *parts)

    def measure(self, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of these messages."""
        return self.models.estimator.tokens(self.models.name, messages)

    def _change(self, step: str) -> bool:
        """Do one step of `SMALLER`. Return True if the step makes the next request smaller."""
        before = blocks.tokens(self.tools) + blocks.tokens(self.context.shown())
        if (change := self._smaller(step)) is not None:
            self._tries[step] += 1
            self.apply(change)
        return blocks.tokens(self.tools) + blocks.tokens(self.context.shown()) < before

    def _smaller(self, step: str) -> Change | None:
        context, tried = self.context, self._tries[step]
        match step:
            case "mask_results":
                results = self._masks()
                return events.Masked(results, "overflow") if results else None
            case "drop_injected":  # drops first the older half of the loaded messages, then all
                count = len(context.older())
                return events.Injected(kept=0 if tried else count // 2) if count else None
            case "halve_history":  # whole turns, or the head message if no turn is left
                head, dropped = context.head, context.oldest(context.turns, (len(context) + 1) // 2)
                if tried == MOST_HALVINGS or not (dropped or head):
                    return None
                return events.Cut(tuple(dropped), head if dropped else None, "overflow")
            case "shorten_results":  # first to a quarter of the longest result, then to `SHORT_RESULT`
                found = {
                    str(block["tool_use_id"]): block["content"]
                    for _, block in _newest_first(context.current(), "tool_result")
                    if isinstance(block.get("content"), str)
                }
                longest = max(map(len, found.values()), default=0)
                limit = SHORT_RESULT if tried else max(SHORT_RESULT, longest // 4)
                long = {call: words for call, words in found.items() if len(words) > limit}
                short = {call: text.shorten_middle(words, limit) for call, words in long.items()}
                return events.Masked(short, "overflow") if short else None
            case _:  # `fewer_tools`: shorter or fewer definitions, if the window is too small for all
                self.tools = self.models.declared(self.frame.forms)
                return None


SMALLER = ("mask_results", "drop_injected", "halve_history", "shorten_results", "fewer_tools")
"""Steps that shrink a request, in the order in which they are tried."""


# ------------------------------------------------------------ observation masking


def masks(
    messages: Sequence[Message], *, ages: Callable[[str], bool], keep: int, masked: Container[str] = ()
) -> dict[str, str]:
    """Return placeholders for old tool results (keyed by call id) and old files (keyed by artifact id). These results stay: the
    newest `keep`, results not sent yet, results of tools for which `ages` returns False, and errors in the newest results.
    """
    names = {call.id: call.name for message in messages for call in blocks.tool_calls(message["content"])}
    results, files = list(_newest_first(messages, "tool_result")), list(_newest_first(messages, ATTACHED))
    last = results[0][0] if results else -1
    found: dict[str, str] = {}
    kept, tokens = 0, 0.0
    for at, block in results:
        call = block["tool_use_id"]
        if not ages(names.get(call, "")) or call in masked:
            continue
        tokens += blocks.block_tokens(block)
        stays = kept < max(keep, LEAST_KEPT) or tokens <= KEPT_TOKENS
        kept += 1
        unseen = at == last == len(messages) - 1
        if stays or unseen or (at == last and block.get("is_error")):
            continue
        words = placeholder(block)
        if blocks.text_tokens(words) < blocks.block_tokens(block):
            found[call] = words
    answered = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
    size = 0
    for count, (at, block) in enumerate(files, 1):
        size += int(block["size"])
        if at < answered and (count > KEPT_FILES or size > KEPT_BYTES):
            found[str(block["artifact"])] = GONE.format(block["media"])
    return found


def crowded(messages: Sequence[Message]) -> bool:
    sizes = [block["size"] for _, block in _newest_first(messages, ATTACHED)]
    return len(sizes) > CROWD or sum(sizes) > KEPT_BYTES


def placeholder(block: Json) -> str:
    content = block.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    words = "\n".join(part["text"] for part in parts if part.get("type") == "text")
    images = sum(part.get("type") == "image" for part in parts)
    left_out = omission(block)
    lines = (words.count("\n") + 1 if words else 0) + (left_out.lines if left_out is not None else 0)
    what = f"{lines} lines" + (f", {images} image{'s' if images > 1 else ''}" if images else "")
    where = f"; artifact {left_out.artifact}" if left_out is not None else ""
    return f"[observation masked — {what} omitted{where}]"


def _newest_first(messages: Sequence[Message], kind: str) -> Iterator[tuple[int, Json]]:
    """Yield all blocks of this type, newest first, each with the index of its message."""
    for at in reversed(range(len(messages))):
        for block in reversed(messages[at]["content"]):
            if block.get("type") == kind:
                yield at, block
