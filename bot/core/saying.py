"""Builds outbox rows from gateway messages: notices, questions, answers to commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot import text
from bot.contracts.approvals import EXAMPLES, QuestionButtons
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Redact
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core.events import Queued
from bot.core.outbox_row import Address
from bot.words import language, own_zone, zone


class Saying:
    """Splits text for a channel and redacts secrets, in the current language and zone (`bot.words.speaking`)."""

    def __init__(self, channels: Mapping[str, Channel], redact: Redact) -> None:
        self._channels = channels
        self._redact = redact

    def parts(self, channel: str, words: str) -> list[str]:
        """Return the messages into which a text is split on a channel."""
        return self._channels[channel].split(self._redact(text.clean(words)))

    def rows(
        self,
        name: str,
        to: Address,
        words: str,
        *,
        form: OutboundKind = "notice",
        ends: bool = False,
        buttons: QuestionButtons | None = None,
        question: str | None = None,
        while_open: Sequence[str] = (),
    ) -> list[Queued]:
        """Return the outbox rows of one message; the first row gets the id `name`. `buttons` are shown below
        the last row. `while_open` are lines that disappear once the question is decided.
        """
        parts = self.parts(to.channel, words)
        names = [name if not at else f"{name}/{at}" for at in range(len(parts))]
        open_lines = {self._redact(text.clean(line)) for line in while_open}
        found = list[Queued]()
        for row, part in zip(names, parts, strict=True):
            last = row == names[-1]
            kept = "\n".join(line for line in part.split("\n") if line not in open_lines) or part
            found.append(
                Queued(
                    row,
                    to.target,
                    part,
                    form,
                    to.channel,
                    to.chat_id,
                    to.chat_type,
                    part_of=None if row == name else name,
                    last=last,
                    ends=ends,
                    buttons=buttons if last else None,
                    question=question,
                    closes_as=kept if while_open else "",
                    language=language(),
                    zone=zone(),
                    own_zone=own_zone(),
                )
            )
        return found


def examples(inbound: Inbound, manifests: Mapping[str, Manifest]) -> QuestionButtons | None:
    """Return example prompts for a greeting, if the channel can show the prompts as buttons."""
    offered = inbound.chat_type == "direct" and manifests[inbound.channel].examples
    return QuestionButtons("", EXAMPLES) if offered else None
