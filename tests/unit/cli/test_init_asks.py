"""`shipmate init` on a terminal: its questions, and the values that it keeps. `tests/blackbox/test_init.py` tests the whole
setup.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from bot import instance
from bot.cli import setup
from bot.testing import telegram_service
from bot.testing.slack import APP_TOKEN, BOT_TOKEN

from .conftest import Done, Shipmate
from .services import Services, started

SLACK = {"Connect slack": [True], "SLACK_BOT_TOKEN": [BOT_TOKEN], "SLACK_APP_TOKEN": [APP_TOKEN]}
TELEGRAM = {"Connect telegram": [True], "TELEGRAM_BOT_TOKEN": [telegram_service.TEST_TOKEN]}
Init = Callable[..., Awaitable[tuple[Done, list[str]]]]


@pytest.fixture
async def services(
    shipmate: Shipmate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    async with started(tmp_path, shipmate) as made:
        yield made


@pytest.fixture
def init(services: Services, monkeypatch: pytest.MonkeyPatch) -> Init:
    """Return a function that runs `init` and returns the questions that `init` asked. Its argument maps questions to answers. All
    other questions get an empty answer.
    """

    async def run(answers: dict[str, list[object]]) -> tuple[Done, list[str]]:
        left, asked = {words: [*some] for words, some in answers.items()}, list[str]()

        def reply(question: str, default: object) -> object:
            asked.append(question)
            return next((some.pop(0) for words, some in left.items() if words in question and some), default)

        monkeypatch.setattr("typer.prompt", lambda words, **_: reply(words, ""))
        monkeypatch.setattr("typer.confirm", lambda words, **_: reply(words, False))
        done = await services.run("init", services.root)
        assert (done.code, [some for some in left.values() if some]) == (0, []), done
        return done, asked

    return run


async def test_what_nothing_answers_to_is_kept_if_the_person_wants_it(services: Services, init: Init) -> None:
    for server in (services.slack, services.telegram, services.model):
        await server.stop()
    done, _ = await init(
        {
            **TELEGRAM,
            "API key": ["sk-ant-a b"],
            "Keep it anyway": [True],
            "Keep them anyway": [True],
            "Operators": ["bob", "telegram:7"],
        }
    )
    assert "It could not be tested" in done.out
    assert "does not answer" in done.out
    assert "ANTHROPIC_API_KEY=sk-ant-a b\n" in (services.root / ".env").read_text(encoding="utf-8")


@pytest.mark.parametrize("named", [{"name": "Gull"}, {}])
async def test_a_project_that_stands_keeps_its_name_and_gets_the_operators_that_are_typed(
    services: Services, init: Init, named: dict[str, str]
) -> None:
    services.config |= named
    _, asked = await init({"Operators": ["slack:U012ABCDEF"]})
    assert not any("name" in one for one in asked), "it would be lost"
    assert (services.root / ".ship" / "access.json").read_text(encoding="utf-8").count("U012ABCDEF") == 1
    _, asked = await init({})
    assert "Operators" not in asked, "whoever is in charge is known"


async def test_beside_a_gateway_that_runs_it_says_that_tokens_are_read_at_a_start(
    services: Services, init: Init
) -> None:
    instance.prepare_home(services.root / ".ship")
    for holding, told in ((instance.held(services.root / ".ship"), True), (contextlib.nullcontext(), False)):
        with holding:
            assert ("Shipmate is running in this folder" in (await init({}))[0].out) == told


async def test_tokens_for_a_channel_that_ship_json_has_wrong_are_kept_untested(
    services: Services, init: Init
) -> None:
    services.config["channels"]["slack"]["baseUrl"] = "no address"
    env = services.root / ".env"
    env.write_text("OWN=1\n", encoding="utf-8")
    env.chmod(0o644)
    done, _ = await init(SLACK)
    assert "Not tested, since ship.json is not valid there" in done.out
    assert f"OWN=1\nSLACK_BOT_TOKEN={BOT_TOKEN}" in env.read_text(encoding="utf-8")
    assert env.stat().st_mode & 0o777 == 0o600, "nobody else reads the tokens"


async def test_who_sends_no_code_in_time_becomes_no_operator(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "CLAIM_SECONDS", 0.0)
    done, _ = await init(TELEGRAM)
    assert "Skipped." in done.out
    assert "an operator." not in done.out
