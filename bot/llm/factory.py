"""Builds the configured model."""

from __future__ import annotations

import random

from bot import errors
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.model import Model
from bot.llm.attached_files import AttachedFiles
from bot.llm.log import LoggedModel
from bot.llm.prices import PriceTable
from bot.llm.wrapper import RETRY_SECONDS, RetryingModel
from bot.storage.artifacts import ArtifactStore


def provider_of(provider: str | None, api_key: str | None) -> str:
    """The provider to use. Default: Anthropic if there is a key, else the demo."""
    return provider or ("anthropic" if api_key else "demo")


def build_model(
    *,
    provider: str | None,
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
    """Build the model of `llm` in ship.json with logging and retries. `artifacts` has its attached files. Raises `errors.ConfigError`.

    Anthropic's imports its library, which takes seconds: not on a running event loop.
    """
    model = model_of(
        provider=provider_of(provider, api_key),
        api_key=api_key,
        base_url=base_url,
        clock=clock,
        prices=prices,
        pace=pace,
    )
    if artifacts is not None:
        model = AttachedFiles(model, artifacts, log)
    logged = LoggedModel(model, log=log, ids=ids, clock=clock, messages=log_messages, payload=log_payload)
    return RetryingModel(logged, clock=clock, rng=rng, log=log, seconds=retry_seconds, last=last)


def model_of(
    *,
    provider: str,
    api_key: str | None,
    base_url: str | None,
    clock: Clock,
    prices: PriceTable | None,
    pace: float,
) -> Model:
    if provider == "demo":
        from bot.llm.demo import DemoModel

        return DemoModel(clock)
    if provider != "anthropic":
        raise errors.ConfigError(
            f'llm.provider: found "{provider}", expected "anthropic" or "demo"; remove it to choose by the key'
        )
    if not api_key:
        raise errors.ConfigError(
            "llm.apiKey: found nothing, expected the key that provider anthropic needs; "
            "set ANTHROPIC_API_KEY in the environment or in .env"
        )
    from bot.llm.client import AnthropicModel

    return AnthropicModel(api_key=api_key, base_url=base_url, clock=clock, prices=prices, pace=pace)
