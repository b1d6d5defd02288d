"""`shipmate doctor` with services that work, refuse, or do not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.tools.mcp.conftest import raw

from .conftest import Shipmate
from .services import TOKENS, Services, started


@pytest.fixture
async def services(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    async with started(project, shipmate) as made:
        for name, value in TOKENS.items():
            monkeypatch.setenv(name, value)
        yield made


async def found(services: Services, code: int) -> dict[str, dict[str, str]]:
    done = await services.run("doctor", "--dir", services.root, "--json")
    assert done.code == code, done
    assert not any(token in done.out + done.err for token in TOKENS.values())
    return {line["part"]: line for line in done.lines}


async def test_operators_whom_slack_does_not_know_are_wrong(services: Services) -> None:
    services.slack.add_user("U0ANN", name="Ann")
    services.config["operators"] = ["slack:U0ANN", "slack:U0TYPO"]
    lines = await found(services, 78)
    assert [part for part in lines if part.startswith("slack person")] == ["slack person U0TYPO"]


async def test_servers_that_cannot_be_started_are_wrong_and_folders_that_are_not_there_are_told(
    services: Services,
) -> None:
    services.config["mcp"] = {"servers": {"files": {"command": "no-such-program"}, "fine": raw("fine")}}
    services.config["skills"] = {"paths": ["nowhere"]}
    lines = await found(services, 78)
    assert lines["mcp fine"]["verdict"] == "ok"
    assert lines["mcp files"]["found"] == "there is no program 'no-such-program'"
    assert "mcp.servers.files" in lines["mcp files"]["remedy"]
    told = (await services.run("doctor", "--dir", services.root)).out
    assert 'warn   configuration: skills.paths[0]; found "nowhere" (text)' in told
    checked = await services.run("check", "--dir", services.root)
    assert 'warning: skills.paths[0]: found "nowhere" (text)' in checked.err


async def test_a_group_that_was_let_in_at_run_time_is_looked_at(services: Services) -> None:
    services.telegram.add_bot(-100, status="restricted", can_send_messages=False)
    assert (await services.run("allow", "telegram", "-100", "--dir", services.root)).code == 0
    lines = await found(services, 78)
    assert lines["telegram group -100"]["found"] == "the bot may not write there"
    (services.root / ".ship" / "access.json").write_text("{", encoding="utf-8")
    lines = await found(services, 78)
    assert "telegram group -100" not in lines
    assert lines["access list"]["verdict"] == "wrong", "a gateway does not begin with it either"


async def test_commands_without_walls_are_a_warning(services: Services) -> None:
    services.config["shell"] = {"isolation": "off"}
    lines = await found(services, 0)
    assert lines["isolation"]["verdict"] == "warn"
