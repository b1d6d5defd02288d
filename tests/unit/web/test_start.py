from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.channel import Channel
from bot.testing.intake import RecordingIntake
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser


def _channel(tmp_path: Path, **settings: object) -> Channel:
    return MANIFEST.build(WebSettings.model_validate(settings), surroundings(tmp_path))


async def test_port_zero_takes_a_free_port_and_tells_it(channel: Channel) -> None:
    assert channel.addresses[0].startswith("http://127.0.0.1:")
    assert int(channel.addresses[0].rsplit(":", 1)[1]) > 0


@pytest.mark.parametrize(("host", "shown"), [("localhost", "localhost"), ("::1", "[::1]")])
async def test_the_address_is_one_a_browser_takes(tmp_path: Path, host: str, shown: str) -> None:
    channel = _channel(tmp_path, host=host, port=0)
    await channel.start(RecordingIntake())
    assert channel.addresses[0].startswith(f"http://{shown}:")
    async with Browser(channel) as browser:
        assert (await browser.get("/api/info"))[0] == 200
    await channel.stop()


async def test_a_port_in_use_is_named_with_its_holder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        channel = _channel(tmp_path, port=port)
        with pytest.raises(errors.Unavailable) as caught:
            await channel.start(RecordingIntake())
    assert f"{port} on 127.0.0.1" in str(caught.value)
    assert f"in use by process {os.getpid()};" in str(caught.value)
    assert not channel.health().connected
    await channel.stop()
    await channel.start(RecordingIntake())
    assert channel.addresses == (f"http://127.0.0.1:{port}",)
    await channel.stop()


async def test_an_address_that_is_not_here_is_a_finding(tmp_path: Path) -> None:
    channel = _channel(tmp_path, host="192.0.2.1", port=0, token="a token of some length")
    with pytest.raises(errors.ConfigError, match=r"channels\.web"):
        await channel.start(RecordingIntake())
