from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from bot import config
from bot.contracts.channel import Channel, ChannelDeps, ChannelSettings, Manifest, TokenForm, Webhook


class PigeonSettings(ChannelSettings):
    wing_token: str | None = None
    beak_token: str | None = None
    perch_secret: str | None = None
    webhook: Webhook | None = None
    base_url: str = "https://pigeon.example/"
    allow: tuple[str, ...] = ()


class DoorSettings(ChannelSettings):
    host: str = "127.0.0.1"
    port: int = Field(default=3000, ge=0, le=65_535)
    token: str | None = None


def build(settings: Any, around: ChannelDeps) -> Channel:
    raise AssertionError("reading the configuration builds nothing")


def manifest(name: str, settings: type[ChannelSettings], **how: Any) -> Manifest:
    return Manifest(name=name, settings=settings, build=build, encode=str, decode=dict, **how)  # type: ignore[arg-type]


MANIFESTS = {
    "pigeon": manifest(
        "pigeon",
        PigeonSettings,
        tokens=("wing_token", "beak_token"),
        webhook_tokens=("wing_token", "perch_secret"),
        token_forms={
            "wing_token": TokenForm(r"wing-\w+", "wing-…"),
            "beak_token": TokenForm(r"beak-\w+", "beak-…"),
        },
        valid_id=lambda text: re.fullmatch(r"P\d+", text) is not None,
        never_admit=frozenset({"P0"}),
    ),
    "door": manifest("door", DoorSettings, access="local"),
}
TOKENS = {"PIGEON_WING_TOKEN": "wing-12345678", "PIGEON_BEAK_TOKEN": "beak-12345678"}

Load = Callable[..., config.Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write ship.json (an object, or a text) and `.env`, and load the settings."""

    def run(
        document: Any = None, env: Mapping[str, str] | None = None, dotenv: str | bytes | None = None
    ) -> config.Settings:
        ship = document if isinstance(document, str) else json.dumps(document or {})
        (tmp_path / "ship.json").write_text(ship, encoding="utf-8")
        if dotenv is not None:
            data = dotenv.encode() if isinstance(dotenv, str) else dotenv
            (tmp_path / ".env").write_bytes(data)
            (tmp_path / ".env").chmod(0o600)
        return config.load(tmp_path, MANIFESTS, env or {})

    return run
