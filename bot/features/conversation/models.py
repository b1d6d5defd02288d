"""Model and effort of a chat. Operators choose both, and the choice is stored as facts."""

from __future__ import annotations

import re

from bot import errors, text
from bot.contracts.inbound import Inbound
from bot.core import events
from bot.core.chats import Fact
from bot.core.feature import Done, Runtime
from bot.core.models import EFFORT, MODEL, ModelDeps, effort_of
from bot.words import paragraph, say

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
DEFAULT_MODEL = "default"


class Models:
    """Runs `/model` and `/effort`. Everybody may see the choice; only operators may change it."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime

    async def model(self, inbound: Inbound) -> Done:
        """Run `/model`."""
        asked, models = inbound.args, self._run.models(inbound.chat_key)
        if not asked:
            return Done(answering(models))
        if not self._run.access.is_operator(inbound.person):
            return Done(say("commands.operators_model"))
        name = None if asked.casefold() == DEFAULT_MODEL else asked
        shown = text.preview(asked, 60)
        if name is not None and MODEL_NAME.fullmatch(name) is None:
            return Done(say("commands.model_name", name=shown))
        unsure = list[str]()
        try:
            if name is not None:
                await models.windows.ask(models.model, name)
        except errors.OneModel as error:
            return Done(error.person)
        except errors.ModelUnknown:
            return Done(say("commands.model_missing", name=shown))
        except errors.ModelError as error:
            self._run.log.write(
                "model", "the provider does not say whether it has the model", cause=str(error)
            )
            unsure = [say("commands.model_unsure")]
        before, models.chosen = models.name, name
        self._run.log.write(
            "model",
            "a model was chosen for the chat",
            level="action",
            chat_key=inbound.chat_key,
            model=models.name,
            chosen=name is not None,
            before=before,
        )
        words = paragraph(answering(models), *unsure)
        return Done(words, (_chosen(inbound, MODEL, name),))

    async def effort(self, inbound: Inbound) -> Done:
        """Run `/effort`."""
        asked, models = inbound.args.casefold(), self._run.models(inbound.chat_key)
        if not asked:
            return Done(working(models))
        if not self._run.access.is_operator(inbound.person):
            return Done(say("commands.operators_effort"))
        models.chosen_effort = effort_of(asked)
        if models.chosen_effort is None and asked != DEFAULT_MODEL:
            return Done(say("commands.effort_name", name=text.preview(inbound.args, 60)))
        return Done(working(models), (_chosen(inbound, EFFORT, models.chosen_effort),))


def answering(models: ModelDeps) -> str:
    """Return a text for people that says which model answers in a chat."""
    name = models.name
    key = "commands.model_default" if models.chosen is None else "commands.model_chosen"
    window, price = models.windows.window(name), models.prices.million(name)
    reads = say("commands.model_window", window=window) if window else say("commands.model_window_unknown")
    costs = say("commands.model_price_unknown")
    if price is not None:
        costs = say("commands.model_price", read=price[0], written=price[1])
    return paragraph(say(key, model=name, default=models.default_model), reads, costs)


def working(models: ModelDeps) -> str:
    """Return a text for people that says which effort answers in a chat are made with."""
    effort = models.sent().effort
    if effort is None:
        return say("commands.effort_none", model=models.name)
    key = "commands.effort_default" if models.chosen_effort is None else "commands.effort_chosen"
    return say(key, effort=effort)


def _chosen(inbound: Inbound, kind: str, name: str | None) -> Fact:
    value = None if name is None else {"name": name}
    return Fact(inbound.chat_key, events.FactSet(kind, str(inbound.chat_key), value))
