"""What a mention in a group brings along: what was said before it, by the platform's word or as it was heard."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Command, Inbound, Origin, Quoted
from bot.features.listening import participation
from bot.features.listening.before import FIRST_REST, LONGEST_REST
from bot.gateway import deletions
from bot.journal.personal import of_person
from bot.words import say
from tests.unit.gateway.conftest import SECRET, Bench, killed, manifest
from tests.unit.gateway.outgoing import until

GROUP: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}


async def hear(bench: Bench, words: str, **more: Any) -> None:
    """Words that nobody said to the bot."""
    assert not await bench.say(words, **(GROUP | {"addressed": "chat"} | more))


async def mention(bench: Bench, words: str = "so?", **more: Any) -> list[str]:
    """Mention the bot; the words that came along."""
    await bench.say(words, **(GROUP | {"addressed": "mention"} | more))
    await bench.idle()
    return [one.text for one in bench.agent.requests[-1].context]


async def test_a_mention_brings_what_was_heard_before_it_as_words_of_others(bench: Bench) -> None:
    await hear(bench, "shall we ship? 🚢", user_name="Zoë")
    await hear(bench, "", attachments=(Attachment(kind="file", name="plan.txt"),))
    assert await mention(bench) == ["shall we ship? 🚢", ""]
    first, second = bench.agent.requests[-1].context
    assert (first.user_id, first.user_name, first.provenance.people) == ("77", "Zoë", frozenset({"77"}))
    assert second.files == ("plan.txt",)
    assert await bench.lines(ChatKey.parse("tele:chat:-100")) == [("user", "so?"), ("assistant", "re: so?")]


async def test_where_the_conversation_goes_on_only_what_came_since_its_last_turn(bench: Bench) -> None:
    await hear(bench, "before")
    await mention(bench)
    bench.agent.messages = 2
    await hear(bench, "since")
    bench.tele.thread = (Quoted(user_id=None, text="mine", from_self=True, ts=10**15, message_id="m9"),)
    assert await mention(bench, "and now?") == ["since"]
    assert await mention(bench, "again") == []
    assert await mention(bench, "a reply", addressed="reply") == []


async def test_what_its_author_has_changed_or_deleted_since_is_heard_as_that(bench: Bench) -> None:
    for number in ("31", "32"):
        await hear(bench, f"said {number}", message_id=number)
    await hear(bench, "said anew", message_id="31", kind="edit")
    await hear(bench, "", message_id="32", kind="delete")
    assert await mention(bench) == ["said anew"]


async def test_it_is_kept_briefly_and_bounded_and_not_on_disk_unless_a_mention_brings_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participation, "MOST_CHATS", 2)
    await hear(bench, "long ago")
    await bench.clock.advance(participation.KEPT_SECONDS + 1)
    for number in range(participation.MOST_KEPT + 1):
        await hear(bench, f"{number} " + "x" * 5_000)
    for chat in ("-101", "-100", "-102"):
        await hear(bench, f"canary {chat}", chat_id=chat, chat_key=f"tele:chat:{chat}")
    found = await mention(bench)
    assert len(found) == participation.MOST_KEPT
    assert found[-1] == "canary -100"
    assert max(map(len, found)) <= participation.LONGEST_KEPT
    await bench.clock.advance(participation.KEPT_SECONDS + 1)
    assert await mention(bench, chat_id="-102", chat_key="tele:chat:-102") == []
    await bench.journal.close()
    assert b"canary -102" not in b"".join(
        path.read_bytes() for path in bench.root.rglob("*") if path.is_file()
    )


async def test_a_strangers_words_are_not_heard(bench: Bench) -> None:
    place = {"chat_id": "-5", "chat_key": "tele:chat:-5"}
    await hear(bench, "canary", user_id="666", **place)
    await hear(bench, "by a bot", from_bot=True, **place)
    await hear(bench, "let in", **place)
    bench.lists.allow("tele", "666")
    assert await mention(bench, **place) == ["let in"]


async def test_what_the_platform_shows_too_comes_once(bench: Bench) -> None:
    await hear(bench, "heard", message_id="31")
    bench.tele.thread = (
        Quoted(user_id="77", text="heard", message_id="31", ts=1),
        Quoted(user_id="77", text="shown", message_id="30", ts=1),
    )
    assert sorted(await mention(bench)) == ["heard", "shown"]


async def test_a_history_that_the_platform_refuses_is_told_to_operators_once_and_holds_up_no_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct: Manifest = manifest("tele", direct=lambda user: {"chat": user})
    bench.manifests["tele"] = direct

    async def refused(_: Inbound) -> tuple[Quoted, ...]:
        raise errors.ChannelRefused("missing_scope")

    monkeypatch.setattr(bench.tele, "context", refused)
    for _ in range(2):
        assert await mention(bench) == []
        await bench.clock.advance(FIRST_REST)
    await until(lambda: "1" in [one.chat_key.chat_id for one in bench.tele.sent])
    assert [one.text for one in bench.tele.sent if one.chat_key.chat_id == "1"] == [
        "⚠️ On tele I can't see what was said before somebody mentions me: missing_scope. I answer without it."
    ]
    assert bench.tele.texts.count("re: so?") == 2


async def test_what_is_deleted_goes_from_the_conversations_that_a_mention_began_with_it(bench: Bench) -> None:
    def thread(root: str) -> dict[str, Any]:
        return {"chat_key": f"tele:chat:-100:thread:{root}", "message_id": root}

    now = int(bench.clock.now() * 1000)
    gone: dict[str, Any] = {**GROUP, "addressed": "chat", "kind": "delete", "ts": now, **thread("31")}
    assert not await bench.say("", **gone, keys=("nobody has been shown anything",))
    bench.tele.thread = (Quoted(user_id="77", text="canary", message_id="31", ts=now),)
    await mention(bench, **thread("40"), ts=now + 1_000)
    await mention(bench, **thread("50"), ts=now + 2 * 86_400_000)
    await mention(bench, **thread("60"), ts=now + 1_000, addressed="reply")
    assert await bench.say("", **gone)
    await bench.idle()
    shown = ChatKey.parse("tele:chat:-100:thread:40")
    assert bench.agent.forgot == [shown]
    (line,) = await bench.archive.removals(shown)
    assert line.message_id == "31"
    assert (line.meta or {})["turns"] == [bench.agent.requests[0].request_id]


async def test_whose_words_came_along_is_on_file_and_they_come_once_after_a_kill(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    first.agent.hold = asyncio.Event()
    await hear(first, "shall we ship?", user_id="88", message_id="31")
    await first.say("so?", **GROUP, addressed="mention", message_id="40")
    await first.agent.began.wait()
    assert [one.text for one in first.agent.requests[0].context] == ["shall we ship?"]
    await killed(first)
    _, chats = of_person(tmp_path / "journal.db", UserRef("tele", "88"))
    assert chats == {"tele:chat:-100": False}
    second = Bench(tmp_path)
    second.tele.thread = (Quoted(user_id="88", text="shall we ship?", message_id="31", ts=1),)
    await second.open()
    await second.idle()
    (request,) = second.agent.requests
    assert request.inbound is not None
    assert [one.text for one in (*request.context, *request.inbound.quoted)] == ["shall we ship?"]
    await second.close()


@pytest.mark.parametrize("addressed", ["thread", "mention"])
async def test_what_was_heard_is_changed_by_an_edit_or_deletion_that_is_for_the_bot_too(
    bench: Bench, addressed: str
) -> None:
    await mention(bench, "hello")
    others: dict[str, Any] = {"addressed": "thread", "to_others": True}
    for number in ("31", "32"):
        await hear(bench, f"canary {number}", message_id=number, **others)
    await bench.say("said anew", **GROUP, addressed=addressed, message_id="31", kind="edit")
    await bench.say("", **GROUP, addressed=addressed, message_id="32", kind="delete")
    await bench.idle()
    bench.agent.messages = 0
    assert await mention(bench) == ["said anew"]


async def test_what_comes_again_is_heard_once(bench: Bench) -> None:
    for _ in range(2):
        await hear(bench, "once", message_id="31")
    assert await mention(bench) == ["once"]


async def test_secrets_are_looked_for_before_what_others_passed_on_is_cut(bench: Bench) -> None:
    passed_on = SECRET * 300
    quote = Quoted(user_id="77", text=passed_on, brought=True, origin=Origin(how="forwarded", name="Eve"))
    await hear(bench, "", quoted=(quote,))
    (found,) = await mention(bench)
    assert not any(SECRET[at : at + 4] in found for at in range(len(SECRET) - 3))


async def test_the_author_may_have_what_was_heard_forgotten(bench: Bench) -> None:
    await hear(bench, "canary", message_id="31")
    command = Command(name="forget")
    for user in ("78", "77"):
        bench.lists.allow("tele", user)
        about: dict[str, Any] = {"command": command, "answers": "31", "addressed": "command"}
        await bench.say("/forget", **GROUP, user_id=user, **about)
        await bench.idle()
    assert bench.tele.texts == [say("forget.not_yours"), say("forget.done")]
    assert await mention(bench) == []


async def test_the_first_message_of_a_thread_goes_from_the_conversations_that_it_was_brought_into(
    bench: Bench,
) -> None:
    def thread(root: str) -> dict[str, Any]:
        return {"chat_key": f"tele:chat:-100:thread:{root}", "message_id": root}

    now = int(bench.clock.now() * 1000)
    bench.tele.thread = tuple(
        Quoted(user_id="77", text="canary", message_id=name, ts=now) for name in ("31", "32")
    )
    await mention(bench, **thread("40"), ts=now + 1_000)
    gone: dict[str, Any] = {**GROUP, "addressed": "thread", "kind": "delete", "ts": now}
    assert await bench.say("", **(gone | thread("31")))
    await bench.idle()
    assert bench.agent.forgot == [ChatKey.parse("tele:chat:-100:thread:40")]
    # So does one of a thread that the bot takes part in.
    await mention(bench, **(thread("32") | {"message_id": "33"}), ts=now + 2_000)
    assert await bench.say("", **(gone | thread("32")))
    await bench.idle()
    assert set(bench.agent.forgot) == {ChatKey.parse(f"tele:chat:-100:thread:{root}") for root in (40, 32)}
    (first, second) = await bench.archive.removals(ChatKey.parse("tele:chat:-100:thread:40"))
    assert (first.message_id, second.message_id) == ("31", "32")


async def test_what_a_turn_was_not_shown_takes_nothing_of_it_along(bench: Bench) -> None:
    def thread(root: str) -> dict[str, Any]:
        return {**GROUP, "chat_key": f"tele:chat:-100:thread:{root}", "message_id": root}

    now, place = int(bench.clock.now() * 1000), ChatKey.parse("tele:chat:-100:thread:40")
    gone: dict[str, Any] = {"addressed": "chat", "kind": "delete", "ts": now}
    await mention(bench, **thread("40"), ts=now + 1_000)
    request_id = bench.agent.requests[-1].request_id
    await bench.artifacts.put("鯨", chat_key=place, request_id=request_id, tool="look", tool_use_id="t")
    await bench.say("", **thread("31"), **gone)
    await bench.idle()
    assert list((bench.root / "artifacts").rglob("*.txt"))
    assert (bench.agent.forgot, await bench.archive.removals(place)) == ([], [])
    # Of a turn that goes on, nobody can tell yet what it is shown.
    hold = bench.agent.hold = asyncio.Event()
    bench.agent.began.clear()
    await bench.say("so?", **thread("50"), addressed="mention", ts=now + 1_000)
    await bench.agent.began.wait()
    await bench.say("", **thread("32"), **gone)
    await until(lambda: bench.agent.forgot == [ChatKey.parse("tele:chat:-100:thread:50")])
    hold.set()
    await bench.idle()


async def test_behind_any_number_of_messages_what_is_deleted_goes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "MOST", 3)
    now, place = int(bench.clock.now() * 1000), {"chat_key": "tele:chat:-100:thread:40", "message_id": "40"}
    bench.tele.thread = (Quoted(user_id="77", text="canary", message_id="31", ts=now),)
    await mention(bench, **place, ts=now + 1_000)
    for _ in range(8):
        await bench.clock.advance(1)
        await mention(bench, addressed="reply")
    gone: dict[str, Any] = {"chat_key": "tele:chat:-100:thread:31", "message_id": "31", "ts": now}
    await bench.say("", **(GROUP | gone), addressed="chat", kind="delete")
    await bench.idle()
    assert bench.agent.forgot == [ChatKey.parse(place["chat_key"])]


async def test_a_history_that_is_refused_is_asked_for_less_and_less_until_it_is_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (Quoted(user_id="77", text="shown", message_id="30", ts=1),)
    answers: list[errors.ChannelRefused | tuple[Quoted, ...]] = []
    calls: list[float] = []

    async def asked(_: Inbound) -> tuple[Quoted, ...]:
        calls.append(bench.clock.monotonic())
        answer = answers.pop(0)
        if isinstance(answer, errors.ChannelRefused):
            raise answer
        return answer

    monkeypatch.setattr(bench.tele, "context", asked)
    answers += [errors.ChannelRefused("not_in_channel")] * 8 + [shown, shown]
    rests = []
    while len(answers) > 1:
        before = len(calls)
        await mention(bench)
        if len(calls) > before:
            rests.append(calls[-1])
        await bench.clock.advance(FIRST_REST)
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(rests)]
    assert pauses[:6] == [60, 120, 240, 480, 960, 1920]
    assert max(pauses) == LONGEST_REST
    assert await mention(bench) == ["shown"], "once it is shown, nothing is waited for"


async def test_a_missing_right_is_told_to_people_once_a_day_over_restarts_too(tmp_path: Path) -> None:
    async def lacking(_: Inbound) -> tuple[Quoted, ...]:
        raise errors.RightMissing("missing_scope")

    said: list[str] = []
    count = itertools.count()
    for _ in range(2):
        bench = Bench(tmp_path)
        await bench.open()
        bench.tele.context = lacking  # type: ignore[assignment, method-assign]
        for chat in ("-100", "-101"):
            for _ in range(2):
                await mention(bench, chat_id=chat, chat_key=f"tele:chat:{chat}", keys=(f"key {next(count)}",))
        said += [one.text for one in bench.tele.sent]
        await bench.close()
    assert [one.count(say("turn.unseen")) for one in said] == [1, 0, 1, 0, 0, 0, 0, 0]
    assert said[0].startswith("re: so?\n\n")
