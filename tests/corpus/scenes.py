"""The states in which a journal can be left: how each is brought about, and what has to come of it.

A scene ends with the gateway dead. `shown` is all that people see of the bot in the end, by chat; `model` is how often the
model is asked after the start, which does not see what is `hidden`; `down` is how many seconds no process runs, `then` what
people do and see after that, `complaints` are the errors in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.inbound import Due
from bot.features.jobs.job import merged
from bot.testing.anthropic_script import Failure, Frame, reply, tool_use
from bot.testing.faults import Fault
from bot.words import say
from channels.telegram.adapter import LIMIT
from tests.corpus.model import words
from tests.corpus.stage import ANN, FORUM, OPERATOR, ROOM, Stage

REPEATED = f"{say('delivery.repeated')}\n\n"
LOST = say("delivery.lost_records")
CUT_OFF = say("commands.cut_off", prefix="/")

ONE, TWO, THREE = "question one 问题一", "question two 👩‍👩‍👧", "question three שאלה"
PERSON = 3001
SLACK: Json = {"channels": {"telegram": {"enabled": False}, "slack": {"enabled": True}}}
Words = str | Mapping[str, str]
"""All of a message, or what it begins and ends with."""
Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    play: Play
    story: str
    settings: Json
    shown: Mapping[str, Sequence[Words]]
    model: int
    then: Sequence[Json] = ()
    down: float = 5.0
    hidden: Sequence[str] = ()
    complaints: Sequence[str] = ()


SCENES: dict[str, Scene] = {}


def scene(
    *, shown: Mapping[Any, Sequence[Words]], model: int, settings: Json | None = None, **more: Any
) -> Callable[[Play], Play]:
    """The function's name is that of the state, its docstring says what it is."""

    def added(play: Play) -> Play:
        story = " ".join((play.__doc__ or "").split())
        named = {str(chat): texts for chat, texts in shown.items()}
        SCENES[play.__name__.replace("_", "-")] = Scene(play, story, settings or {}, named, model, **more)
        return play

    return added


MERGED_ONCE = merged(Due(job="", at=0.0, missed=1))


def answers(*asked: str) -> list[str]:
    return [words(one) for one in asked]


def split(whole: str) -> list[str]:
    """A long text as Telegram shows it."""
    return text.split(whole, LIMIT, text.utf16_len)


def ends(whole: str) -> dict[str, str]:
    """A long text by its ends."""
    return {"begins": whole[:60], "ends": whole[-20:]}


def again(*asked: str) -> str:
    return REPEATED + words(*asked)


# ------------------------------------------------------------ inbound


@scene(shown={PERSON: answers(ONE)}, model=1)
async def inbound_queued(stage: Stage) -> None:
    """A message is on file; no turn has begun with it."""
    await stage.start(Fault("journal", "begin_turn"))
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=1)
async def inbound_not_archived(stage: Stage) -> None:
    """A message is on file, and its line in the archive is not."""
    await stage.start(Fault("journal", "receive", when="after"))
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=1)
async def inbound_asked(stage: Stage) -> None:
    """A turn runs; the model has not answered."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    await stage.kill()


NOTE = "make a note 笔记"


@scene(shown={PERSON: answers(NOTE)}, model=1)
async def step_recorded(stage: Stage) -> None:
    """A tool has run and its result is on file; the model has not answered to it."""
    await stage.start()
    stage.model.hold(1)
    stage.telegram.say(NOTE, chat_id=PERSON)
    await stage.model.waiting()
    await stage.kill()


@scene(shown={PERSON: answers(NOTE)}, model=1)
async def step_begun(stage: Stage) -> None:
    """A tool's call has begun, and nothing says what became of it."""
    await stage.start(Fault("disk", "write", named="note"))
    stage.telegram.say(NOTE, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=0)
async def inbound_answered_not_closed(stage: Stage) -> None:
    """The answer is in the chat and its row says so; the message is not closed."""
    await stage.start(Fault("journal", "end_turn"))
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


COLLECT: Json = {"queue": {"mode": "collect"}}


@scene(shown={PERSON: [*answers(ONE), words(TWO, THREE)]}, model=1, settings=COLLECT)
async def inbound_merged(stage: Stage) -> None:
    """Two messages that waited behind a turn are one turn; the model has not answered to it."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    for question in (TWO, THREE):
        stage.telegram.say(question, chat_id=PERSON)
    await stage.until("SELECT count(*) FROM inbox", 3)
    stage.model.let_go()
    stage.model.hold()
    await stage.model.waiting()
    await stage.until("SELECT state FROM inbox", "answered", "in_turn", "in_turn")
    await stage.kill()


@scene(shown={PERSON: [words(NOTE, TWO)]}, model=2)
async def inbound_joined(stage: Stage) -> None:
    """A message came while the model was asked, and has joined the turn; the model has not answered to both."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(NOTE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.say(TWO, chat_id=PERSON)
    await stage.model.waiting(2)
    await stage.until("SELECT state FROM inbox", "in_turn", "in_turn")
    await stage.kill()


@scene(shown={PERSON: [words(NOTE, TWO)]}, model=2)
async def inbound_waits_to_join(stage: Stage) -> None:
    """A message came while the model was asked, and nothing has taken it up."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(NOTE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.say(TWO, chat_id=PERSON)
    await stage.until("SELECT count(*) FROM inbox", 2)
    await stage.kill()


@scene(shown={PERSON: [*answers(ONE), words(f"{TWO}, as changed")]}, model=2, settings=COLLECT)
async def edit_of_a_waiting_message(stage: Stage) -> None:
    """A message that waits behind a turn was edited: its row has the new words."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    said = stage.telegram.say(TWO, chat_id=PERSON)
    await stage.until("SELECT count(*) FROM inbox", 2)
    stage.telegram.edit(said["message"]["message_id"], f"{TWO}, as changed", chat_id=PERSON)
    await stage.until("SELECT state FROM inbox WHERE state = 'merged'", "merged")
    await stage.kill()


@scene(shown={PERSON: [words(f"{ONE}, as changed")]}, model=1)
async def edit_on_file_alone(stage: Stage) -> None:
    """A message and its edit are on file; no turn has begun, and the message's row has the old words."""
    await stage.start(Fault("journal", "begin_turn"), Fault("journal", "receive", 2, "after"))
    said = stage.telegram.say(ONE, chat_id=PERSON)
    stage.telegram.edit(said["message"]["message_id"], f"{ONE}, as changed", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [words(ONE, f"{ONE}, as changed")]}, model=1)
async def edit_of_what_is_answered(stage: Stage) -> None:
    """A message was edited while the model was asked about it."""
    await stage.start()
    stage.model.hold()
    said = stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.edit(said["message"]["message_id"], f"{ONE}, as changed", chat_id=PERSON)
    await stage.until("SELECT count(*) FROM inbox", 2)
    await stage.kill()


@scene(shown={PERSON: answers(ONE, f"{ONE}, as changed")}, model=1, settings={"queue": {"mode": "followup"}})
async def edit_that_waits_for_a_turn_of_its_own(stage: Stage) -> None:
    """A message was edited while the model was asked about it, and has been answered since; the edit waits for its own turn."""
    await stage.start()
    stage.model.hold()
    said = stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.edit(said["message"]["message_id"], f"{ONE}, as changed", chat_id=PERSON)
    await stage.until("SELECT count(*) FROM inbox", 2)
    stage.arm(Fault("journal", "begin_turn"))
    stage.model.let_go()
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=0)
async def edit_that_came_too_late(stage: Stage) -> None:
    """A message was edited after its answer; the edit is on file alone."""
    await stage.start()
    said = stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    stage.arm(Fault("journal", "receive", when="after"))
    stage.telegram.edit(said["message"]["message_id"], f"{ONE}, as changed", chat_id=PERSON)
    await stage.dead()


def _album(stage: Stage) -> None:
    for number, caption in enumerate((ONE, "")):
        stage.telegram.say(
            caption,
            chat_id=PERSON,
            media="document",
            data=f"file {number} 文件\n".encode(),
            file_name=f"file{number}.txt",
            mime="text/plain",
            fields={"media_group_id": "album-1"},
        )


@scene(shown={PERSON: answers(ONE)}, model=1)
async def album_queued(stage: Stage) -> None:
    """An album of two files with a caption is one row on file."""
    await stage.start(Fault("journal", "begin_turn"))
    _album(stage)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=1)
async def album_asked(stage: Stage) -> None:
    """The files of an album were read, and the model has not answered."""
    await stage.start()
    stage.model.hold()
    _album(stage)
    await stage.model.waiting()
    await stage.kill()


@scene(shown={ROOM: answers(ONE)}, model=1, settings=SLACK)
async def slack_thread_with_mention(stage: Stage) -> None:
    """In a room of Slack the bot was named; the thread's turn runs, and the model has not answered."""
    await stage.start()
    stage.model.hold()
    await stage.slack.say(f"<@U0SHIP> {ONE}", channel=ROOM, user=ANN)
    await stage.model.waiting()
    await stage.kill()


@scene(shown={ROOM: [*answers(ONE), *answers(TWO)]}, model=1, settings=SLACK)
async def slack_thread_goes_on(stage: Stage) -> None:
    """A thread with one answer has a second question, whose turn has not begun."""
    await stage.start()
    root = await _answered_thread(stage)
    stage.arm(Fault("journal", "begin_turn"))
    await stage.slack.say(TWO, channel=ROOM, user=ANN, thread_ts=root)
    await stage.dead()


# ------------------------------------------------------------ outbox


@scene(shown={PERSON: [again(ONE)]}, model=0)
async def outbox_sending_not_arrived(stage: Stage) -> None:
    """The answer's row says that its send has begun; Telegram has not got it, and cannot be asked."""
    await stage.start(Fault("channel", "send"))
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [*answers(ONE), again(ONE)]}, model=0)
async def outbox_sending_arrived(stage: Stage) -> None:
    """The answer's row says that its send has begun; it stands in the chat, and Telegram cannot be asked."""
    await stage.start(Fault("channel", "send", when="after"))
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


@scene(shown={"D3001": answers(ONE)}, model=0, settings=SLACK)
async def outbox_sending_not_arrived_on_slack(stage: Stage) -> None:
    """The answer's row says that its send has begun; Slack has not got it, and can be asked."""
    await stage.start(Fault("channel", "send"))
    await stage.slack.say(ONE, channel="D3001", user=ANN)
    await stage.dead()


@scene(shown={"D3001": answers(ONE)}, model=0, settings=SLACK)
async def outbox_sending_arrived_on_slack(stage: Stage) -> None:
    """The answer's row says that its send has begun; it stands in the chat, and Slack can be asked."""
    await stage.start(Fault("channel", "send", when="after"))
    await stage.slack.say(ONE, channel="D3001", user=ANN)
    await stage.dead()


LONG, VERY_LONG = "a long question 长", "a very long question"
FIRST, SECOND, THIRD = split(words(VERY_LONG))
HALF, OTHER_HALF = split(words(LONG))


@scene(shown={PERSON: [ends(FIRST), ends(SECOND), ends(THIRD)]}, model=0)
async def outbox_parts_one_sent(stage: Stage) -> None:
    """Of an answer in three parts one is in the chat; the others are on file as meant to be sent."""
    await stage.start(Fault("journal", "update_outbox", 2))
    stage.telegram.say(VERY_LONG, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [ends(HALF), ends(REPEATED + OTHER_HALF)]}, model=0)
async def outbox_parts_one_unknown(stage: Stage) -> None:
    """Of an answer in two parts the first is in the chat, and the send of the second has begun."""
    await stage.start(Fault("channel", "send", 2))
    stage.telegram.say(LONG, chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: answers(ONE, TWO)}, model=0, then=[{"still": {str(PERSON): []}}, {"pass": 600}])
async def outbox_put_off(stage: Stage) -> None:
    """Telegram wants to be left alone for ten minutes: an answer waits for that, and another one behind it."""
    await stage.start()
    stage.telegram.limit("sendMessage", 600, times=100)
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    stage.telegram.say(TWO, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered", "answered")
    await stage.kill()


@scene(
    shown={PERSON: ["the table", ""]},
    model=0,
    settings={"permissions": {"allow": ["write_file"]}},
    then=[{"still": {str(PERSON): []}}, {"pass": 600}],
)
async def outbox_file_put_off(stage: Stage) -> None:
    """An answer and the file below it wait for Telegram; the file's bytes are kept, and a file has no words."""
    await stage.start()
    stage.telegram.limit("sendMessage", 600, times=100)
    stage.telegram.say("make a table 表", chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    await stage.kill()


@scene(shown={PERSON: [*answers(ONE), *[again(ONE)] * 2]}, model=0)
async def outbox_repeat_unknown(stage: Stage) -> None:
    """An answer's send was lost, and that of its repeat too: nobody can tell whether either arrived, and both did."""
    await stage.start()
    stage.telegram.fail("sendMessage", action="lose", times=2)
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT attempts FROM outbox ORDER BY rowid", 1, 1)
    await stage.until("SELECT state FROM inbox", "answered")
    await stage.kill()


@scene(shown={PERSON: [*answers(ONE), again(ONE)]}, model=0)
async def outbox_repeat_on_file(stage: Stage) -> None:
    """An answer's send was lost; its repeat is on file, and the row of the first does not say so yet."""
    await stage.start(Fault("journal", "update_outbox"))
    stage.telegram.fail("sendMessage", action="lose", times=1)
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


MISSING = say("delivery.missed", which=f"“{words(ONE)}”")


@scene(shown={PERSON: [f"{MISSING}\n\n{words(TWO)}"]}, model=1, then=[{"say": TWO, "chat": PERSON}])
async def outbox_untold(stage: Stage) -> None:
    """An answer waited for a day and was given up; its person has not been told."""
    await stage.start()
    stage.telegram.limit("sendMessage", 600, times=1_000_000)
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    stage.clock.advance(25 * 3600.0)
    await stage.until("SELECT untold FROM outbox", 1)
    await stage.kill()


# ------------------------------------------------------------ what passes the queues


@scene(shown={PERSON: ["Stopped."]}, model=0)
async def stop_on_file_alone(stage: Stage) -> None:
    """A turn runs, and a /stop for it is on file; nothing was stopped."""
    await stage.start()
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    stage.arm(Fault("journal", "receive", when="after"))
    stage.telegram.say("/stop", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: ["Stopped."]}, model=0)
async def stop_done_not_told(stage: Stage) -> None:
    """A /stop has ended the turn; what its person is told of that is on file, and was not sent."""
    await stage.start(Fault("journal", "update_outbox"))
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.say("/stop", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: ["Stopped."]}, model=0)
async def stop_half_done(stage: Stage) -> None:
    """A turn is being stopped, and the /stop is on file as not carried out."""
    await stage.start(Fault("journal", "finish"))
    stage.model.hold()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.model.waiting()
    stage.telegram.say("/stop", chat_id=PERSON)
    await stage.dead()


NO_JOBS = "There are no jobs here."


@scene(shown={PERSON: [NO_JOBS]}, model=0)
async def command_on_file_alone(stage: Stage) -> None:
    """A command is on file; nothing was done for it."""
    await stage.start(Fault("journal", "receive", when="after"))
    stage.telegram.say("/jobs", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [NO_JOBS]}, model=0)
async def command_answer_unsent(stage: Stage) -> None:
    """A command's answer is on file as meant to be sent; nothing was sent."""
    await stage.start(Fault("journal", "update_outbox"))
    stage.telegram.say("/jobs", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [NO_JOBS, REPEATED + NO_JOBS]}, model=0)
async def command_answer_unknown(stage: Stage) -> None:
    """A command's answer is in the chat, and its row says that its send has begun."""
    await stage.start(Fault("channel", "send", when="after"))
    stage.telegram.say("/jobs", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [*answers(ONE), CUT_OFF]}, model=0)
async def command_cut_off(stage: Stage) -> None:
    """An /undo has begun, and nothing says whether it is done."""
    await stage.start()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    stage.arm(Fault("journal", "end_turn"))
    stage.telegram.say("/undo", chat_id=PERSON)
    await stage.dead()


@scene(shown={PERSON: [errors.RequestInvalid().person]}, model=0)
async def failure_not_told(stage: Stage) -> None:
    """The model refuses; its turn has failed, and what its person is told of that is on file, and was not sent."""
    await stage.start(Fault("journal", "update_outbox"))
    stage.world.model.then(
        Failure(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}})
    )
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.dead()


async def _answered_thread(stage: Stage) -> str:
    root = await stage.slack.say(f"<@U0SHIP> {ONE}", channel=ROOM, user=ANN)
    await stage.slack.until(lambda: bool(stage.slack.replies(ROOM, root)))
    await stage.until("SELECT state FROM inbox", "answered")
    return root


@scene(
    shown={ROOM: [words(say("marks.removed")), *answers(TWO)]},
    model=1,
    settings=SLACK,
    then=[{"say": TWO, "thread": ROOM}],
    hidden=[ONE],
)
async def deletion_on_file_alone(stage: Stage) -> None:
    """A message that was answered is deleted in Slack; the deletion is on file, and nothing was removed."""
    await stage.start()
    root = await _answered_thread(stage)
    stage.arm(Fault("journal", "receive", when="after"))
    await stage.slack.delete(ROOM, root)
    await stage.dead()


@scene(
    shown={ROOM: [words(say("marks.removed")), *answers(TWO)]},
    model=1,
    settings=SLACK,
    then=[{"say": TWO, "thread": ROOM}],
    hidden=[ONE],
)
async def deletion_in_the_middle(stage: Stage) -> None:
    """A message that was answered is deleted in Slack; the archive says so, and the deletion is not closed."""
    await stage.start()
    root = await _answered_thread(stage)
    stage.arm(Fault("journal", "finish"))
    await stage.slack.delete(ROOM, root)
    await stage.dead()


# ------------------------------------------------------------ messages for show


STREAMS: Json = {"channels": {"telegram": {"streaming": {"enabled": True, "afterMs": 0}}}}


async def _half_shown(stage: Stage) -> asyncio.Event:
    """Half of an answer is shown; the rest comes when the event is set."""
    gate = asyncio.Event()

    def halved(frames: list[Frame]) -> list[Frame]:
        return [*frames[: len(frames) // 2], gate, *frames[len(frames) // 2 :]]

    stage.world.model.then(reply(tool_use("chat_send", {"text": words(ONE)}), edit=halved))
    stage.world.model.chunk = 4
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.telegram.until(lambda: any(one.endswith(" …") for one in stage.world.texts(PERSON)))
    await stage.until("SELECT count(message_id) FROM outbox", 1)
    return gate


@scene(shown={PERSON: answers(ONE)}, model=1, settings=STREAMS)
async def preview_not_created(stage: Stage) -> None:
    """The message that was to show the beginning of an answer is on file; it was not sent."""
    await stage.start(Fault("journal", "put_outbox", when="after"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await _half_shown(stage)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=1, settings=STREAMS)
async def preview_shown(stage: Stage) -> None:
    """Half of an answer is shown, and the model goes on with it."""
    await stage.start()
    await _half_shown(stage)
    await stage.kill()


@scene(shown={PERSON: ["answe …", *answers(ONE)]}, model=1, settings=STREAMS)
async def preview_unknown(stage: Stage) -> None:
    """The beginning of an answer is in the chat, and nobody knows the number of that message."""
    await stage.start(Fault("channel", "send", when="after"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await _half_shown(stage)
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=0, settings=STREAMS)
async def preview_ended(stage: Stage) -> None:
    """Half of an answer is shown; the whole has come, and is not on file."""
    await stage.start()
    gate = await _half_shown(stage)
    stage.arm(Fault("journal", "put_outbox"))
    gate.set()
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=0, settings=STREAMS)
async def preview_last_edit_not_made(stage: Stage) -> None:
    """Half of an answer is shown; the whole, on file, was to take its place and has not."""
    await stage.start()
    gate = await _half_shown(stage)
    stage.arm(Fault("channel", "edit"))
    gate.set()
    await stage.dead()


@scene(shown={PERSON: answers(ONE)}, model=0, settings=STREAMS)
async def preview_last_edit_made(stage: Stage) -> None:
    """The whole answer stands in the place of its half, and its row does not say so."""
    await stage.start()
    gate = await _half_shown(stage)
    stage.arm(Fault("channel", "edit", when="after"))
    gate.set()
    await stage.dead()


TASKS = "give out two tasks 任务"


@scene(shown={PERSON: answers(TASKS)}, model=1, settings=STREAMS)
async def progress_shown(stage: Stage) -> None:
    """Two tasks are at work, and a message shows how far they are; it goes with the answer."""
    await stage.start()
    stage.model.hold(1)
    stage.telegram.say(TASKS, chat_id=PERSON)
    await stage.telegram.until(lambda: any("0 of 2" in one for one in stage.world.texts(PERSON)), 30)
    await stage.until("SELECT count(message_id) FROM outbox", 1)
    await stage.kill()


# ------------------------------------------------------------ turns that wait for somebody


SKILLS = "which skills 技能"
ASKS: Json = {"operators": [f"telegram:{OPERATOR}"], "permissions": {"ask": ["skills_list"]}}
APPROVED = {"begins": "Person ", "ends": "✅ Allowed by Person 3009, 08:00 UTC."}
WAITED = {"begins": "For this I need a yes from an operator.", "ends": APPROVED["ends"]}
ALLOWED = [{"press": 0, "chat": OPERATOR, "by": OPERATOR}]


async def _approval_asked(stage: Stage) -> int:
    """A call waits for an operator; the number of the message with the buttons."""
    stage.telegram.chat(OPERATOR)
    stage.telegram.say(f"@shipmate_bot {SKILLS}", chat_id=FORUM, user_id=PERSON)
    await stage.telegram.until(lambda: bool(stage.asked(OPERATOR)))
    await stage.until("SELECT state FROM outbox", "sent", "sent")
    return stage.asked(OPERATOR)[0]


@scene(shown={FORUM: [WAITED, *answers(SKILLS)], OPERATOR: [APPROVED]}, model=1, settings=ASKS, then=ALLOWED)
async def approval_waits(stage: Stage) -> None:
    """A call waits for an operator, who has been asked."""
    await stage.start()
    await _approval_asked(stage)
    await stage.kill()


@scene(
    shown={FORUM: [WAITED, *answers(SKILLS)], OPERATOR: [APPROVED]},
    model=1,
    settings=ASKS,
    # The group is asked once an operator has been: who presses at once would be quicker.
    then=[{"pass": 2.0}, *ALLOWED],
)
async def approval_not_shown(stage: Stage) -> None:
    """A call waits for an operator; that is on file, and nobody was asked."""
    stage.telegram.chat(OPERATOR)
    await stage.start(Fault("journal", "ask", when="after"))
    stage.telegram.say(f"@shipmate_bot {SKILLS}", chat_id=FORUM, user_id=PERSON)
    await stage.dead()


@scene(shown={FORUM: [WAITED, *answers(SKILLS)], OPERATOR: [APPROVED]}, model=1, settings=ASKS)
async def approval_given_not_used(stage: Stage) -> None:
    """An operator has allowed a call, which has not run."""
    await stage.start()
    number = await _approval_asked(stage)
    stage.arm(Fault("journal", "resolve", when="after"))
    stage.press(OPERATOR, number, OPERATOR)
    await stage.dead()


@scene(
    shown={
        FORUM: [WAITED, *answers(SKILLS)],
        OPERATOR: [APPROVED, {"begins": "✅ Allowed.", "ends": "✅ Allowed."}],
    },
    model=1,
    settings=ASKS,
)
async def approval_given_not_told(stage: Stage) -> None:
    """An operator has allowed a call by a command, which is open: neither have they heard of it, nor has the call run."""
    await stage.start()
    await _approval_asked(stage)
    (name,) = stage.rows("SELECT id FROM approvals")
    stage.arm(Fault("journal", "resolve", when="after"))
    stage.telegram.say(f"/approve {name[-6:]}", chat_id=OPERATOR, user_id=OPERATOR)
    await stage.dead()


BOOK = "book a table 订位"
MCP: Json = {
    "permissions": {"allow": ["mcp__friends__*"]},
    "operators": [f"telegram:{PERSON}"],
    "mcp": {"servers": {"friends": {"command": "{python}", "args": ["{servers}/friendly.py", "."]}}},
}


ASKED = {"begins": "book (friends) asks:", "ends": "this way."}


@scene(shown={PERSON: [ASKED, *answers(BOOK)]}, model=1, settings=MCP)
async def question_waits(stage: Stage) -> None:
    """A tool has asked the person something, and waits for the answer."""
    await stage.start()
    await stage.logged("friends has 8 tools")
    stage.telegram.say(BOOK, chat_id=PERSON)
    await stage.telegram.until(lambda: any("asks:" in one for one in stage.world.texts(PERSON)))
    await stage.until("SELECT state FROM outbox", "sent")
    await stage.kill()


# ------------------------------------------------------------ jobs


PLAN, HOURLY, ABROAD = "plan once 计划", "plan hourly", "plan abroad"
PLANNED = "the planned question"


async def _planned(stage: Stage, asked: str) -> None:
    stage.telegram.say(asked, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")


@scene(
    shown={PERSON: answers(PLAN, PLANNED)},
    model=1,
    then=[{"still": {str(PERSON): answers(PLAN)}}, {"pass": 7_300}],
)
async def job_planned(stage: Stage) -> None:
    """A job is planned for a time that has not come."""
    await stage.start()
    await _planned(stage, PLAN)
    await stage.kill()


@scene(
    shown={PERSON: answers(ABROAD, PLANNED)},
    model=1,
    then=[{"still": {str(PERSON): answers(ABROAD)}}, {"pass": 7_300}],
)
async def job_planned_abroad(stage: Stage) -> None:
    """A job is planned in a time zone that its person has named, which is remembered."""
    await stage.start()
    await _planned(stage, ABROAD)
    await stage.kill()


@scene(shown={PERSON: answers(PLAN, PLANNED)}, model=1, down=10_000, then=[{"pass": 100}])
async def job_due_while_nobody_ran(stage: Stage) -> None:
    """A job is planned for a time that comes while no process runs."""
    await stage.start()
    await _planned(stage, PLAN)
    await stage.kill()


@scene(shown={PERSON: answers(PLAN, PLANNED)}, model=1)
async def job_due(stage: Stage) -> None:
    """A job has fallen due; its turn runs, and the model has not answered."""
    await stage.start()
    await _planned(stage, PLAN)
    stage.model.hold()
    stage.clock.advance(7_300)
    await stage.model.waiting()
    await stage.kill()


@scene(
    shown={PERSON: [*answers(HOURLY, PLANNED), f"{words(PLANNED)}\n\n{MERGED_ONCE}"]},
    model=2,
    down=10_000,
)
async def job_due_again(stage: Stage) -> None:
    """A job of every hour has fallen due; the model has not answered, and more times pass while no process runs."""
    await stage.start()
    await _planned(stage, HOURLY)
    stage.model.hold()
    stage.clock.advance(3_700)
    await stage.model.waiting()
    await stage.kill()


# ------------------------------------------------------------ a journal that was lost


async def _lost(stage: Stage) -> None:
    await stage.start()
    stage.telegram.say(ONE, chat_id=PERSON)
    await stage.until("SELECT state FROM inbox", "answered")
    stage.model.hold()
    stage.telegram.say(TWO, chat_id=PERSON)
    await stage.model.waiting()
    await stage.archived(3)
    await stage.kill()
    stage.lose_journal()


LOSS = ["a message may be lost; its person is told"]


@scene(shown={PERSON: [*answers(ONE), LOST]}, model=0, complaints=LOSS)
async def journal_lost_untold(stage: Stage) -> None:
    """The journal was gone at the start; whose message is lost with it has not been told."""
    await _lost(stage)
    await stage.start(Fault("journal", "put_outbox"))
    await stage.dead()


@scene(shown={PERSON: [*answers(ONE), LOST]}, model=0)
async def journal_lost_told(stage: Stage) -> None:
    """The journal was gone at the start; whose message is lost with it was told to send it again."""
    await _lost(stage)
    await stage.start()
    await stage.until("SELECT state FROM outbox", "sent")
    await stage.kill()


@scene(shown={PERSON: [*answers(ONE), LOST, REPEATED + LOST]}, model=0, complaints=LOSS)
async def journal_lost_telling(stage: Stage) -> None:
    """The journal was gone at the start; the words for whose message is lost are in the chat, and their row does not say so."""
    await _lost(stage)
    await stage.start(Fault("channel", "send", when="after"))
    await stage.dead()
