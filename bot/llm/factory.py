"""Builds the configured model."""

from __future__ import annotations

import random

from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.model import Model
from bot.llm.attached_files import AttachedFiles
from bot.llm.log import LoggedModel
from bot.llm.prices import PriceTable
from bot.llm.wrapper import RETRY_SECONDS, RetryingModel
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
) -> Model:
    """Build the model that `llm` in ship.json names, with logging and retries. `artifacts` stores the
    attached files.

    Anthropic's client imports a library, which takes seconds: do not call this function on a running event
    loop.
    """
    model = model_of(provider, api_key, base_url, clock=clock, prices=prices, pace=pace)
    if artifacts is not None:
        model = AttachedFiles(model, artifacts, log)
    logged = LoggedModel(model, log=log, ids=ids, clock=clock, messages=log_messages, payload=log_payload)
    return RetryingModel(logged, clock=clock, rng=rng, log=log, seconds=retry_seconds, last=last)


def model_of(
    provider: str,
    api_key: str | None,
    base_url: str | None,
    *,
    clock: Clock,
    prices: PriceTable | None,
    pace: float,
) -> Model:
    if provider == "demo":
        from bot.llm.demo import DemoModel

        return DemoModel(clock)
    from bot.llm.client import AnthropicModel

    return AnthropicModel(api_key=api_key or "", base_url=base_url, clock=clock, prices=prices, pace=pace)
