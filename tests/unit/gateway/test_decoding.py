"""Which bytes are text, and what files are called."""

from __future__ import annotations

import pytest

from bot.contracts.inbound import Attachment
from bot.gateway.attachments import Decoder, NoText, artifact_id, size_in_words

TEXT = "日志 line one\nשורה two\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TEXT.encode(), TEXT),
        (TEXT.encode("utf-8-sig"), TEXT),
        (TEXT.encode("utf-16"), TEXT),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), TEXT),
        (b"", ""),
        (b"a", "a"),
        (b"\xef\xbb\xbf", ""),
        (b"\x1b[31mred\x1b[0m\r\n", "\x1b[31mred\x1b[0m\r\n"),
        ("👨‍👩‍👧".encode(), "👨‍👩‍👧"),
    ],
)
def test_bytes_that_are_text_are_read_however_they_are_cut(data: bytes, words: str) -> None:
    for size in (1, 2, 3, 5, 7, 1_000):
        decoder = Decoder()
        for at in range(0, len(data), size):
            decoder.take(data[at : at + size])
        assert decoder.end() == words


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b",
        "Zürich".encode("latin-1"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-32"),
        TEXT.encode("utf-16")[:-1],
        TEXT.encode()[:2],
        b"%PDF-1.7 and so on",
        b"PK\x03\x04\x14\0",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xfe\x00\xd8",
        b"\xed\xa0\x80",
    ],
)
def test_bytes_that_are_no_text_are_none_however_they_are_cut(data: bytes) -> None:
    for size in (1, 2, 3, 5, 1_000):
        decoder = Decoder()

        def read(size: int = size, decoder: Decoder = decoder) -> str:
            for at in range(0, len(data), size):
                decoder.take(data[at : at + size])
            return decoder.end()

        with pytest.raises(NoText):
            read()


def test_an_artifacts_name_is_a_ulid_of_its_messages_moment() -> None:
    names = {
        artifact_id("01ARZ3NDEKTSV4RRFFQ69G5FAV", at, Attachment(kind="file", ref=ref))
        for at in range(3)
        for ref in ("a", "b")
    }
    assert len(names) == 6
    assert all(len(name) == 26 and name.startswith("01ARZ3NDEK") for name in names)
    assert artifact_id("01ARZ3NDEKTSV4RRFFQ69G5FAV", 0, Attachment(kind="file", ref="a")) in names


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, "1 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (1_000_000, "1 MB"), (10**7, "10 MB")],
)
def test_sizes_are_said_for_people(size: int, words: str) -> None:
    assert size_in_words(size) == words
