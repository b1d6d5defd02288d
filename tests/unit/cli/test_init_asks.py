"""`shipmate init` on a terminal: what it asks, what it tries, and what it keeps."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import instance
from bot.cli import credentials
from bot.testing import telegram_service
from bot.testing.anthropic import KEY
from bot.testing.slack import APP_TOKEN, BOT_TOKEN

from .conftest import Shipmate
from .services import Services, started


class Person:
    """Answers questions in order: each by its beginning."""

    def __init__(self, *answers: tuple[str, Any]) -> None:
        self.answers = list(answers)

    def __call__(self, words: str, **_: Any) -> Any:
        beginning, answer = self.answers.pop(0)
        assert beginning in words, (words, beginning)
        return answer


@pytest.fixture
async def services(
    shipmate: Shipmate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    async with started(tmp_path, shipmate) as made:
        yield made


def sits(monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, Any]) -> Person:
    person = Person(*answers)
    monkeypatch.setattr("typer.prompt", person)
    monkeypatch.setattr("typer.confirm", person)
    return person


async def test_each_credential_is_tried_and_asked_again_until_it_holds(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = sits(
        monkeypatch,
        ("Anthropic API key", "sk-ant-wrong-key-1"),
        ("Keep it anyway", False),
        ("Anthropic API key", KEY),
        ("Connect slack", True),
        ("Slack bot token, SLACK_BOT_TOKEN", APP_TOKEN),
        ("Keep it anyway", False),
        ("SLACK_BOT_TOKEN", BOT_TOKEN),
        ("SLACK_APP_TOKEN", APP_TOKEN),
        ("Connect telegram", True),
        ("TELEGRAM_BOT_TOKEN", telegram_service.TEST_TOKEN),
        ("Operators", "slack:U0ANN"),
    )
    code = "operator-" + "ab" * 8
    monkeypatch.setattr("secrets.token_hex", lambda _: "ab" * 8)
    running = asyncio.create_task(services.run("init", services.root))
    await services.telegram.until(lambda: bool(services.telegram.called("getUpdates")))
    services.telegram.say(f"/start {code}")
    done = await running
    assert done.code == 0, done
    assert person.answers == []
    assert "The provider refuses it" in done.out
    assert "A Slack bot token looks like xoxb-…; this is something else." in done.out
    assert "slack scopes: all 16" in done.out
    assert "You are telegram:1001, an operator." in done.out
    assert not any(one in done.out for one in (KEY, BOT_TOKEN, APP_TOKEN, telegram_service.TEST_TOKEN))
    env = (services.root / ".env").read_text(encoding="utf-8")
    assert f"\nANTHROPIC_API_KEY={KEY}\n" in env
    assert f"\nSLACK_APP_TOKEN={APP_TOKEN}\n" in env
    assert (services.root / ".env").stat().st_mode & 0o777 == 0o600
    kept = json.loads((services.root / ".ship" / "access.json").read_text(encoding="utf-8"))
    assert kept["channels"]["telegram"]["operators"] == ["1001"]
    assert "There is none on slack yet." in done.out
    assert kept["channels"]["slack"]["operators"] == ["U0ANN"]


async def test_what_nothing_answers_to_is_kept_if_the_person_wants_it(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    for server in (services.slack, services.telegram, services.model):
        await server.stop()
    sits(
        monkeypatch,
        ("Anthropic API key", "sk-ant-a b"),
        ("Keep it anyway", True),
        ("Connect slack", False),
        ("Connect telegram", True),
        ("TELEGRAM_BOT_TOKEN", telegram_service.TEST_TOKEN),
        ("Keep them anyway", True),
        ("Operators", "bob"),
        ("Operators", "telegram:7"),
    )
    done = await services.run("init", services.root)
    assert done.code == 0, done
    assert "It could not be tested" in done.out
    assert "does not answer" in done.out
    assert 'ANTHROPIC_API_KEY="sk-ant-a b"\n' in (services.root / ".env").read_text(encoding="utf-8")


async def test_what_is_set_is_not_asked_for(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    env = services.root / ".env"
    env.write_text(
        f"ANTHROPIC_API_KEY={KEY}\nTELEGRAM_BOT_TOKEN={telegram_service.TEST_TOKEN}\nOTHER=1\n",
        encoding="utf-8",
    )
    sits(
        monkeypatch,
        ("Connect slack", True),
        ("SLACK_BOT_TOKEN", ""),
        ("Operators", ""),
    )
    done = await services.run("init", services.root)
    assert done.code == 0, done
    assert "ANTHROPIC_API_KEY is set." in done.out
    assert "TELEGRAM_BOT_TOKEN: set." in done.out
    assert env.read_text(encoding="utf-8").endswith("\nOTHER=1\n")


@pytest.mark.parametrize("named", [{"name": "Gull"}, {}])
async def test_a_project_that_stands_keeps_its_name_and_gets_the_operators_that_are_typed(
    services: Services, monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    """A name that is typed would be lost, so none is asked for."""
    services.config |= named
    key = ("Anthropic API key", "")
    sits(
        monkeypatch,
        key,
        ("Connect slack", False),
        ("Connect telegram", False),
        ("Operators", "slack:U012ABCDEF"),
    )
    done = await services.run("init", services.root)
    assert done.code == 0, done
    assert (services.root / ".ship" / "access.json").read_text(encoding="utf-8").count("U012ABCDEF") == 1
    person = sits(monkeypatch, key, ("Connect slack", False), ("Connect telegram", False))
    assert (await services.run("init", services.root)).code == 0
    assert person.answers == [], "whoever is in charge is known"


async def test_beside_a_gateway_that_runs_it_says_that_tokens_are_read_at_a_start(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.prepare_home(services.root / ".ship")
    said = []
    for holding in (instance.held(services.root / ".ship"), contextlib.nullcontext()):
        sits(
            monkeypatch,
            ("Anthropic API key", ""),
            ("Connect slack", False),
            ("Connect telegram", False),
            ("Operators", ""),
        )
        with holding:
            said.append((await services.run("init", services.root)).out)
    assert ["Shipmate is running in this folder" in out for out in said] == [True, False]


async def test_tokens_for_a_channel_that_ship_json_has_wrong_are_kept_untried(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.config["channels"]["slack"]["baseUrl"] = "no address"
    sits(
        monkeypatch,
        ("Anthropic API key", ""),
        ("Connect slack", True),
        ("SLACK_BOT_TOKEN", BOT_TOKEN),
        ("SLACK_APP_TOKEN", APP_TOKEN),
        ("Connect telegram", False),
        ("Operators", ""),
    )
    done = await services.run("init", services.root)
    assert done.code == 0, done
    assert "Not tested, since ship.json is not valid there" in done.out
    assert f"SLACK_BOT_TOKEN={BOT_TOKEN}" in (services.root / ".env").read_text(encoding="utf-8")


async def test_who_sends_no_code_in_time_becomes_no_operator(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "CLAIM_SECONDS", 0.0)
    sits(
        monkeypatch,
        ("Anthropic API key", ""),
        ("Connect slack", False),
        ("Connect telegram", True),
        ("TELEGRAM_BOT_TOKEN", telegram_service.TEST_TOKEN),
        ("Operators", ""),
    )
    done = await services.run("init", services.root)
    assert done.code == 0, done
    assert "Skipped." in done.out
    assert "an operator." not in done.out
