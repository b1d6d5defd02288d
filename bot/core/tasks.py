"""Subagent tasks: work that a turn delegates. Each task has its own chat, runs the agent loop there within limits, and
reports to the turn's tool call. A killed process loses only running calls. The next process continues the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from bot import errors, tags, text
from bot.contracts.approvals import Approval, Approvals, Verdict
from bot.contracts.base import Json, Message
from bot.contracts.environment import cancel_all, ends_within
from bot.contracts.messages import ANYBODYS, NOBODYS, Inbound, Provenance
from bot.contracts.model import ModelReply, ModelRequest, ModelStream, Usage
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import events, quotes
from bot.core.chat import Chat, chat_of_task
from bot.core.chats import Chats, Fact
from bot.core.context import ContextEntry
from bot.core.event_log import EventLog
from bot.core.fit import Fit, Frame
from bot.core.loop import Loop, OlderMessages, Refused
from bot.core.prompt import Frozen
from bot.llm import blocks
from bot.llm.costs import PriceTable
from bot.llm.models import sent_manner
from bot.llm.wrapper import ModelWrapper, reply_of, usage_object, words_of
from bot.telemetry.log import current, running_scope
from bot.telemetry.usage import TOKENS, UsageTotals
from bot.text import escaped
from bot.tools import context
from bot.tools.context import TaskMode
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions import taint
from bot.tools.permissions.rules import SCHEDULING
from bot.words import say

TASK = "task"
"""Name of the tool that starts a subagent task."""
BARRED = frozenset({TASK, tags.SEND}) | SCHEDULING
"""Names of tools that no task has."""
TICK = 1.0
"""Interval in seconds at which a task's time limit is checked."""
REFUSALS = 3
"""Number of denied calls at which a task is stopped."""
PLACEHOLDER = "A worker of its own carries this out."
"""Result of every call in a step that forks tasks. All forks see the same text, so they share the provider's cache."""
LABEL, SUMMARY = 60, 3_000
"""Max characters of a task's label for people, and of the summary that the turn gets. The transcript has the whole text."""
ANSWER_TOKENS, LEAST_ANSWER = 1_024, 256
"""Output tokens assumed for a later model call, and min output tokens that must be left for the next call."""
_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PROMPTS = {name: words.replace("<rule>", _TEXTS["rule"]) for name, words in _TEXTS.items()}


class LimitReached(errors.ShipmateError):
    """A task may not continue. `words` states the reason and begins with “stopped”."""

    def __init__(self, words: str) -> None:
        super().__init__(f"a task was {words}")
        self.words = words


def at_limit(limit: str) -> LimitReached:
    return LimitReached(f"stopped at its limit of {limit}")


TaskState = Literal["queued", "started", "model", "ended", "failed", "stopped"]
TaskStatus = Literal["whole", "cut", "silent", "failed"]


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A change in the progress of a task, for displays. The first event of a task is `queued`; the last is `ended`,
    `failed` or `stopped`. A `model` event follows each answer of the model.
    """

    kind: TaskState
    task_id: str
    """ULID of the task and of the artifact with its transcript."""
    request_id: str
    at: float
    """Time of the event in epoch seconds."""
    label: str
    """Short name of the task that people see, with secrets redacted."""
    calls: int = 0
    """Number of model calls so far."""
    most_calls: int = 0
    """Max model calls of the task."""
    error: str = ""
    """Sentence that tells people about a failure or a limit; "" if there is none."""


def _totals(chat: Chat, prices: PriceTable) -> tuple[UsageTotals, float]:
    """Return the usage that is recorded in the events of a task's chat, and its cost in USD for the limits. The cost of a call with
    an unknown price is computed with the highest known price.
    """
    totals, charged, running = UsageTotals(), 0.0, chat.context.running
    for one in running.answers if running is not None else ():
        if one.usage:
            usage = Usage(
                *(one.usage.get(name, 0) for name in ("input", "output", "cacheRead", "cacheWrite"))
            )
            unpriced, cost = one.cost_usd is None, one.cost_usd or 0.0
            totals.add(
                UsageTotals(calls=1, tokens=Counter(usage_object(usage)), cost=cost, unpriced=unpriced)
            )
            charged += prices.at_most(one.model, usage, one.cost_usd)
    return totals, charged


@dataclass(eq=False)
class TurnTasks:
    """Implements `tools.context.Tasks` for one turn. `parent` builds the turn's requests."""

    parent: Fit
    chats: Chats
    event_log: EventLog
    _tokens: int = field(init=False, default=0)
    _usd: float = field(init=False, default=0.0)
    _warm: dict[int, asyncio.Event] = field(init=False, default_factory=dict)
    """A flag for each step of the turn, set once the provider has cached the prefix that the forks of the step share."""
    _ended: dict[str, Worker] = field(init=False, default_factory=dict)
    """Tasks of the running step that have reported, keyed by the id of the call that started the task."""

    def __post_init__(self) -> None:
        self.chat, self.agent = self.parent.chat, self.parent.agent
        self._slots = asyncio.Semaphore(self.agent.settings.subagents.max_concurrent)

    @property
    def given(self) -> dict[str, str]:
        """Return the ids of the tasks that have not reported yet, keyed by the id of the call that started the task."""
        return self.chat.turn.tasks if self.chat.turn is not None else {}

    def name(self, call: ToolCall) -> str:
        """Return the id of the task that this call starts or continues; "" if the call starts no task."""
        return (self.given.get(call.id) or self.agent.ids.ulid()) if call.name == TASK else ""

    def over(self, calls: Iterable[str]) -> Iterator[Fact]:
        """Yield the events that end the tasks started by these calls."""
        for task in [self.given[call] for call in calls if call in self.given]:
            if self.chats.loaded(key := chat_of_task(self.chat.key, task)) is not None:
                yield Fact(key, events.TurnEnded("answered"), task)

    async def run(self, words: str, description: str, mode: TaskMode) -> str:
        """Run a task and return its report (see `tools.context.Tasks.run`)."""
        turn, call, agent = self.chat.turn, context.CALL.get(), self.agent
        if turn is None:
            raise errors.TurnStopped
        name = turn.tasks[call]
        chat = await self.chats.get(chat_of_task(self.chat.key, name))
        label = agent.redact(text.preview(description.strip() or words, LABEL))
        # The instructions of a task are a message in the name of the turn's person.
        same = ("channel", "chat_id", "chat_key", "chat_type", "user_id", "ts", "target")
        place = {one: getattr(turn.first, one) for one in same}
        inbound = Inbound(**place, keys=(), text=agent.redact(words), request_id=name)
        ordered = events.Ordered(inbound, label, mode)
        totals, charged = _totals(chat, self.parent.models.prices)
        self.spend(totals.tokens.total(), charged)
        facts = [*([] if chat.turn is not None else [ordered]), events.TurnStarted((name,), agent.boot)]
        self.chats.append(*(Fact(chat.key, one, name) for one in facts))
        first_token = warm = asyncio.Event()
        if mode == "fork":
            warm = self._warm.setdefault(len(self.chat.context.current()), first_token)
        with running_scope(replace(current(), task=name)):
            worker = Worker(self.parent.models.model, self, chat, call, ordered, first_token)
            try:
                if warm is not first_token:
                    await warm.wait()
                report = await worker.run(self._slots)
                self._ended[call] = worker
            except asyncio.CancelledError:
                worker.ended("stopped", "It was stopped.")
                raise
            finally:
                first_token.set()
                context.report_provenance(worker.origin)
        if worker.status == "failed":
            raise errors.ToolError(f"The task failed: {report}")
        return report

    # ------------------------------------------------------------ limits of all tasks of the turn

    def spend(self, tokens: int, usd: float) -> None:
        self._tokens += tokens
        self._usd += usd

    @contextlib.contextmanager
    def reserved(self, tokens: int, usd: float) -> Iterator[None]:
        """Reserve the max usage of one call inside the `with` block. Raises `LimitReached` if too little is left."""
        most = self.agent.settings.subagents.per_turn
        if self._tokens + tokens > most.max_tokens:
            raise at_limit(f"{most.max_tokens:,} tokens for all tasks of a turn")
        if most.max_usd is not None and self._usd + usd > most.max_usd:
            raise at_limit(f"${most.max_usd:.2f} for all tasks of a turn")
        self.spend(tokens, usd)
        try:
            yield
        finally:
            self.spend(-tokens, -usd)

    # ------------------------------------------------------------ results of several tasks

    async def merged(self, results: Sequence[ToolResult]) -> list[ToolResult]:
        """Return the results of one step's calls. If several tasks have results, the fast model compares them, and its
        synthesis is added to the last result.
        """
        theirs = [one for one in results if one.call_id in self._ended]
        found = [self._ended[one.call_id] for one in theirs]
        self._ended.clear()
        if sum(one.status in {"whole", "cut"} for one in found) < 2:
            return list(results)
        try:
            words = await self._synthesis(found)
        except errors.ShipmateError as error:
            told = "several results could not be brought together; they stand side by side"
            cause = f"{type(error).__name__}: {error}"
            self.agent.log.write("synthesis", told, level="warn", results=len(found), cause=cause)
            labels = [f"{number}. {one.label}" for number, one in enumerate(found, 1)]
            words = "\n".join(["Nobody has compared these results: read each of them above.", *labels])
        words = f"# All {len(found)} tasks together\n\n{words}\n\nCoverage: {_coverage(found)}"
        whose, last = NOBODYS, theirs[-1]
        for one in theirs:
            whose |= ANYBODYS if one.origin is None else one.origin
        whole = replace(last, content=f"{last.content}\n\n{words}", origin=whose)
        return [whole if one is last else one for one in results]

    async def _synthesis(self, results: Sequence[Worker]) -> str:
        """Return the fast model's synthesis of the results. Raises `errors.ModelError` and `LimitReached`."""
        models, budget = self.parent.models, min(400 + 120 * len(results), 2_000)
        model = models.fast_model or models.name
        sent = sent_manner("low", "off", partial(models.windows.takes, model))
        shown = [f"## Result {number}: {one.evidence}" for number, one in enumerate(results, 1)]
        asked = [f"{len(results)} investigations.", *shown, f"Coverage: {_coverage(results)}"]
        request = ModelRequest(
            model=model,
            max_tokens=min(budget + sent.room, models.windows.max_tokens(model, sent.room)),
            system=({"type": "text", "text": PROMPTS["synthesis"].format(budget=budget)},),
            messages=({"role": "user", "content": [{"type": "text", "text": "\n\n".join(asked)}]},),
            purpose="synthesis",
            effort=sent.effort,
            thinking=sent.thinking,
        )
        size, most = models.estimator.request(request), request.max_tokens
        with self.reserved(size + most, _usd(models.prices, model, size, most)):
            reply = await reply_of(models.model.stream(request))
        spent = sum(usage_object(reply.usage).values())
        self.spend(spent, models.prices.at_most(model, reply.usage, reply.cost_usd))
        models.learn(request, reply)
        words = self.agent.redact(blocks.plain_text(reply.content)).strip()
        if not words or reply.stop_reason == "refusal":
            raise errors.StreamBroken("the fast model said nothing of the results")
        return words


def _usd(prices: PriceTable, model: str, prompt: int, answer: int) -> float:
    """Return the max cost in USD of a call with this many input and output tokens, if none are cached."""
    return prices.at_most(model, Usage(cache_write_tokens=prompt, output_tokens=answer))


def _coverage(results: Sequence[Worker]) -> str:
    said = f"{sum(one.status == 'whole' for one in results)} of {len(results)} tasks came to their end"
    short = {"cut": "stopped at a limit", "silent": "without a summary", "failed": "failed"}
    for status, words in short.items():
        if numbers := [str(at) for at, one in enumerate(results, 1) if one.status == status]:
            said += f"; {words}: {', '.join(numbers)}"
    return said + "."


@dataclass(eq=False)
class Worker(ModelWrapper):
    """Runs the task that a tool call started, and reports its progress. As the model of the task's loop, it calls the turn's
    model within the task's limits. It sets `first_token` when the model begins to answer.
    """

    tasks: TurnTasks
    chat: Chat
    call: str
    ordered: events.Ordered
    first_token: asyncio.Event
    stop: str = ""
    """Reason why the model must not be called again, or "". The reason completes the sentence “stopped: …”."""
    status: TaskStatus = "failed"
    evidence: str = ""
    """Description of the task and its result for a synthesis."""
    _seconds: float = 0.0
    """Seconds that the task has worked, without its waits for people."""
    waits: int = 0
    """Number of this task's questions that people have not answered yet."""
    _refused: int = 0
    _last_call: str = ""
    """Name of the limit that allows no further model call; "" if another call fits."""
    _prefix: list[Message] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        parent = self.tasks.parent
        self.label, self.id = self.ordered.label, self.ordered.inbound.request_id
        self._agent, self._around, self._limits = (
            parent.agent,
            context.current(),
            parent.agent.settings.subagents,
        )
        self._models = replace(parent.models, purpose="task")
        if self.ordered.mode == "fork":
            shown = self.tasks.chat.context.shown()
            calls = blocks.tool_calls(shown[-1]["content"])
            results = [ToolResult(call.id, PLACEHOLDER).block for call in calls]
            shown.append({"role": "user", "content": results})
            same = self._models.name == parent.models.name
            self._prefix = shown if same else blocks.without_thinking(shown)
        self._tell("queued")

    def _loop(self) -> Loop:
        tasks, agent, chat, around = self.tasks, self._agent, self.chat, self._around
        parent, forks, registry = tasks.parent, bool(self._prefix), agent.registry.without(BARRED)
        fit = Fit(
            chat,
            self._models,
            agent,
            lambda data: tasks.chats.append(Fact(chat.key, data, self.id)),
            prefix=self._prefix,
            purpose="subagent",
        )
        seen = around.injection if forks else None
        older = OlderMessages(around.request_id, fit, task=self.id, seen=seen)

        async def frame() -> Frame:
            if forks:
                return Frame(Frozen(""), parent.frame.system, (tuple(parent.tools),))
            # The system prompt is the same for all fresh tasks, so that the provider caches it.
            words = f"{PROMPTS['fresh']}\nprojectRoot: {agent.settings.root}"
            return Frame(
                Frozen(""), [{"type": "text", "text": words, "cache_control": blocks.CACHE}], registry.forms
            )

        async def mask_old(fit: Fit) -> None:
            fit.mask_old("size", above=fit.budget().limit)

        return Loop(
            turn=self.id,
            fit=fit,
            chats=tasks.chats,
            event_log=tasks.event_log,
            model=self,
            frame=frame,
            tell=self._told,
            before_asking=mask_old,
            dispatcher=agent.dispatcher.narrowed(registry, lambda judge: partial(self._call, judge)),
            # The task's calls have the person, chat and permissions of the turn.
            context=lambda: replace(
                around, reply=None, injection=older, view=self._view, approvals=partial(TaskApprovals, self)
            ),
            most_steps=self._limits.max_model_calls + 1,
        )

    async def run(self, slots: asyncio.Semaphore) -> str:
        """Run the task once a slot is free, report its end, and return its report for the turn."""
        try:
            async with slots:
                mode, log = self.ordered.mode, self._agent.log
                log.write("task", "a task begins", mode=mode, tool_use_id=self.call)
                self._tell("started")
                await self._within_time()
            running = self.chat.context.running
            words, limit = running.words if running is not None else "", ""
        except LimitReached as error:
            said = (one.message for one in reversed(self._entries) if one.message["role"] == "assistant")
            words = next(filter(str.strip, (blocks.plain_text(one["content"]) for one in said)), "")
            limit = error.words
        except errors.ShipmateError as error:
            declined = isinstance(error, Refused)
            cause = "The language model declined this task." if declined else error.for_model
            self.ended("failed", cause, error.person)
            return await self._report(cause)
        self.ended("ended", f"It was {limit}." if limit else "", say("progress.limit") if limit else "")
        words = self._agent.redact(words).strip()
        if len(words) > SUMMARY:
            words = text.head(words, SUMMARY).rstrip() + " … (cut: the whole is in the transcript)"
        if limit:
            known = f"What it said last:\n{words}" if words else "It had said nothing yet."
            self.status = "cut"
            return await self._report(f"({limit}) {known}")
        self.status = "whole" if words else "silent"
        return await self._report(words or "(no summary)")

    async def _within_time(self) -> None:
        """Run the task's loop. Waits for people do not count towards the time limit. Raises `LimitReached`."""
        loop, clock = asyncio.create_task(self._loop().run()), self._agent.clock
        try:
            while not loop.done():
                if self._seconds >= self._limits.max_seconds:
                    raise at_limit(f"{self._limits.max_seconds:g} seconds")
                since = clock.monotonic()
                await ends_within(TICK, loop, clock)
                self._seconds += 0.0 if self.waits else clock.monotonic() - since
            await loop
        finally:
            await cancel_all([loop])
        if self._last_call and len(self._entries) > 2:
            raise at_limit(self._last_call)

    # ------------------------------------------------------------ reports

    def ended(self, kind: Literal["ended", "failed", "stopped"], error: str, told: str = "") -> None:
        """Report the end of the task. `error` goes to the log; `told` is the sentence for people."""
        totals, _ = _totals(self.chat, self._models.prices)
        self._agent.log.write(
            "task",
            f"the task has {kind}",
            level="warn" if error else "info",
            duration=self._seconds * 1000,
            tool_use_id=self.call,
            error=error or None,
            model_calls=totals.calls,
            tool_calls=len(self._results),
            usage={name: totals.tokens[name] for name in TOKENS},
            cost_usd=None if totals.unpriced else round(totals.cost, 6),
            artifact=self.id,
        )
        self._tell(kind, told)

    def _tell(self, kind: TaskState, error: str = "") -> None:
        running, most, now = self.chat.context.running, self._limits.max_model_calls, self._agent.clock.now()
        # The answer that the event `model` reports is not logged yet.
        calls = (len(running.answers) if running is not None else 0) + (kind == "model")
        event = TaskEvent(kind, self.id, self._around.request_id, now, self.label, calls, most, error)
        self._agent.task_events(event)

    async def _report(self, content: str) -> str:
        """Write the task's transcript. Return the report: `content` (the task's summary, or the reason why there is none)
        and the task's usage. If the disk refuses the transcript, the report says so.
        """
        messages, agent = [one.message for one in self._entries], self._agent
        totals, _ = _totals(self.chat, self._models.prices)
        tokens = f"{totals.tokens.total():,}"
        head = f"Task “{self.label}” ({self.ordered.mode}) of the turn {self._around.request_id}"
        said = (f"== {one['role']}\n{words_of(one['content'])}" for one in messages)
        steps = f"all its steps: read_artifact {self.id}"
        try:
            await agent.artifacts.put(
                agent.redact("\n\n".join([head, *said])),
                chat_key=self._around.chat_key,
                request_id=self._around.request_id,
                tool=TASK,
                tool_use_id=self.call,
                artifact_id=self.id,
                origin=self.origin,
            )
        except errors.StorageError as error:
            steps = "its steps could not be kept"
            agent.log.write("storage", "a task's transcript is not kept", level="error", cause=str(error))
        cost = "unknown price" if totals.unpriced else f"${totals.cost:.4f}"
        used = dict.fromkeys(call.name for one in messages for call in blocks.tool_calls(one["content"]))
        failed = sum(bool(block.get("is_error")) for block in self._results)
        self.evidence = (
            f"{self.label}\nTask: {text.shorten_middle(self.ordered.inbound.text, SUMMARY)}\n"
            f"Tools used: {', '.join(used) or 'none'}. Failed calls: {failed}. Tokens: {tokens}.\n\n"
            f"{text.shorten_middle(content, SUMMARY)}"
        )
        return (
            f"{content}\n\n[task: {totals.calls} model calls, {len(self._results)} tool calls, {tokens} tokens, "
            f"{cost}, {self._seconds:.0f} s; {steps}]"
        )

    @property
    def origin(self) -> Provenance:
        """Return the sources whose text the task's answer may contain."""
        return taint.seen(self._view())

    @property
    def _entries(self) -> Sequence[ContextEntry]:
        running = self.chat.context.running
        return running.entries if running is not None else ()

    @property
    def _results(self) -> list[Json]:
        blocks = (block for one in self._entries for block in one.message["content"])
        return [block for block in blocks if block["type"] == "tool_result"]

    def _view(self) -> list[Message]:
        # The turn's model wrote the task's instructions, so the sources of the turn are sources of the task.
        context = self.chat.context
        return [*context.older(), *self._around.view(), *context.current()[1:]]

    # ------------------------------------------------------------ model and tools of the task's loop

    async def _told(self, inbound: Inbound) -> events.Told:
        agent, words = self._agent, inbound.text
        content = []
        if self.ordered.mode == "fork":
            words = PROMPTS["fork"].format(prompt=words)
        else:
            now = quotes.iso(int(agent.clock.now() * 1000))
            facts = tags.dumped({"requestId": self._around.request_id, "time": now})
            content = [tags.Tag(tags.CONTEXT, facts, nonce=tags.nonce(agent.ids.ulid())).block]
        message: Message = {"role": "user", "content": [*content, {"type": "text", "text": words}]}
        return events.Told(message, (inbound.request_id,))

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the answer to a request (see `contracts.model.Model`). If no call fits after this one, ask the model for
        its summary and ignore tool calls. Raises `LimitReached`.
        """
        if self.stop:
            raise LimitReached(f"stopped: {self.stop}")
        models, name = self._models, request.model
        size = models.estimator.request(request)
        most, self._last_call = self._next_call(size, request.max_tokens, name)
        request = replace(request, max_tokens=most)
        if self._last_call and self._entries[1:]:
            *before, newest = request.messages
            content = [*newest["content"], {"type": "text", "text": tags.LAST_STEP}]
            request = replace(request, messages=(*before, {**newest, "content": content}))
        with self.tasks.reserved(size + most, _usd(models.prices, name, size, most)):
            async for piece in self.model.stream(request):
                self.first_token.set()
                if isinstance(piece, ModelReply):
                    charged = models.prices.at_most(name, piece.usage, piece.cost_usd)
                    self.tasks.spend(sum(usage_object(piece.usage).values()), charged)
                    self._tell("model")
                    if self._last_call:
                        left = [one for one in piece.content if one.get("type") != "tool_use"]
                        piece = replace(piece, content=left, cut=frozenset())  # noqa: PLW2901
                yield piece

    def _next_call(self, prompt: int, most: int, model: str) -> tuple[int, str]:
        """Return the output limit for a call with `prompt` input tokens, and the limit that leaves no room for a
        further call ("" if there is room). Raises `LimitReached` if not even this call fits.
        """
        limits, prices = self._limits, self._models.prices
        totals, charged = _totals(self.chat, prices)
        usd, left = (
            _usd(prices, model, prompt, ANSWER_TOKENS),
            limits.max_tokens - totals.tokens.total() - prompt,
        )

        def reached(calls: int, least: int) -> str:
            if totals.calls + calls > limits.max_model_calls:
                return f"{limits.max_model_calls} model calls"
            if left < least:
                return f"{limits.max_tokens:,} tokens"
            too_much = limits.max_usd is not None and charged + calls * usd > limits.max_usd
            return f"${limits.max_usd:.2f}" if too_much else ""

        if limit := reached(1, LEAST_ANSWER):
            raise at_limit(limit)
        return min(most, left), reached(2, prompt + 2 * ANSWER_TOKENS)

    async def _call(
        self, judge: CallWrapper, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Run a tool call of the task inside the same wrapper as the turn's calls. Stop the task after `REFUSALS` denied calls."""
        ran = False

        async def through() -> ToolResult:
            nonlocal ran
            ran = True
            return await run()

        result = await judge(call, through)
        self._refused += not ran
        if self._refused >= REFUSALS:  # more attempts would be denied too
            self.stop = "its calls were refused again and again"
        return result


@dataclass(frozen=True, slots=True)
class TaskApprovals:
    """Implements `contracts.approvals.Approvals` for a task. Each question to a person names the task. If the person writes
    a message instead of a decision, the task stops after this step.
    """

    worker: Worker
    approvals: Approvals

    async def decide(self, *asked: Approval) -> Verdict:
        label = escaped(self.worker.label)
        self.worker.waits += 1
        try:
            verdict = await self.approvals.decide(*(replace(one, task=label) for one in asked))
        finally:
            self.worker.waits -= 1
        if verdict.ended == "steered":
            self.worker.stop = "the person wrote something new, which comes first"
        return verdict
