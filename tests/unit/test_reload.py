"""After a reload of the configuration, new turns use the new values. An invalid file changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from bot import config, discovery, errors
from bot.composition import Gateway
from bot.contracts.model import ModelFacts
from bot.core.services import Environment
from bot.instance import prepare_home
from bot.lifecycle import OF_TURNS, reload
from bot.llm.costs import PriceTable, Spending
from bot.system import SystemDisk
from bot.telemetry.log import JsonlLog
from bot.testing.log import Entry, MemoryLog

FIRST = {"llm": {"provider": "demo"}, "context": {"maxMessages": 40}}


def load(root: Path, document: Any = None) -> config.Settings:
    if document is not None:
        text = document if isinstance(document, str) else json.dumps(document)
        (root / "ship.json").write_text(text, encoding="utf-8")
    return config.load(root, discovery.manifests(), {})


class KeptLog(JsonlLog):
    """A log that also keeps its lines in memory."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        super().__init__(folder, clock=environment.clock, disk=SystemDisk(), ids=environment.ids)
        self.kept = MemoryLog()

    def write(self, kind: str, message: str, **how: Any) -> None:
        self.kept.write(kind, message, **how)
        super().write(kind, message, **how)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = load(tmp_path, FIRST)
    prepare_home(settings.home)
    environment = Environment()
    log = KeptLog(settings.home / "logs", environment)
    gateway = Gateway(settings, environment, log, [], counted=None, spending=Spending(PriceTable()))
    yield gateway
    await asyncio.gather(gateway.event_log.close(), gateway.model.close())
    log.close()


def told(gateway: Gateway) -> list[Entry]:
    assert isinstance(gateway.services.log, KeptLog)
    return [one for one in gateway.services.log.kept.entries if one.kind == "reload"]


def last(gateway: Gateway) -> Entry:
    """Return the log line of the last reload."""
    return told(gateway)[-1]


async def test_a_wrong_configuration_is_told_and_the_one_before_holds(
    gateway: Gateway, tmp_path: Path
) -> None:
    before = gateway.turns.agent
    for wrong, why in (
        ('{"llm": {},}', "line 1"),
        ({"context": {"maxMessages": "many"}, "nonsense": 1}, "maxMessages"),
    ):
        await reload(gateway, lambda wrong=wrong: load(tmp_path, wrong))  # type: ignore[misc]
        assert gateway.turns.agent is before
        entry = last(gateway)
        assert entry.level == "error"
        assert any(why in line for line in entry.details["findings"])
        assert entry.details["findings"][0] in entry.message
    assert len(last(gateway).details["findings"]) == 2


async def test_what_needs_a_restart_is_named_and_waits_for_it(gateway: Gateway, tmp_path: Path) -> None:
    changed = {
        **FIRST,
        "operators": ["telegram:5"],
        "channels": {"telegram": {"allow": ["7"]}},
        "log": {"maxMb": 5},
    }
    before = gateway.turns.agent
    for _ in range(2):
        await reload(gateway, lambda: load(tmp_path, changed))
        entry = last(gateway)
        assert entry.level == "warn"
        assert entry.details["changed"] == []
        assert entry.details["restart"] == ["channels.telegram.allow", "log.maxMb", "operators"]
        assert "a restart is needed for channels.telegram.allow, log.maxMb, operators" in entry.message
        assert gateway.turns.agent is before
    await reload(gateway, lambda: load(tmp_path, FIRST))
    assert last(gateway).message == "SIGHUP: nothing changes"


async def test_what_deserves_a_look_is_told_once(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1", encoding="utf-8")
    (tmp_path / ".env").chmod(0o644)
    open_to_others = ".env: others on this machine can read it; run `chmod 600 .env`"
    told_of = [await reload(gateway, lambda: load(tmp_path, FIRST)) for _ in range(2)]
    assert told_of == [f"SIGHUP: nothing changes; warning: {open_to_others}", "SIGHUP: nothing changes"]
    assert [(one.level, one.details["findings"]) for one in told(gateway)] == [
        ("warn", [open_to_others]),
        ("info", []),
    ]


class Provider:
    """A provider that has one model, or does not answer."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def facts(self, model: str) -> ModelFacts:
        if self._error is not None:
            raise self._error
        return ModelFacts(window=100_000, max_output=8_000)


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        (None, True),
        (errors.ModelUnknown("404"), False),
        (errors.ModelUnreachable(), True),
        (TimeoutError(), True),
    ],
)
async def test_a_model_that_the_provider_does_not_have_is_refused(
    tmp_path: Path, gateway: Gateway, error: Exception | None, taken: bool
) -> None:
    key = {"provider": "anthropic", "apiKey": "sk-ant-REDACTED"}
    agent = gateway.turns.agent
    model: Any = Provider(error)
    models = replace(agent.models, model=model)
    settings = load(tmp_path, {"llm": {**key, "model": "one"}})
    gateway.turns.agent = replace(agent, models=models, settings=settings)
    await reload(gateway, lambda: load(tmp_path, {"llm": {**key, "model": "two"}}))
    assert (gateway.turns.agent.models.default_model == "two") is taken
    assert last(gateway).level == ("info" if taken else "error")
    if not taken:
        assert "llm.model: found two, which the provider does not have" in last(gateway).message


async def test_an_unexpected_error_keeps_the_configuration_before(gateway: Gateway, tmp_path: Path) -> None:
    def broken() -> config.Settings:
        raise RecursionError("too deep")

    before = gateway.turns.agent
    await reload(gateway, broken)
    assert last(gateway).level == "error"
    assert "the one before holds: RecursionError: too deep" in last(gateway).message
    assert gateway.turns.agent is before
    await reload(gateway, lambda: load(tmp_path, FIRST | {"context": {"maxMessages": 20}}))
    assert gateway.turns.agent.settings.context.max_messages == 20


def test_the_page_on_configuration_names_the_keys_that_need_no_restart() -> None:
    page = (Path(__file__).parents[2] / "docs" / "run" / "configuration.md").read_text(encoding="utf-8")
    (line,) = [part for part in page.split("\n\n") if "SIGHUP" in part and "`permissions`" in part]
    keys = {
        to_camel(one) if not of else f"{of}.{to_camel(one)}" for of, some in OF_TURNS.items() for one in some
    }
    assert keys <= {word.strip("`,.*") for word in line.replace("`", " ` ").split()}
