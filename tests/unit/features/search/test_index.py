"""The index contains all current messages, whatever happens to its process, its file or its disk."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryQuery
from bot.core import events, exports
from bot.core.archive_files import ChatStore
from bot.core.exports import ArchiveExport, Exporter
from bot.features import search
from bot.features.search import Search
from bot.features.search.index import SESSION_GAP
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog as Lines
from bot.tools.context import Hit, RecallQuery
from tests.talk import Talk

NOW = 1_800_000_000_000
KEY = ChatKey.parse("web:chat:1")


class Bed:
    """A log and its index in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.talk = Talk()
        self.log = Lines()
        self.ts = NOW
        self.search = self.opened()

    def opened(self, path: Path | None = None) -> Search:
        search = Search(path or self.path, self.talk.log, clock=SystemClock(), log=self.log)
        search.exporter.start()
        return search

    async def again(self) -> None:
        """Replace the process by a new one."""
        await self.search.exporter.close()
        self.search = self.opened()

    def say(self, text: str, role: str = "user", key: ChatKey = KEY, **fields: Any) -> None:
        self.ts += fields.pop("gap", 1_000)
        line = {"ts": self.ts, "channel": "web", "chatId": "1", "chatKey": key, "role": role, "text": text}
        self.talk.say(ArchiveLine.model_validate({**line, **fields}))

    async def hits(self, query: str, *keys: ChatKey, **more: Any) -> list[Hit]:
        return (await self.search.recall(keys or (KEY,), RecallQuery((query,), self.ts, **more))).hits

    async def find(self, query: str, *keys: ChatKey, **more: Any) -> list[str]:
        return [hit.line.text for hit in await self.hits(query, *keys, **more)]


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    bed = Bed(tmp_path / "index.db")
    yield bed
    await bed.search.exporter.close()


async def test_words_are_found_in_all_their_forms(bed: Bed) -> None:
    for text in ("We bought two tickets to Oslo", "the policies were refunded", "nothing of the kind", "ok"):
        bed.say(text, gap=2 * SESSION_GAP)
    assert await bed.find("who buys a ticket?") == ["We bought two tickets to Oslo"]
    assert await bed.find("refunding policy") == ["the policies were refunded"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我们的退款政策是三十天", "退款"),
        ("我们的退款政策是三十天", "退款政策是什么？"),
        ("明日は東京タワーに行きます", "東京タワー"),
        ("明日は東京タワーに行きます", "ﾀﾜｰ"),
        ("환불은 언제 되나요", "환불"),
        ("ההזמנה נשלחה אתמול בבוקר", "ההזמנה"),
        ("الطلب رقم ٤٢ وصل", "الطَّلَب"),
        ("Das Café in Zürich ist zu", "cafe zurich"),
        ("the HTTPServerError came from get_user_name", "httpservererror"),
        ("the HTTPServerError came from get_user_name", "user name"),
        ("see src/bot/main.py for it", "main.py"),
        ("the invoice INV-2026-0042 is open", "INV-2026-0042"),
        ("it cost 1,234.50 in the end", "1234.50"),
        ("let us meet on 2026-11-03", "2026-11-03"),
        ("that was great 🎉", "🎉"),
        ("mixed 微信支付 wechat pay", "微信 wechat"),
        ("look at https://example.org/docs/install?x=1", "https://example.org/docs/install"),
    ],
)
async def test_every_script_and_every_kind_of_name_is_found(bed: Bed, text: str, query: str) -> None:
    for other in ("something else entirely", "完全不同的话", "全然違う話", "다른 이야기", "אחר לגמרי"):
        bed.say(other, gap=2 * SESSION_GAP)
    bed.say(text, gap=2 * SESSION_GAP)
    assert (await bed.find(query))[0] == text


async def test_an_answer_comes_with_its_question(bed: Bed) -> None:
    bed.say("what is the wifi password?")
    bed.say("it is swordfish-42", role="assistant")
    bed.say("far away", gap=2 * SESSION_GAP)
    (hit, *_) = await bed.hits("swordfish-42")
    assert (hit.line.text, [near.text for near in hit.near]) == (
        "it is swordfish-42",
        ["what is the wifi password?"],
    )
    assert "it is swordfish-42" in await bed.find("wifi password")


async def test_a_chat_is_found_in_its_own_lines_alone(bed: Bed) -> None:
    one, two, three = map(ChatKey.parse, ("web:chat:1", "web:chat:2", "web:chat:3"))
    bed.say("the secret garden", key=one)
    bed.say("the secret door", key=two)
    assert await bed.find("secret", one) == ["the secret garden"]
    assert await bed.find("secret", three) == []
    assert set(await bed.find("secret", one, two)) == {"the secret garden", "the secret door"}


async def test_what_was_asked_for_narrows_what_is_found(bed: Bed) -> None:
    bed.say("umbrella one")
    bed.say("umbrella two", role="assistant")
    bed.say("umbrella three")
    assert await bed.find("umbrella", role="assistant") == ["umbrella two"]
    assert set(await bed.find("umbrella", after=NOW + 2_000)) == {"umbrella two", "umbrella three"}
    assert await bed.find("umbrella", before=NOW + 2_000) == ["umbrella one"]
    assert await bed.find("umbrella", keyword="THREE") == ["umbrella three"]
    assert await bed.find("umbrella", skip=lambda line: line.role == "user") == ["umbrella two"]
    both = await bed.find("umbrella", limit=2), await bed.find("umbrella", limit=2, offset=2)
    assert sorted([*both[0], *both[1]]) == ["umbrella one", "umbrella three", "umbrella two"]


async def test_the_chats_of_a_channel_are_those_last_spoken_in_first(bed: Bed) -> None:
    slack = [ChatKey.parse("slack:chat:C1:thread:1.2"), ChatKey("slack", "長" * 100)]
    for key in (*slack, KEY):
        bed.say("a", key=key)
    assert await bed.search.kept("slack") == slack[::-1]


async def test_an_edit_replaces_and_a_deletion_hides(bed: Bed) -> None:
    bed.say("we meet at noon", messageId="m1")
    bed.say("fine", role="assistant", messageId="m2")
    bed.say("bring the umbrella", messageId="m3")
    assert (await bed.find("umbrella"))[0] == "bring the umbrella"
    bed.say("we meet at dusk", messageId="m1", meta={"edited": True})
    bed.say("", messageId="m3", meta={"deleted": True})
    assert await bed.find("noon") == await bed.find("umbrella") == []
    (hit, *_) = await bed.hits("dusk")
    assert (hit.line.text, [near.text for near in hit.near]) == ("we meet at dusk", ["fine"])


async def test_what_was_removed_is_in_no_byte_of_the_file(bed: Bed) -> None:
    for number in range(50):
        bed.say(f"line {number}")
    bed.say("my code is swordfish", gap=2 * SESSION_GAP, messageId="m1", meta={"requestId": "R1"})
    bed.say("swordfish, I see", role="assistant", messageId="m2", meta={"requestId": "R1"})
    assert len(await bed.find("swordfish")) == 2
    bed.talk.append(KEY, events.Removed(("R1",), ("R1",), ("m1", "m2"), by="R9"))
    assert await bed.find("swordfish") == []
    await bed.search.exporter.close()
    written = b"".join(path.read_bytes() for path in bed.path.parent.glob("index.db*"))
    assert b"line 49" in written
    assert b"swordfish" not in written
    bed.search = bed.opened()


@pytest.mark.parametrize("wreck", [b"", b"no database at all", b"SQLite format 3\x00" + b"\xff" * 9_000])
async def test_a_file_that_is_no_index_of_ours_is_made_anew(bed: Bed, wreck: bytes) -> None:
    bed.say("the red umbrella")
    await bed.search.exporter.close()
    bed.path.write_bytes(wreck)
    bed.search = bed.opened()
    assert await bed.find("umbrellas") == ["the red umbrella"]


async def test_pages_that_went_bad_under_a_running_index_are_given_up(bed: Bed) -> None:
    for number in range(200):
        bed.say(f"umbrella number{number}")
    assert (await bed.find("number150"))[0] == "umbrella number150"
    db = sqlite3.connect(bed.path)
    db.execute("UPDATE tokens_data SET block = ? WHERE id > 10", (b"\xff" * 40,))
    db.commit()
    db.close()
    assert (await bed.find("number151"))[0] == "umbrella number151"


async def test_an_index_is_rebuilt_beside_a_process_that_goes_on(bed: Bed) -> None:
    bed.say("the red umbrella")
    assert await bed.find("umbrella") == ["the red umbrella"]
    other = bed.opened()
    assert await other.rebuild() == (1, 1)
    bed.say("another umbrella")
    assert set(await bed.find("umbrella")) == {"the red umbrella", "another umbrella"}
    await other.exporter.close()


async def test_where_no_index_can_be_had_the_search_says_so(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "RETRY_SECONDS", 0.0)
    without = bed.opened(tmp_path)
    with pytest.raises(errors.StorageError):
        await without.recall([KEY], RecallQuery(("umbrella",), NOW))
    await without.exporter.close()


def contents(path: Path) -> dict[str, Any]:
    """Return the content of an index, independent of the numbers that its chats have."""
    db = sqlite3.connect(path)
    found = {}
    chats = "SELECT id, name, lines, tokens, session, place, last_ts FROM chats"
    for number, name, *rest in db.execute(chats).fetchall():
        lines = db.execute(
            "SELECT line - (? << 32), ts, role, raw FROM lines WHERE line >> 32 = ?", (number, number)
        ).fetchall()
        words = db.execute(
            "SELECT term, doc FROM vocabulary WHERE term GLOB ? || ':*' AND doc > 0", (f"{number:x}",)
        ).fetchall()
        tokens = {
            term.partition(":")[2]: sorted(
                row[0] - (number << 37)
                for row in db.execute("SELECT rowid FROM tokens WHERE tokens MATCH ?", (f'"{term}"',))
            )
            for term, _ in words
        }
        found[name] = (rest, sorted(lines), tokens)
    db.close()
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_any_history_leaves_what_a_fresh_index_says_and_what_the_archive_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(exports, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(search, "SLICE", 3)
    rng, bed = random.Random(seed), Bed(tmp_path / "index.db")
    texts = ["alpha beta", "beta gamma gamma", "退款政策", "Getting HTTPError", "", "ok 🎉", "x" * 300]
    chats = [ChatKey.parse("web:chat:0"), KEY]
    for _ in range(120):
        act, number = rng.choice(["say"] * 6 + ["edit", "gone", "end", "wait"]), rng.randint(0, 9)
        fields: dict[str, Any] = {"messageId": f"m{number}", "key": chats[number % 2]}
        if act == "say":
            role, gap = rng.choice(["user", "assistant"]), rng.choice([1_000, 2 * SESSION_GAP, -5_000])
            bed.say(rng.choice(texts), role, gap=gap, **fields)
        elif act == "edit":
            bed.say(rng.choice(texts), meta={"edited": True}, **fields)
        elif act == "gone" and number < 4:
            bed.say("", meta={"deleted": True}, **fields)
        elif act == "end":
            await bed.again()
        elif act == "wait":
            await bed.search.caught_up()
            await asyncio.sleep(0)
    await bed.search.exporter.close()
    fresh = bed.opened(tmp_path / "fresh.db")
    await fresh.caught_up()
    await fresh.exporter.close()
    assert contents(bed.path) == contents(tmp_path / "fresh.db")
    store = ChatStore(tmp_path / "chats", disk=SystemDisk(), log=bed.log)
    archive = Exporter(ArchiveExport(store, bed.talk.log), bed.talk.log, clock=SystemClock(), log=bed.log)
    archive.start()
    await archive.flush()
    await archive.close()
    for key in chats:
        shown = (await store.search(key, HistoryQuery(limit=1_000))).lines
        rows = contents(bed.path)[str(key)][1]
        standing = [ArchiveLine.model_validate_json(raw).text for *_, raw in rows]
        assert sorted(standing) == sorted(line.text for line in shown)
