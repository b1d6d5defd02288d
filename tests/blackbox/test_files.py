"""Files that people send: the process reads each text file exactly once, also if it is killed."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
from collections.abc import Callable
from typing import Any

import pillow_heif
import pytest
from PIL import Image

from bot.testing.anthropic import KEY
from bot.testing.anthropic_script import error, reply, text, tool_use
from bot.testing.transcription import TranscriptionServer
from tests.blackbox.conftest import ANN, World, eventually, whole
from tests.unit.documents.office_files import docx, xlsx
from tests.unit.documents.picture_files import pdf, png

LOG = "".join(f"{n:05} 日志 line {n} שורה\n" for n in range(8_000)).encode()
NAME = "日志 1.log"
NEEDLE = "07777 日志 line 7777 שורה"


class Sender:
    """A person on one platform who sends files."""

    def __init__(self, world: World, channel: str) -> None:
        self.world, self.channel = world, channel
        self.server: Any = world.slack if channel == "slack" else world.telegram

    async def send(self, words: str, data: bytes, name: str = NAME) -> str:
        """Send a file, and return the id of the message."""
        if self.channel == "slack":
            file = self.server.add_file(name, data)
            ts: str = await self.server.say(words, channel="D0ANN", user=ANN, files=[file])
            return ts
        sent = self.server.say(words, media="document", data=data, file_name=name)
        return str(sent["message"]["message_id"])

    async def show(self, words: str, data: bytes) -> str:
        """Send a picture as this platform does."""
        if self.channel == "slack":
            file = self.server.add_file("照片.png", data)
            ts: str = await self.server.say(words, channel="D0ANN", user=ANN, files=[file])
            return ts
        return str(self.server.say(words, media="photo", data=data)["message"]["message_id"])

    async def speak(self, data: bytes) -> str:
        """Send a voice note as this platform does."""
        if self.channel == "slack":
            file = self.server.add_file("audio_message.m4a", data, mime="audio/mp4") | {
                "subtype": "slack_audio"
            }
            ts: str = await self.server.say("", channel="D0ANN", user=ANN, files=[file])
            return ts
        return str(self.server.say("", media="voice", data=data)["message"]["message_id"])

    async def say(self, words: str, *, thread: str) -> None:
        if self.channel == "slack":
            await self.server.say(words, channel="D0ANN", user=ANN, thread_ts=thread)
        else:
            self.server.say(words)

    def replies(self) -> list[str]:
        if self.channel == "slack":
            return [one.text for one in self.server.replies("D0ANN")]
        return self.world.texts()

    async def heard(self, count: int) -> list[str]:
        await self.server.until(lambda: whole(self.replies(), count) and not self.growing())
        return self.replies()

    def growing(self) -> bool:
        """Return True if a stream of Slack is still open. Its text does not show this."""
        return self.channel == "slack" and any(
            self.server.streaming("D0ANN", one.ts) for one in self.server.replies("D0ANN")
        )

    def fetched(self) -> int:
        return len(self.server.called("file"))


@pytest.fixture(params=["slack", "telegram"])
def sender(world: World, request: pytest.FixtureRequest) -> Sender:
    world.only(request.param)
    return Sender(world, request.param)


def held(world: World, body: int = -1) -> dict[str, Any]:
    """Return the text of the newest file that the model's request contains."""
    for message in reversed(world.model.bodies[body]["messages"]):
        for block in message["content"]:
            if block["type"] == "text" and block["text"].startswith("<attached_files"):
                row: dict[str, Any] = json.loads(block["text"].split("\n")[1])
                return row
    raise AssertionError(world.model.bodies[body]["messages"])


def artifacts(world: World) -> list[bytes]:
    return [path.read_bytes() for path in (world.root / ".ship" / "artifacts").glob("*/*.txt")]


def searching(body: Any) -> Any:
    """Return the model's answer: a search for a line in the file, then the result."""
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return (
            reply(tool_use("chat_send", {"text": f"found {last['content']}"}))
            if "07777" in str(last["content"]) and "found" not in json.dumps(body["messages"][-2])
            else reply()
        )
    for block in body["messages"][-1]["content"]:
        if block["text"].startswith("<attached_files"):
            row = json.loads(block["text"].split("\n")[1])
            return reply(tool_use("read_artifact", {"id": row["artifact"], "grep": "line 7777 "}))
    return reply(text("no file"))


async def test_a_text_file_is_read_and_its_end_is_found(world: World, sender: Sender) -> None:
    await world.start()
    world.model.script(searching)
    await sender.send("what is in line 7777?", LOG)
    assert NEEDLE in (await sender.heard(1))[0]
    row = held(world, 0)
    assert (row["name"], row["size"], row["lines"]) == (NAME, len(LOG), 8_000)
    assert LOG.decode().startswith(row["beginning"])
    assert 1_900 < len(row["beginning"]) <= 2_000
    (kept,) = artifacts(world)
    assert kept.endswith(LOG)
    await world.turns(1)
    line = next(line for line in world.archive() if line["role"] == "user")
    assert (line["text"], line["meta"]["attachments"][0]["name"]) == ("what is in line 7777?", NAME)
    (told,) = [one for one in world.log() if one["kind"] == "file"]
    assert (told["message"], told["details"]["artifact"]) == ("a file was read", row["artifact"])
    disk = world.everything_on_disk()
    assert not any(secret.encode() in disk for secret in world.process.env.values() if len(secret) > 12)


async def test_office_files_and_old_encodings_are_read_as_text(world: World, sender: Sender) -> None:
    files = [
        ("报告.docx", docx(), "Hello 世界\n"),
        (
            "表.csv",
            xlsx('<row><c t="inlineStr"><is><t>数量</t></is></c><c><v>12</v></c></row>'),
            "# Sheet: 销售\n数量\t12\n",
        ),
        ("旧.txt", "你好，这是旧的日志。".encode("gb18030"), "你好，这是旧的日志。"),
        ("古い.log", "これは古いログです。".encode("shift_jis"), "これは古いログです。"),
    ]
    await world.start()
    world.model.script(lambda _: "read")
    for count, (name, data, words) in enumerate(files, 1):
        await sender.send("what does it say?", data, name)
        assert await sender.heard(count) == ["read"] * count
        await world.turns(count)
        row = held(world)
        assert (row["name"], row["text"]) == (name, words)
        assert any(kept.endswith(words.encode()) for kept in artifacts(world))


async def test_secrets_in_a_file_are_gone_before_anything_is_written(world: World, sender: Sender) -> None:
    await world.start()
    await sender.send("look", f"key = {KEY}\n".encode())
    await sender.heard(1)
    assert held(world)["text"] == "key = [redacted]\n"
    assert KEY not in json.dumps(world.model.bodies)
    assert KEY.encode() not in world.everything_on_disk()


async def test_what_cannot_be_read_is_said_in_one_sentence(world: World, sender: Sender) -> None:
    world.config["files"] = {"maxBytes": 10_000, "perMessage": 2}
    await world.start()
    world.model.script(lambda _: "well")
    await sender.send("and this?", LOG)
    assert (await sender.heard(1))[-1] == (f"well\n\nI couldn't read “{NAME}” (it is larger than 10 kB).")
    assert '"why": "it is larger than 10 kB"' in world.model.bodies[-1]["messages"][-1]["content"][0]["text"]
    await sender.send("", b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "report.pdf")
    assert (await sender.heard(2))[-1] == "I can't read files like “report.pdf”."
    sender.server.fail("file", status=404)
    await sender.send("", b"text")
    assert (await sender.heard(3))[-1] == f"I couldn't read “{NAME}” (it isn't there any more)."
    assert len(world.model.bodies) == 1
    await eventually(lambda: sum(line["kind"] == "file" for line in world.log()) == 3)
    causes = [line["details"].get("cause") for line in world.log() if line["kind"] == "file"]
    assert "404" in str(causes[2])
    assert artifacts(world) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
async def test_ended_while_it_is_fetched_it_is_fetched_again_and_answered_once(
    world: World, sender: Sender, number: int, code: int
) -> None:
    await world.start()
    sender.server.fail("file", action="stall")
    await sender.send("look", LOG)
    await sender.server.until(lambda: sender.server.sent_bytes > 0)
    assert await world.process.stop(number) == code
    world.model.script(lambda _: "I have it.")
    await world.start()
    assert await sender.heard(1) == ["I have it."]
    assert sender.fetched() == 2
    assert len(artifacts(world)) == 1
    assert held(world)["lines"] == 8_000


async def test_a_stop_while_it_is_fetched_is_at_once_and_others_are_answered(
    world: World, sender: Sender
) -> None:
    await world.start()
    sender.server.fail("file", action="stall")
    root = await sender.send("look", LOG)
    await sender.server.until(lambda: sender.server.sent_bytes > 0)
    began = asyncio.get_running_loop().time()
    await sender.say("!stop" if sender.channel == "slack" else "/stop", thread=root)
    assert await sender.heard(1) == ["Stopped."]
    assert asyncio.get_running_loop().time() - began < 10, "the fetch itself goes on for longer"
    assert world.model.bodies == []
    assert artifacts(world) == []


async def test_a_file_joins_the_answer_that_is_under_way(world: World, sender: Sender) -> None:
    world.config["channels"]["slack"]["direct"] = "one"
    await world.start()
    gate = asyncio.Event()
    world.model.script(_two_steps(gate))
    await sender.send("first", b"one\n", "one.txt")
    await world.model.until(lambda: len(world.model.requests) == 1)
    await sender.send("and this", b"two\n", "two.txt")
    await eventually(lambda: sum(line["kind"] == "inbound" for line in world.log()) == 2)
    gate.set()
    assert await sender.heard(1) == ["both"]
    assert held(world)["text"] == "two\n"
    assert len(artifacts(world)) == 2


def _two_steps(gate: asyncio.Event) -> Callable[[Any], Any]:
    async def answer(body: Any) -> Any:
        await gate.wait()
        asked = json.dumps(body["messages"])
        return "both" if "two\\\\n" in asked else reply(tool_use("skills_list"))

    return answer


async def test_without_the_right_to_read_files_people_hear_it_each_time_and_operators_once(
    world: World,
) -> None:
    world.config["operators"] = ["telegram:1001"]
    world.telegram.chat(1001)
    world.slack.api.scopes -= {"files:read"}
    await world.start("slack", "telegram")
    sender = Sender(world, "slack")
    await sender.send("what does it say?", b"hello\n", "a.txt")
    await sender.heard(1)
    await world.telegram.until(lambda: len(world.texts()) == 1)
    await world.sent()
    await world.process.kill()
    await world.start()
    await sender.send("and now?", b"hello\n", "b.txt")
    first, second = await sender.heard(2)
    for name, answer in (("a.txt", first), ("b.txt", second)):
        assert f"I couldn't read “{name}” (I'm not allowed to read files here)." in answer
    await world.sent()
    assert [one[:50] for one in world.texts()] == ["⚠️ On Slack I can't read files that people send: t"]


def pictures(body: Any) -> list[bytes]:
    found = (
        block for message in body["messages"] for block in message["content"] if block["type"] == "image"
    )
    return [base64.b64decode(block["source"]["data"]) for block in found]


async def test_a_picture_is_shown_to_the_model_as_it_is_and_again_in_the_next_turn(
    world: World, sender: Sender
) -> None:
    data = png(640, 480, more=b"\xff" * 200_000)
    await world.start()
    world.model.script(lambda body: f"{len(pictures(body))} seen")
    root = await sender.show("what is this?", data)
    assert await sender.heard(1) == ["1 seen"]
    assert pictures(world.model.bodies[0]) == [data]
    await sender.say("and its colour?", thread=root)
    assert (await sender.heard(2))[-1] == "1 seen"
    assert pictures(world.model.bodies[-1]) == [data]
    assert sender.fetched() == 1
    first, second = world.model.bodies[0]["messages"], world.model.bodies[-1]["messages"]
    assert unmarked(second[0]) == unmarked(first[0])
    assert world.everything_on_disk().count(base64.b64encode(data)[:1_000]) == 1, "it is kept once"


def unmarked(message: Any) -> Any:
    return [{key: one[key] for key in one if key != "cache_control"} for one in message["content"]]


def of_phone() -> dict[str, tuple[bytes, tuple[int, int]]]:
    """Return pictures by name, each with the size in which the model must get it."""
    pillow_heif.register_heif_opener()
    heic, jpeg, exif = io.BytesIO(), io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # the camera was held upright, so the picture is turned
    Image.linear_gradient("L").resize((640, 480)).save(heic, "HEIF")
    Image.effect_noise((4_000, 3_000), 90).save(jpeg, "JPEG", quality=90, exif=exif)
    return {
        "IMG_1.HEIC": (heic.getvalue(), (640, 480)),
        "IMG_2.jpg": (jpeg.getvalue(), (1_176, 1_568)),
        "wide.png": (png(9_000, 90), (1_568, 16)),
    }


async def test_pictures_of_phones_are_read_and_made_smaller(world: World) -> None:
    sender, sent = Sender(world, "slack"), of_phone()
    assert len(sent["IMG_2.jpg"][0]) > 9_000_000
    await world.start("slack")
    world.model.script(lambda body: f"{len(pictures(body))} seen")
    for count, (name, (data, size)) in enumerate(sent.items(), 1):
        await sender.send("what is this?", data, name)
        assert (await sender.heard(count))[-1].endswith(" seen"), name
        shown = pictures(world.model.bodies[-1])[-1]
        with Image.open(io.BytesIO(shown)) as seen:
            assert (seen.format, seen.size) == ("JPEG", size), name
            seen.load()
        assert len(shown) < 1_500_000, name
    await sender.send("and this?", sent["IMG_1.HEIC"][0][:500], "IMG_3.HEIC")
    assert "IMG_3.HEIC" in (await sender.heard(4))[-1]


async def test_a_picture_outlives_a_kill_and_goes_with_its_message(world: World) -> None:
    sender = Sender(world, "slack")
    await world.start("slack")
    gate = asyncio.Event()
    world.model.script(lambda _: reply("too late", hold=gate))
    root = await sender.show("look", png(64, 48))
    await world.model.until(lambda: len(world.model.requests) == 1)
    await eventually(lambda: world.recorded('"attached"'))
    await world.process.kill()
    gate.set()
    world.model.script(lambda body: f"{len(pictures(body))} seen")
    await world.start()
    assert await sender.heard(1) == ["1 seen"]
    assert sender.fetched() == 1
    await world.slack.delete("D0ANN", root)
    await eventually(lambda: not artifacts(world))
    await sender.say("and now?", thread=root)
    assert (await sender.heard(2))[-1] == "0 seen"


async def test_a_pdf_is_shown_to_the_model_and_its_text_is_at_hand(world: World, sender: Sender) -> None:
    data = pdf("first words", "second words")
    await world.start()
    world.model.script(lambda _: "seen")
    await sender.send("what is this?", data, "报告.pdf")
    assert await sender.heard(1) == ["seen"]
    (shown,) = (one for one in world.model.bodies[0]["messages"][-1]["content"] if one["type"] == "document")
    assert shown["source"]["media_type"] == "application/pdf"
    assert base64.b64decode(shown["source"]["data"]) == data
    row = held(world, 0)
    assert row["text"] == "# Page 1\nfirst words\n\n# Page 2\nsecond words\n\n"
    assert (row["name"], row["type"]) == ("报告.pdf", "application/pdf")
    await sender.send(
        "and this?", data.replace(b"(first words) Tj ET", b"((irst words  Tj ET"), "bad page.pdf"
    )
    await sender.heard(2)
    assert held(world)["text"] == "# Page 1\n[this page cannot be read]\n\n# Page 2\nsecond words\n\n"


async def test_a_voice_note_is_heard_and_answered_as_words(world: World, sender: Sender) -> None:
    sound, said = b"OggS" + bytes(5_000), "明天九点提醒我 🎉"
    async with TranscriptionServer({sound: said}, key="sk-voice-0123456789") as hears:
        world.process.env["VOICE_KEY"] = hears.key
        world.config["files"] = {"transcription": {"baseUrl": f"{hears.url}/v1", "apiKey": "${VOICE_KEY}"}}
        await world.start()
        world.model.script(lambda _: "heard")
        await sender.speak(sound)
        assert await sender.heard(1) == ["heard"]
        row = held(world, 0)
        assert (row["kind"], row["text"]) == ("voice", said)
        assert "spoke instead of writing" in json.dumps(world.model.bodies[0]["messages"][-1])
        (call,) = hears.called("transcriptions")
        assert call.params["file"] == "voice.ogg"
        assert hears.key.encode() not in world.everything_on_disk()


async def test_a_file_that_the_provider_refuses_is_left_out_alone_and_its_sender_told(world: World) -> None:
    """The refusal of the truncated picture names its position in the request, as at the real service. The refusal of the odd
    picture names none.
    """
    ann, other = Sender(world, "slack"), Sender(world, "telegram")
    cut, odd, good = png(64, 48)[:-30], png(20, 20), png(64, 48)
    refusal = error(400, "invalid_request_error", "Could not process image")
    await world.start("slack", "telegram")
    world.model.script(lambda body: refusal if odd in pictures(body) else f"{len(pictures(body))} seen")
    told = "0 seen\n\nI couldn't read “照片.png” (it wasn't accepted, perhaps because it is damaged)."
    root = await ann.show("what is this?", cut)
    assert await ann.heard(1) == [told]
    await other.show("and this?", good)
    assert await other.heard(1) == ["1 seen"]
    await ann.say("and now?", thread=root)
    assert (await ann.heard(2))[-1] == "0 seen"
    assert sum(cut in pictures(body) for body in world.model.bodies) == 1, "it is remembered"
    await other.send("two more", odd, "odd.png")
    assert (await other.heard(2))[-1] == told.replace("0 seen", "1 seen").replace("照片", "odd")
    await other.say("and now?", thread="")
    assert (await other.heard(3))[-1] == "1 seen"
    assert sum(odd in pictures(body) for body in world.model.bodies) == 1
    blind = error(
        400, "invalid_request_error", "messages.0.content.2: This model does not support image input."
    )
    world.model.script(lambda body: blind if pictures(body) else "I cannot see it.")
    for sender, count, asked in ((other, 4, 2), (ann, 3, 1)):
        before = len(world.model.bodies)
        await sender.show("what is this?", good)
        said = (await sender.heard(count))[-1]
        assert said.startswith("I cannot see it.\n\nI couldn't read "), said
        assert said.endswith(" (the model that I use can't look at such files).")
        assert len(world.model.bodies) == before + asked
