"""After a stop or a kill, no confirmed message is lost, no answer is repeated, and the history is unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import ANN, ROOM, START_SECONDS, World, eventually, fast


def blocks(body: Any) -> list[Any]:
    """Return the messages of a request without cache markers."""
    return [
        {**m, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]]}
        for m in body["messages"]
    ]


async def test_after_a_kill_the_next_request_begins_with_the_same_bytes(world: World) -> None:
    await world.start("telegram")
    for number in range(3):
        await world.ask(f"message {number} 你好", number + 1)
    await world.model.until(lambda: world.model.active == 0)
    await world.ask("before", 4)
    await world.turns(4)
    before = blocks(world.model.bodies[-1])
    system = world.model.bodies[-1]["system"]
    await world.process.kill()
    await world.start()
    await world.ask("after", 5)
    after = blocks(world.model.bodies[-1])
    assert json.dumps(after[: len(before)], ensure_ascii=False) == json.dumps(before, ensure_ascii=False)
    assert world.model.bodies[-1]["system"] == system


async def test_what_was_sent_while_it_was_down_is_answered_and_each_thing_once(world: World) -> None:
    await world.start()
    root = await world.slack.say("<@U0SHIP> one", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    await world.process.stop()
    world.telegram.say("while you were away")
    await world.start()
    await world.telegram.until(lambda: len(world.texts()) == 1)
    await world.slack.say("two", channel=ROOM, user=ANN, thread_ts=root)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 2)
    assert len(world.texts()) == 1


async def test_a_message_is_on_disk_before_slack_is_told_that_it_arrived(world: World) -> None:
    await world.start("slack")
    await world.slack.say("written first?", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: bool(world.slack.deliveries) and not world.slack.unacked())
    await world.process.kill()
    assert b"written first?" in world.everything_on_disk()


async def killed_in_call(world: World, number: int, kept: Callable[[], bool] = lambda: True) -> None:
    """Kill the process during the model's nth call, once the condition `kept` is true."""
    gate = asyncio.Event()
    world.model.script(lambda _: reply("never", hold=gate))
    await world.model.until(lambda: len(world.model.requests) == number and world.model.active == 1)
    await eventually(kept)
    await world.process.kill()
    gate.set()
    world.model.script(None)


async def test_a_turn_goes_on_from_its_last_step_and_its_reply_is_not_given_again(world: World) -> None:
    await world.start("telegram")
    world.model.answer(
        tool_use("chat_send", {"text": "The code is 4711."}), tool_use("list_dir", {"path": "."})
    )
    world.telegram.say("tell me the code")
    await killed_in_call(
        world, 2, lambda: any(b"ignored." in one.read_bytes() for one in (world.root / ".ship").glob("*.db*"))
    )
    assert world.texts() == ["The code is 4711."]
    cut_off = blocks(world.model.bodies[-1])
    world.model.answer("I have told them.")
    await world.start()
    await world.turns(1)
    assert blocks(world.model.bodies[-1]) == cut_off, "the call that was answered is not paid again"
    world.model.answer("It was 4711.")
    world.telegram.say("what was it?")
    await world.heard("The code is 4711.", "It was 4711.")
    last = blocks(world.model.bodies[-1])
    assert last[: len(cut_off)] == cut_off
    assert last[-1]["content"][-1]["text"] == "what was it?"


async def test_a_slack_post_whose_answer_was_lost_is_found_again_and_not_repeated(world: World) -> None:
    await world.start("slack")
    world.slack.fail("chat.postMessage", action="lose")
    ts = await world.slack.say("hello", channel="D0ANN", user=ANN)
    await world.turns(1)
    assert len(world.slack.replies("D0ANN", ts)) == 1
    assert len(world.slack.called("chat.postMessage")) == 1
    await eventually(lambda: len(world.archive()) == 2)
    assert [line["role"] for line in world.archive()] == ["user", "assistant"]


async def test_a_telegram_send_whose_answer_was_lost_is_repeated_and_says_so(world: World) -> None:
    await world.start("telegram")
    world.model.answer("The answer.")
    world.telegram.fail("sendMessage", action="lose")
    world.telegram.say("hello")
    await world.turns(1)
    first, second = world.texts()
    assert first == "The answer."
    assert second.startswith("(You may have this already.)")
    assert second.endswith("The answer.")


@fast
async def test_a_telegram_that_loses_each_answer_gets_ever_rarer_repeats(world: World) -> None:
    world.model.answer("The answer.")
    await world.start("telegram")
    for _ in range(60):
        world.telegram.fail("sendMessage", action="lose")
    world.telegram.say("hello")
    await world.telegram.until(lambda: len(world.texts()) == 2, START_SECONDS)
    second = time.monotonic()
    await world.telegram.until(lambda: len(world.texts()) >= 3, START_SECONDS)
    assert time.monotonic() - second > 0.4
    assert len(world.texts()) == 3
    assert all(one.startswith("(You may have this already.)") for one in world.texts()[1:])


async def test_rows_that_somebody_else_has_written_name_no_file_elsewhere(world: World) -> None:
    kept = world.root / "kept"
    kept.write_text("mine", encoding="utf-8")
    await world.start("telegram")
    world.telegram.say("hello")
    await world.turns(1)
    await world.sent()
    assert await world.process.stop() == 0
    with contextlib.closing(sqlite3.connect(world.root / ".ship" / "shipmate.db")) as db:
        queued = "SELECT chat, data FROM events WHERE kind = 'queued'"
        chat, data = db.execute(queued).fetchone()
        (seq,) = db.execute("SELECT max(seq) FROM events WHERE chat = ?", (chat,)).fetchone()
        for number, name in enumerate(("../../kept", str(kept), "", 7, ["a"], None), 1):
            file: dict[str, object] = {"name": "a", "mime_type": "text/plain", "size": 4, "sha256": name}
            row = json.loads(data) | {"id": f"{number:026}", "file": file}
            db.execute(
                "INSERT INTO events (chat, seq, id, kind, at, data) VALUES (?, ?, ?, 'queued', 0, ?)",
                (chat, seq + number, f"{number:026}", json.dumps(row)),
            )
        db.execute("UPDATE chats SET open = 1 WHERE chat = ?", (chat,))
        db.commit()
    await world.start()
    world.telegram.say("and now?")
    await world.turns(2)
    assert kept.read_text(encoding="utf-8") == "mine"
    assert await world.process.stop() == 0
