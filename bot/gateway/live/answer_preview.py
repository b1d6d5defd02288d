"""An answer that is shown while it is being written: created once, changed in place, and at last made the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import ChannelSettings, Manifest, Streaming
from bot.contracts.environment import Redact
from bot.contracts.outbound import OutboxRow
from bot.gateway.address import Address
from bot.gateway.live.message import LiveDeps, LiveMessage

GOES_ON = " …"
"""Behind the words of an answer that is not complete."""
INTERRUPTED = "\n\n(interrupted)"
"""Behind those of one that never will be."""
LONG = 2_000
"""Characters from which on the parts of a text are counted where nothing else waits for it."""


@dataclass(frozen=True, slots=True)
class Previewing:
    """`after`: by channel, how many seconds of writing an answer takes before it is shown; those that show none are not
    in it. `settled`: what of a text that goes on is sure to stand in the whole, redacted.
    """

    after: Mapping[str, float]
    settled: Redact

    @classmethod
    def of(cls, channels: Mapping[str, ChannelSettings], settled: Redact) -> Previewing:
        """As the settings of the channels say."""
        found = {name: getattr(settings, "streaming", None) for name, settings in channels.items()}
        on = {name: one for name, one in found.items() if isinstance(one, Streaming) and one.enabled}
        return cls({name: one.after_ms / 1000 for name, one in on.items()}, settled)


NONE = Previewing({}, str)


@dataclass(slots=True, eq=False)
class _Preview:
    to: Address
    message: LiveMessage
    words: Callable[[], str] = str
    task: asyncio.Task[None] | None = None
    busy: bool = False
    halted: bool = False


class Previews:
    """One for each turn at most. What is shown is the beginning of what the answer will be, redacted: its end is held
    back where a secret could begin in it.
    """

    def __init__(self, deps: LiveDeps, manifests: Mapping[str, Manifest], previewing: Previewing) -> None:
        self._deps = deps
        self._manifests = manifests
        self._previewing = previewing
        self._open: dict[str, _Preview] = {}

    def begin(self, to: Address, words: Callable[[], str]) -> None:
        """An answer is being written: `words` gives what there is of it, for as long as it stands open."""
        edits, after = self._manifests[to.channel].edits, self._previewing.after.get(to.channel)
        if edits is None or after is None:
            return
        preview = self._open.get(to.request_id)
        if preview is None:
            preview = self._open[to.request_id] = _Preview(to, LiveMessage(to, "preview", self._deps))
        preview.words = words
        if preview.task is None:
            preview.task = asyncio.create_task(self._show(preview, after, edits.every[to.chat_type]))
            preview.task.add_done_callback(self._done)

    async def take(self, to: Address) -> str | None:
        """A reply is ready: the message in whose place it comes, None where it is one of its own. The reply's row ends the
        preview's.
        """
        preview = self._open.pop(to.request_id, None)
        if preview is None:
            return None
        await self._halt(preview)
        return await preview.message.place()

    async def end(self, to: Address) -> None:
        """Its turn is over: an answer that is still open will not be complete any more, and says so."""
        preview = self._open.pop(to.request_id, None)
        if preview is None:
            return
        await self._halt(preview)
        await preview.message.last(preview.message.words.removesuffix(GOES_ON) + INTERRUPTED)

    def leave(self, to: Address) -> None:
        """Its turn goes on in another process, and so will its preview."""
        preview = self._open.pop(to.request_id, None)
        if preview is not None:
            _stop(preview)

    async def adopt(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """After a crash: what was shown of an answer is this process's to go on with."""
        for row in rows:
            if row.kind != "preview" or not row.open:
                continue
            if row.state == "ready":
                await self._deps.outbox.end_live(row)
            else:
                self._open[to.request_id] = _Preview(to, LiveMessage(to, "preview", self._deps, row))

    async def close(self) -> None:
        """Show nothing more."""
        tasks = [preview.task for preview in self._open.values() if preview.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self, preview: _Preview, after: float, every: float) -> None:
        await self._deps.clock.sleep(after)
        while not preview.message.over and not preview.halted:
            # Nothing is shown before an earlier answer that waits.
            if not self._deps.outbox.waits(preview.to.chat_key) and (words := await self._readable(preview)):
                preview.busy = True
                await preview.message.show(words)
                preview.busy = False
                if preview.halted:
                    return
            await self._deps.clock.sleep(every)

    async def _readable(self, preview: _Preview) -> str:
        """The words to show now; "" where there are none, or more than one message holds."""
        words = self._previewing.settled(text.clean(preview.words()))
        # What a reader sees as one character may be half of one.
        words = words[: text.border(words, len(words) - 1)].rstrip()
        if not words:
            return ""
        words += GOES_ON
        split = self._deps.outbox.split
        parts = (
            split(preview.to, words)
            if len(words) <= LONG
            else await asyncio.to_thread(split, preview.to, words)
        )
        return words if len(parts) == 1 else ""

    async def _halt(self, preview: _Preview) -> None:
        """Nothing more is shown; what is on its way is waited for, so that it does not come after what follows."""
        _stop(preview)
        if preview.task is not None:
            await asyncio.wait([preview.task])

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._deps.log.write("error", f"a preview failed: {type(error).__name__}: {error}", level="error")


def _stop(preview: _Preview) -> None:
    preview.halted = True
    if preview.task is not None and not preview.busy:
        preview.task.cancel()
