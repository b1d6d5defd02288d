"""A channel with a webhook needs other tokens than a channel that connects, and its own port."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Webhook
from tests.unit.config.conftest import Load

WING, PERCH = {"PIGEON_WING_TOKEN": "wing-12345678"}, {"PIGEON_PERCH_SECRET": "perch-12345678"}
HOOK: dict[str, Any] = {"webhook": {"url": "https://bot.example.org/pigeon"}}


def test_its_own_tokens_turn_it_on(load: Load) -> None:
    section = HOOK | {"beakToken": "${PIGEON_BEAK_TOKEN}"}
    settings = load({"channels": {"pigeon": section}}, env=WING | PERCH)
    assert "pigeon" in settings.enabled
    assert settings.channels["pigeon"].perch_secret in settings.secrets  # type: ignore[attr-defined]
    assert settings.channels["pigeon"].webhook.path == "/pigeon"  # type: ignore[attr-defined]


def test_one_that_is_turned_on_without_them_is_a_finding(load: Load) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load({"channels": {"pigeon": HOOK | {"enabled": True}}}, env=WING)
    (line,) = caught.value.findings
    assert line.startswith("channels.pigeon.perchSecret: found ${PIGEON_PERCH_SECRET}")


def test_without_a_webhook_nothing_of_it_is_needed(load: Load) -> None:
    settings = load({}, env=WING | {"PIGEON_BEAK_TOKEN": "beak-12345678"})
    assert "pigeon" in settings.enabled


@pytest.mark.parametrize(
    "url",
    [
        "http://bot.example.org/x",
        "bot.example.org/x",
        "https://",
        "https://bot.example.org/x?a=1",
        "https://b/#x",
        "https://b/{x}",
    ],
)
def test_an_address_that_is_not_encrypted_or_whole_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        Webhook(url=url)
