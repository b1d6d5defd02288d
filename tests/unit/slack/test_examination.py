"""`examine` tries Slack's tokens without opening a socket or posting a message."""

from __future__ import annotations

import pytest

from bot.contracts.channel import Examination, Webhook
from bot.testing.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from channels.slack.app import examine
from channels.slack.manifest import SlackSettings


async def examined(server: SlackServer, bot: str = BOT_TOKEN, app: str = APP_TOKEN) -> Examination:
    return await examine(SlackSettings(bot_token=bot, app_token=app, base_url=server.api_url))


@pytest.mark.parametrize(
    ("bot", "app", "part", "words"),
    [
        ("xoxb-wrong", APP_TOKEN, "slack botToken", "Slack refuses it: invalid_auth"),
        (BOT_TOKEN, "xapp-wrong", "slack appToken", "Slack refuses it: invalid_auth"),
        (APP_TOKEN, BOT_TOKEN, "slack tokens", "botToken and appToken are swapped"),
        (BOT_TOKEN, BOT_TOKEN, "slack appToken", "not_allowed_token_type: it is a token of another kind"),
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


async def test_somebody_whom_slack_does_not_know_is_found(server: SlackServer) -> None:
    server.add_user("U0ANN", name="Ann")
    server.add_user("U0GONE", name="Gone")
    server.world.users["U0GONE"]["deleted"] = True
    settings = SlackSettings(
        bot_token=BOT_TOKEN,
        app_token=APP_TOKEN,
        base_url=server.api_url,
        allow=["*", "C0ROOM", "U0ANN", "U0GONE", "U0TYPO"],
    )
    found = {one.part: one for one in (await examine(settings)).findings if "person" in one.part}
    assert {part: one.verdict for part, one in found.items()} == {
        "slack person U0GONE": "warn",
        "slack person U0TYPO": "wrong",
    }
    assert "member ID" in found["slack person U0TYPO"].remedy


async def test_with_a_webhook_no_app_token_is_asked_for(server: SlackServer) -> None:
    webhook = Webhook(url="https://bot.example.org/slack")
    settings = SlackSettings(
        bot_token=BOT_TOKEN, signing_secret="0" * 32, webhook=webhook, base_url=server.api_url
    )
    found = {one.part: one for one in (await examine(settings)).findings}
    assert "slack appToken" not in found
    assert webhook.url in found["slack webhook"].found
    assert {one.verdict for one in found.values()} == {"ok"}
    assert not server.called("apps.connections.open")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_service_that_is_busy_is_for_later(server: SlackServer, status: int) -> None:
    server.fail("auth.test", status=status)
    verdicts = {one.verdict for one in (await examined(server)).findings}
    assert "later" in verdicts
    assert "wrong" not in verdicts


async def test_an_app_that_is_no_agent_is_told_what_it_lacks(server: SlackServer) -> None:
    server.world.agent = False
    (found,) = [one for one in (await examined(server)).findings if one.part == "slack agent view"]
    assert found.verdict == "warn"
    assert "stop button" in found.found
    assert '"App Manifest"' in found.remedy
    assert not server.world.sessions


async def test_tokens_of_two_apps_are_told_apart() -> None:
    async with SlackServer(app_token="xapp-1-A0OTHER-17-secret") as server:
        found = {one.part: one for one in (await examined(server, app=server.app_token)).findings}
        assert found["slack appToken"].found == "it belongs to another app (A0OTHER) than botToken (A0SHIP)"
        assert "slack link" not in found
        server.api.scopes -= {"users:read"}
        found = {one.part: one for one in (await examined(server, app=server.app_token)).findings}
        assert found["slack link"].found.endswith("?app=A0OTHER&team=T0TEAM"), "the app token names its own"
