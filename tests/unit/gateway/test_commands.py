"""What the commands tell of what the agent keeps."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any, Literal

import pytest

from bot import errors
from bot.contracts.agent import ChatStats, SessionChange, SessionInfo
from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command
from bot.words import CATALOGUES, speaking
from channels.slack.events import COMMANDS
from channels.slack.manifest import MANIFEST as SLACK
from channels.telegram.manifest import MANIFEST as TELEGRAM
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.test_turns import command


async def test_a_person_sees_what_the_conversation_has_come_to(bench: Bench) -> None:
    bench.agent.totals = ChatStats(
        turns=1,
        epochs=2,
        calls=3,
        unpriced=1,
        input_tokens=500,
        cache_read_tokens=9_000,
        cache_write_tokens=500,
        output_tokens=1_250,
        cost_usd=0.126,
        messages=4,
        tokens=8_000,
        masked_tokens=5_000,
    )
    await bench.say("/stats", **command("stats"))
    (said,) = await bench.tele.until(1)
    short = "1 answer so far, $0.13 and 1 request whose price I don't know."
    assert said == short
    await bench.say("/stats", user_id="1", **command("stats"))
    assert (await bench.tele.until(2))[1] == (
        f"{short}\n3 requests to the model: 10,000 tokens read, 90% of that from its cache; 1,250 written.\n"
        "In view: 4 messages, about 8,000 tokens. Of these, 5,000 are old results that the model no longer gets."
    )


@pytest.mark.parametrize(
    ("cost", "unpriced", "says"),
    [
        (0.0, 0, "1 answer so far, $0.00."),
        (0.00312, 0, "1 answer so far, $0.0031."),
        (0.0, 2, "1 answer so far, at a price I don't know."),
        (0.5, 2, "1 answer so far, $0.50 and 2 requests whose price I don't know."),
    ],
)
async def test_a_small_sum_is_not_told_as_nothing(
    bench: Bench, cost: float, unpriced: int, says: str
) -> None:
    bench.agent.totals = ChatStats(turns=1, cost_usd=cost, unpriced=unpriced)
    assert await told(bench, "/stats", "77") == says


async def helped(bench: Bench, words: str = "/help", user_id: str = "77", **more: Any) -> list[str]:
    """The lines of an answer to `/help`, which may be several messages here."""
    before = len(bench.tele.sent)
    args = words.partition(" ")[2]
    await bench.say(words, user_id=user_id, chat_id=user_id, **command("help", args=args), **more)
    await bench.tele.until(before + 1)
    await bench.idle()
    return "\n".join(bench.tele.texts[before:]).splitlines()


def listed(lines: list[str]) -> dict[str, str]:
    """The usage of each command that is listed, by its name."""
    shown = [line.partition(" – ")[0] for line in lines if line.startswith("/") and " – " in line]
    return {one[1:].split()[0]: one for one in shown}


BUTTONS = {"afresh", "renew", "retry"}
"""Commands that only buttons send: they need an id that nobody sees."""


async def test_help_lists_every_command_and_slack_takes_these_and_no_other_words(bench: Bench) -> None:
    told = listed(await helped(bench, user_id="1"))
    assert told.keys() | BUTTONS | {"clear"} == bench.commands.names
    assert told.keys() == COMMANDS


async def test_help_shows_operators_commands_and_what_only_they_may_change_to_operators_alone(
    bench: Bench,
) -> None:
    lines, operators = await helped(bench), await helped(bench, user_id="1")
    assert listed(operators).keys() - listed(lines).keys() == {"allow", "block"}
    assert {name: usage for name, usage in listed(operators).items() if listed(lines).get(name) != usage} == {
        "allow": "/allow [id]",
        "block": "/block id",
        "effort": "/effort [low, medium, high or default]",
        "listen": "/listen [mention, thread, always or never]",
        "model": "/model [name or default]",
    }
    assert "**Operators**" in operators
    assert "**Operators**" not in lines
    assert lines[:3] == [
        "**Talk**",
        "/start – A few words about me",
        "/help [command] – All commands, or one of them explained",
    ]
    assert lines[lines.index("**Jobs**") :][:4] == [
        "**Jobs**",
        "/jobs [pause, resume or cancel] [name] – What I'm to do here later; pause, resume or cancel it",
        "",
        "**Permissions**",
    ]
    assert lines[-1] == "/help new explains that command, and so on."


@pytest.mark.parametrize("words", ["/help fork", "/help /FORK", "/help !fork now"])
async def test_help_explains_one_command(bench: Bench, words: str) -> None:
    first, more = await helped(bench, words)
    assert first == "/fork [number or id] – Go on in a copy, from a message or some answers back"
    assert more.startswith("/fork 2 leaves out your last 2 messages.")


async def test_help_explains_an_operators_command_to_operators_alone(bench: Bench) -> None:
    assert await helped(bench, "/help block") == ["Only operators say who may talk to me."]
    assert await helped(bench, "/help block", user_id="1") == [
        "/block id – Keep somebody out",
        "I no longer answer that person. /whoami tells people their own id.",
    ]
    assert await helped(bench, "/help status") == [
        "/status – What I'm doing, and with which model",
    ]


@pytest.mark.parametrize(
    ("user_id", "words", "says"),
    [
        ("77", "/aprove W6AG6Q", "I don't know /aprove. Did you mean /approve?"),
        ("77", "/help aprove", "I don't know /aprove. Did you mean /approve?"),
        ("77", "/stauts", "I don't know /stauts. Did you mean /stats?"),
        ("77", "/retyr", "I don't know /retyr. See /help."),
        ("77", "/alow", "I don't know /alow. See /help."),
        ("1", "/alow", "I don't know /alow. Did you mean /allow?"),
        ("77", "/deploy", "I don't know /deploy. See /help."),
        ("77", f"/{'a' * 200_000}", f"I don't know /{'a' * 39}…. See /help."),
    ],
)
async def test_a_misspelt_command_is_told_which_one_may_be_meant(
    bench: Bench, user_id: str, words: str, says: str
) -> None:
    assert await told(bench, words, user_id) == says


async def test_a_person_sees_what_is_kept_and_is_told_what_was_taken_back(bench: Bench) -> None:
    bench.agent.kept, bench.agent.last_said = "Person: 你好\nI: こんにちは", "das Budget für 東京"
    await bench.say("/history", **command("history"))
    await bench.say("/undo", **command("undo"))
    kept, undone = await bench.tele.until(2)
    assert kept == "Person: 你好\nI: こんにちは"
    assert undone.startswith("Undone: “das Budget für 東京” and my answer")
    assert bench.agent.undone == [ChatKey.parse("tele:chat:77")]
    assert bench.agent.requests == []


async def test_a_person_chooses_among_the_conversations_of_this_chat(bench: Bench) -> None:
    await bench.say("/resume", **command("resume"))
    bench.agent.outlines = [
        SessionInfo("K7QZ", True, 1, 1_700_000_000_000, "das Budget für 東京"),
        SessionInfo("9XWM", False, 1_240, 1_690_000_000_000, ""),
    ]
    await bench.say("/resume", **command("resume"))
    none, listed = await bench.tele.until(2)
    assert "no earlier conversation" in none
    assert listed == (
        "Conversations of this chat, the last one first:\n"
        "K7QZ – Tue 14 Nov 2023, 22:13 UTC, 1 message (this one): “das Budget für 東京”\n"
        "9XWM – Sat 22 Jul 2023, 04:26 UTC, 1,240 messages\n"
        "/resume and an id goes back to that one."
    )
    assert bench.agent.branched == []


async def test_a_person_goes_back_to_a_conversation_by_its_id(bench: Bench) -> None:
    bench.agent.branch = SessionChange("done", "9XWM", "K7QZ")
    await bench.say("/resume 9xwm", **command("resume", args="9xwm"))
    refusals: list[Literal["here", "ambiguous", "unknown"]] = ["here", "ambiguous", "unknown"]
    for number, outcome in enumerate(refusals, 1):
        await bench.tele.until(number)
        bench.agent.branch = SessionChange(outcome)
        await bench.say("/resume 9xwm", **command("resume", args="9xwm"))
    done, here, ambiguous, unknown = await bench.tele.until(4)
    assert bench.agent.branched[0] == (ChatKey.parse("tele:chat:77"), "9xwm")
    assert done.endswith("/resume K7QZ returns to the one before.")
    assert "back in conversation 9XWM." in done
    assert "already" in here
    assert "More than one" in ambiguous
    assert "no conversation 9xwm" in unknown


async def test_a_person_forks_by_turns_by_an_answer_and_by_its_receipt(bench: Bench) -> None:
    await bench.say("what is it?")
    await bench.tele.until(1)
    bench.agent.branch = SessionChange("done", "9XWM", "K7QZ", 2)
    await bench.say("/fork 2", **command("fork", args="2"))
    await bench.tele.until(2)
    await bench.say("/fork", **command("fork"), answers="m1")
    await bench.tele.until(3)
    await bench.say("/fork", **command("fork", args=bench.agent.requests[0].request_id))
    await bench.tele.until(4)
    await bench.say("/fork", **command("fork", args="unheard-of"))
    said = await bench.tele.until(5)
    request_id = bench.agent.requests[0].request_id
    assert bench.agent.branched == [
        (ChatKey.parse("tele:chat:77"), None, 2),
        (ChatKey.parse("tele:chat:77"), request_id, 0),
        (ChatKey.parse("tele:chat:77"), request_id, 0),
    ]
    assert said[1].endswith(
        "without your last 2 messages and my answers. /resume K7QZ returns to the one before."
    )
    assert said[4] == "I know no message or answer unheard-of in this chat."


async def test_a_fork_that_cannot_be_is_told_why(bench: Bench) -> None:
    await bench.say("/fork", **command("fork"))
    await bench.tele.until(1)
    bench.agent.branch = SessionChange("unknown", turns=3)
    await bench.say("/fork 9", **command("fork", args="9"))
    nothing, few = await bench.tele.until(2)
    assert "nothing here to copy yet" in nothing
    assert few == "I've answered 3 messages here; I can't go back 9 and keep one."


async def model(bench: Bench, args: str, user_id: str = "77") -> str:
    count = len(bench.tele.sent)
    asked = Command(name="model", args=args)
    await bench.say(f"/model {args}", user_id=user_id, command=asked, addressed="command")
    return (await bench.tele.until(count + 1))[-1]


async def test_who_is_no_operator_sees_which_model_answers_and_chooses_none(bench: Bench) -> None:
    unknown = "I don't know how many tokens it reads. I don't know its price."
    assert await model(bench, "") == f"This chat uses fake (the default). {unknown}"
    assert await model(bench, "claude-opus-5-5") == "Only operators choose the model of a chat."
    assert await model(bench, "default") == "Only operators choose the model of a chat."
    assert bench.agent.chosen is None


async def test_an_operator_chooses_a_model_and_goes_back(bench: Bench) -> None:
    said = await model(bench, " claude-opus-5-5 ", "1")
    assert said.startswith("This chat uses claude-opus-5-5; elsewhere it's fake.")
    assert "couldn't ask" not in said
    assert bench.agent.chosen == "claude-opus-5-5"
    assert (await model(bench, "Default", "1")).startswith("This chat uses fake (the default).")
    bench.agent.reachable = False
    assert "I couldn't ask the provider whether it has that one." in await model(bench, "local/model:7b", "1")
    assert bench.agent.chosen == "local/model:7b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("two words", "“two words” is not the name of a model. Nothing has changed."),
        ("モデル", "“モデル” is not the name of a model. Nothing has changed."),
        ("-x", "“-x” is not the name of a model. Nothing has changed."),
        ("a" * 201, "is not the name of a model. Nothing has changed."),
        ("claude-none", "The provider has no model “claude-none”. Nothing has changed."),
        ("other", "There's only the built-in demo model here; others need a provider's key."),
    ],
)
async def test_a_name_that_is_none_leaves_the_model_as_it_was(bench: Bench, name: str, says: str) -> None:
    bench.agent.unknown = {"claude-none": errors.ModelUnknown(), "other": errors.OneModel()}
    await model(bench, "claude-opus-5-5", "1")
    assert (await model(bench, name, "1")).endswith(says)
    assert bench.agent.chosen == "claude-opus-5-5"


async def test_the_model_is_told_at_once_and_chosen_after_the_running_turn(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("a long one", user_id="1")
    await bench.agent.began.wait()
    await bench.say("/model x", user_id="1", command=Command(name="model", args="x"), addressed="command")
    assert "(the default)" in await model(bench, "", "1")
    assert bench.agent.chosen is None
    bench.agent.hold.set()
    await bench.idle()
    assert bench.agent.chosen == "x"


async def told(bench: Bench, words: str, user_id: str) -> str:
    """The answer to a command."""
    count = len(bench.tele.sent)
    name, _, args = words.removeprefix("/").partition(" ")
    await bench.say(words, user_id=user_id, chat_id=user_id, **command(name, args=args))
    return (await bench.tele.until(count + 1))[-1]


async def test_an_operator_lets_in_who_waits_and_keeps_them_out_again(bench: Bench) -> None:
    assert await told(bench, "/allow", "1") == "Nobody waits to be let in."
    bench.lists.note("tele", "99", "Zoë 🙂")
    assert "`Zoë 🙂`: /allow tele:99" in await told(bench, "/allow", "1")
    await bench.say("/allow", user_id="1", chat_id="-100", chat_type="group", **command("allow"))
    assert (await bench.tele.until(3))[
        -1
    ] == "Please ask me that in our direct chat: the answer names people."
    assert await told(bench, "/allow 99", "1") == "tele:99 may talk to me from now on."
    assert (bench.lists.allowed("tele"), bench.lists.pending()) == (frozenset({"99"}), [])
    assert await told(bench, "/block tele:99", "1") == "tele:99 is kept out from now on."
    assert (bench.lists.allowed("tele"), bench.lists.blocked("tele")) == (frozenset(), frozenset({"99"}))
    assert bench.agent.requests == []


@pytest.mark.parametrize("who", ["1", "tele:1"])
async def test_no_message_keeps_an_operator_out(bench: Bench, who: str) -> None:
    assert (
        await told(bench, f"/block {who}", "1")
        == "tele:1 is an operator; a message keeps no operator out. On the machine, “shipmate block” does."
    )
    assert bench.lists.blocked("tele") == frozenset()
    assert (await told(bench, "/whoami", "1")).startswith("You're tele:1, an operator.")


@pytest.mark.parametrize("words", ["/allow", "/allow 99", "/block 1"])
async def test_a_member_lets_nobody_in_and_sees_nobody_who_waits(bench: Bench, words: str) -> None:
    bench.lists.note("tele", "99", "Zoë")
    assert await told(bench, words, "77") == "Only operators say who may talk to me."
    assert (bench.lists.allowed("tele"), bench.lists.blocked("tele")) == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("/block", "Add the id of a person: /block ID."),
        ("/block nowhere:5", "“nowhere:5” is not an id."),
        ("/block tele:", "“tele:” is not an id."),
        ("/allow tele:x y", "“tele:x y” is not an id."),
        ("/allow 名前", "“名前” is not an id."),
    ],
)
async def test_what_is_no_id_changes_nothing_and_is_told_what_an_id_looks_like(
    bench: Bench, words: str, says: str
) -> None:
    form = TELEGRAM.where_id
    bench.manifests["tele"] = replace(bench.manifests["tele"], valid_id=str.isdecimal, where_id=form)
    said = await told(bench, words, "1")
    assert said == f"{says} {form} /allow alone shows who waits, with their ids."
    assert "such as 123456789" in said
    assert (bench.lists.allowed("tele"), bench.lists.blocked("tele")) == (frozenset(), frozenset())


async def test_an_id_of_another_channel_is_told_as_it_looks_there(bench: Bench) -> None:
    bench.manifests["local"] = replace(
        bench.manifests["local"], valid_id=str.isdecimal, where_id=SLACK.where_id
    )
    said = await told(bench, "/allow local:ada", "1")
    assert "A Slack id looks like U024BE7LH" in said


@pytest.mark.parametrize("manifest", [SLACK, TELEGRAM])
def test_the_example_of_an_id_is_one(manifest: Manifest) -> None:
    for code in CATALOGUES:
        with speaking(code):
            assert [
                word
                for word in re.findall(r"[A-Z0-9]{5,}", str(manifest.where_id))
                if manifest.valid_id(word)
            ]


@pytest.mark.parametrize(("channel", "takes_files"), [("tele", True), ("local", False)])
async def test_the_greeting_speaks_of_files_where_the_channel_takes_them(
    bench: Bench, channel: str, takes_files: bool
) -> None:
    await bench.say("/start", channel=channel, **command("start"))
    (said,) = await bench.channels[channel].until(1)
    assert said.startswith("Hi, I'm shipmate. Ask me anything, ")
    assert ("send me a file" in said) == takes_files
