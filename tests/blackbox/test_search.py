"""The search index is an export. If it is deleted, it is rebuilt completely; it follows edits, deletions and `/forget`.
Command-line searches work with and without a running gateway.
"""

from __future__ import annotations

import json
from pathlib import Path

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests import quick
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually

KEY = f"telegram:chat:{PERSON}"


def answer(body: Json) -> Reply:
    """Return the model's answer: a search for the requested words, then the results."""
    last = json.dumps(body["messages"][-1], ensure_ascii=False)
    if "find the" in last and "tool_result" not in last:
        return reply(tool_use("chat_load_history", {"queries": ["our swordfish", "剑鱼在哪里"]}))
    return reply("Noted.")


async def matches(world: World, words: str) -> list[str]:
    code, out, err = await quick.run("history", KEY, "--dir", str(world.root), "--search", words, "--json")
    assert code == 0, err
    return [json.loads(line)["text"] for line in out.splitlines()]


async def ask(world: World, words: str) -> None:
    answers = len(world.texts())
    world.telegram.say(words)
    await world.telegram.until(lambda: len(world.texts()) > answers, START_SECONDS)


def index_files(world: World) -> list[Path]:
    return list((world.root / ".ship").glob("index.db*"))


async def test_deleted_it_comes_back_whole_and_what_is_forgotten_or_edited_is_gone(world: World) -> None:
    world.model.script(answer)
    await world.start("telegram")
    await ask(world, "the swordfishes swim in the harbour 剑鱼")
    edited = world.telegram.say("the walrus sleeps on the pier")
    await world.telegram.until(lambda: len(world.texts()) == 2, START_SECONDS)
    forgotten = world.telegram.say("the pelican has a secret")
    await world.telegram.until(lambda: len(world.texts()) == 3, START_SECONDS)
    for words in ("walrus", "pelican"):
        assert words in (await matches(world, words))[0], "beside a gateway"
    world.telegram.edit(edited["message"]["message_id"], "the seal sleeps on the pier")
    world.telegram.say("/forget", reply_to=forgotten["message"]["message_id"])
    await world.telegram.until(
        lambda: any(one.startswith("Forgotten. ") for one in world.texts()), START_SECONDS
    )
    assert await matches(world, "pelican") == await matches(world, "walrus") == []
    assert (await matches(world, "seal"))[0] == "the seal sleeps on the pier"
    await world.process.stop()
    before = await matches(world, "pier harbour")
    assert "the swordfishes swim in the harbour 剑鱼" in before
    for path in index_files(world):
        path.unlink()
    await world.start()
    await eventually(lambda: bool(index_files(world)))
    assert await matches(world, "pier harbour") == before
    assert await matches(world, "pelican") == await matches(world, "walrus") == []
    # Messages in the model's context are not loaded. A new conversation has none.
    await ask(world, "/new")
    await ask(world, "find the fish")
    seen = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert "the swordfishes swim in the harbour 剑鱼" in seen
    assert await world.process.stop() == 0
    assert b"pelican" not in b"".join(path.read_bytes() for path in index_files(world))
    code, out, _ = await quick.run("index", "rebuild", "--dir", str(world.root))
    assert (code, b" of 1 conversation, " in out) == (0, True)
    assert set(await matches(world, "pier harbour")) >= set(before)
