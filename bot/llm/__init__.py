"""The client of the language model. No other package knows the model's provider. Importing this package does not import the
provider's library.
"""

from __future__ import annotations

import random

from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.model import Model
from bot.llm.costs import PriceTable
from bot.llm.wrapper import RETRY_SECONDS, AttachedFiles, LoggedModel, RetryingModel
from bot.storage.artifacts import ArtifactStore


def build_model(
    *,
    provider: str,
    api_key: str | None,
    clock: Clock,
    log: Log,
    ids: Ids,
    rng: random.Random,
    base_url: str | None = None,
    log_messages: bool = True,
    log_payload: bool = False,
    retry_seconds: float = RETRY_SECONDS,
    last: bool = True,
    prices: PriceTable | None = None,
    pace: float = 1.0,
    artifacts: ArtifactStore | None = None,
) -> RetryingModel:
    """Build the model that `llm` in ship.json names, with logging and retries. Do not call this on a running event loop,
    because the import of Anthropic's library takes seconds.
    """
    model: Model
    if provider == "demo":
        from bot.llm.demo import DemoModel

        model = DemoModel(clock)
    else:
        from bot.llm.client import AnthropicModel

        model = AnthropicModel(
            api_key=api_key or "",
            base_url=base_url,
            clock=clock,
            prices=prices,
            pace=pace,
            quotes=log_messages,
        )
    if artifacts is not None:
        model = AttachedFiles(model, artifacts, log)
    model = LoggedModel(model, log=log, ids=ids, clock=clock, messages=log_messages, payload=log_payload)
    return RetryingModel(model, clock=clock, rng=rng, log=log, seconds=retry_seconds, last=last)
