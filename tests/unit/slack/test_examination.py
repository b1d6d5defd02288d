"""Slack's tokens are examined where they are used, and nothing is opened or posted."""

from __future__ import annotations

import pytest

from bot.contracts.examination import Examination
from bot.testing.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from channels.slack.examination import examine
from channels.slack.settings import SlackSettings


async def examined(server: SlackServer, bot: str = BOT_TOKEN, app: str = APP_TOKEN) -> Examination:
    return await examine(SlackSettings(bot_token=bot, app_token=app, base_url=server.api_url))


async def test_tokens_that_hold_are_named_with_their_workspace(server: SlackServer) -> None:
    found = await examined(server)
    assert [(one.part, one.verdict) for one in found.findings] == [
        ("slack botToken", "ok"),
        ("slack scopes", "ok"),
        ("slack appToken", "ok"),
    ]
    assert found.time is not None
    assert server.sockets == 0


@pytest.mark.parametrize(
    ("bot", "app", "part", "words"),
    [
        ("xoxb-wrong", APP_TOKEN, "slack botToken", "Slack refuses it: invalid_auth"),
        (BOT_TOKEN, "xapp-wrong", "slack appToken", "Slack refuses it: invalid_auth"),
        (APP_TOKEN, BOT_TOKEN, "slack botToken", "see whether botToken and appToken are swapped"),
    ],
)
async def test_a_token_that_is_refused_says_why_and_what_to_do(
    server: SlackServer, bot: str, app: str, part: str, words: str
) -> None:
    found = await examined(server, bot, app)
    (wrong,) = [one for one in found.findings if one.part == part]
    assert wrong.verdict == "wrong"
    assert words in wrong.found
    assert wrong.remedy


async def test_scopes_that_are_missing_are_named(server: SlackServer) -> None:
    server.api.scopes -= {"files:read"}
    server.app_scopes.clear()
    found = {one.part: one for one in (await examined(server)).findings}
    assert found["slack scopes"].found == "missing: files:read"
    assert found["slack appToken"].found == "it lacks the scope connections:write"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_service_that_is_busy_is_for_later(server: SlackServer, status: int) -> None:
    server.fail("auth.test", status=status)
    verdicts = {one.verdict for one in (await examined(server)).findings}
    assert "later" in verdicts
    assert "wrong" not in verdicts


async def test_a_service_that_is_away_is_for_later(server: SlackServer) -> None:
    await server.stop()
    (found,) = (await examined(server)).findings
    assert (found.part, found.verdict) == ("slack", "later")
    assert "xoxb" not in found.found
