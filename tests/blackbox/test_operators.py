"""Operators get alerts in their direct chats. `/readyz` shows the health of each part."""

from __future__ import annotations

from bot.testing.slack import Seen
from bot.words import say
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, START_SECONDS, World, eventually

CARL = "U0CARL"
GROUP = -100500


async def test_an_event_that_cannot_be_read_is_told_to_operators_on_every_channel_once(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}", f"slack:{ANN}", "telegram:999999"]
    world.config["dashboard"] = {"port": 0}
    await world.start("telegram", "slack")
    first = world.telegram.push_raw({"message": {"message_id": "secret words"}})
    world.telegram.push_raw({"message": {"message_id": "secret words"}})
    await world.ask("what stands behind it goes on", 2)
    await world.slack.until(lambda: bool(world.slack.called("chat.postMessage")))
    told = [text for text in world.texts() if "dead letters" in text]
    assert len(told) == 1
    assert f"update:{first['update_id']}" in told[0]
    assert "secret words" not in told[0]
    (post,) = world.slack.called("chat.postMessage")
    assert "dead letters" in str(post)
    address = world.process.ready_line.split()[-1]
    async with world.session.get(f"{address}/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
    async with world.session.get(f"{address}/readyz") as answer:
        parts = (await answer.json())["parts"]
    assert set(parts) == {"journal", "disk", "model", "memory", "slack", "telegram"}
    assert all(part["ok"] for part in parts.values())
    assert "GB are free (" in parts["disk"]["detail"]
    assert await world.process.stop() == 0


def asked(world: World, chat_id: int = PERSON) -> list[tuple[int, str, str]]:
    """Return id, text and first button of each message with buttons in a Telegram chat."""
    chat = world.telegram.chats.get(chat_id)
    return [
        (number, one["text"], one["reply_markup"]["inline_keyboard"][0][0]["callback_data"])
        for number, one in (chat.messages.items() if chat is not None else ())
        if "reply_markup" in one
    ]


async def test_an_operator_lets_a_stranger_in_by_a_button_that_a_kill_leaves_whole(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = []
    world.telegram.chat(PERSON)
    await world.start("telegram")
    world.telegram.say("hello? canary", chat_id=2002)
    await world.telegram.until(lambda: bool(asked(world)), START_SECONDS)
    ((number, text, button),) = asked(world)
    assert text.startswith("Person 2002 (telegram:2002) would like to talk to me, in a direct chat.")
    await world.telegram.until(lambda: len(world.texts(2002)) == 1, START_SECONDS)
    await world.sent()
    await world.process.kill()
    world.telegram.press(number, button, chat_id=PERSON, user_id=2002)
    for _ in range(2):
        world.telegram.press(number, button, chat_id=PERSON)
    await world.start()
    await world.telegram.until(lambda: not asked(world), START_SECONDS)
    await world.telegram.until(lambda: len(world.telegram.called("answerCallbackQuery")) >= 2, START_SECONDS)
    assert "✅ Let in by Person 1001" in world.telegram.chats[PERSON].messages[number]["text"]
    await world.telegram.until(lambda: len(world.texts(2002)) == 2, START_SECONDS)
    assert world.texts(2002)[1].startswith("You can talk to me now.")
    world.telegram.say("and now?", chat_id=2002)
    await eventually(lambda: len(world.model.requests) == 1)
    decided = {"channel": "telegram", "userId": "2002", "decision": "allowed", "by": f"telegram:{PERSON}"}
    await eventually(
        lambda: [line["details"] for line in world.log() if line["kind"] == "admission"] == [decided]
    )
    assert b"canary" not in world.everything_on_disk()
    assert await world.process.stop() == 0


async def test_in_slack_too_every_operator_sees_how_it_ended(world: World) -> None:
    world.config["operators"] = [f"slack:{ANN}", f"slack:{CARL}"]
    world.config["channels"]["slack"]["allow"] = []
    world.slack.add_user(CARL, name="Carl")
    await world.start("slack")
    await world.slack.say("hello?", channel=world.slack.add_im(BOB), user=BOB)
    places = [f"D{who[1:]}" for who in (ANN, CARL)]

    def posts() -> list[Seen]:
        rooms = world.slack.world.rooms
        return [
            one
            for place in places
            if place in rooms
            for one in world.slack.replies(place)
            if one.text.startswith("`")
        ]

    await world.slack.until(lambda: len(posts()) == 2, START_SECONDS)
    first = posts()[0]
    assert first.text.startswith(f"`Bob` (slack:{BOB}) would like to talk to me, in a direct chat.")
    let_in, later = first.buttons
    await world.sent()
    await world.process.kill()
    await world.start()
    await world.slack.press(places[0], first.ts, later, user=ANN)
    await world.slack.press(places[1], posts()[1].ts, let_in, user=CARL)
    await world.slack.until(lambda: all("Not now by `Ann`" in one.text for one in posts()), START_SECONDS)
    assert all(one.buttons == () for one in posts())
    await eventually(lambda: len(world.slack.ephemeral) == 2)
    assert any("Not let in for now." in one for one in world.slack.ephemeral)
    # A person who was refused with [Not now] learns of a later [Let in], even after a restart.
    await world.process.kill()
    await world.start()
    await world.slack.command(f"allow {BOB}", channel=places[0], user=ANN)
    await world.slack.until(
        lambda: any("You can talk to me now" in one.text for one in world.slack.replies(f"D{BOB[1:]}"))
    )
    assert world.model.requests == []
    assert await world.process.stop() == 0


async def test_in_a_channel_a_stranger_alone_learns_that_they_have_to_be_let_in_and_once(
    world: World,
) -> None:
    world.config["operators"] = [f"slack:{ANN}"]
    world.config["channels"]["slack"]["allow"] = []
    world.config["channels"]["telegram"]["allow"] = []
    await world.start("slack", "telegram")
    for words in ("hello?", "anybody?"):
        await world.slack.say(f"<@{world.slack.world.bot_user}> {words}", channel=ROOM, user=BOB)
        world.telegram.say(f"@{world.telegram.me['username']} {words}", chat_id=GROUP, user_id=2002)
    direct = f"D{ANN[1:]}"
    await world.slack.until(lambda: len(world.slack.replies(direct)) == 2, START_SECONDS)
    await world.slack.until(lambda: bool(world.slack.alone(BOB)), START_SECONDS)
    await eventually(lambda: sum(line["kind"] == "denied" for line in world.log()) >= 4)
    await world.sent()
    (told,) = world.slack.alone(BOB)
    assert told.startswith("Hi! I can't talk with you yet")
    assert told.endswith(f"Your id: slack:{BOB}.")
    assert world.slack.replies(ROOM) == []
    assert world.texts(GROUP) == []
    assert await world.process.stop() == 0


async def test_an_operator_lets_a_stranger_in_from_the_chat(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = []
    world.telegram.chat(PERSON)
    await world.start("telegram")
    await world.ask("hello?", 1, chat_id=2002)
    await world.telegram.until(lambda: len(world.texts()) == 1)
    await world.ask("/allow", 2)
    assert "Person 2002: /allow telegram:2002" in world.texts()[1]
    await world.ask("/allow 2002", 3)
    await world.telegram.until(lambda: not asked(world))
    assert world.texts()[2] == "telegram:2002 may talk to me from now on."
    assert "✅ Let in by Person 1001" in world.texts()[0]
    await world.telegram.until(lambda: len(world.texts(2002)) == 2)
    await world.ask("and now?", 3, chat_id=2002)
    assert len(world.model.requests) == 1
    await world.ask("/block 2002", 4)
    world.telegram.say("and again?", chat_id=2002)
    await world.ask("I am here", 5)
    assert len(world.texts(2002)) == 3
    assert len(world.model.requests) == 2


async def test_a_stranger_reads_that_operators_were_asked_only_where_one_was(world: World) -> None:
    world.config["operators"] = ["telegram:999999"]
    world.config["channels"]["telegram"]["allow"] = []
    await world.start("telegram")
    world.telegram.say("hello?", chat_id=2002)
    await world.telegram.until(lambda: bool(world.texts(2002)))
    assert world.texts(2002) == [f"{say('strangers.hello')} Tell them your id: telegram:2002."]


async def test_added_to_a_chat_it_says_once_how_it_is_spoken_to_over_a_kill_too(world: World) -> None:
    world.config["operators"] = [f"slack:{ANN}"]
    world.slack.api.scopes -= {"groups:history"}
    await world.start("slack", "telegram")
    await world.slack.invite(ROOM, by=ANN)
    added = world.telegram.add_bot(GROUP, by=PERSON)
    await world.telegram.until(lambda: len(world.texts(GROUP)) == 1, START_SECONDS)
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 1, START_SECONDS)
    await world.slack.until(lambda: len(world.slack.replies(f"D{ANN[1:]}")) == 2, START_SECONDS)
    assert "privacy mode" in world.texts(GROUP)[0]
    assert world.texts(GROUP)[0].endswith(say("strangers.group"))
    assert world.slack.replies(ROOM)[0].text.endswith("I lack some rights here.")
    closed, deaf = sorted(one.text for one in world.slack.replies(f"D{ANN[1:]}"))[::-1]
    assert deaf.startswith(
        f"`Ann` ({ANN}) has added me to the group `#{ROOM.lower()}`, but I can't read what is said there"
    )
    assert closed.startswith(
        f"`Person 1001` ({PERSON}) has added me to the group `Group {GROUP}`. There I answer only"
    )
    assert closed.endswith(f"`shipmate allow telegram {GROUP}` lets in everybody there.")
    await world.sent()
    await world.process.kill()
    world.telegram.repeat(added)
    world.telegram.add_bot(GROUP, by=PERSON, status="left")
    world.telegram.add_bot(GROUP, by=PERSON)
    await world.start()
    await world.slack.invite(ROOM, by=ANN)
    world.telegram.say("what comes behind it")
    await world.slack.say(f"<@{world.slack.world.bot_user}> and here", channel=ROOM, user=ANN)
    await eventually(lambda: len(world.model.requests) == 2)
    await world.turns(2)
    assert len(world.texts(GROUP)) == 1
    assert [one.text[:6] for one in world.slack.replies(ROOM) if one.thread_ts is None] == ["Hello!"]
    assert await world.process.stop() == 0


async def test_a_stranger_who_adds_it_asks_to_be_let_in_and_the_group_hears_nothing(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.telegram.chat(PERSON)
    await world.start("telegram")
    world.telegram.add_bot(GROUP, by=2002)
    await world.telegram.until(lambda: bool(asked(world)), START_SECONDS)
    ((_, text, _),) = asked(world)
    assert text.startswith(
        f"Person 2002 (telegram:2002) would like to talk to me, in the group Group {GROUP}."
    )
    await world.sent()
    assert world.texts(GROUP) == []
    assert await world.process.stop() == 0
