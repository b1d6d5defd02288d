"""No secret of ours is written to a transcript, in whatever form and whatever place it comes."""

from __future__ import annotations

import base64
import threading
import urllib.parse

import pytest

from bot.telemetry import Redactor
from bot.telemetry.redaction import LONG
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_damage import file_of
from tests.unit.agent.test_instructions import write
from tests.unit.agent.test_random import restarted

SECRET = "sk-ant-very secret/东京+key"
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "url": urllib.parse.quote(SECRET, safe=""),
}


@pytest.mark.parametrize("form", FORMS)
async def test_what_holds_a_secret_is_written_without_it(bench: Bench, form: str) -> None:
    secret = FORMS[form]
    bench.configure(redact=Redactor({SECRET}))
    write(bench, ".ship/instructions/people/telegram-77.md", f"Her key is {secret}.")
    kept = {"type": "thinking", "thinking": "nothing of it", "signature": "s1"}
    gone = {"type": "thinking", "thinking": f"it is {secret}", "signature": "s2"}
    bench.model.answers += [
        reply(kept, text(f"see {secret}"), tool_use("skills_load", of=f"x{secret}", **{secret: [secret]})),
        reply(gone, text("done")),
    ]
    await bench.say("go on", archive=False)
    await bench.pool.flush()
    written = file_of(bench).read_text("utf-8")
    assert all(one not in written for one in FORMS.values())
    assert written.count("[redacted]") >= 5
    lines = await bench.transcript.load(KEY)
    thoughts = [
        block
        for line in lines
        for block in (line.message or {}).get("content", ())
        if block["type"] == "thinking"
    ]
    assert thoughts == [kept], "its signature holds for these very words, and for no others"
    await restarted(bench)


async def test_a_long_answer_is_searched_for_secrets_beside_all_else(bench: Bench) -> None:
    redact, there = Redactor({SECRET}), threading.current_thread()
    on_the_loop: set[int] = set()

    def watched(words: str) -> str:
        if threading.current_thread() is there:
            on_the_loop.add(len(words))
        return redact(words)

    bench.configure(redact=watched)
    bench.model.answers.append(reply(text(f"{'Words and more words. ' * 5_000}\n{SECRET}")))
    await bench.say("go on", archive=False)
    await bench.pool.flush()
    written = file_of(bench).read_text("utf-8")
    assert written.count("Words and more words.") >= 5_000
    assert SECRET not in written
    assert max(on_the_loop) < LONG
