"""ChatKeys and messages of the terminal and the web page, which share `channels/local.py`."""

from __future__ import annotations

import pytest

from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey
from channels.console.manifest import MANIFEST as CONSOLE
from channels.local import inbound
from channels.web.manifest import KEYS
from channels.web.manifest import MANIFEST as WEB


@pytest.mark.parametrize("manifest", [CONSOLE, WEB], ids=["console", "web"])
@pytest.mark.parametrize("chat", ["", "a b", "a:b", "../up", "x" * 65, "聊天", "local\n"])
def test_an_id_that_could_be_taken_for_something_else_makes_no_key(manifest: Manifest, chat: str) -> None:
    with pytest.raises(ValueError, match=f"{manifest.name} chat"):
        manifest.encode({"chat": chat})


@pytest.mark.parametrize("manifest", [CONSOLE, WEB], ids=["console", "web"])
@pytest.mark.parametrize("key", ["", "slack:chat:C1", "{}:chat:", "{}:chat:a:b", "{}:local", "x{}:chat:a"])
def test_a_key_of_another_channel_is_not_read(manifest: Manifest, key: str) -> None:
    with pytest.raises(ValueError, match=rf"{manifest.name} chat|No chat is named"):
        manifest.decode(ChatKey.parse(key.format(manifest.name)))


@pytest.mark.parametrize(
    ("said", "name", "args"),
    [
        ("/new", "new", ""),
        ("/Model  opus 5 ", "model", "opus 5"),
        ("/deny\n12", "deny", "12"),
        ("/usr/bin is full", None, None),
        ("a /new start", None, None),
        ("/ new", None, None),
        ("//", None, None),
        ("/1", None, None),
    ],
)
def test_a_slash_word_is_a_command_and_other_slashes_are_text(
    said: str, name: str | None, args: str | None
) -> None:
    found = inbound(KEYS, ChatKey("web", "a"), "m1", said, user="1", now=1.5, language=None, zone=None)
    assert (found.text, found.keys, found.ts) == (said, ("web:a:m1",), 1500)
    command = found.command
    assert (command and command.name, command and command.args) == (name, args)
