from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import ValidationError
from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.identity import ChatKey
from bot.testing import slack_scopes
from bot.testing.slack import SUBSCRIPTIONS
from channels import slack
from channels.slack.app import app_manifest
from channels.slack.manifest import MANIFEST, SlackSettings, decode

ids = st.from_regex(r"[CDG][A-Z0-9]{2,12}", fullmatch=True)
stamps = st.from_regex(r"[0-9]{10}\.[0-9]{6}", fullmatch=True)


@pytest.mark.parametrize(
    "key",
    ["", "slack:chat:", "telegram:chat:C1", "slack:chat:C1:thread:", "slack:chat:C1:x:1", "slack:chat:C1\n"],
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"slack chat|No chat is named"):
        decode(ChatKey.parse(key))


@pytest.mark.parametrize("value", ["U0ADA", "W123", "C0TEAM", "D12", "G99"])
def test_stable_ids_are_known(value: str) -> None:
    assert MANIFEST.valid_id(value)


@pytest.mark.parametrize(
    "value", ["", "U", "U1", "ada", "@ada", "u0ada", "B0BOT", "#general", "U0ADA\n", "*", "U٠٠٠"]
)
def test_names_are_no_ids(value: str) -> None:
    assert not MANIFEST.valid_id(value)


@pytest.mark.parametrize(
    "url", ["http://slack.com/api/", "ftp://127.0.0.1/", "slack.com", "", "https://", "http://[::1"]
)
def test_tokens_go_nowhere_in_the_clear(url: str) -> None:
    with pytest.raises(ValidationError):
        SlackSettings.model_validate({"baseUrl": url})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/api", "http://localhost/", "http://[::1]:8/", "https://e.x/"]
)
def test_loopback_may_be_in_the_clear(url: str) -> None:
    assert SlackSettings.model_validate({"baseUrl": url}).base_url == url


def test_importing_the_manifest_imports_no_sdk() -> None:
    code = "import sys, channels.slack.manifest; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {name.partition(".")[0] for name in loaded} & {"slack_bolt", "slack_sdk", "aiohttp"}


def test_the_app_manifest_is_what_slack_takes() -> None:
    app: dict[str, Any] = app_manifest("Ship 🚢 mate")
    assert json.loads(json.dumps(app)) == app
    assert app["settings"]["socket_mode_enabled"] is True
    assert set(app["settings"]["event_subscriptions"]["bot_events"]) == SUBSCRIPTIONS
    assert app["features"]["slash_commands"][0]["command"] == "/shipmate"
    assert "agent_view" in app["features"]
    assert app["features"]["app_home"]["messages_tab_read_only_enabled"] is False
    assert app["display_information"]["name"] == "Ship 🚢 mate"
    assert len(app_manifest("x" * 99)["display_information"]["name"]) == 35


def test_the_app_manifest_of_a_webhook_names_its_address_everywhere() -> None:
    address = "https://bot.example.org/slack"
    app: dict[str, Any] = app_manifest("Shipmate", address)
    assert app["settings"]["socket_mode_enabled"] is False
    assert app["settings"]["event_subscriptions"]["request_url"] == address
    assert app["settings"]["interactivity"]["request_url"] == address
    assert [one["url"] for one in app["features"]["slash_commands"]] == [address]
    words = MANIFEST.connect("Shipmate", address)
    assert address in words
    assert "Signing Secret" in words
    assert "connections:write" not in words
    assert "connections:write" in MANIFEST.connect("Shipmate", None)


def methods_used() -> set[str]:
    """Return the Web API methods in the channel's code: methods of the library's client, and names in addresses."""
    found = set[str]()
    for module in sorted(Path(slack.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and "_" in node.attr.strip("_")
                and hasattr(AsyncWebClient, node.attr)
                and ast.unparse(node) != "super().api_call"
            ):
                found.add(node.attr.replace("_", "."))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"^/([a-z]+(?:\.[a-zA-Z]+)+)$", node.value))
    # This method needs the app token, whose scope a manifest cannot request.
    return found - {"apps.connections.open"}


def test_the_scopes_that_the_app_asks_for_are_those_of_the_methods_and_events_that_are_used() -> None:
    app = app_manifest("Shipmate")
    used = methods_used()
    assert {"chat.postMessage", "conversations.replies", "bots.info", "users.conversations"} <= used
    needed = set[str]().union(
        *map(slack_scopes.of_method, used),
        *map(slack_scopes.of_event, app["settings"]["event_subscriptions"]["bot_events"]),
        {slack_scopes.COMMANDS} if app["features"]["slash_commands"] else set(),
    )
    assert set(app["oauth_config"]["scopes"]["bot"]) == needed
