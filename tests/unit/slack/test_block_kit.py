"""Buttons, thumbs, task cards and the Home tab. If a workspace refuses blocks, people get text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import CHOICES, Choice, QuestionButtons
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Card, Inbound, Outbound
from bot.features.questions.admissions import ABOUT_A_PERSON
from channels.slack import inbound, render
from channels.slack.inbound import BotIdentity

NAME = "01JC0000000000000000000ABC"
ME = BotIdentity(team="T0TEAM", user="U0BOT", bot="B0BOT")


def message(text: str, asks: str | None = None, **target: str) -> Outbound:
    return Outbound(
        "01JC0000000000000000000OUT",
        NAME,
        ChatKey.parse("slack:chat:C0TEAM"),
        target,
        text,
        "notice",
        buttons=None if asks is None else QuestionButtons(asks),
    )


async def test_a_question_has_buttons_and_other_messages_have_none(stage: Any) -> None:
    await stage.slack.send(message("May **I**?\n```\nrun_shell\n```", NAME, channel=stage.channel))
    await stage.slack.send(message("hello", channel=stage.channel))
    asked, other = stage.server.called("chat.postMessage")
    markdown, actions = asked.params["blocks"]
    assert "run_shell" in markdown["text"]
    assert [one["value"] for one in actions["elements"]] == [
        f"approve {NAME} once",
        f"approve {NAME} chat",
        f"approve {NAME} always",
        f"deny {NAME}",
    ]
    assert "blocks" not in other.params
    assert "run_shell" in stage.server.visible(stage.channel)[0].text


@pytest.mark.parametrize(
    ("choices", "shown"),
    [
        (CHOICES, "Ann wants me to run this. May I?"),
        (ABOUT_A_PERSON, "Ann wants me to run this. May I?"),
        (("again",), "Ann wants me to run this. May I?\n\n```\nls secret\n```"),
        ((), "Ann wants me to run this. May I?"),
    ],
)
async def test_a_notification_tells_of_a_question_without_its_call_and_of_all_else_what_it_says(
    stage: Any, choices: tuple[Choice, ...], shown: str
) -> None:
    asks = replace(
        message("Ann wants me to run this. May I?\n\n```\nls secret\n```", NAME, channel=stage.channel),
        buttons=QuestionButtons(NAME, choices),
    )
    await stage.slack.send(asks)
    (sent,) = stage.server.called("chat.postMessage")
    assert sent.params["text"] == shown


async def test_who_can_no_longer_be_told_is_a_plain_failure(stage: Any) -> None:
    with pytest.raises(errors.DeliveryFailed, match="no longer"):
        await stage.slack.send(message("Approved.", channel=stage.channel, press="1.2"))


BODY: dict[str, Any] = {
    "type": "block_actions",
    "user": {"id": "U0ADA"},
    "channel": {"id": "C0TEAM"},
    "message": {"ts": "1.2"},
    "trigger_id": "1.T.x",
    "actions": [{"value": f"deny {NAME}"}],
}


@pytest.mark.parametrize(
    "actions",
    [
        None,
        [],
        [{}],
        [{"value": 5}],
        [{"value": "stop"}],
        [{"value": f"approve {NAME} for ever"}],
        [{"value": f"deny {NAME}\n"}],
        [{"value": f"deny {NAME}"}, {"value": f"approve {NAME} once"}],
    ],
)
def test_only_what_our_buttons_say_counts(actions: Any) -> None:
    assert inbound.read_press(BODY, ME, 1.0) is not None
    assert inbound.read_press(BODY | {"actions": actions}, ME, 1.0) is None


async def test_below_the_end_of_an_answer_in_a_direct_chat_stand_thumbs(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    await stage.slack.send(out("the beginning", stage.direct, asked))
    sent = await stage.slack.send(replace(out("the **end**", stage.direct, asked), ends=True))
    root = await stage.server.say("?", channel=stage.channel, user=stage.ada)
    await stage.slack.send(replace(out("elsewhere", stage.channel, root), ends=True))
    posts = {**stage.server.world.rooms[stage.direct].posts, **stage.server.world.rooms[stage.channel].posts}
    kinds = {post.text: [block["type"] for block in post.blocks] for post in posts.values() if post.bot_id}
    assert kinds == {"the beginning": [], "the **end**": ["markdown", "context_actions"], "elsewhere": []}
    before = len(await stage.settled())
    for number, rating in enumerate(("good", "bad"), start=1):
        await stage.server.press(stage.direct, sent.message_id, f"rating {rating}", user=stage.ada)
        found = (await stage.arrived(before + number))[-1]
        assert (found.kind, found.rating, found.command) == ("rating", rating, None)
        assert (found.user_id, found.answers) == (stage.ada, sent.message_id)
        assert str(found.chat_key) == f"slack:chat:{stage.direct}:thread:{asked}"


async def test_a_slack_that_does_not_take_thumbs_gets_words_from_then_on(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    stage.server.fail("chat.postMessage", status=200, body={"ok": False, "error": "invalid_blocks"})
    for _ in range(2):
        await stage.slack.send(replace(out("answer", stage.direct, asked), ends=True))
    assert [seen.text for seen in stage.server.replies(stage.direct)] == ["answer", "answer"]
    assert len(stage.server.called("chat.postMessage")) == 3


CARDS = (
    Card("01A", "Look at <alpha> 你好", "complete", "0:10"),
    Card("01B", "Look at beta", "in_progress", "0:04 · web_fetch"),
    Card("01C", "Look at gamma", "error", "0:02 · No page."),
    Card("01D", "Look at delta", "pending"),
)


def progress(out: Any, stage: Any, asked: str) -> Outbound:
    message: Outbound = out("**Working: 1 of 4**", stage.direct, asked)
    return replace(message, kind="progress", title="Working: 1 of 4", cards=CARDS)


def blocks(call: Any) -> Any:
    found = call.params.get("blocks")
    return json.loads(found) if isinstance(found, str) else found


async def test_work_is_a_plan_of_cards_that_is_changed_in_place(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    message = progress(out, stage, asked)
    sent = await stage.slack.send(message)
    await stage.slack.edit(replace(message, text="**Done: 4 of 4**", title="Done: 4 of 4"), sent.message_id)
    (seen,) = stage.server.replies(stage.direct)
    assert seen.text == "**Done: 4 of 4**", "what a notification shows"
    (posted,) = stage.server.called("chat.postMessage")
    (updated,) = stage.server.called("chat.update")
    (plan,) = blocks(posted)
    assert (plan["type"], plan["title"]) == ("plan", "Working: 1 of 4")
    assert [(task["task_id"], task["title"], task["status"]) for task in plan["tasks"]] == [
        (card.id, card.title, card.state) for card in CARDS
    ]
    assert plan["tasks"][1]["details"]["elements"][0]["elements"][0]["text"] == "0:04 · web_fetch"
    assert "details" not in plan["tasks"][3]
    assert blocks(updated)[0]["title"] == "Done: 4 of 4"


async def test_a_slack_that_does_not_take_cards_gets_words_from_then_on(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    stage.server.fail("chat.postMessage", status=200, body={"ok": False, "error": "invalid_blocks"})
    message = progress(out, stage, asked)
    sent = await stage.slack.send(message)
    await stage.slack.edit(replace(message, text="**Done**"), sent.message_id)
    (seen,) = stage.server.replies(stage.direct)
    assert (seen.ts, seen.text) == (sent.message_id, "**Done**")
    tried = [*stage.server.called("chat.postMessage"), *stage.server.called("chat.update")]
    assert [blocks(call) is not None for call in tried] == [True, False, False]


async def test_the_tab_of_messages_is_no_home(stage: Any) -> None:
    await stage.server.open_home(stage.ada, tab="messages")
    await stage.server.open_home(stage.grace)
    await stage.server.until(lambda: bool(stage.server.home_of(stage.grace)))
    assert stage.server.home_of(stage.ada) == ""
    assert stage.intake.dead_letters == []


async def test_a_home_that_cannot_be_made_or_published_is_told_to_the_log_alone(stage: Any) -> None:
    async def refused(_: Inbound) -> tuple[HomeSection, ...]:
        raise errors.StorageError("full")

    stage.server.fail("views.publish", status=200, body={"ok": False, "error": "not_enabled"})
    await stage.server.open_home(stage.ada)
    await stage.server.until(lambda: len(stage.log.at("warn")) == 1)
    stage.intake.home = refused
    await stage.server.open_home(stage.grace)
    await stage.server.until(lambda: len(stage.log.at("warn")) == 2)
    assert [one.message for one in stage.log.at("warn")] == [
        "Slack did not take the home of a person (SlackApiError)",
        "Slack did not take the home of a person (StorageError)",
    ]


def test_what_people_wrote_is_text_and_fits() -> None:
    (header, section) = render.home((HomeSection("x" * 200, ("<!channel> *b*", "y" * 5_000)),))["blocks"]
    assert len(header["text"]["text"]) == 150
    assert section["text"]["text"].startswith("• &lt;!channel&gt;")
    assert len(section["text"]["text"]) <= 3_000
