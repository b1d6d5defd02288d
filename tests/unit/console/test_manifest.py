from __future__ import annotations

import pytest

from bot.contracts.identity import ChatKey
from channels.console.manifest import MANIFEST


@pytest.mark.parametrize("chat", ["", "a b", "a:b", "../up", "x" * 65, "聊天", "local\n"])
def test_an_id_that_could_be_taken_for_something_else_makes_no_key(chat: str) -> None:
    with pytest.raises(ValueError, match="console chat"):
        MANIFEST.encode({"chat": chat})


@pytest.mark.parametrize(
    "key", ["", "slack:chat:C1", "console:chat:", "console:chat:a:b", "console:local", "xconsole:chat:a"]
)
def test_a_key_of_another_channel_is_not_read(key: str) -> None:
    with pytest.raises(ValueError, match=r"console chat|No chat is named"):
        MANIFEST.decode(ChatKey.parse(key))
