"""Continues a turn of the gateway after an answer that ended early."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.agent.deps import AgentDeps
from bot.contracts.base import Message
from bot.contracts.model import ModelReply
from bot.core import blocks
from bot.core.continuation import GO_ON, MAX_AGAIN, MAX_CUTS, RAISES
from bot.system_role import ANSWER


@dataclass(slots=True)
class ContinuationPolicy:
    """Decides how a turn goes on after an answer that ended early: `tail` is added to the next request, the counts limit retries."""

    deps: AgentDeps
    max_tokens: int
    tail: tuple[Message, ...] = ()
    continued: int = 0
    """Continuations of the answer that is being given."""
    cuts: int = 0
    pauses: int = 0
    thought: bool = False
    prompted: bool = False
    paused: bool = False
    """True if the next request gives the provider its own words back."""

    @property
    def goes_on(self) -> bool:
        """True if the next request goes on with an answer of which something is there."""
        return bool(self.tail) or self.continued > 0 or self.paused

    @classmethod
    def begun(cls, deps: AgentDeps) -> ContinuationPolicy:
        return cls(deps, deps.budget().max_tokens)

    def taken(self, reply: ModelReply) -> ModelReply:
        """The reply as it may be kept: what was thought behind a line of ours that is not kept goes."""
        self.paused = False
        if not self.tail:
            return reply
        content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        return replace(reply, content=content)

    def after_tools(self, *, cut: bool) -> bool:
        """Tools were called, some of them perhaps in a call that was `cut`. False where the turn had better end."""
        self.tail, self.continued = (), 0
        if not cut:
            return True
        self.cuts += 1
        self._raise("in a tool call at the limit")
        return self.cuts < MAX_CUTS

    def pause(self) -> bool:
        """The provider paused: it wants its own words back, unchanged."""
        self.tail = ()
        self.pauses += 1
        self.paused = self.pauses + self.continued + self.cuts <= MAX_AGAIN
        return self.paused

    def unpaused(self) -> int:
        """The provider does not take its own words back: it is asked to go on with them. Returns how often it was."""
        self.paused = False
        self.continued += 1
        self.tail = (_said(GO_ON),)
        self._log("in a pause that cannot be gone on with; it goes on", number=self.continued)
        return self.continued

    def continue_text(self, *, spoke: bool) -> bool:
        """The text of an answer reached the limit. False where it has gone on often enough. `spoke`: the last piece
        was more than thinking.
        """
        if self.continued + self.cuts + self.pauses >= MAX_AGAIN:
            return False
        self.continued += 1
        self.tail = (_said(GO_ON),)
        self._log("in the text at the limit; it goes on", number=self.continued)
        if not spoke:
            self._raise("in thinking at the limit")
        return True

    def retry_with_more_output(self) -> bool:
        """Nothing but thinking came before the limit: it is asked once more, with twice the room. False where it was already, or more
        room is not to be had.
        """
        again, self.thought = not self.thought, True
        return again and self.smaller() and self._raise("in thinking at the limit")

    def smaller(self) -> bool:
        """Nothing came before the window was full, and there is more room in it now."""
        self.cuts += 1
        return self.cuts < MAX_CUTS

    def limit_output(self, most: int) -> None:
        """Ask for no more output than this from now on: the provider gives no more."""
        self.max_tokens = most

    def prompt(self) -> bool:
        """Nothing was said after tools had run. False where it was said to answer once already."""
        if self.prompted:
            return False
        self.prompted = True
        self.tail = (_said(ANSWER),)
        self._log("without a word after its tools", number=1)
        return True

    def _raise(self, where: str) -> bool:
        model = self.deps.models.name
        most = self.deps.models.windows.max_output(model) or RAISES * self.deps.budget().max_tokens
        before, self.max_tokens = self.max_tokens, max(self.max_tokens, min(2 * self.max_tokens, most))
        self._log(where, number=self.cuts)
        return self.max_tokens > before

    def _log(self, where: str, *, number: int) -> None:
        self.deps.log.write(
            "continue",
            f"the answer ended {where}",
            level="warn",
            number=number,
            max_tokens=self.max_tokens,
        )


def _said(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
