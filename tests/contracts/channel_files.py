"""More tests for channels that can fetch the files of messages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar, Protocol

import pytest

from bot import errors
from bot.contracts.channel import FILE_PIECE, Channel, Manifest
from bot.contracts.messages import Attachment, Inbound
from tests.contracts.channel_contract import Rig

BYTES = bytes(range(256)) * 1_000
NO_NAMES = (None, "", "../../etc/passwd", "F0NOSUCH99", "x" * 5_000, "F0 0\n")
BUFFERS = 24_000_000
"""Number of bytes that exceeds the kernel's buffers, so that sending to a client that reads nothing must wait."""


class FilesRig(Rig, Protocol):
    async def upload(self, data: bytes, *, name: str, words: str = "look") -> None:
        """Send a file in a direct chat as a person."""
        ...

    async def forget_files(self) -> None:
        """Delete all sent files from the platform."""
        ...

    @property
    def secrets(self) -> list[str]:
        """Texts that no error message may contain."""
        ...


class DownloadsRig(FilesRig, Protocol):
    server: Any
    """Fake platform server, a `bot.testing.loopback.Loopback`."""


class FilesContract:
    manifest: ClassVar[Manifest]

    async def test_a_file_comes_whole_in_small_pieces(self, rig: FilesRig) -> None:
        files, file = await self._sent(rig)
        assert (file.kind, file.name, file.size) == ("file", "数据.bin", len(BYTES))
        pieces = [piece async for piece in files.fetch(file, most=len(BYTES))]
        assert b"".join(pieces) == BYTES
        assert max(map(len, pieces)) <= FILE_PIECE

    async def test_an_empty_file_has_no_pieces(self, rig: FilesRig) -> None:
        files, file = await self._sent(rig, b"")
        assert [piece async for piece in files.fetch(file, most=10)] == []

    @pytest.mark.parametrize("most", [0, 1, 100_000, len(BYTES) - 1])
    async def test_of_a_larger_file_the_beginning_comes_and_then_the_refusal(
        self, rig: FilesRig, most: int
    ) -> None:
        files, file = await self._sent(rig)
        came = bytearray()

        async def take() -> None:
            async for piece in files.fetch(file, most=most):
                came.extend(piece)

        with pytest.raises(errors.FileTooLarge):
            await take()
        assert came == BYTES[:most]

    async def test_a_file_that_is_gone_says_so(self, rig: FilesRig) -> None:
        files, file = await self._sent(rig)
        await rig.forget_files()
        await self._fails(rig, files, file, errors.FileGone)

    @pytest.mark.parametrize("ref", NO_NAMES)
    async def test_a_name_of_no_file_is_asked_for_nowhere(self, rig: FilesRig, ref: str | None) -> None:
        files, file = await self._sent(rig)
        await self._fails(rig, files, file.model_copy(update={"ref": ref}), errors.FileGone)

    async def test_who_has_seen_enough_leaves_it_for_the_next_one(self, rig: FilesRig) -> None:
        files, file = await self._sent(rig)
        async with contextlib.aclosing(files.fetch(file, most=10**9)) as pieces:
            await anext(pieces)
        assert b"".join([piece async for piece in files.fetch(file, most=10**9)]) == BYTES

    async def test_a_stopped_channel_gives_none(self, rig: FilesRig) -> None:
        files, file = await self._sent(rig)
        await rig.channel.stop()
        await self._fails(rig, files, file, errors.FileUnreachable)

    async def _sent(self, rig: FilesRig, data: bytes = BYTES) -> tuple[Channel, Attachment]:
        assert self.manifest.files
        await rig.upload(data, name="数据.bin")
        inbound: Inbound = await rig.intake.offers(1)
        (file,) = inbound.attachments
        return rig.channel, file

    async def _fails(
        self, rig: FilesRig, files: Channel, file: Attachment, error: type[errors.FileFailed]
    ) -> None:
        with pytest.raises(error) as caught:
            async for _ in files.fetch(file, most=10**9):
                pass
        assert caught.value.why
        assert not [secret for secret in rig.secrets if secret in str(caught.value)]
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


class DownloadsContract(FilesContract):
    """More tests for channels that download files from a platform over the network."""

    async def test_the_platform_is_asked_for_a_file_once_and_for_no_name_of_none(
        self, rig: DownloadsRig
    ) -> None:
        files, file = await self._sent(rig)
        assert b"".join([piece async for piece in files.fetch(file, most=len(BYTES))]) == BYTES
        assert len(rig.server.called("file")) == 1
        for ref in NO_NAMES:
            await self._fails(rig, files, file.model_copy(update={"ref": ref}), errors.FileGone)
        assert len(rig.server.called("file")) == 1

    async def test_nothing_is_read_ahead_of_who_takes_it(self, rig: DownloadsRig) -> None:
        files, file = await self._sent(rig)
        rig.server.fail("file", action="endless")
        async with contextlib.aclosing(files.fetch(file, most=10**12)) as pieces:
            await anext(pieces)
            for _ in range(2_000):
                await asyncio.sleep(0)
            assert rig.server.sent_bytes < BUFFERS
            for _ in range(2 * BUFFERS // FILE_PIECE):
                assert len(await anext(pieces)) <= FILE_PIECE

    async def test_who_has_seen_enough_closes_it_and_the_next_one_comes(self, rig: DownloadsRig) -> None:
        files, file = await self._sent(rig)
        rig.server.fail("file", action="endless")
        async with contextlib.aclosing(files.fetch(file, most=10**9)) as pieces:
            await anext(pieces)
        assert b"".join([piece async for piece in files.fetch(file, most=10**9)]) == BYTES

    @pytest.mark.parametrize(
        "how",
        [{"action": "short"}, {"action": "less"}, {"status": 503}, {"status": 429}],
        ids=str,
    )
    async def test_a_file_that_does_not_come_whole_may_come_later(
        self, rig: DownloadsRig, how: dict[str, Any]
    ) -> None:
        files, file = await self._sent(rig)
        rig.server.fail("file", **how)
        await self._fails(rig, files, file, errors.FileUnreachable)
        assert b"".join([piece async for piece in files.fetch(file, most=10**9)]) == BYTES

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    async def test_no_redirect_is_followed(self, rig: DownloadsRig, status: int) -> None:
        files, file = await self._sent(rig)
        rig.server.fail("file", status=status, headers={"Location": "?again"})
        count = len(rig.server.calls)
        await self._fails(rig, files, file, errors.FileGone)
        assert [call.method for call in rig.server.calls[count:]].count("file") == 1

    async def test_what_comes_packed_is_not_unpacked(self, rig: DownloadsRig) -> None:
        files, file = await self._sent(rig)
        rig.server.fail("file", status=200, headers={"Content-Encoding": "gzip"}, body=BYTES)
        await self._fails(rig, files, file, errors.FileUnreachable)
