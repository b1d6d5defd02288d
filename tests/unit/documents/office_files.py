"""Functions that build office files. A test can damage any part of such a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_MAIN = "http://schemas.openxmlformats.org"
_W = f'xmlns:w="{_MAIN}/wordprocessingml/2006/main"'
_A = f'xmlns:a="{_MAIN}/drawingml/2006/main"'
_P = f'xmlns:p="{_MAIN}/presentationml/2006/main"'
_S = f'xmlns="{_MAIN}/spreadsheetml/2006/main"'
_R = f'xmlns:r="{_MAIN}/officeDocument/2006/relationships"'
_BOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'


def packed(parts: Mapping[str, str | bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return file.getvalue()


def docx(body: str = "<w:p><w:r><w:t>Hello 世界</w:t></w:r></w:p>", **more: str) -> bytes:
    """Return a document; `more` has further parts of `word/`."""
    document = f"{_HEAD}<w:document {_W}><w:body>{body}</w:body></w:document>"
    others = {f"word/{name}.xml": f"<w:x {_W}>{content}</w:x>" for name, content in more.items()}
    return packed({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **others})


def relationships(targets: Mapping[str, tuple[str, str]]) -> str:
    each = (
        f'<Relationship Id="{name}" Type="{_MAIN}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for name, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{"".join(each)}</Relationships>'


def pptx(*slides: str, notes: str = "") -> bytes:
    """Return a presentation; `notes` belong to its last slide."""
    parts: dict[str, str | bytes] = {"ppt/presentation.xml": f"<p:presentation {_P}/>"}
    for number, words in enumerate(slides, 1):
        parts[f"ppt/slides/slide{number}.xml"] = f"<p:sld {_P} {_A}>{words}</p:sld>"
    if notes:
        parts[f"ppt/slides/_rels/slide{len(slides)}.xml.rels"] = relationships(
            {"rId1": ("notesSlide", "../notesSlides/notesSlide1.xml")}
        )
        parts["ppt/notesSlides/notesSlide1.xml"] = f"<p:notes {_P} {_A}>{notes}</p:notes>"
    return packed(parts)


def said(*lines: str) -> str:
    return "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)


def xlsx(rows: str, *, strings: str = "", formats: str = "", styles: str = "", about: str = "") -> bytes:
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            f'<Override PartName="/xl/workbook.xml" ContentType="{_BOOK}"/></Types>',
            "_rels/.rels": relationships({"rId1": ("officeDocument", "xl/workbook.xml")}),
            "xl/workbook.xml": f'<workbook {_S} {_R}>{about}<sheets><sheet r:id="rId1" name="销售" sheetId="1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relationships(
                {
                    "rId1": ("worksheet", "/xl/worksheets/sheet1.xml"),
                    "rId2": ("sharedStrings", "sharedStrings.xml"),
                    "rId3": ("styles", "styles.xml"),
                }
            ),
            "xl/worksheets/sheet1.xml": f"<worksheet {_S}><sheetData>{rows}</sheetData></worksheet>",
            "xl/sharedStrings.xml": f"<sst {_S}>{strings}</sst>",
            "xl/styles.xml": f'<styleSheet {_S}><numFmts>{formats}</numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
            f"<cellXfs>{styles}</cellXfs></styleSheet>",
        }
    )


def odt(body: str) -> bytes:
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "table")
    )
    content = f"{_HEAD}<office:document-content {spaces}><office:body><office:text>{body}</office:text></office:body></office:document-content>"
    return packed({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})
