from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import strategies as st

from channels.web.manifest import MANIFEST
from tests.contracts.channel_contract import ChannelContract
from tests.contracts.channel_edits import EditsContract
from tests.contracts.channel_files import FilesContract
from tests.contracts.channel_sends_files import SendsFilesContract
from tests.contracts.web_rig import WebRig


class TestWebChannel(FilesContract, SendsFilesContract, EditsContract, ChannelContract):
    manifest = MANIFEST
    addresses = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).map(lambda chat: {"chat": chat})
    pinned: ClassVar = {"web:chat:0123456789abcdef": {"chat": "0123456789abcdef"}}
    cannot: ClassVar = {
        "say_as_self": "the page cannot speak for the bot",
        "fail_next_send": "a message that no page shows yet waits in the history",
        "lose_next_answer": "nothing is answered to a send",
    }

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[WebRig]:
        rig = WebRig(tmp_path)
        await rig.channel.start(rig.intake)
        yield rig
        await rig.close()
