"""Tests of the manifest, which does not load Telegram's library."""

from __future__ import annotations

import subprocess
import sys

import pydantic
import pytest

from bot.contracts.identity import ChatKey
from channels.telegram.manifest import MANIFEST, TelegramSettings


def test_the_token_is_not_shown() -> None:
    assert "1:a" not in repr(TelegramSettings(bot_token="1:a"))


@pytest.mark.parametrize("base_url", ["", "api.telegram.org", "ftp://a.b", "https://"])
def test_an_address_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="https://"):
        TelegramSettings(base_url=base_url)


@pytest.mark.parametrize("value", ["", "0", "007", "@name", "name", "1 ", "1\n", "--1", "٣", "1.0", "*"])
def test_numbers_are_ids_and_names_are_not(value: str) -> None:
    assert all(map(MANIFEST.valid_id, ("1", "-100200", "9223372036854775807")))
    assert not MANIFEST.valid_id(value)


@pytest.mark.parametrize(
    "key",
    [
        "telegram:chat:",
        "telegram:chat:x",
        "slack:chat:1",
        "telegram:chat:1:topic:",
    ],
)
def test_what_is_no_chat_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"telegram chat|No chat is named"):
        MANIFEST.decode(ChatKey.parse(key))


def test_the_manifest_loads_without_the_library() -> None:
    code = "import sys, channels.telegram.manifest; sys.exit('telegram' in sys.modules or 'httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
