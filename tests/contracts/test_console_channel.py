from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import strategies as st

from channels.console.manifest import MANIFEST
from tests.contracts.channel_contract import ChannelContract
from tests.contracts.channel_sends_files import SendsFilesContract
from tests.contracts.console_rig import ConsoleRig, Terminal


class TestConsoleChannel(SendsFilesContract, ChannelContract):
    manifest = MANIFEST
    addresses = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).map(lambda chat: {"chat": chat})
    pinned: ClassVar = {
        "console:chat:local": {"chat": "local"},
        "console:chat:Second_window-2": {"chat": "Second_window-2"},
    }
    cannot: ClassVar = {
        "say_as_self": "the gateway's own lines go one way",
        "fail_next_send": "a message that no terminal takes waits for the next one",
        "lose_next_answer": "nothing is answered to a send",
    }
    cannot_tell_people_apart = "everyone who can open the socket is this user of this machine"

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[ConsoleRig]:
        rig = ConsoleRig(tmp_path)
        await rig.channel.start(rig.intake)
        rig.terminal = await Terminal.attach(rig.around.home)
        yield rig
        rig.terminal.close()
        await rig.channel.stop()
