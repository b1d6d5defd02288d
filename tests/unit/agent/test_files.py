"""What files hold goes into the message that they came with, once: kept, replayed and removed with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tests.unit.agent.test_recording import again

from bot.agent.reattach import DroppedMessages
from bot.contracts.agent import TurnRequest
from bot.contracts.inbound import Attachment, Inbound, SeenFile, ShownFile
from bot.contracts.provenance import Taint
from bot.core import blocks, masking, rendering
from bot.core.removal import REMOVED
from bot.testing.model import reply, tool_use
from bot.tools.permissions import taint
from tests.unit.agent.conftest import KEY, Added, Bench
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_resume import killed_while_asking

FILE = Attachment(kind="file", name="日志.log", size=20, ref="f1")
PICTURE = SeenFile(shown=ShownFile("01ARZ3NDEKTSV4RRFFQ69G5FAW", "image/png", 4_000, 1_234))
SEEN = SeenFile("01ARZ3NDEKTSV4RRFFQ69G5FAV", 9_000, 40, "error 42 in line 7")


class Files:
    """`Arrivals.files` that counts how often it is asked."""

    def __init__(self, *seen: SeenFile) -> None:
        self.seen = seen or (SEEN,)
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None
        self.began = asyncio.Event()

    async def __call__(self, inbound: Inbound) -> Sequence[SeenFile]:
        self.asked.append(inbound.request_id)
        self.began.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.seen


def request(bench: Bench, files: Files, words: str = "what is this?", **more: Any) -> TurnRequest:
    inbound = bench.inbound(words, attachments=(FILE,) * len(files.seen))
    return TurnRequest(
        inbound.request_id, KEY, inbound=inbound, reply=bench.chat, arrivals=Added(files=files), **more
    )


def texts(message: Any) -> list[str]:
    return [block["text"] for block in message["content"]]


async def test_a_files_beginning_stands_before_the_persons_words(bench: Bench) -> None:
    files = Files()
    assert (await bench.pool.run(request(bench, files))).status == "done"
    facts, held, words = texts(bench.model.requests[0].messages[0])
    assert '"readable": true' in facts
    row = json.loads(held.split("\n")[1])
    assert row == {
        "name": "日志.log",
        "size": 20,
        "artifact": SEEN.artifact,
        "characters": 9_000,
        "lines": 40,
        "beginning": SEEN.head,
    }
    assert words == "what is this?"
    assert len(files.asked) == 1


async def test_secrets_that_a_file_tells_do_not_reach_the_model(bench: Bench) -> None:
    bench.configure(redact=lambda words: words.replace("error 42", "[redacted]"))
    await bench.pool.run(request(bench, Files()))
    assert "error 42" not in json.dumps(bench.sent)


async def test_after_a_crash_the_request_is_the_same_and_nothing_is_asked_again(bench: Bench) -> None:
    files = Files()
    asked = request(bench, files)
    await killed_while_asking(bench, asked, 1)
    assert (await bench.pool.run(asked)).status == "done"
    assert bench.model.requests[0].messages == bench.model.requests[1].messages
    assert len(files.asked) == 1


async def test_a_replay_has_the_bytes_and_a_restart_the_history(bench: Bench) -> None:
    asked = request(bench, Files())
    await bench.pool.run(asked)
    await bench.pool.flush()
    found = await again(bench, asked.request_id)
    assert [call.exact for call in found.calls] == [True]
    bench.restart()
    await bench.say("and now?")
    assert SEEN.head in json.dumps(bench.sent)


async def test_a_message_with_a_file_that_joins_is_read_when_it_is_taken_up(bench: Bench) -> None:
    files = Files()
    more = [bench.inbound("this too", attachments=(FILE,))]

    def take() -> list[Inbound]:
        return [more.pop()] if more and bench.model.requests else []

    bench.model.answers += [
        reply(tool_use("skills_list")),
        reply(tool_use("chat_send", text="both")),
        reply(),
    ]
    inbound = bench.inbound("first")
    asked = TurnRequest(
        inbound.request_id, KEY, inbound=inbound, reply=bench.chat, arrivals=Added(take, files)
    )
    assert (await bench.pool.run(asked)).status == "done"
    joined = bench.model.requests[1].messages[-1]
    assert SEEN.head in texts(joined)[1]
    assert texts(joined)[-1] == "this too"


async def test_a_stop_ends_the_reading_of_what_joined_and_keeps_its_words(bench: Bench) -> None:
    files = Files()
    files.hold = asyncio.Event()
    more = [bench.inbound("this too", attachments=(FILE,))]

    def take() -> list[Inbound]:
        return [more.pop()] if more and bench.model.requests else []

    bench.model.answers += [reply(tool_use("skills_list"))]
    inbound = bench.inbound("first")
    asked = TurnRequest(
        inbound.request_id, KEY, inbound=inbound, reply=bench.chat, arrivals=Added(take, files)
    )
    running = asyncio.create_task(bench.pool.run(asked))
    await files.began.wait()
    assert await bench.pool.stop(KEY)
    assert (await running).status == "stopped"
    said = json.dumps(bench.pool.runtime(KEY).store.messages())
    assert "this too" in said
    assert '\\"readable\\": false' in said
    assert SEEN.head not in said


async def test_a_removed_message_is_shown_without_what_its_files_hold(bench: Bench) -> None:
    asked = request(bench, Files())
    await bench.pool.run(asked)
    assert asked.inbound is not None
    assert asked.inbound.message_id is not None
    await remove(bench, asked.inbound.message_id, asked.request_id)
    await bench.say("and now?")
    shown = json.dumps(bench.sent)
    assert SEEN.head not in shown
    assert REMOVED in shown


async def test_a_history_that_was_compacted_still_names_the_files(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files()))
    dropped = bench.model.requests[0].messages
    assert list(DroppedMessages(dropped, []).names()["artifacts"]) == [str(SEEN.artifact)]
    assert not DroppedMessages(dropped, dropped).names()["artifacts"]


async def test_what_a_person_said_is_told_without_what_their_files_hold(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files()))
    assert rendering.said(bench.model.requests[0].messages[0]) == "what is this?"
    assert SEEN.head in await bench.pool.history(KEY)


# ------------------------------------------------------------ pictures


def pictures(messages: Any) -> int:
    return sum(block["type"] == "attached" for message in messages for block in message["content"])


async def test_a_picture_stands_between_what_came_with_it_and_the_persons_words(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files(PICTURE)))
    facts, held, picture, words = bench.model.requests[0].messages[0]["content"]
    assert '"readable": true' in facts["text"]
    row = json.loads(held["text"].split("\n")[1])
    assert row == {
        "name": "日志.log",
        "size": 20,
        "type": "image/png",
        "shown": "below, in the order of these lines",
    }
    assert picture == blocks.attached(PICTURE.shown)  # type: ignore[arg-type]
    assert words["text"] == "what is this?"
    estimator, model = bench.deps.models.estimator, bench.deps.models.name
    with_it = estimator.messages(model, bench.model.requests[0].messages[:1])
    assert with_it > 1_234


async def test_a_picture_is_foreign(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files(PICTURE)))
    assert taint.seen(bench.model.requests[0].messages).taint == Taint.FOREIGN


async def test_after_a_crash_a_picture_is_in_the_same_request_and_in_a_replay(bench: Bench) -> None:
    files = Files(PICTURE)
    asked = request(bench, files)
    await killed_while_asking(bench, asked, 1)
    assert (await bench.pool.run(asked)).status == "done"
    assert bench.model.requests[0].messages == bench.model.requests[1].messages
    assert len(files.asked) == 1
    await bench.pool.flush()
    found = await again(bench, asked.request_id)
    assert all(call.exact for call in found.calls)


async def test_a_removed_message_takes_its_picture_along(bench: Bench) -> None:
    asked = request(bench, Files(PICTURE))
    await bench.pool.run(asked)
    assert asked.inbound is not None
    assert asked.inbound.message_id is not None
    await remove(bench, asked.inbound.message_id, asked.request_id)
    await bench.say("and now?")
    assert pictures(bench.model.requests[-1].messages) == 0


async def test_of_many_pictures_the_newest_stay_in_view_over_a_restart(bench: Bench) -> None:
    for number in range(masking.CROWD + 2):
        one = ShownFile(f"01ARZ3NDEKTSV4RRFFQ69G5F{number:02}", "image/png", 4_000, 100)
        await bench.pool.run(request(bench, Files(SeenFile(shown=one))))
        assert pictures(bench.model.requests[-1].messages) <= masking.CROWD + 1
    shown = pictures(bench.model.requests[-1].messages)
    assert shown == masking.KEPT_FILES + 1
    last = bench.model.requests[-1].messages
    gone = masking.GONE.format("image/png")
    assert json.dumps(last).count(gone) == masking.CROWD + 2 - shown
    bench.restart()
    await bench.say("and now?")
    both = (bench.model.requests[-1].messages[: len(last) - 1], last[:-1])
    before, after = ([[*map(blocks.unmarked, one["content"])] for one in messages] for messages in both)
    assert before == after


async def test_a_compacted_history_has_no_picture_and_no_pointer_to_one(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files(PICTURE, SEEN)))
    dropped = bench.model.requests[0].messages
    assert str(PICTURE.shown.artifact) not in DroppedMessages(dropped, []).names()["artifacts"]  # type: ignore[union-attr]


async def test_a_picture_is_told_to_people_as_a_file(bench: Bench) -> None:
    await bench.pool.run(request(bench, Files(PICTURE)))
    assert "\nYou: 📎\nYou: what is this?\n" in await bench.pool.history(KEY)
