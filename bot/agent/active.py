"""The turn that is running: what it has said and done so far, and the view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from bot import errors, text
from bot.agent.ledger import Ledger
from bot.context import blocks, estimate, prompt, replay
from bot.context.replay import TurnStatus
from bot.context.store import AgentContextStore, Entry, Turn, without_thinking
from bot.contracts import ArchiveLine, Clock, Json, Log, Message, ModelReply, Redact, Reply, Sent, TurnRequest

INJECTED_TOKENS = 30_000
"""What injected history may cost one run, in estimated tokens."""
INJECTED_LINE = 20_000
"""Characters of one injected line; a longer one is shortened in the middle."""
INTERRUPTED = "Interrupted: the turn was stopped while this ran. It may or may not have taken effect."


class TrackedReply:
    """`contracts.Reply` that remembers what became of the last message, and shows none that is not on file."""

    def __init__(self, inner: Reply, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self.ids: list[str] = []
        self.delivered = 0
        self.settled = False

    async def send(self, words: str, *, after: Awaitable[object] | None = None) -> list[Sent]:
        on_file = asyncio.gather(self._ledger.flush(), *([after] if after is not None else ()))
        try:
            sent = await self._inner.send(words, after=on_file)
        except errors.DeliveryUncertain:
            # It may be in the chat: sending the answer again as plain text could show it twice.
            self.settled = True
            raise
        except errors.DeliveryFailed as error:
            self.settled = False
            self.delivered += isinstance(error, errors.DeliveryPartial)
            raise
        self.ids += [part.message_id for part in sent]
        self.delivered += 1
        self.settled = True
        return sent


class ActiveTurn:
    """One turn from its user message to its end. Every message is written to the transcript as it is added.

    `entries` is the full truth; `view` is what the model is shown of it.
    """

    def __init__(
        self,
        request: TurnRequest,
        store: AgentContextStore,
        ledger: Ledger,
        *,
        clock: Clock,
        log: Log,
        max_injected: int,
        redact: Redact = str,
    ) -> None:
        self.request = request
        self.store = store
        self.reply = TrackedReply(request.reply, ledger) if request.reply is not None else None
        self.view: list[Message] = []
        self._loaded: list[tuple[int, Message]] = []
        self._entries: list[Entry] = []
        self._sources: tuple[str, ...] = (request.request_id,)
        self._ledger = ledger
        self._clock = clock
        self._log = log
        self._max_injected = max_injected
        self._redact = redact
        self._injected_count = 0
        self._injected_keys: set[tuple[int, str, str]] = set()
        self._began = False
        self._began_at: str | None = None
        self._cut_off: replay.CutOff | None = None

    def begin(self) -> None:
        """Write the user's message. It is in the transcript before the answer; the model need not wait for it."""
        self._began = True
        self._began_at = self._ledger.tip
        self._ledger.mark("turn_start", self.request.request_id)
        self._note(prompt.user_message(self.request, self._now()))

    def resume(self, cut_off: replay.CutOff) -> None:
        """Go on with a turn that a crash cut off, as its transcript tells it."""
        self._began = True
        self._cut_off = cut_off
        self._began_at = cut_off.parent
        self._sources = cut_off.sources
        self._entries = list(cut_off.entries)
        self.view = list(cut_off.view)
        for data in cut_off.loaded:
            self._load([int(ts) for ts in data["ts"]], data["messages"])
            self._injected_keys |= {(int(ts), role, key) for ts, role, key in data["keys"]}
        self._ledger.rewind(self._entries[-1].uuid)
        if self.reply is not None and self.request.delivered:
            self.reply.ids = list(self.request.delivered)
            self.reply.delivered = 1
            # What the person added after the last answer still wants one.
            self.reply.settled = "sources" not in cut_off.facts

    def last_reply(self) -> ModelReply | None:
        """Where a resumed turn ends with a reply of the model: that reply."""
        if self._cut_off is None or self._entries[-1].message["role"] != "assistant":
            return None
        facts = self._cut_off.facts
        content = list(self._entries[-1].message["content"])
        return ModelReply(content, facts.get("stopReason"), cut=frozenset(facts.get("cut", ())))

    def known_results(self, reply: ModelReply) -> dict[str, Json]:
        """The results of calls of a cut-off step that must not run again: they did run, or may have."""
        assert self._cut_off is not None  # noqa: S101 - asked for after `last_reply` alone
        known = dict(self._cut_off.results)
        fresh = [one for one in self.request.delivered if one not in self._cut_off.delivered]
        for call in blocks.tool_uses({"content": reply.content}):
            if call["id"] in known or call["id"] not in self._cut_off.started:
                continue
            if call["name"] != "chat_send":
                known[call["id"]] = _result(call, INTERRUPTED, failed=True)
            elif fresh:
                known[call["id"]] = _result(call, f"Delivered (message id {', '.join(fresh)}).")
        return known

    async def add_reply(self, reply: ModelReply) -> list[Json]:
        """Append what the model said; returns its tool calls, which may be run: the step is on file. Of an answer
        without calls nobody has to wait for that but who sends it.
        """
        content = blocks.redacted(reply.content, self._redact)
        content = [block for block in content if block.get("type") != "text" or block["text"].strip()]
        if any(block.get("type") not in blocks.THINKING for block in content):
            facts = {"stopReason": reply.stop_reason, "cut": sorted(reply.cut)}
            self._note({"role": "assistant", "content": content}, facts)
        calls = [block for block in content if block.get("type") == "tool_use"]
        if calls:
            await self._ledger.flush()
        return calls

    def last_words(self) -> str:
        """The text with which the turn ends: an answer that paused and went on is one answer."""
        words: list[str] = []
        for entry in reversed(self._entries):
            if entry.message["role"] != "assistant":
                break
            words.insert(0, blocks.plain_text(entry.message["content"]))
        return "".join(words)

    async def add_results(self, results: Sequence[Json]) -> None:
        """Append the results of all tool calls of the last reply, as one message."""
        await self._add({"role": "user", "content": list(results)})

    async def take_more(self) -> None:
        """Take up what the same person has sent meanwhile: part of this turn, answered with it."""
        if self.request.take_more is None:
            return
        for inbound in self.request.take_more():
            self._sources += (inbound.request_id,)
            more = TurnRequest(inbound.request_id, self.request.chat_key, inbound=inbound)
            await self._add(prompt.user_message(more, self._now()), {"sources": [inbound.request_id]})
            if self.reply is not None:
                self.reply.settled = False
            self._log.write("steer", "a message joined the running turn", joined=inbound.request_id)

    async def started(self, call: Json) -> None:
        """A tool that does more than read begins."""
        self._ledger.mark("meta", self.request.request_id, {"started": call["id"]})
        await self._ledger.flush()

    async def finished(self, result: Json) -> None:
        """It has ended, with this result."""
        delivered = list(self.reply.ids) if self.reply is not None else []
        self._ledger.mark("meta", self.request.request_id, {"result": result, "delivered": delivered})
        await self._ledger.flush()

    async def end(self, status: TurnStatus, notice: str | None = None) -> None:
        """Close the turn: tool calls without results get one, and the store takes the turn unless withdrawn.

        One that was stopped before it began leaves nothing behind. Everything is done before the first await, so
        that an end that is interrupted is an end all the same. `notice` is what the person will be told of it:
        after a crash in between they still are.
        """
        if not self._began:
            return
        if self._entries and blocks.tool_uses(self._entries[-1].message):
            self._note(blocks.interrupted_results(self._entries[-1].message, INTERRUPTED))
        self._ledger.mark("turn_end", self.request.request_id, {"status": status, "notice": notice})
        if status == "withdrawn":
            self._ledger.rewind(self._began_at)
        else:
            turn = Turn(self.request.request_id, self._sources, tuple(self._entries))
            self.store.commit(turn, strip_thinking=bool(self._injected_count))
            if dropped := self.store.over_cap():
                self._cut(dropped, "message_cap")
        await self._ledger.flush()

    async def cut(self, dropped: list[str] | str, reason: str) -> None:
        """Declare an epoch in which the oldest part of the store goes (`"all"`: all of it)."""
        self._cut(dropped, reason)
        # What this turn thought so far stands behind a changed position now, in every later turn too.
        self._entries = list(without_thinking(self._entries))
        await self._ledger.flush()

    def _cut(self, dropped: list[str] | str, reason: str) -> None:
        before = len(self.store)
        self._ledger.mark("boundary", None, {"reason": reason, "dropped": dropped})
        if isinstance(dropped, str):
            self.store.clear()
        else:
            self.store.drop(dropped)
        self.strip_thinking()
        self._log.write(
            "compaction",
            f"history cut: {reason}",
            level="info" if reason == "message_cap" else "warn",
            reason=reason,
            messages_before=before,
            messages_after=len(self.store),
        )

    def strip_thinking(self) -> None:
        """Take thinking blocks out of the view: what stands before them has changed."""
        self.view = blocks.without_thinking(self.view)

    # ------------------------------------------------------------ injection (`tools.context.Injection`)

    @property
    def injected(self) -> list[Message]:
        """The injected older turns, in time order."""
        return [message for _, message in self._loaded]

    def room(self) -> int:
        if estimate.tokens(self.injected) >= INJECTED_TOKENS:
            return 0
        return self._max_injected - self._injected_count

    def in_view(self, line: ArchiveLine) -> bool:
        meta = line.meta or {}
        request_id = str(meta.get("requestId") or "")
        # ULIDs sort by time: what came in after this message is not history yet.
        if request_id >= self.request.request_id:
            return True
        if not {request_id, replay.line_key(line)}.isdisjoint(self._visible()):
            return True
        inbound = self.request.inbound
        current = (
            inbound is not None and inbound.message_id is not None and line.message_id == inbound.message_id
        )
        return (current and line.role == "user") or _key(line) in self._injected_keys

    def _visible(self) -> set[str]:
        return (self.store.sources() | set(self._sources)) - {""}

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        taken: list[ArchiveLine] = []
        budget = INJECTED_TOKENS - estimate.tokens(self.injected)
        for line in reversed(lines[-self.room() :]):
            short = line.model_copy(update={"text": text.shorten_middle(line.text, INJECTED_LINE)})
            budget -= estimate.text_tokens(short.text) + 2 * estimate.BLOCK_TOKENS
            if budget < 0 and taken:
                break
            taken.insert(0, short)
        messages = prompt.loaded_messages(taken)
        keys = [_key(line) for line in lines[len(lines) - len(taken) :]]
        self._load([line.ts for line in taken], messages)
        self._injected_keys |= set(keys)
        self.strip_thinking()
        record = {
            "before": self._entries[0].uuid,
            "messages": messages,
            "ts": [line.ts for line in taken],
            "keys": [list(key) for key in keys],
        }
        self._ledger.mark("injection", self.request.request_id, record)
        await self._ledger.flush()
        self._log.write("injection", f"{len(messages)} older messages loaded", count=len(messages))
        return taken

    def _load(self, times: list[int], messages: list[Message]) -> None:
        # Stable, and what is loaded later is as a rule older: lines of one moment keep their order.
        loaded = list(zip(times, messages, strict=True))
        self._loaded = sorted([*loaded, *self._loaded], key=lambda pair: pair[0])
        self._injected_count += len(messages)

    def drop_oldest_injected(self) -> bool:
        """Give up the older half of what was injected; False where nothing is left to give up."""
        if not self._loaded:
            return False
        self._loaded = self._loaded[(len(self._loaded) + 1) // 2 :]
        self.strip_thinking()
        return True

    def shorten_results(self, at_least: int = 500) -> bool:
        """Cut the longest tool results of this turn to a quarter; False where all are short already."""
        longest = blocks.longest_result(self.view)
        if longest <= at_least:
            return False
        self.view = blocks.without_thinking(blocks.shorten_results(self.view, max(at_least, longest // 4)))
        return True

    # ------------------------------------------------------------ inside

    async def _add(self, message: Message, data: Json | None = None) -> None:
        self._note(message, data)
        await self._ledger.flush()

    def _note(self, message: Message, data: Json | None = None) -> None:
        uuid = self._ledger.message(self.request.request_id, message, data)
        self._entries.append(Entry(uuid, message))
        self.view.append(message)

    def _now(self) -> int:
        return int(self._clock.now() * 1000)


def _result(call: Json, words: str, *, failed: bool = False) -> Json:
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": words}
    return result | {"is_error": True} if failed else result


def _key(line: ArchiveLine) -> tuple[int, str, str]:
    return line.ts, line.role, line.message_id or line.text
