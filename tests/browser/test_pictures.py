"""Pictures and PDFs of messages in a real browser: shown, enlarged, or only saved."""

from __future__ import annotations

import base64
import io
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.browser.chromium import Browser
from tests.browser.conftest import Desk, connected, heard, say

pytestmark = pytest.mark.browser

PASTE = """
const brought = new DataTransfer();
for (const [name, data] of arguments[0]) {
  brought.items.add(new File([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], name, { type: 'image/png' }));
}
document.getElementById('text').dispatchEvent(new ClipboardEvent('paste', { clipboardData: brought, bubbles: true, cancelable: true }));
"""
READY = "return !document.getElementById('send').disabled"
THUMBNAILS = """return [...document.querySelectorAll('#files li')].map((one) => (one.querySelector('img')?.naturalWidth ?? 0) > 0)"""
LOADED = (
    "const image = document.querySelector('.user .picture img'); return image?.complete && image.naturalWidth"
)
SHOWN = """return [...document.querySelectorAll('.user .attached')].map((row) => {
  const image = row.querySelector('img');
  return image ? [image.alt, image.clientWidth, image.clientHeight] : row.innerText;
})"""
LARGE = "return document.querySelector('dialog.large').open"
PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 44>>stream
BT /F1 24 Tf 50 100 Td (Report) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>"""


def photo(width: int, height: int) -> bytes:
    """Return a picture of a coast at dusk, in a few colours."""
    kept = io.BytesIO()
    made = Image.linear_gradient("L").resize((width, height))
    Image.merge(
        "RGB", (made, made.point(lambda one: one * 2 // 3), made.point(lambda one: 220 - one // 2))
    ).save(kept, "JPEG")
    return kept.getvalue()


async def paste(browser: Browser, files: dict[str, bytes]) -> None:
    await browser.run(PASTE, [[name, base64.b64encode(data).decode()] for name, data in files.items()])
    await browser.until(READY)


async def test_pictures_and_pdfs_are_shown_and_what_only_claims_to_be_one_is_saved(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.resize(390, 800)
    await paste(
        browser,
        {
            "coast.jpg": photo(1200, 800),
            "damaged.png": photo(60, 40)[:300],
            "page.png": b"<!doctype html><script>document.title = 'run'</script>",
            "report.pdf": PDF,
        },
    )
    assert await browser.run("return document.querySelectorAll('#files li').length") == 4
    await browser.until(f"return {THUMBNAILS.removeprefix('return ')}[0]")
    assert (await browser.run(THUMBNAILS))[2:] == [False, False]
    await desk.picture(browser, "chosen")
    desk.world.model.answer("A coast. ![a lure](https://elsewhere.example/p.png) ![x](/api/files/other)")
    await say(browser, "look")
    await browser.until("return document.querySelector('.assistant a')")
    await browser.until(LOADED)
    await browser.until("return document.querySelectorAll('.user .picture').length === 1")
    wide = int(await browser.run("return document.querySelector('.user .bubble').clientWidth"))
    (name, width, height), *others = await browser.run(SHOWN)
    assert others == ["📎 damaged.png", "📎 page.png", "📄 report.pdf\nDownload"]
    assert name == "coast.jpg"
    assert wide / 2 < width <= min(480, wide)
    assert height == pytest.approx(width * 2 / 3, abs=1)
    assert await browser.run("return document.querySelectorAll('.assistant .bubble img').length") == 0
    await desk.picture(browser, "shown")

    await browser.run("document.querySelector('.user .picture').focus()")
    await browser.press(".user .picture")
    assert await browser.run(LARGE)
    assert await browser.run("return document.activeElement.textContent") == "Close"
    await desk.picture(browser, "large")
    await browser.press("dialog.large button")
    assert not await browser.run(LARGE)
    assert await browser.run("return document.activeElement.className") == "picture"

    # After a restart the page reads the conversation from the archive.
    await desk.world.sent()
    await desk.world.process.kill()
    desk.world.config["channels"]["web"]["port"] = urlsplit(desk.page).port
    await desk.world.start()
    await browser.reload()
    await connected(browser)
    await browser.until(LOADED)
    assert (await browser.run(SHOWN))[0][0] == "coast.jpg"
    await browser.press(".user .attached a[target]")
    *_, tab = await browser.tabs()
    await browser.show(tab)
    await browser.until("return document.contentType === 'application/pdf'")
    await desk.picture(browser, "pdf")


async def test_a_picture_that_loads_late_moves_nothing(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.answer("Thanks.")
    await paste(browser, {"tall.jpg": photo(400, 900), "small.jpg": photo(24, 24)})
    await say(browser, "two")
    await heard(browser, "Thanks.")
    high = "return document.getElementById('messages').offsetHeight"
    await browser.until(LOADED)
    after = await browser.run(high)
    await browser.send({"cmd": "Network.enable", "params": {}})
    await browser.send({"cmd": "Network.setBlockedURLs", "params": {"urls": ["*/api/files/*"]}})
    await browser.run(
        "for (const image of document.querySelectorAll('.picture img')) {"
        "  const unloaded = image.cloneNode(); unloaded.src = '/api/files/none'; image.replaceWith(unloaded); }"
    )
    assert await browser.run(high) == after
