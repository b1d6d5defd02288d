"""Builds the agent loop of each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import events, quotes, reattach
from bot.core.access import InboundCleaner
from bot.core.agent import EFFORT, MODEL, AgentDeps, ModelDeps, effort_of
from bot.core.attachments import FileReader
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.feature import Door
from bot.core.file_words import SeenFile
from bot.core.fit import COLD_AFTER, Fit, Frame
from bot.core.loop import Loop, OlderMessages
from bot.core.prompt import Frozen
from bot.core.reply import ChatReply, ReplyPorts
from bot.core.summaries import CompactResult, Summaries
from bot.core.tasks import TurnTasks
from bot.core.user_message import user_message
from bot.telemetry import context
from bot.tools.context import ToolExecutionContext


@dataclass(eq=False)
class Turns:
    """Builds the agent loop of each turn from the agent's prompt, model and tools."""

    agent: AgentDeps
    """Settings and services of the agent. A reload replaces them for later turns."""
    chats: Chats
    event_log: EventLog
    reply: Callable[[Chat, str], ReplyPorts]
    files: FileReader
    door: Door
    cleaner: InboundCleaner

    def __post_init__(self) -> None:
        self.summaries = Summaries(
            self.agent,
            lambda chat, data: self.chats.append(Fact(chat.key, data)),
            lambda key, gone, kept, most: reattach.put_back(
                gone, kept, self.agent, most, chat_key=key, person=context.current().person
            ),
        )

    def loop(self, chat: Chat, turn: str) -> Loop:
        """Return the agent loop of a turn that has started."""
        agent, running = self.agent, chat.turn
        if running is None:
            raise errors.ShipmateError(f"turn {turn} is over")
        first = running.first
        if self.door.display is not None:
            self.door.display.begin(running)

        async def tell(inbound: Inbound) -> events.Told | None:
            files = await self._seen(chat, turn, inbound)
            if files is None or not (inbound.has_text or any(one.read for one in files)):
                return None
            seen = [*chat.context.view(), *chat.context.current()]
            opens = not chat.context.current()
            wrong = chat.context.wrong if opens else ()
            edits = chat.untold_edits if opens else []
            quoted = [quotes.edited(one) for one in edits]
            quoted += await self.door.before_turn(chat, inbound) if opens else []
            admitted = self.cleaner.admitted(inbound, quoted)
            begins = opens and not seen
            said = await user_message(inbound, admitted, files, agent, seen, wrong=wrong, begins=begins)
            return events.Told(said, (inbound.request_id,), tuple(one.request_id for one in edits))

        quiet = all(one.overheard for one in running.members)
        fit = self._fit(chat, turn, "overheard" if quiet else "turn")
        reply = ChatReply(chat, turn, first, self.chats, self.reply(chat, first.channel))
        wrapped = self.door.wrapped(chat, reply, agent.registry)
        tasks = TurnTasks(fit, self.chats, self.event_log)
        older = OlderMessages(turn, fit)

        def seen_by_tools() -> ToolExecutionContext:
            return ToolExecutionContext(
                chat_key=chat.key,
                request_id=turn,
                user_id=first.user_id,
                reply=wrapped,
                injection=older,
                channel=first.channel,
                private=first.chat_type == "direct",
                people=tuple(dict.fromkeys(one.user_id for one in running.members)),
                view=chat.context.shown,
                flush=self.event_log.committed,
                undeclared=lambda: agent.registry.behind(fit.tools),
                task=tasks.run,
                inbound=first,
            )

        return Loop(
            turn=turn,
            fit=fit,
            chats=self.chats,
            event_log=self.event_log,
            model=fit.models.model,
            frame=lambda: self._frame(chat, first, fit.models),
            tell=tell,
            before_turn=self.summaries.before_turn,
            before_asking=self.summaries.before_asking,
            reply=reply,
            wrapped=wrapped,
            dispatcher=agent.dispatcher,
            context=seen_by_tools,
            tasks=tasks,
        )

    async def _seen(self, chat: Chat, turn: str, inbound: Inbound) -> Sequence[SeenFile] | None:
        """Read the files of a message once, and return one result per file; None if the message was deleted."""
        running, name = chat.turn, inbound.request_id
        if running is None or not inbound.attachments:
            return ()
        if name not in running.seen:
            try:
                files = await self.files.read(inbound)
            finally:
                if name in running.withdrawn:
                    await self.files.forget(inbound)  # the message was deleted while its files were read
            self.chats.append(Fact(chat.key, events.FilesRead(name, files), turn))
        return None if name in running.withdrawn else running.seen.get(name)

    async def compact(self, inbound: Inbound) -> CompactResult:
        """Compact the history of the chat in which the command `inbound` was written (see `Runtime.compact`)."""
        chat = await self.chats.get(inbound.chat_key)
        fit = self._fit(chat, inbound.request_id, "turn")
        fit.take(await self._frame(chat, inbound, fit.models))
        return await self.summaries.compact(fit, inbound.args)

    def models(self, chat: ChatKey, purpose: str = "turn") -> ModelDeps:
        """Return the agent's models, with the model and the effort that were chosen for this chat (see `Runtime.models`)."""
        model, effort = (self.chats.facts.get(kind, str(chat)) or {} for kind in (MODEL, EFFORT))
        chosen, how = model.get("name"), effort_of(effort.get("name"))
        return replace(self.agent.models, chosen=chosen, chosen_effort=how, purpose=purpose)

    def _fit(self, chat: Chat, turn: str, purpose: str) -> Fit:
        models = self.models(chat.key, purpose)
        return Fit(chat, models, self.agent, lambda data: self.chats.append(Fact(chat.key, data, turn)))

    async def _frame(self, chat: Chat, first: Inbound, models: ModelDeps) -> Frame:
        """Return the system prompt and tools of a chat's requests."""
        if models.chosen is not None:
            # Another process may have stored the choice of this model. So this process must ask once for the model's limits.
            with suppress(errors.ModelError):
                await models.windows.ask(models.model, models.chosen)
        agent = self.agent
        frozen = await self._frozen(chat, first, models)
        rules, hour = agent.manifests[first.channel].rules, models.prices.hour_pays(models.name)
        return Frame(
            frozen, frozen.system(agent.settings.root, first, rules, hour=hour), agent.registry.forms
        )

    async def _frozen(self, chat: Chat, first: Inbound, models: ModelDeps) -> Frozen:
        """Return the chat's prompt. A prompt that is still cached stays the same."""
        context, agent = chat.context, self.agent
        before = context.frame
        known = before.frozen if before is not None and before.model == models.name else None
        shows, asked_at = len(context) > 0 or bool(context.current()), context.asked_at
        warm = shows and asked_at is not None and agent.clock.now() - asked_at <= COLD_AFTER
        if known is not None and warm:
            return known
        fresh = await replace(agent, models=models).freeze(chat.key, first.channel)
        if before is not None and len(context) and known != fresh:
            agent.log.write("prompt", "the instructions or the skills have changed")
        return fresh
