"""Bytes are recognised as text or refused, and artifacts of files get their names."""

from __future__ import annotations

import pytest

from bot import documents
from bot.contracts.messages import Attachment
from bot.core.attachments import artifact_id
from bot.errors import NoReadableText

TEXT = "日志 line one\nשורה two\n"
CHINESE = "你好，这是用旧编码写的日志。\n第二行：错误 404，请稍后再试！\n"
TRADITIONAL = "您好，這是舊的編碼。請稍後再試一次。"
JAPANESE = "これは古い文字コードで書かれたログです。\n二行目：エラー４０４、しばらくしてから。\n"
KOREAN = "이것은 오래된 인코딩으로 쓴 로그입니다. 다시 해 보세요.\n"
WESTERN = "Größe: 3 µm – “déjà vu”, señor, façade, 5 €\n"


def decoded(data: bytes) -> str:
    documents.check_text(data[: documents.SAMPLE])
    words = documents.decode(data)
    if documents.type_of(data) != "text" or words is None:
        raise NoReadableText
    return words


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TEXT.encode(), TEXT),
        (TEXT.encode("utf-8-sig"), TEXT),
        (TEXT.encode("utf-16"), TEXT),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), TEXT),
        (TEXT.encode("utf-16-le"), TEXT),
        (CHINESE.encode("utf-16-be"), CHINESE),
        (CHINESE.encode("utf-32"), CHINESE),
        (CHINESE.encode("gb18030"), CHINESE),
        (TRADITIONAL.encode("gb18030"), TRADITIONAL),
        (TRADITIONAL.encode("big5"), TRADITIONAL),
        ("你好".encode("gb18030"), "你好"),
        ("订单编号,客户,金额\n1001,张三,25\n".encode("gb18030"), "订单编号,客户,金额\n1001,张三,25\n"),
        (JAPANESE.encode("cp932"), JAPANESE),
        (KOREAN.encode("cp949"), KOREAN),
        (WESTERN.encode("cp1252"), WESTERN),
        ("Zürich".encode("latin-1"), "Zürich"),
        ("a,b\nä,ö\n".encode("latin-1") * 9_000, "a,b\nä,ö\n" * 9_000),
        (CHINESE.encode("gb18030") * 3_000, CHINESE * 3_000),
        (b"", ""),
        (b"a", "a"),
        (b"\xef\xbb\xbf", ""),
        (b"\x1b[31mred\x1b[0m\r\n", "\x1b[31mred\x1b[0m\r\n"),
        ("👨‍👩‍👧".encode(), "👨‍👩‍👧"),
    ],
)
def test_bytes_that_are_text_are_read(data: bytes, words: str) -> None:
    assert decoded(data) == words


@pytest.mark.parametrize(
    "data",
    [
        b"a\0b",
        TEXT.encode("utf-16")[:-1],
        CHINESE.encode()[:-2],
        CHINESE.encode() + b"\xff",
        CHINESE.encode("gb18030") + b"\x01",
        CHINESE.encode("gb18030")[:-3] + b"\xff\xff\n",
        "привет, это журнал".encode("cp1251"),
        b"%PDF-1.7 and so on",
        b"PK\x03\x04\x14\0",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xfe\x00\xd8",
        b"\xed\xa0\x80",
        bytes(range(256)) * 300,
    ],
)
def test_bytes_that_are_no_text_are_none(data: bytes) -> None:
    with pytest.raises(NoReadableText):
        decoded(data)


def test_an_old_or_protected_office_file_is_told_as_such() -> None:
    with pytest.raises(NoReadableText) as caught:
        decoded(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1_000))
    assert caught.value.code == "old_office"


def test_an_artifacts_name_is_a_ulid_of_its_messages_moment() -> None:
    names = {
        artifact_id("01ARZ3NDEKTSV4RRFFQ69G5FAV", at, Attachment(kind="file", ref=ref))
        for at in range(3)
        for ref in ("a", "b")
    }
    assert len(names) == 6
    assert all(len(name) == 26 and name.startswith("01ARZ3NDEK") for name in names)
    assert artifact_id("01ARZ3NDEKTSV4RRFFQ69G5FAV", 0, Attachment(kind="file", ref="a")) in names
