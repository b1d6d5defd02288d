"""The index says the same as one made anew from the archive, whatever happened to the files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core.file_names import encode
from bot.history.archive.store import ChatStore
from bot.history.search.chat_indexer import SESSION_GAP
from bot.history.search.index import Index
from bot.history.search.recall import Recall
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.shares import examples

NOW = 1_800_000_000_000
KEY = ChatKey.parse("web:chat:1")


class Bed:
    """An archive in a folder and its index in a file."""

    def __init__(self, root: Path, limit: int = 1000) -> None:
        self.folder, self.path = root / "chats", root / "index.db"
        self.store = ChatStore(
            self.folder, disk=SystemDisk(), log=MemoryLog(), archive_after_lines=limit, clock=FakeClock()
        )
        self.ts = NOW
        self.opened: list[Recall] = []
        self.recall = self.reopened()

    def reopened(self) -> Recall:
        self.opened.append(Recall.opened(self.path, self.folder, SystemDisk()))
        return self.opened[-1]

    async def close(self) -> None:
        for recall in self.opened:
            recall.close()
        await self.store.close()

    async def say(self, text: str, role: str = "user", key: ChatKey = KEY, **fields: Any) -> None:
        self.ts += fields.pop("gap", 1_000)
        line = {"ts": self.ts, "channel": "web", "chatId": "1", "chatKey": key, "role": role, "text": text}
        await self.store.append(ArchiveLine.model_validate({**line, **fields}))

    def search(self, query: str, *keys: ChatKey, recall: Recall | None = None, limit: int = 10) -> list[str]:
        recall = recall or self.recall
        recall.catch_up()
        return [hit.line.text for hit in recall.search(keys or (KEY,), query, self.ts, limit)]


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    bed = Bed(tmp_path, limit=10)
    yield bed
    await bed.close()


async def test_words_are_found_in_all_their_forms(bed: Bed) -> None:
    for text in ("We bought two tickets to Oslo", "the policies were refunded", "nothing of the kind", "ok"):
        await bed.say(text, gap=2 * SESSION_GAP)
    assert bed.search("who buys a ticket?") == ["We bought two tickets to Oslo"]
    assert bed.search("refunding policy") == ["the policies were refunded"]


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
        await bed.say(other, gap=2 * SESSION_GAP)
    await bed.say(text, gap=2 * SESSION_GAP)
    assert bed.search(query)[0] == text


async def test_an_answer_comes_with_its_question(bed: Bed) -> None:
    await bed.say("what is the wifi password?")
    await bed.say("it is swordfish-42", role="assistant")
    await bed.say("far away", gap=2 * SESSION_GAP)
    bed.recall.catch_up()
    (hit, *_) = bed.recall.search([KEY], "swordfish-42", bed.ts)
    assert (hit.line.text, [near.text for near in hit.near]) == (
        "it is swordfish-42",
        ["what is the wifi password?"],
    )
    assert "it is swordfish-42" in bed.search("wifi password")


async def test_a_chat_is_found_in_its_own_lines_alone(bed: Bed) -> None:
    await bed.say("the secret garden", key=ChatKey.parse("web:chat:1"))
    await bed.say("the secret door", key=ChatKey.parse("web:chat:2"))
    assert bed.search("secret", ChatKey.parse("web:chat:1")) == ["the secret garden"]
    assert bed.search("secret", ChatKey.parse("web:chat:3")) == []
    assert bed.search("secret") == ["the secret garden"]
    assert set(bed.search("secret", *map(ChatKey.parse, ("web:chat:1", "web:chat:2")))) == {
        "the secret garden",
        "the secret door",
    }


async def test_an_edit_replaces_and_a_tombstone_hides(bed: Bed) -> None:
    await bed.say("we meet at noon", messageId="m1")
    await bed.say("fine", role="assistant", messageId="m2")
    await bed.say("bring the umbrella", messageId="m3")
    bed.recall.catch_up()
    await bed.say("we meet at dusk", messageId="m1", meta={"edited": True})
    await bed.say("", role="system", messageId="m3", meta={"deleted": True})
    assert bed.search("noon") == []
    assert bed.search("umbrella") == []
    (hit, *_) = bed.recall.search([KEY], "dusk", bed.ts)
    assert hit.line.text == "we meet at dusk"
    assert [near.text for near in hit.near] == ["fine"]


async def test_the_words_of_what_was_removed_or_replaced_are_not_kept_beside_the_lines(bed: Bed) -> None:
    def words() -> set[str]:
        return {run for (run,) in bed.recall.index.db.execute("SELECT run FROM runs")}

    await bed.say("my code is swordfish-42, my fish is fresh", messageId="m1")
    await bed.say("is it 鯨", messageId="m2")
    await bed.say("my fish is fresh", messageId="m3")
    bed.recall.catch_up()
    assert {"swordfish-42,", "fresh"} <= words()
    await bed.say("", role="system", messageId="m1", meta={"deleted": True})
    await bed.say("is it a whale?", messageId="m2", meta={"edited": True})
    bed.recall.catch_up()
    assert words() == {"my", "fish", "is", "fresh", "it", "a", "whale?"}
    await bed.say("swordfish-42, once more")
    bed.recall.catch_up()
    assert "swordfish-42," in words()


async def test_what_is_rotated_stays_where_it_was(bed: Bed) -> None:
    for number in range(35):
        await bed.say(f"number{number} of many")
        if number % 7 == 0:
            bed.recall.catch_up()
    assert len(list(bed.folder.glob("*archive*"))) >= 3
    assert [bed.search(f"number{number}")[0] for number in range(35)] == [
        f"number{number} of many" for number in range(35)
    ]
    again = bed.reopened()
    assert contents(again.index) == contents(bed.recall.index)


async def test_files_that_were_changed_by_hand_are_read_anew(bed: Bed) -> None:
    await bed.say("the first secret")
    await bed.say("the second line")
    bed.recall.catch_up()
    main = bed.folder / f"{encode(KEY)}.jsonl"
    main.write_bytes(main.read_bytes().split(b"\n", 1)[1])
    assert bed.search("secret") == []
    assert bed.search("second") == ["the second line"]


@pytest.mark.parametrize("wreck", [b"", b"no database", b"SQLite format 3\x00" + b"\xff" * 5000])
async def test_an_index_of_nothing_we_know_is_made_anew(bed: Bed, wreck: bytes) -> None:
    await bed.say("still there")
    bed.recall.close()
    bed.path.write_bytes(wreck)
    assert bed.search("still there", recall=bed.reopened()) == ["still there"]


def contents(index: Index) -> dict[str, Any]:
    """What an index says, whatever numbers it gave to its chats."""
    db, found = index.db, {}
    for number, name, *rest in db.execute(
        "SELECT id, name, size, last_at, last_hash, lines, tokens, session, place, last_ts, mark FROM chats"
    ).fetchall():
        lines = db.execute(
            "SELECT line - (? << 32), at, size, ts, role FROM lines WHERE line >> 32 = ?", (number, number)
        ).fetchall()
        sessions = db.execute(
            "SELECT id - (? << 24), first_ts, last_ts FROM sessions WHERE id >> 24 = ?", (number, number)
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
        revised = db.execute(
            "SELECT substr(key, ?), ts, request FROM revised WHERE key GLOB ? || ':*'",
            (len(f"{number:x}:") + 1, f"{number:x}"),
        ).fetchall()
        found[name] = (rest, sorted(lines), sorted(sessions), sorted(revised), tokens)
    return found


def standing(index: Index, key: ChatKey) -> list[str]:
    """The texts of all lines that the index knows of a chat."""
    found = index.db.execute(
        "SELECT at, lines.size FROM lines, chats WHERE name = ? AND line >> 32 = id", (encode(key),)
    ).fetchall()
    with index.streams.open(encode(key)) as stream:
        return [ArchiveLine.model_validate_json(stream.read(*place)).text for place in found]


TEXTS = st.sampled_from(
    ["alpha beta", "beta gamma gamma", "退款政策", "Getting HTTPError", "", "ok 🎉", "x" * 300]
)
ACTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("say"), TEXTS, st.integers(0, 4), st.sampled_from([1_000, 2 * SESSION_GAP, -5_000])
        ),
        st.tuples(st.just("edit"), TEXTS, st.integers(0, 4), st.just(1_000)),
        st.tuples(st.just("gone"), st.just(""), st.integers(0, 4), st.just(1_000)),
        st.tuples(
            st.sampled_from(["catch up", "slice", "crash", "torn"]), st.just(""), st.just(0), st.just(0)
        ),
    ),
    max_size=25,
)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(acts=ACTS, limit=st.integers(2, 8))
def test_any_history_leaves_what_a_fresh_index_says(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str, int, int]], limit: int
) -> None:
    asyncio.run(_lived(tmp_path_factory.mktemp("lived"), acts, limit))


async def _lived(root: Path, acts: list[tuple[str, str, int, int]], limit: int) -> None:
    bed = Bed(root, limit)
    for act, text, number, gap in acts:
        if act in {"say", "edit", "gone"}:
            await _spoken(bed, act, text, number, gap)
        elif act == "torn":
            for path in bed.folder.glob("*.jsonl"):
                if "archive" not in path.name:
                    SystemDisk().append(path, b'{"torn')
        elif act == "crash":
            bed.recall.close()
            bed.recall = bed.reopened()
        elif act == "slice":
            for name in bed.recall.index.streams.names():
                bed.recall.index.catch_up(name, 2)
        else:
            bed.recall.catch_up()
    bed.recall.catch_up()
    fresh = Recall.opened(None, bed.folder, SystemDisk())
    fresh.catch_up()
    assert contents(bed.recall.index) == contents(fresh.index)
    for key in map(ChatKey.parse, ("web:chat:0", "web:chat:1")):
        shown = (await bed.store.search(key, HistoryQuery(limit=1000))).lines
        assert sorted(standing(fresh.index, key)) == sorted(line.text for line in shown)
    fresh.close()
    await bed.close()


async def _spoken(bed: Bed, act: str, text: str, number: int, gap: int) -> None:
    role = "system" if act == "gone" else "assistant" if number % 2 else "user"
    meta = {"edit": {"edited": True}, "gone": {"deleted": True}}.get(act)
    await bed.say(
        text, role, messageId=f"m{number}", gap=gap, key=ChatKey.parse(f"web:chat:{number % 2}"), meta=meta
    )
