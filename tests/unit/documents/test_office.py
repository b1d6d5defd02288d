"""Office files as text, and what becomes of those that are meant to do harm."""

from __future__ import annotations

import io
import random
import time
import tracemalloc
import zipfile

import pytest

from bot.documents import office
from bot.documents.office import CUT, TOO_MUCH
from bot.errors import NoReadableText
from tests.unit.documents.office_files import docx, odt, packed, pptx, relationships, said, xlsx

MOST = 100_000


def text(data: bytes, most: int = MOST) -> str:
    return office.text_of(data, most)


def why(data: bytes) -> str:
    with pytest.raises(NoReadableText) as caught:
        text(data)
    return caught.value.why


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


def test_slides_come_in_the_order_in_which_they_are_shown() -> None:
    data = pptx(said("First", "one"), said("第二"), said("last"), notes=said("say hello"))
    assert text(data) == ("# Slide 1\nFirst\none\n\n# Slide 2\n第二\n\n# Slide 3\nlast\nNotes: say hello\n")


def test_a_table_of_numbers_has_its_texts_gaps_and_dates() -> None:
    rows = (
        '<row><c r="A1" t="s"><v>1</v></c><c r="B1" t="s"><v>0</v></c><c r="D1" t="inlineStr"><is><t>in line</t></is></c></row>'
        '<row><c r="A2"><v>12.5</v></c><c r="B2" t="str"><f>A2&amp;"!"</f><v>12.5!</v></c><c r="C2" t="b"><v>1</v></c></row>'
        '<row><c r="A3" s="1"><v>45321</v></c><c r="B3" s="2"><v>45321.5</v></c><c r="C3" s="1"><v>0.25</v></c><c r="D3" s="0"><v>45321</v></c></row>'
        '<row><c r="A4"/></row><row><c r="XFD5" t="e"><v>#DIV/0!</v></c></row><row><c t="s"><v>99</v></c><c><v>7</v></c></row>'
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
        "\t" * office.GAP + "#DIV/0!",
        "\t7",
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
        packed({"word/document.xml": "<a/>"}, compression=zipfile.ZIP_LZMA),
        packed({"word/document.xml": '<?xml version="1.0" encoding="none-such"?><a/>'}),
        packed({"ppt/presentation.xml": "<a/>", "ppt/_rels/presentation.xml.rels": "<a>"}),
    ],
)
def test_what_is_no_sound_office_file_holds_no_text(data: bytes) -> None:
    assert why(data) == ""


BILLION = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><a>&c;</a>'
)
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a><t>&x;</t></a>'


@pytest.mark.parametrize("words", [BILLION, OUTSIDE, '<!DOCTYPE a SYSTEM "http://127.0.0.1/x.dtd"><a/>'])
def test_a_document_type_is_refused_before_anything_of_it_is_done(words: str) -> None:
    assert why(packed({"word/document.xml": words})) == ""


def test_what_is_larger_inside_than_it_may_be_is_given_up() -> None:
    line = f"{' ' * 99_999}<b/>"
    half = f"<a>{line * 155}</a>"
    assert text(packed({"word/document.xml": half})) == ""
    assert why(packed({"word/document.xml": f"<a>{line * 165}</a>"})) == TOO_MUCH
    parts = {"word/document.xml": half, "word/footnotes.xml": half, "word/endnotes.xml": half}
    assert why(packed(parts)) == TOO_MUCH
    assert why(packed({"word/document.xml": f"<a>{'<a/>' * (office.ELEMENTS + 1)}</a>"})) == TOO_MUCH


@pytest.mark.parametrize("long", ["<a b='{}'/>", "<a>{}</a>", "<a><!--{}--></a>", "<a {}/>"])
def test_a_tag_or_a_text_that_never_ends_is_not_parsed(long: str) -> None:
    assert why(packed({"word/document.xml": long.format("x" * office.LONGEST * 2)})) == TOO_MUCH


def test_however_deep_it_is_it_is_read() -> None:
    deep = f"{'<a>' * 20_000}{'</a>' * 20_000}"
    assert text(packed({"word/document.xml": deep})) == ""


def test_a_directory_of_very_many_parts_is_not_read() -> None:
    names = {f"{number:020}": "" for number in range(office.DIRECTORY // 60)}
    data = packed({"word/document.xml": "<a/>", **names})
    assert why(data) == ""


def test_the_size_of_a_directory_is_read_where_zipfile_reads_it() -> None:
    """An end of the directory within the end of the directory says another size of it."""
    names = {f"{number:020}": "" for number in range(office.DIRECTORY // 60)}
    data = bytearray(packed({"word/document.xml": "<a/>", **names}))
    end = len(data) - 22
    data[end + 4 : end + 8] = b"PK\x05\x06"
    data[end + 16 : end + 20] = (1_000).to_bytes(4, "little")
    assert zipfile.ZipFile(io.BytesIO(data)).namelist(), "zipfile takes it"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zipfile, "ZipFile", lambda _: pytest.fail("its directory was read"))
        assert why(bytes(data)) == ""


def test_a_format_of_many_brackets_takes_no_time_however_many_cells_have_it() -> None:
    formats = f'<numFmt numFmtId="170" formatCode="{"[" * 200_000}d"/><numFmt numFmtId="171" formatCode="[$-409]d/m"/>'
    styles = '<xf numFmtId="170"/>' * 2_000 + '<xf numFmtId="171"/>'
    data = xlsx(
        '<row><c s="2000"><v>45321</v></c><c s="0"><v>7</v></c></row>', formats=formats, styles=styles
    )
    began = time.process_time()
    assert text(data).splitlines()[1] == "2024-01-30\t7"
    assert time.process_time() - began < 2


def test_a_long_text_that_many_cells_of_a_row_name_is_not_held_for_each() -> None:
    cells = '<c t="s"><v>0</v></c>' * 2_000
    data = xlsx(f"<row>{cells}</row>", strings=f"<si><t>{'a ' * 100_000}</t></si>")
    tracemalloc.start()
    try:
        assert text(data, 500_000).endswith(CUT)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_one_part_that_is_named_very_often_is_not_read_each_time() -> None:
    sheet = '<sheet name="" xmlns:r="x/relationships" r:id="a"/>'
    parts = {
        "xl/workbook.xml": f"<a>{sheet * (office.ELEMENTS // office.EMPTY)}</a>",
        "xl/_rels/workbook.xml.rels": relationships({"a": ("worksheet", "sheet.xml")}),
        "xl/sheet.xml": "<a/>",
    }
    assert why(packed(parts)) == TOO_MUCH


def test_a_protected_file_is_told_as_such() -> None:
    data = bytearray(docx())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + place] |= 1
    assert why(bytes(data)) == "it is protected by a password"


def test_a_loop_of_references_ends() -> None:
    parts = {
        "ppt/presentation.xml": '<x><sldId xmlns:r="x/relationships" r:id="a"/><sldId xmlns:r="x/relationships" r:id="b"/></x>',
        "ppt/_rels/presentation.xml.rels": relationships(
            {"a": ("slide", "presentation.xml"), "b": ("slide", "../../../etc/passwd")}
        ),
    }
    assert text(packed(parts)) == "# Slide 1\n"


def test_whatever_is_damaged_ends_in_text_or_in_none() -> None:
    rng = random.Random(7)
    files = [
        docx(),
        pptx(said("a"), said("b"), notes=said("c")),
        xlsx('<row><c t="s"><v>0</v></c></row>'),
        odt("<text:p>x</text:p>"),
    ]
    outcomes = set[str]()
    for _ in range(3_000):
        data = bytearray(rng.choice(files))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        try:
            outcomes.add(type(text(bytes(data))).__name__)
        except NoReadableText:
            outcomes.add(NoReadableText.__name__)
    assert outcomes == {"str", "NoReadableText"}
