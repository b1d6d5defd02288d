"""Office files become text; malicious and damaged office files are refused."""

from __future__ import annotations

import asyncio
import io
import json
import random

import pytest

from bot import documents
from bot.documents import reader
from bot.documents.reader import CUT
from bot.errors import NoReadableText
from tests.unit.documents.office_files import docx, odt, packed, pptx, said, xlsx

MOST = 100_000
CELL = '<c t="s"><v>0</v></c>'


def text(data: bytes, most: int = MOST) -> str:
    out = io.StringIO()
    reader.read_office(data, most, out)
    head, _, words = out.getvalue().partition("\n")
    assert json.loads(head) == {}
    return words


async def code(data: bytes) -> str:
    with pytest.raises(NoReadableText) as caught:
        await documents.read_office(data, MOST)
    return caught.value.code


def test_a_document_has_its_paragraphs_tables_and_notes() -> None:
    cell = "<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
    body = (
        '<w:p><w:pPr><w:tabs><w:tab w:pos="1"/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">Hello </w:t></w:r>'
        "<w:r><w:t>世界 🎉</w:t><w:tab/><w:t>שלום</w:t><w:br/><w:t>&lt;b&gt;</w:t></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:instrText>PAGE</w:instrText></w:p>"
        f"<w:tbl><w:tr>{cell.format('Name')}{cell.format('名前')}</w:tr><w:tr>{cell.format('a')}{cell.format('b')}</w:tr></w:tbl>"
    )
    notes = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    data = docx(body, footnotes=notes.format("see below"), comments=notes.format("really?"))
    assert text(data) == (
        "Hello 世界 🎉\tשלום\n<b>\n\nName | 名前 | \na | b | \n\n# Footnotes\nsee below\n\n# Comments\nreally?\n"
    )


def test_what_is_there_twice_for_older_programs_is_told_once() -> None:
    box = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    body = f"<mc:AlternateContent {mc}><mc:Choice>{box.format('new')}</mc:Choice><mc:Fallback>{box.format('old')}</mc:Fallback></mc:AlternateContent>"
    assert text(docx(body)) == "new\n"


def test_slides_come_in_order_with_their_notes() -> None:
    data = pptx(said("First", "one"), said("第二"), said("last"), notes=said("say hello"))
    assert text(data) == ("# Slide 1\nFirst\none\n\n# Slide 2\n第二\n\n# Slide 3\nlast\nNotes: say hello\n")


def test_a_table_of_numbers_has_its_texts_gaps_and_dates() -> None:
    rows = (
        '<row><c r="A1" t="s"><v>1</v></c><c r="B1" t="s"><v>0</v></c><c r="D1" t="inlineStr"><is><t>in line</t></is></c></row>'
        '<row><c r="A2"><v>12.5</v></c><c r="B2" t="str"><f>A2&amp;"!"</f><v>12.5!</v></c><c r="C2" t="b"><v>1</v></c></row>'
        '<row><c r="A3" s="1"><v>45321</v></c><c r="B3" s="2"><v>45321.5</v></c><c r="C3" s="1"><v>0.25</v></c><c r="D3" s="0"><v>45321</v></c></row>'
        '<row><c r="A4"/></row><row><c r="XFD5"><v>7</v></c></row>'
    )
    strings = "<si><t>Preis</t></si><si><r><t>日</t></r><r><t>付</t></r><rPh><t>ひづけ</t></rPh></si>"
    formats = '<numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd&quot;d&quot;"/><numFmt numFmtId="165" formatCode="0.00&quot;days&quot;[Red]"/>'
    styles = '<xf numFmtId="165"/><xf numFmtId="14"/><xf numFmtId="164"/>'
    data = xlsx(rows, strings=strings, formats=formats, styles=styles)
    assert text(data).splitlines() == [
        "# Sheet: 销售",
        "日付\tPreis\t\tin line",
        "12.5\t12.5!\tTRUE",
        "2024-01-30\t2024-01-30 12:00:00\t06:00:00\t45321",
        "\t" * reader.GAP + "7",
    ]
    later = xlsx(
        '<row><c s="0"><v>1</v></c></row>', styles='<xf numFmtId="14"/>', about='<workbookPr date1904="1"/>'
    )
    assert text(later).splitlines()[1] == "1904-01-02"


def test_an_open_document_has_its_paragraphs_and_tables() -> None:
    body = (
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
        '<text:h>题目</text:h><text:p>a<text:s text:c="3"/>b<text:tab/><text:span>c</text:span><text:line-break/>d</text:p>'
        "<table:table><table:table-row><table:table-cell><text:p>x</text:p></table:table-cell>"
        "<table:table-cell><text:p>y</text:p></table:table-cell></table:table-row></table:table>"
    )
    assert text(odt(body)) == "题目\na   b\tc\nd\nx | y | \n"


def test_of_more_text_than_is_read_the_beginning_comes_and_says_so() -> None:
    data = docx("<w:p><w:r><w:t>0123456789</w:t></w:r></w:p>" * 1_000)
    assert text(data, 25) == "0123456789\n0123456789\n012" + CUT


@pytest.mark.parametrize(
    "data",
    [
        packed({"a.txt": "hello"}),
        packed({"mimetype": "application/zip", "content.xml": "<a/>"}),
        docx("<w:p>"),
        docx("&nosuch;"),
        b"PK\x03\x04" + bytes(100),
        docx()[:-10],
        packed({"word/document.xml": '<?xml version="1.0" encoding="none-such"?><a/>'}),
        packed(
            {"word/document.xml": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a><t>&x;</t></a>'}
        ),
        packed({"word/document.xml": f"{'<a>' * 20_000}{'</a>' * 20_000}"}),
        packed({"xl/workbook.xml": "<a/>"}),
    ],
)
async def test_what_is_no_sound_office_file_holds_no_text(data: bytes) -> None:
    assert await code(data) == ""


def entities(levels: int) -> str:
    each = "".join(f'<!ENTITY e{at + 1} "{f"&e{at};" * 10}">' for at in range(levels))
    return f'<!DOCTYPE a [<!ENTITY e0 "{"ha" * 500}">{each}]><a><t>&e{levels};</t></a>'


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (packed({"word/document.xml": f"<a>{' ' * reader.PART}</a>"}), "too_much"),
        (packed({"word/document.xml": entities(9)}), ""),
        # The first sheet repeats one text of 1.5 MB in a thousand cells. The second has one cell at the last place of a sheet.
        (
            xlsx(f"<row>{CELL * 1_000}</row>", strings=f"<si><t>{'a' * 1_500_000}</t></si>"),
            "",
        ),
        (xlsx('<row><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'), ""),
    ],
)
async def test_what_is_larger_inside_than_it_may_be_is_given_up(data: bytes, why: str) -> None:
    assert await code(data) == why


async def test_a_protected_file_is_told_as_such() -> None:
    data = bytearray(docx())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + place] |= 1
    assert await code(bytes(data)) == "locked"


async def test_whatever_is_damaged_ends_in_text_or_in_none() -> None:
    rng = random.Random(7)
    files = [
        docx(),
        pptx(said("a"), said("b"), notes=said("c")),
        xlsx('<row><c t="s"><v>0</v></c></row>'),
        odt("<text:p>x</text:p>"),
    ]

    async def outcome(data: bytearray) -> str:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        try:
            return type(await documents.read_office(bytes(data), MOST)).__name__
        except NoReadableText:
            return "none"

    found = await asyncio.gather(*(outcome(bytearray(rng.choice(files))) for _ in range(12)))
    assert set(found) == {"str", "none"}
