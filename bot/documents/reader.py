"""Reads PDFs and pictures in a process of its own: run as a program, since a parser may take any time and memory.

Standard input is the file. Asked for `pdf MOST`, the first line of the output is JSON, `{"pages": n}` or `{"protected": true}`, and
behind it comes the text; asked for `picture SIDE`, it is the picture as a JPEG that has at most so many pixels a side.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import BinaryIO, TextIO

PICTURES = ("AVIF", "GIF", "HEIF", "JPEG", "PNG", "WEBP")
PAGES = 500
"""Pages whose text is read."""
_CPU_SECONDS = 20
_BYTES = 1_000_000_000


def limit() -> None:
    """Bound what this process may take."""
    import resource

    for what, most in (
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_AS, _BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(
            ValueError, OSError
        ):  # where the system knows no such limit, or has a lower one
            resource.setrlimit(what, (most, most))


def tell(data: bytes, most: int, out: TextIO) -> None:
    """Write what there is of a PDF, of its text `most` characters. Raises what the parser raises."""
    import pypdf.errors

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        out.write('{"protected": true}\n')
        return
    out.write(json.dumps({"pages": len(reader.pages)}) + "\n")
    out.flush()  # whatever becomes of the text
    damaged = (pypdf.errors.PyPdfError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    for number, page in zip(range(1, PAGES + 1), reader.pages, strict=False):
        try:
            words = page.extract_text().strip()
        except damaged:
            words = "[this page cannot be read]"
        if words:
            words = f"# Page {number}\n{words}\n\n"
            out.write(words[:most])
            most -= len(words)
        if most <= 0:
            break
    out.flush()


def shrink(data: bytes, side: int, out: BinaryIO) -> None:
    """Write a picture as it is looked at: upright, on white, the first one of several. Raises what the parser raises."""
    import pillow_heif
    from PIL import Image, ImageOps

    pillow_heif.register_heif_opener()
    picture: Image.Image = Image.open(io.BytesIO(data), formats=PICTURES)
    if picture.mode not in {"L", "RGB"}:
        picture = picture.convert("RGBA")
    picture.thumbnail((side, side))
    shown = ImageOps.exif_transpose(picture).convert("RGBA")
    Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB").save(out, "JPEG")


if __name__ == "__main__":
    limit()
    kind, most = sys.argv[1], int(sys.argv[2])
    if kind == "picture":
        shrink(sys.stdin.buffer.read(), most, sys.stdout.buffer)
    else:
        tell(sys.stdin.buffer.read(), most, io.TextIOWrapper(sys.stdout.buffer, "utf-8", "replace"))
