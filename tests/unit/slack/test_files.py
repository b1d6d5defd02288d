"""Files of messages: only Slack's own hosts get the token, and refusals that Slack sends as pages are recognised."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.messages import Attachment
from bot.testing.clock import FakeClock
from bot.testing.slack import SlackServer
from channels.slack import files
from tests.contracts.test_slack_channel import SlackRig

DATA = "Zeile eins\nπ και 猫\n".encode() * 100


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SlackRig]:
    clock = FakeClock()
    async with SlackServer(clock=clock) as server:
        made = SlackRig(tmp_path, server, clock)
        await made.channel.start(made.intake)
        yield made
        await made.channel.stop()


async def fetched(rig: SlackRig, file: dict[str, Any]) -> bytes:
    attachment = Attachment(kind="file", ref=file["id"])
    return b"".join([piece async for piece in rig.channel.fetch(attachment, most=10**6)])


async def refused(rig: SlackRig, file: dict[str, Any], error: type[errors.FileFailed]) -> str:
    with pytest.raises(error) as caught:
        await fetched(rig, file)
    said = str(caught.value)
    assert rig.server.bot_token not in said
    return said


async def test_the_token_goes_along_in_a_header_and_nowhere_else(rig: SlackRig) -> None:
    assert await fetched(rig, rig.server.add_file("a b&c.txt", DATA)) == DATA
    (call,) = rig.server.called("file")
    assert call.headers["Authorization"] == f"Bearer {rig.server.bot_token}"
    assert call.headers["Accept-Encoding"] == "identity"
    assert rig.server.bot_token not in call.params["path"]


async def test_another_host_never_hears_of_the_token(rig: SlackRig) -> None:
    async with SlackServer(clock=rig.clock) as other:
        file = rig.server.add_file("a.txt", DATA, at=other.url)
        await refused(rig, file, errors.FileGone)
        assert other.calls == []


async def test_what_is_only_linked_is_not_asked_for_with_the_token(rig: SlackRig) -> None:
    file = rig.server.add_file("a.txt", DATA)
    file["is_external"] = True
    await refused(rig, file, errors.FileGone)
    assert rig.server.called("file") == []


@pytest.mark.parametrize(
    "address",
    [
        "http://files.slack.com/a",
        "https://files.slack.com.evil.test/a",
        "https://files.slack.com@evil.test/a",
        "https://files.slack.com:444/a",
        "https://evil.test/https://files.slack.com/",
        "https://evil.test\\@files.slack.com/",
        " https://files.slack.com/a",
        "//files.slack.com/a",
        "https://slack.community/a",
    ],
)
def test_only_slacks_own_addresses_are_taken(address: str) -> None:
    own = files.hosts("https://slack.com/api/")
    assert not address.startswith(own)
    assert "https://files.slack.com/files-pri/T0-F0/download/a.txt".startswith(own)


@pytest.mark.parametrize("address", [None, 7, "", "https://files.slack.com"])
async def test_a_file_without_an_address_of_slacks_is_gone(rig: SlackRig, address: Any) -> None:
    file = rig.server.add_file("a.txt", DATA)
    file["url_private_download"] = address
    await refused(rig, file, errors.FileGone)
    assert rig.server.called("file") == []


async def test_the_page_for_signing_in_is_no_file(rig: SlackRig) -> None:
    file = rig.server.add_file("a.txt", DATA)
    rig.server.fail("file", status=200, headers={"Content-Type": "text/html; charset=utf-8"}, body="<html>")
    await refused(rig, file, errors.FileGone)
    page = rig.server.add_file("page.html", b"<html></html>", mime="text/html")
    assert await fetched(rig, page) == b"<html></html>"
    rig.server.fail("file", status=200, headers={"Content-Type": "text/html"}, body="<html>Sign in</html>")
    await refused(rig, page, errors.FileUnreachable)


async def test_a_right_that_is_missing_is_named_to_the_operator(rig: SlackRig) -> None:
    file = rig.server.add_file("a.txt", DATA)
    rig.server.api.scopes.discard("files:read")
    assert "missing_scope" in await refused(rig, file, errors.FileForbidden)


async def test_what_slack_cannot_tell_now_it_may_tell_later(rig: SlackRig) -> None:
    file = rig.server.add_file("a.txt", DATA)
    rig.server.limit("files.info")
    await refused(rig, file, errors.FileUnreachable)
    for body in ({"ok": False, "error": "internal_error"}, {"ok": True}, {"ok": True, "file": []}):
        rig.server.fail("files.info", status=200, body=body)
        await refused(rig, file, errors.FileUnreachable)
    assert await fetched(rig, file) == DATA
