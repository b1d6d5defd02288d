"""One long conversation per platform, on Telegram also in Chinese. The transcript has the calls and the messages that people
see. `golden/*.txt` has the expected transcripts; `GOLDEN=write pytest tests/blackbox/test_golden.py` rewrites them. Read
them as a user would before you commit them.
"""

from __future__ import annotations

import abc
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.base import Json
from bot.testing.anthropic_script import error, reply, stall, tool_use
from tests.blackbox.conftest import ANN, BOB, ROOM, START_SECONDS, World, eventually

GOLDEN = Path(__file__).parent / "golden"
CARL = "U0CARL"
GROUP = -100500
NAMES = {"Ann": 1001, "Bob": 2002, "Carl": 3003}
"""User ids of the people. The name of a direct chat is its person's name."""
TELLS = re.compile(
    r"chat\.(post|update|delete|startStream|stopStream)|files\.|reactions\.|response|command"
    r"|send(Message|Document|Photo)|edit|deleteMessage|answerCallback|setMessageReaction"
)
"""Calls with a visible result. Typing indicators are left out, because their number depends on timing."""
NOISE = {
    "metadata",
    "unfurl_links",
    "unfurl_media",
    "callback_query_id",
    "response_type",
    "link_preview_options",
}
INLINE = {"channel", "ts", "thread_ts", "chat_id", "message_id", "show_alert", "reply_parameters", "user"}


@dataclass(frozen=True, slots=True)
class Words:
    """Texts of people and of the model. `buttons` are the buttons that are pressed."""

    hello: str
    answer: str
    file: str
    content: str
    read: str
    video: str
    unseen: str
    group: str
    shared: str
    ask: str
    plan: str
    done: str
    ask_again: str
    denied: str
    long: str
    stop: str
    failing: str
    better: str
    stranger: str
    allow: str
    deny: str
    again: str
    admit: str


ENGLISH = Words(
    hello="What is on for today?",
    answer="**Two things** today:\n\n1. the review at ten\n2. lunch with the new team\n\nRun `make plan` for the rest.",
    file="Is anything missing in these notes?",
    content="Review at ten. Lunch at twelve.\n",
    read="The notes are complete, but they don't say *where* lunch is.",
    video="And what do you think of this?",
    unseen="Tell me what the video shows, then I can help.",
    group="when do we meet?",
    shared="The review is at ten.",
    ask="please write the plan down",
    plan="Review at ten.\n",
    done="Done: the plan is in `plan.md`.",
    ask_again="and once more for tomorrow",
    denied="I may not write that down, so here it is: nothing is planned yet.",
    long="Compare all the plans of last year",
    stop="stop",
    failing="How long is the review?",
    better="It takes an hour.",
    stranger="Hi, can you help me?",
    allow="Allow once",
    deny="Deny",
    again="Try again",
    admit="Let in",
)
CHINESE = Words(
    hello="今天有什么安排？",
    answer="今天有**两件事**：\n\n1. 十点评审\n2. 和新团队吃午饭\n\n其余的请运行 `make plan`。",
    file="这份笔记里缺什么吗？",
    content="十点评审。十二点午饭。\n",
    read="笔记是完整的，只是没有写*在哪里*吃午饭。",
    video="你觉得这个怎么样？",
    unseen="请告诉我视频里有什么，我再帮你。",
    group="我们什么时候开会？",
    shared="十点评审。",
    ask="请把计划写下来",
    plan="十点评审。\n",
    done="写好了：计划在 `plan.md` 里。",
    ask_again="明天的也写一下",
    denied="我不能写下来，所以直接告诉你：明天还没有安排。",
    long="比较去年所有的计划",
    stop="停",
    failing="评审要多久？",
    better="一个小时。",
    stranger="你好，能帮我吗？",
    allow="允许一次",
    deny="拒绝",
    again="重试",
    admit="同意",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message as people see it. `place` is its number in the room, `below` the message that it answers."""

    place: int
    who: str
    text: str
    below: int | None = None
    buttons: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        below = f" (below #{self.below})" if self.below is not None else ""
        marks = [*(f"<{name}>" for name in self.files), *(f"[{label}]" for label in self.buttons)]
        text = "\n".join(part for part in (self.text, " ".join(marks)) if part)
        return _indented(f"#{self.place}{below} {self.who}: ", text)


class Platform(abc.ABC):
    """People on one platform, and the messages that they see in `rooms`."""

    rooms: Mapping[str, str]

    def __init__(self, world: World, chinese: bool) -> None:
        self.world, self.chinese = world, chinese
        self.server: Any = None
        self.heard = 0

    @abc.abstractmethod
    def configure(self) -> None: ...
    @abc.abstractmethod
    async def say(
        self, who: str, words: str, *, group: bool = False, file: tuple[str, bytes] | None = None
    ) -> None: ...
    @abc.abstractmethod
    async def command(self, who: str, words: str) -> None: ...
    @abc.abstractmethod
    async def press(self, who: str, room: str, label: str) -> None: ...
    @abc.abstractmethod
    def seen(self, room: str) -> list[Line]: ...
    @abc.abstractmethod
    def plain(self, text: str) -> str:
        """Return the text without values that differ between runs."""

    def ephemeral(self) -> list[str]:
        """Return the messages that only one person sees."""
        return []

    def said(self, room: str) -> list[str]:
        return [line.text for line in self.seen(room) if line.who == "Shipmate"]

    def open(self, room: str) -> bool:
        return any(line.buttons for line in self.seen(room))

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.server.until(condition, START_SECONDS)

    def calls(self) -> list[str]:
        """Return the calls since the last step, by room: new messages before changed ones."""
        fresh = [call for call in self.server.calls[self.heard :] if TELLS.match(call.method)]
        self.heard = len(self.server.calls)
        places = list(self.rooms)

        def key(call: Any) -> tuple[int, bool, str]:
            room = self.room_of(call.params)
            changes = "message_id" in call.params or "ts" in call.params
            return (
                places.index(room) if room in places else -1,
                changes,
                str(call.params.get("message_id") or call.params.get("ts") or ""),
            )

        return [self.plain(_told(call.method, call.params)) for call in sorted(fresh, key=key)]

    def room_of(self, params: Json) -> str:
        found = str(params.get("channel") or params.get("chat_id") or "")
        return next((name for name, room in self.rooms.items() if room == found), "")


class Slack(Platform):
    people: Mapping[str, str] = {"Ann": ANN, "Bob": BOB, "Carl": CARL}
    rooms: Mapping[str, str] = {
        "Bob": f"D{BOB[1:]}",
        "the group": ROOM,
        "Ann": f"D{ANN[1:]}",
        "Carl": f"D{CARL[1:]}",
    }

    def configure(self) -> None:
        world = self.world
        self.server = world.slack
        world.only("slack")
        world.slack.add_user(CARL, name="Carl")
        for who in self.people.values():
            world.slack.add_im(who)
            world.slack.world.users[who]["locale"] = "en-US"
        world.config["operators"] = [f"slack:{ANN}"]
        world.config["channels"]["slack"]["allow"] = [BOB]

    async def say(
        self, who: str, words: str, *, group: bool = False, file: tuple[str, bytes] | None = None
    ) -> None:
        room = self.rooms["the group" if group else who]
        mention = f"<@{self.server.world.bot_user}> " if group else ""
        mime = "video/mp4" if file is not None and file[0].endswith(".mp4") else "text/plain"
        files = [self.server.add_file(*file, mime=mime)] if file is not None else []
        await self.server.say(mention + words, channel=room, user=self.people[who], files=files)

    async def command(self, who: str, words: str) -> None:
        await self.server.command(words, channel=self.rooms[who], user=self.people[who])

    async def press(self, who: str, room: str, label: str) -> None:
        posts = self.server.world.rooms[self.rooms[room]].posts.values()
        ((ts, value),) = [
            (post.ts, one["value"])
            for post in posts
            for one in _buttons(post.blocks)
            if one["text"]["text"] == label
        ]
        await self.server.press(self.rooms[room], ts, value, user=self.people[who])

    def seen(self, room: str) -> list[Line]:
        stamps = self._stamps(self.rooms[room])
        names = {user: name for name, user in self.people.items()}
        return [
            Line(
                stamps[one.ts],
                "Shipmate" if one.bot else names[str(one.user)],
                one.text,
                stamps.get(one.thread_ts or "") if one.thread_ts != one.ts else None,
                tuple(
                    button["text"]["text"]
                    for button in _buttons(self.server.world.rooms[self.rooms[room]].posts[one.ts].blocks)
                ),
                one.files,
            )
            for one in self.server.visible(self.rooms[room])
        ]

    def ephemeral(self) -> list[str]:
        return [*self.server.ephemeral, *(text for _, _, text in self.server.world.alone)]

    def _stamps(self, room: str) -> dict[str, int]:
        found = self.server.world.rooms.get(room)
        return {ts: number for number, ts in enumerate(sorted(found.posts), 1)} if found is not None else {}

    def plain(self, text: str) -> str:
        for name, room in self.rooms.items():
            for ts, number in self._stamps(room).items():
                text = text.replace(ts, f"#{number}").replace(f"p{ts.replace('.', '')}", f"p{number}")
            text = text.replace(f"channel={room}", f"channel={name}")
        return _plain(text)


class Telegram(Platform):
    rooms: Mapping[str, str] = {
        "Bob": str(NAMES["Bob"]),
        "the group": str(GROUP),
        "Ann": str(NAMES["Ann"]),
        "Carl": str(NAMES["Carl"]),
    }

    def configure(self) -> None:
        world = self.world
        self.server = world.telegram
        world.only("telegram")
        world.config["operators"] = [f"telegram:{NAMES['Ann']}"]
        world.config["channels"]["telegram"]["allow"] = [str(NAMES["Bob"])]

    async def say(
        self, who: str, words: str, *, group: bool = False, file: tuple[str, bytes] | None = None
    ) -> None:
        mention = f"@{self.server.me['username']} " if group else ""
        media: Json = {}
        if file is not None:
            media = {
                "media": "video" if file[0].endswith(".mp4") else "document",
                "file_name": file[0],
                "data": file[1],
            }
        self.server.say(
            mention + words,
            chat_id=GROUP if group else NAMES[who],
            user_id=NAMES[who],
            name=who,
            language="zh-hans" if self.chinese else "en",
            **media,
        )

    async def command(self, who: str, words: str) -> None:
        await self.say(who, f"/{words}")

    async def press(self, who: str, room: str, label: str) -> None:
        messages = self.server.chats[int(self.rooms[room])].messages.values()
        ((number, value),) = [
            (one["message_id"], button["callback_data"])
            for one in messages
            for button in _keys(one)
            if button["text"] == label
        ]
        self.server.press(number, value, chat_id=int(self.rooms[room]), user_id=NAMES[who])

    def seen(self, room: str) -> list[Line]:
        chat = self.server.chats.get(int(self.rooms[room]))
        names = {user: name for name, user in NAMES.items()}
        return [
            Line(
                one["message_id"],
                names.get(one["from"]["id"], "Shipmate"),
                one.get("text", one.get("caption", "")),
                one.get("reply_to_message", {}).get("message_id"),
                tuple(button["text"] for button in _keys(one)),
                tuple(one[kind].get("file_name", kind) for kind in ("document", "video") if kind in one),
            )
            for one in (chat.messages.values() if chat is not None else ())
        ]

    def plain(self, text: str) -> str:
        for name, room in self.rooms.items():
            text = text.replace(f"chat_id={room}", f"chat_id={name}")
        return _plain(text)


def _buttons(blocks: Any) -> Iterator[Json]:
    for block in blocks:
        if block.get("type") == "actions":
            yield from block["elements"]


def _keys(message: Json) -> Iterator[Json]:
    for row in message.get("reply_markup", {}).get("inline_keyboard", ()):
        yield from row


def _plain(text: str) -> str:
    text = re.sub(r"127\.0\.0\.1:\d+", "loopback", text)
    text = re.sub(r"[0-9A-HJKMNP-TV-Z]{26}", "<id>", text)
    text = re.sub(r"\b(approve|deny) [0-9A-HJKMNP-TV-Z]{6}\b", r"\1 <id>", text)
    text = re.sub(r"\d\d\d\d-\d\d-\d\d", "<date>", text)
    return re.sub(r"(?<!\d)\d\d:\d\d(?!\d)", "HH:MM", text)


def _indented(head: str, text: str) -> str:
    return f"  {head}" + text.replace("\n", "\n      ")


def _told(method: str, params: Json) -> str:
    """Return a call as text: the address in the first line, the content below."""
    shown = {
        name: _value(value) for name, value in params.items() if name not in NOISE and value not in (None, "")
    }
    head = " ".join([method, *(f"{name}={_flat(shown[name])}" for name in sorted(shown) if name in INLINE)])
    rest = [f"{name}: {_flat(shown[name])}" for name in sorted(shown) if name not in INLINE]
    return "\n".join([f"  {head}", *(_indented("  ", one) for one in rest)])


def _value(value: Any) -> Any:
    """Return the value of a field; a text that contains JSON is parsed."""
    if isinstance(value, str) and value[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _flat(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(one, dict) and "type" in one for one in value):
        return "\n".join(_block(one) for one in value)
    if isinstance(value, dict) and "inline_keyboard" in value:
        rows = value["inline_keyboard"]
        return " / ".join(" ".join(f"[{one['text']}: {one['callback_data']}]" for one in row) for row in rows)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _block(block: Json) -> str:
    """Return a block of Slack, or an entity of Telegram, as text."""
    kind, plain = block["type"], json.dumps(block, ensure_ascii=False, sort_keys=True)
    if kind == "markdown":
        return f"markdown: {block['text']}"
    if kind == "actions":
        return "actions: " + " ".join(f"[{one['text']['text']}: {one['value']}]" for one in block["elements"])
    if kind == "context_actions":
        both = [block["elements"][0][f"{which}_button"] for which in ("positive", "negative")]
        return "feedback: " + " ".join(f"[{one['text']['text']}: {one['value']}]" for one in both)
    return (
        f"{kind} {block['offset']}+{block['length']} {block.get('url', '')}".strip()
        if "offset" in block
        else plain
    )


class Transcript:
    """Records a conversation. After each step it notes the calls, and new or changed messages."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.lines: list[str] = []
        self.known: dict[str, dict[int, str]] = {}
        self.ephemeral = 0
        self.turns = 0

    async def step(self, title: str, condition: Callable[[], bool], *, turns: int = 0) -> None:
        """Wait until people see the expected messages and the log is written. Then record the messages."""
        platform = self.platform
        await platform.until(condition)
        self.turns += turns
        await platform.world.turns(self.turns)
        await platform.world.sent()
        self.lines += [f"== {title}", "", "Calls:", *platform.calls(), ""]
        for room in platform.rooms:
            now = {line.place: platform.plain(str(line)) for line in platform.seen(room)}
            before = self.known.get(room, {})
            fresh = [text for place, text in now.items() if before.get(place) != text]
            gone = [f"  #{place} is gone" for place in before if place not in now]
            if fresh or gone:
                where = "In the group" if room == "the group" else f"In the direct chat with {room}"
                self.lines += [f"{where}:", *fresh, *gone, ""]
            self.known[room] = now
        alone = platform.ephemeral()
        if alone[self.ephemeral :]:
            self.lines += [
                "Shown to one person alone:",
                *(platform.plain(_indented("", one)) for one in alone[self.ephemeral :]),
                "",
            ]
        self.ephemeral = len(alone)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


async def converse(platform: Platform, words: Words) -> str:
    """Run the whole conversation, and return the record."""
    world, told = platform.world, Transcript(platform)
    model, said, seen = world.model, platform.said, platform.open

    await platform.command("Ann", "whoami")
    await told.step(
        "Ann, an operator, opens her direct chat", lambda: bool(said("Ann")) or bool(platform.ephemeral())
    )

    model.answer(words.answer)
    await platform.say("Bob", words.hello)
    await told.step("Bob asks in his direct chat", lambda: len(said("Bob")) == 1, turns=1)

    model.answer(words.read)
    await platform.say("Bob", words.file, file=("notes.txt", words.content.encode()))
    await told.step("Bob sends a file", lambda: len(said("Bob")) == 2, turns=1)

    model.answer(words.unseen)
    await platform.say("Bob", words.video, file=("lunch.mp4", b"\0" * 64))
    await told.step("Bob sends a video, which cannot be looked at", lambda: len(said("Bob")) >= 3, turns=1)

    model.answer(words.shared)
    await platform.say("Bob", words.group, group=True)
    await told.step("Bob asks in the group", lambda: len(said("the group")) == 1, turns=1)

    model.answer(tool_use("write_file", {"path": "plan.md", "content": words.plan}))
    model.answer(words.done)
    await platform.say("Bob", words.ask, group=True)
    await told.step("Bob asks for what needs a yes", lambda: seen("Ann") and len(said("the group")) == 2)
    await platform.press("Ann", "Ann", words.allow)
    await told.step(
        "Ann allows it",
        lambda: len(said("the group")) == 3 and not seen("Ann") and "✅" in said("the group")[1],
        turns=1,
    )

    model.answer(tool_use("write_file", {"path": "tomorrow.md", "content": words.plan}))
    model.answer(words.denied)
    await platform.say("Bob", words.ask_again, group=True)
    await told.step("Bob asks for more", lambda: seen("Ann") and len(said("the group")) == 4)
    await world.process.kill()
    await world.start()
    await platform.press("Ann", "Ann", words.deny)
    await told.step(
        "The process is killed and started again; Ann denies it",
        lambda: len(said("the group")) == 5 and not seen("Ann") and "⛔" in said("the group")[3],
        turns=1,
    )

    before = len(said("Bob"))
    model.then(stall(reply(words.better), after=1))
    asked = len(model.requests)
    await platform.say("Bob", words.long)
    await eventually(lambda: len(model.requests) > asked)
    await platform.say("Bob", words.stop)
    await told.step("Bob stops an answer", lambda: len(said("Bob")) > before, turns=1)

    model.then(error(400, "invalid_request_error", "no"))
    await platform.say("Bob", words.failing)
    await told.step("The model fails", lambda: seen("Bob"), turns=1)
    before = len(said("Bob"))
    model.answer(words.better)
    await platform.press("Bob", "Bob", words.again)
    await told.step("Bob tries again", lambda: len(said("Bob")) > before and not seen("Bob"), turns=1)

    await platform.say("Carl", words.stranger)
    await told.step("Carl, a stranger, writes", lambda: seen("Ann") and bool(said("Carl")))
    await platform.press("Ann", "Ann", words.admit)
    await told.step("Ann lets him in", lambda: not seen("Ann") and len(said("Carl")) == 2)
    assert await world.process.stop() == 0
    return told.text


@pytest.mark.parametrize(("platform", "language"), [(Slack, "en"), (Telegram, "zh")])
async def test_a_long_conversation_is_as_it_is_written_down(
    world: World, platform: type[Platform], language: str
) -> None:
    people = platform(world, chinese=language == "zh")
    people.configure()
    for name in ("slack", "telegram"):
        world.config["channels"][name]["streaming"] = {"enabled": False}
    await world.start()
    found = await converse(people, CHINESE if language == "zh" else ENGLISH)
    file = GOLDEN / f"{platform.__name__.lower()}-{language}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(found, encoding="utf-8")
    assert found.splitlines() == file.read_text(encoding="utf-8").splitlines()
