"""Only the approved call runs. Tests of changed files, of several calls in one step, and of blocked people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from bot.testing.anthropic_script import pause, reply, tool_use
from tests import quick
from tests.blackbox.conftest import PERSON, START_SECONDS, World, fast

OPERATOR = 2002


def asked(world: World, chat_id: int = OPERATOR) -> list[tuple[int, str, dict[str, str]]]:
    """Return id, text and buttons of each open question in a Telegram chat."""
    messages = world.telegram.chats[chat_id].messages if chat_id in world.telegram.chats else {}
    return [
        (
            number,
            one["text"],
            {b["text"]: b["callback_data"] for row in one["reply_markup"]["inline_keyboard"] for b in row},
        )
        for number, one in messages.items()
        if "reply_markup" in one
    ]


async def question(world: World, *, after: int = 0) -> tuple[int, str, dict[str, str]]:
    """Wait for an operator's question that is newer than this message, and return the question."""
    await world.telegram.until(lambda: any(number > after for number, *_ in asked(world)), START_SECONDS)
    return next(one for one in asked(world) if one[0] > after)


async def decide(world: World, label: str, *, after: int = 0) -> str:
    """Press a button of the question, and return the question's text."""
    number, words, buttons = await question(world, after=after)
    world.telegram.press(number, buttons[label], chat_id=OPERATOR)
    await world.telegram.until(lambda: number not in [one[0] for one in asked(world)], START_SECONDS)
    return words


async def begin(world: World, **permissions: list[str]) -> None:
    """Start a gateway with an operator and a person who asks. Each message lists the calls that the model makes in one step."""
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["permissions"] = permissions
    world.telegram.chat(OPERATOR)

    def answer(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]["content"][-1]
        if last["type"] == "tool_result":
            return "Done."
        return reply(*(tool_use(name, given) for name, given in json.loads(last["text"])))

    world.model.script(answer)
    await world.start("telegram")


async def ask(world: World, *calls: tuple[str, dict[str, Any]]) -> Callable[[], Any]:
    """Send a message that makes the model request these calls. Return a task that waits for their results."""
    count = world.texts().count("Done.")
    world.telegram.say(json.dumps(calls))

    async def results() -> list[dict[str, Any]]:
        await world.telegram.until(lambda: world.texts().count("Done.") > count, START_SECONDS)
        return [
            one for one in world.model.bodies[-1]["messages"][-1]["content"] if one["type"] == "tool_result"
        ]

    return results


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return ("run_shell", {"command": command})


async def test_what_was_approved_is_what_runs(world: World) -> None:
    """The file changes between the question and the call, or between a lasting approval and a later call."""
    root = world.root
    (root / "sub").mkdir()
    for name in ("run.sh", "sub/run.sh", "rule.sh", "always.sh"):
        (root / name).write_text("echo one\n", encoding="utf-8")
    (root / "sub/Makefile").write_text("all:\n\techo one\n", encoding="utf-8")
    (root / "notes.md").write_text("one", encoding="utf-8")
    await begin(world, allow=["run_shell(sh rule.sh)"])
    cases: list[tuple[tuple[str, dict[str, Any]], str, int]] = [
        (shell("sh run.sh"), "run.sh", 2),
        (shell("cd sub && sh -e 'run.sh' | cat"), "sub/run.sh", 2),
        (shell("bash -c 'sh run.sh'"), "run.sh", 2),
        (shell("make -C sub"), "sub/Makefile", 2),
        (shell("cat notes.md"), "notes.md", 2),
        (shell("cat <notes.md"), "other.md", 1),
        (shell("sh rule.sh"), "rule.sh", 0),
        (("write_file", {"path": "new.md", "content": "mine"}), "new.md", 2),
    ]
    at, words = 0, ""
    for call, changed, times in cases:
        results = await ask(world, call)
        for number in range(times):
            (at, words, _) = await question(world, after=at)
            if number == 0:
                with (root / changed).open("a", encoding="utf-8") as file:
                    file.write(f"\n# {at}\n")
            await decide(world, "Allow once")
        (result,) = await results()
        assert "is_error" not in result, (call, result)
    assert "replaces 2 of its 2 lines" in words, "the new file's second question says that one stands there"
    # A lasting approval covers the script, but no other file that the command names.
    results = await ask(world, shell("sh always.sh notes.md"))
    await decide(world, "Allow in this chat")
    await results()
    (root / "notes.md").write_text("two", encoding="utf-8")
    results = await ask(world, shell("sh always.sh notes.md"))
    assert "one" in json.dumps(await results())
    (root / "always.sh").write_text("echo one\necho two\n", encoding="utf-8")
    results = await ask(world, shell("sh always.sh notes.md"))
    words = await decide(world, "Deny", after=at + 1)
    assert "+echo two" in words
    assert "it may run something other than what was allowed before" in words
    (result,) = await results()
    assert result["is_error"]
    assert await world.process.stop() == 0


FOLLOWED = [
    "CLAUDE.md",
    "sub/AGENTS.md",
    ".mcp.json",
    ".github/workflows/ci.yml",
    ".vscode/tasks.json",
    ".husky/pre-commit",
    "tests/conftest.py",
    ".claude/settings.json",
]


async def test_the_calls_of_a_step_are_one_question(world: World) -> None:
    """The process is also killed. One press covers all calls, or each call has its own question."""
    (world.root / "list.md").write_text("milk\nbread\n", encoding="utf-8")
    await begin(world, allow=["write_file(pro/)"], ask=["schedule_create"])
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "a.md", "content": "mine"}),
        ("edit_file", {"path": "list.md", "old_str": "milk\nbread", "new_str": "milk\neggs"}),
        ("schedule_create", {"prompt": "remind me", "when": "30 8 * * 1-5", "timezone": "UTC"}),
        shell("cat list.md"),
    ]
    results = await ask(world, *calls[:3])
    at, words, buttons = await question(world)
    for told in ("do 3 things", "1. write a file", "a.md", "-bread\n", "+eggs\n", "Mon–Fri at 08:30"):
        assert told in words
    await world.telegram.until(lambda: "a.md" in "".join(world.texts()[-1:]), START_SECONDS)
    assert "Mon–Fri at 08:30" in world.texts()[-1], "who asks reads what"
    await world.sent()
    await world.process.kill()
    await world.process.start()
    assert len(asked(world)) == 1
    world.telegram.press(at, buttons["Allow once"], chat_id=OPERATOR)
    assert [one for one in await results() if "is_error" in one] == []
    assert (world.root / "list.md").read_text(encoding="utf-8") == "milk\neggs\n"
    results = await ask(world, *calls[2:])
    words = await decide(world, "Deny", after=at)
    assert [one.get("is_error") for one in await results()] == [True, True]
    results = await ask(world, calls[2], calls[3])
    await decide(world, "One by one")
    await decide(world, "Allow once")
    await decide(world, "Deny")
    assert [one.get("is_error") for one in await results()] == [None, True]
    # A rule for a folder does not cover files that other programs run or follow.
    results = await ask(
        world, *(("write_file", {"path": f"pro/{one}", "content": "x"}) for one in (*FOLLOWED, "x.md"))
    )
    words = await decide(world, "Deny")
    assert [one for one in (*FOLLOWED, "x.md") if f"pro/{one}" in words] == FOLLOWED
    assert "other agents or programs follow that file" in words
    assert [one.get("is_error") for one in await results()] == [True] * len(FOLLOWED) + [None]
    assert await world.process.stop() == 0


@fast
async def test_what_a_blocked_person_has_running_ends(world: World) -> None:
    """The command line blocks a person while the person's question is open and an answer is being written."""
    await begin(world)
    await ask(world, shell("true"))
    at, _, buttons = await question(world)
    world.telegram.say(f"/block {PERSON}", chat_id=OPERATOR)
    await world.telegram.until(lambda: not asked(world), START_SECONDS)
    assert "It was not run" in world.telegram.chats[OPERATOR].messages[at]["text"]
    await world.turns(1)
    world.telegram.press(at, buttons["Allow once"], chat_id=OPERATOR)
    world.telegram.say(f"/allow {PERSON}", chat_id=OPERATOR)
    await world.telegram.until(lambda: "may talk to me" in world.texts(OPERATOR)[-1], START_SECONDS)
    world.model.script(lambda _: pause(reply("A"), asyncio.Event()))
    world.telegram.say("write a long answer")
    await world.model.until(lambda: len(world.model.requests) == 2)
    code, *_ = await quick.run(
        "block", "telegram", str(PERSON), "--dir", str(world.root), env=world.process.env
    )
    assert code == 0
    await world.turns(2)
    assert len(world.model.requests) == 2
    assert await world.process.stop() == 0


async def test_half_a_letter_in_an_approved_call_costs_nobody_anything(world: World) -> None:
    await begin(world)
    results = await ask(world, shell("cat x\ud83d.md"))
    await decide(world, "Allow in this chat")
    await results()
    results = await ask(world, ("skills_list", {}))
    await results()
    await world.sent()
    await world.process.kill()
    await world.start()
    results = await ask(world, shell("cat x\ud83d.md"))
    await results()
