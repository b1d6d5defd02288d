"""`shipmate doctor` before services that are well, that refuse, and that are away."""

from __future__ import annotations

import json
import socket
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


async def test_what_is_well_says_so(services: Services) -> None:
    services.config["operators"] = ["telegram:1001"]
    lines = await found(services, 0)
    assert lines["slack scopes"]["found"] == "all 16"
    assert lines["telegram botToken"]["found"].startswith("@")
    assert lines["model key"]["found"] == "the provider accepts it"
    assert "1,000,000 tokens" in lines["llm.model"]["found"]
    assert "within 30 s" in lines["clock"]["found"]
    assert lines["gateway"]["found"] == "not running; its folder, tokens and ports are free"
    assert "operators" not in lines


async def test_a_key_that_is_refused_and_a_model_that_is_not_there_are_wrong(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.config["llm"]["model"] = "claude-none-1"
    services.config["llm"]["fastModel"] = "claude-none-2"
    lines = await found(services, 78)
    assert (lines["llm.model"]["verdict"], lines["llm.fastModel"]["verdict"]) == ("wrong", "wrong")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-wrong-wrong")
    lines = await found(services, 78)
    assert lines["model key"]["verdict"] == "wrong"
    assert "llm.model" not in lines


async def test_what_is_away_is_for_later(services: Services) -> None:
    for server in (services.slack, services.telegram, services.model):
        await server.stop()
    lines = await found(services, 75)
    later = {name for name, one in lines.items() if one["verdict"] == "later"}
    assert later == {"slack", "telegram", "model"}
    assert lines["clock"]["found"] == "no platform was asked for the time"


async def test_a_port_that_somebody_holds_is_for_later(services: Services) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        services.config["dashboard"] = {"enabled": True, "port": held.getsockname()[1]}
        lines = await found(services, 75)
    assert "is taken" in lines["dashboard.port"]["found"]


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


def test_a_broken_configuration_is_told_with_all_else_that_can_be_said(
    shipmate: Shipmate, project: Path
) -> None:
    (project / "ship.json").write_text(json.dumps({"nmae": 1}), encoding="utf-8")
    done = shipmate("doctor", "--dir", project)
    assert done.code == 78
    assert "wrong  configuration: nmae" in done.out
    assert "ok     versions: " in done.out
    assert "disk: " in done.out
