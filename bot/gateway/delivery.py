"""Delivers what is said to chats: writes it down first, sends it once, and tells what came of it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from bot import errors, text
from bot.contracts.agent import PriorReply
from bot.contracts.approvals import QuestionButtons
from bot.contracts.channel import Channel, Reacts, Suspends, Titles
from bot.contracts.environment import Log, Redact, off_loop
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboxRow, OutgoingFile, Sent
from bot.core import outgoing_files
from bot.core.long_blocks import LongBlocks, Shortened
from bot.gateway.live.message import Previews, Progress, unseen
from bot.gateway.outbox.files import OutgoingFiles
from bot.gateway.outbox.rows import Batch, WriteRows
from bot.gateway.outbox.worker import OutboxWorker
from bot.telemetry import redaction
from bot.words import say

Kind = Literal["reply", "notice"]
SIGN_SECONDS = 5.0
SHORT = 2_000
"""Characters that are split where everything else runs: that takes a few milliseconds."""
MISSED_CHARS = 60


def _unheard(_ids: Sequence[str]) -> None:
    """Nobody wants to know."""


class Delivery:
    """Puts texts into the outbox as redacted parts that each fit, and shows that work is being done."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        journal: Journal,
        outbox: OutboxWorker,
        files: OutgoingFiles,
        previews: Previews,
        progress: Progress,
        long_blocks: LongBlocks,
        redact: Redact,
        log: Log,
    ) -> None:
        self._long_blocks = long_blocks
        self._channels = channels
        self._journal = journal
        self._redact = redact
        self._log = log
        self.outbox = outbox
        self._files = files
        self._previews = previews
        self.progress = progress
        self._leaving: set[asyncio.Task[Any]] = set()
        self._sending_once = asyncio.Lock()

    async def open(self) -> None:
        """Take up what an earlier process left, and send from now on what has to wait."""
        await self.outbox.load()
        self.outbox.start()

    async def close(self) -> None:
        """Begin nothing more; what still waits is in the journal."""
        leaving = list(self._leaving)  # those that nobody waits for any more
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await self._previews.close()
        await self.progress.close()
        await self.outbox.close()

    async def send(
        self,
        to: Address,
        words: str,
        *,
        kind: Kind = "reply",
        must_arrive: bool = False,
        begun: Callable[[Sequence[str]], object] = _unheard,
        step_id: str | None = None,
        repeat_of: str | None = None,
        buttons: QuestionButtons | None = None,
        while_open: Sequence[str] = (),
        place: str | None = None,
        files: Sequence[OutgoingFile] = (),
    ) -> list[Sent]:
        """Deliver one message, in parts where it is long, with files below it, or files alone. Raises `errors.DeliveryFailed`; with
        `errors.FileRefused` nothing was sent.

        A reply that was delivered is archived; a notice never is, since the model must not come to see it. A reply,
        and a notice that `must_arrive`, is repeated and says so where nobody can tell whether it arrived;
        where the platform lets it out only later it goes out by itself: `errors.DeliveryDeferred`. So does a reply
        that comes after it in the same chat, and what is cancelled before it is in the chat. `begun` hears the ids that it
        has in the outbox, before it is there. `step_id` is the tool call that says it, `repeat_of` the row that may have
        arrived with these words, `place` the message in whose place the first part comes, where that can be changed. `while_open` are lines of a question
        that hold only until it is decided.
        """
        if buttons is not None:
            self._previews.bury(to)
        submit = partial(
            self.outbox.submit,
            to,
            kind=kind,
            must_arrive=must_arrive,
            repeat_of=repeat_of,
            step_id=step_id,
            buttons=buttons,
            while_open=[self._redact(text.clean(line)) for line in while_open],
        )
        return await self._delivered(
            self._submitted(to, words, kind, begun, submit, must_arrive=must_arrive, place=place, files=files)
        )

    def shows_long_in_files(self, channel: str) -> bool:
        """True where a channel has limits of what can be read in a message, and takes files."""
        return self._long_blocks.applies(channel)

    async def conclude(
        self, to: Address, words: str, write: WriteRows, buttons: QuestionButtons | None = None
    ) -> None:
        """Say the last words about an inbound, as a notice: `write` writes its end and the rows of that in one transaction.
        Returns once they are in the chat, or go out by themselves, or never will. Cancelled, it writes all the same.
        """
        if not words:
            await write(())
            return
        with contextlib.suppress(errors.DeliveryFailed):  # it is in the log already
            await self._delivered(self._concluded(to, words, write, buttons))

    async def send_once(
        self, to: Address, words: str, what: str, buttons: QuestionButtons | None = None
    ) -> asyncio.Task[bool] | None:
        """Send a notice that is on file when this returns, once for each `what` of its request; the outbox alone looks after it. The
        task says whether it has arrived; None where it was there before. Raises `errors.StorageError` where it cannot be known.
        """
        await self.outbox.load()
        parts = await self._parts(to, words, ())
        async with self._sending_once:  # asked for twice at once, it must find itself on file
            batch = await self.outbox.enqueue_once(to, parts, what, buttons)
            if batch is None:
                return None
            if batch.written is not None:
                await batch.written
        seeing_off = asyncio.create_task(self._seen_off(batch))
        self._leaving.add(seeing_off)
        seeing_off.add_done_callback(self._leaving.discard)
        return seeing_off

    async def _seen_off(self, batch: Batch) -> bool:
        try:
            await self.outbox.outcome(batch)
        except errors.DeliveryFailed:  # it is in the log already
            return False
        except asyncio.CancelledError:
            await self.outbox.leave(batch)
            raise
        return True

    async def _delivered(self, submitting: Coroutine[Any, Any, Batch]) -> list[Sent]:
        submitted = asyncio.ensure_future(submitting)
        try:
            return await self.outbox.outcome(await asyncio.shield(submitted))
        except asyncio.CancelledError:
            leaving = asyncio.ensure_future(self._leave(submitted))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            # Cancelled once more, the caller goes: it is seen to all the same.
            await asyncio.shield(leaving)
            raise

    async def _leave(self, submitted: Future[Batch]) -> None:
        with contextlib.suppress(errors.DeliveryFailed):
            await self.outbox.leave(await submitted)

    async def _submitted(
        self,
        to: Address,
        words: str,
        kind: Kind,
        begun: Callable[[Sequence[str]], object],
        submit: Callable[..., Batch],
        *,
        must_arrive: bool,
        place: str | None,
        files: Sequence[OutgoingFile],
    ) -> Batch:
        for file in files:
            await self._check(to, file)
        await self.outbox.load()
        missed = self._untold(to) if must_arrive or kind == "reply" else []
        said = await self._said(words, missed)
        shorter = await self._shortened(to, said) if kind == "reply" else Shortened(said)
        parts = await self._split(to, shorter.words)
        if not (parts or files):
            raise errors.DeliveryFailed("there is nothing to send: the text is blank")
        # A preview that was taken is nobody's: what may be refused comes before it.
        try:
            kept = await self._files.keep([*shorter.files, *files])
        except errors.FileRefused:
            if not shorter.files:
                raise
            kept, parts = await self._files.keep(files), await self._split(to, said)
        replaces: Sequence[str] = () if place is None else (place,)
        if kind == "reply" and place is None:
            replaces = await self._previews.take(to, len(parts))
        batch = submit(parts, replaces=replaces, files=kept)
        begun([row.id for row in batch.rows])
        if missed:
            await self.outbox.rows.announce(batch, missed)
        return batch

    async def _concluded(
        self, to: Address, words: str, write: WriteRows, buttons: QuestionButtons | None
    ) -> Batch:
        await self.outbox.load()
        missed = self._untold(to)
        batch = self.outbox.conclude(to, await self._parts(to, words, missed), write, buttons)
        if missed:
            await self.outbox.rows.announce(batch, missed)
        return batch

    def _untold(self, to: Address) -> list[OutboxRow]:
        """What a chat has still to hear that it misses; nothing while it can hear nothing."""
        return [] if self.gone(to) else self.outbox.rows.missed(to.chat_key)

    async def _parts(self, to: Address, words: str, missed: Sequence[OutboxRow]) -> list[str]:
        return await self._split(to, await self._said(words, missed))

    async def _said(self, words: str, missed: Sequence[OutboxRow]) -> str:
        if missed and words.strip():
            words = f"{_missed(missed)}\n\n{words}"
        clean = text.clean(words)
        return await off_loop(len(clean), redaction.LONG, lambda: self._redact(clean))

    async def _shortened(self, to: Address, said: str) -> Shortened:
        """An answer without what is too long for its channel. Where that must be no file, it stays as it is."""
        shorter = await off_loop(len(said), SHORT, partial(self._long_blocks.taken_out, to.channel, said))
        try:
            for file in shorter.files:
                await self._check(to, file)
        except errors.FileRefused as error:
            self._log.write("delivery", "a part of an answer is no file", level="warn", cause=str(error))
            return Shortened(said)
        return shorter

    async def _check(self, to: Address, file: OutgoingFile) -> None:
        await outgoing_files.check(file, self._channels[to.channel], self._files.limits.file, self._redact)

    async def amend(self, row: OutboxRow) -> None:
        """Give a message that was sent the words and buttons that its row has now, redacted; where it cannot be changed it stays."""
        await self.outbox.amend(row.revise(self._redact(row.text)))

    async def resume(self, to: Address) -> tuple[PriorReply, ...]:
        """After a crash: bring what this answer had begun to deliver to its end, or put it off. Notices are left alone."""
        await self.outbox.load()
        rows = await self._journal.deliveries(to.request_id)
        begun = await self.outbox.resume(to, rows)
        await self._previews.adopt(to, rows)
        await self.progress.adopt(to, rows)
        return begun

    def preview(self, to: Address, words: Callable[[], str], shown: Callable[[], None] = unseen) -> None:
        """As `contracts.agent.Reply.preview`, where the channel can do that and is set to. `shown` is called before
        anything of it is.
        """
        self._previews.begin(to, words, shown)

    def grows(self, to: Address) -> bool:
        """True while people see an answer that grows."""
        return self._previews.grows(to)

    async def ended(self, to: Address) -> None:
        """A turn is over: what was shown of an answer says that it is no whole one."""
        await self._previews.end(to)
        await self.progress.end(to)

    def leave(self, to: Address) -> None:
        """A turn will go on after a restart."""
        self._previews.leave(to)
        self.progress.leave(to)

    async def reopen(self, channel: str, chat_id: str) -> None:
        """Something came from a chat: where it counted as gone, it can be written to again."""
        await self.outbox.load()
        await self.outbox.closed_chats.open(channel, chat_id)

    def gone(self, to: Address) -> bool:
        """True where a chat can no longer be written to."""
        return self.outbox.closed_chats.closed(to)

    def frozen(self, to: Address) -> float:
        """Seconds for which the platform wants to be left alone with a chat."""
        return self.outbox.limits.frozen(to)

    def spare(self, to: Address, *, reserve: int = 1) -> bool:
        """Take a slot for something cosmetic (a sign of work, an edit) of the same budgets as messages. False where
        it and `reserve` more are not free, where the platform wants to be left alone, and in a chat that is gone: it
        is dropped then.
        """
        return self.outbox.spare(to, reserve=reserve)

    async def indicate(self, to: Address, *, working: bool) -> None:
        """Show or clear the sign of work. Dropped where the budget is short; a failure is only logged."""
        if self.spare(to, reserve=1 if working else 0):
            sign = self._channels[to.channel].indicate(to.target, working=working)
            await self._cosmetic(to, sign, "the sign of work could not be shown")

    async def react(self, to: Address, message_id: str) -> None:
        """Mark a message as seen, where the platform can. Dropped where the budget is short; a failure is only logged."""
        channel: object = self._channels[to.channel]
        if isinstance(channel, Reacts) and self.spare(to, reserve=0):
            await self._cosmetic(to, channel.react(to.target, message_id), "a reaction could not be shown")

    @contextlib.asynccontextmanager
    async def suspended(self, to: Address) -> AsyncIterator[None]:
        """Show for the block that a turn waits for a person, where the platform has a sign for that; then that work goes on,
        unless the block was cancelled.
        """
        channel: object = self._channels[to.channel]
        if not isinstance(channel, Suspends):
            yield
            return
        # Nobody waits for it: the question is on its way meanwhile.
        showing = asyncio.create_task(
            self._cosmetic(to, channel.suspend(to.target), "the sign of waiting could not be shown")
        )
        try:
            yield
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        await self.indicate(to, working=True)

    async def entitle(self, to: Address, title: str) -> None:
        """Name a conversation, where its channel shows that. A failure is only logged."""
        channel = self._channels[to.channel]
        if isinstance(channel, Titles):
            shown = self._redact(text.clean(title))
            await self._cosmetic(to, channel.entitle(to.target, shown), "a conversation has no title")

    async def _cosmetic(self, to: Address, call: Awaitable[None], otherwise: str) -> None:
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await call
        except (TimeoutError, errors.DeliveryFailed) as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.outbox.limits.freeze(to, error, cosmetic=True)
            self._log.write("delivery", otherwise, level="debug", cause=str(error))

    async def _split(self, to: Address, words: str) -> list[str]:
        # Seeing whether the parts of a long text fit takes up to a quarter of a second.
        return await off_loop(len(words), SHORT, partial(self.outbox.split, to, words))


def _missed(lost: Iterable[OutboxRow]) -> str:
    """The sentence for a chat about messages that will not arrive."""
    said = (text.preview(row.shown, MISSED_CHARS) for row in lost)
    return say("delivery.missed", which=", ".join(f"“{words}”" for words in said))


class ChatReply:
    """`contracts.agent.Reply` to one chat. What stands in `below` goes below the next message: what could not be looked at.
    What stands `above` comes before it. `shown` is called before anything is sent. The first message comes in the `place` of another one, which stands until then.
    """

    def __init__(
        self,
        delivery: Delivery,
        to: Address,
        below: list[str],
        shown: Callable[[], None] = unseen,
        *,
        place: str | None = None,
        above: str = "",
    ) -> None:
        self._above = above
        self._delivery = delivery
        self._to = to
        self._below = below
        self._shown = shown
        self._place = place
        self.written: list[str] = []

    def preview(self, words: Callable[[], str]) -> None:
        if self._place is None:
            self._delivery.preview(self._to, lambda: self._above + words(), shown=self._shown)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        self._shown()
        place, self._place = self._place, None
        told, words, self._above = len(self._below), self._above + words, ""
        if told:
            words = f"{words}\n\n" + "\n".join(self._below)
        try:
            sent = await self._delivery.send(
                self._to, words, begun=self.written.extend, step_id=step_id, place=place, files=files
            )
        except (errors.DeliveryDeferred, errors.FilesMissing):
            del self._below[:told]
            raise
        del self._below[:told]
        return sent
