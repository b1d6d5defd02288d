"""Known secrets appear nowhere, although people, tools and failures contain them in every form."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bot.features.replay import RecordedRequests
from bot.telemetry.redaction import forms
from bot.testing.anthropic_script import error, tool_use
from tests import quick
from tests.blackbox.conftest import ANN, PERSON, World, eventually
from tests.shares import one_in

DASHBOARD = "dashboard token of 12 words"
WEB = "web+token/with=signs&more"
DIRECT = "D0ANN"
SERVER = 'pass"wörd\\of{a}server'
PAGES = (
    "/",
    "/conversations",
    "/costs?by=person",
    "/errors?level=warn",
    "/waiting",
    "/configuration",
    "/metrics",
    "/readyz",
    "/healthz",
)


def said(secret: str) -> list[str]:
    """Return a secret in the forms in which a person or a program may write it."""
    raw = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        quote(secret, safe="").lower() if secret.islower() else quote(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(b"x" + raw + b"yz").decode(),
        raw.hex(),
        raw.hex().upper(),
        json.dumps(secret),
        json.dumps(json.dumps(secret), ensure_ascii=False),
    ]


def looked_for(secret: str) -> set[bytes]:
    """Return all forms that must not appear: the forms that the product knows, each also escaped as JSON."""
    found = forms(secret)
    return {one.encode() for form in found for one in (form, json.dumps(form)[1:-1])}


class Everywhere:
    """Collects everything that a gateway stores, prints, shows and sends, by place."""

    def __init__(self, world: World, file: Path) -> None:
        self._world = world
        self._file = file

    def on_disk(self) -> Iterator[tuple[str, bytes]]:
        ship = self._world.root / ".ship"
        for path in sorted(ship.rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                yield str(path.relative_to(ship)), gzip.decompress(data) if path.suffix == ".gz" else data
        with closing(RecordedRequests(ship / "requests.db", readonly=True)) as recorded:
            for turn in {
                str(line["requestId"]) for line in self._world.log() if line["kind"] == "turn_start"
            }:
                found = recorded.find(turn)
                assert found
                yield f"recorded requests of {turn}", repr(found).encode()

    def in_backup(self) -> Iterator[tuple[str, bytes]]:
        with tarfile.open(self._file) as packed:
            for member in packed:
                if (opened := packed.extractfile(member)) is not None:
                    yield f"backup: {member.name}", opened.read()

    async def shown(self, address: str) -> list[tuple[str, bytes]]:
        found = []
        keys = {line["chatKey"] for line in self._world.archive()}
        for path in [*PAGES, *(f"/conversations/{key}" for key in sorted(keys))]:
            headers = {"Authorization": f"Bearer {DASHBOARD}"}
            async with self._world.session.get(address + path, headers=headers) as answer:
                assert answer.status == 200, path
                found.append((path, await answer.read()))
        return found

    def told(self) -> Iterator[tuple[str, bytes]]:
        world = self._world
        yield "printed", "\n".join([*world.process.lines, world.process.stderr]).encode()
        yield "said in Telegram", "\n".join(world.texts()).encode()
        replies = world.slack.replies(DIRECT)
        yield "said in Slack", "\n".join(one.text for one in replies).encode()
        yield (
            "titles in Slack",
            repr([world.slack.title_of(DIRECT, str(one.thread_ts)) for one in replies]).encode(),
        )
        yield "asked of the model", json.dumps(world.model.bodies, ensure_ascii=False).encode()


async def command(root: Path, *given: str | Path) -> bytes:
    code, out, err = await quick.run(*map(str, given), "--dir", str(root))
    assert code == 0, (out, err)
    return out + err.encode()


@pytest.mark.parametrize(("channel", "person"), one_in(2, [("telegram", str(PERSON)), ("slack", ANN)]))
async def test_known_secrets_are_nowhere_plain_or_encoded(
    world: World, tmp_path_factory: Any, channel: str, person: str
) -> None:
    async def say(words: str, name: str = "Ann") -> None:
        if channel == "telegram":
            world.telegram.say(words, name=name)
        else:
            world.slack.add_user(ANN, name=name)
            await world.slack.say(words, channel=DIRECT, user=ANN)

    # The tokens of web page and console are secrets, whichever channel is tested.
    world.config["channels"]["web"] |= {"port": 0, "token": "${WEB_TOKEN}"}
    world.config["dashboard"] = {"port": 0, "token": "${DASHBOARD_TOKEN}"}
    server = {"command": sys.executable, "args": ["-c", ""], "env": {"PASSWORD": "${SERVER_PASSWORD}"}}
    world.config["mcp"] = {"servers": {"gone": server}}
    world.config["permissions"] = {"allow": ["@trusted:write_file", "@trusted:memory"]}
    world.process.env |= {
        "DASHBOARD_TOKEN": DASHBOARD,
        "WEB_TOKEN": WEB,
        "SERVER_PASSWORD": SERVER,
        "SMA_LOG_LLM_PAYLOAD": "1",
    }
    secrets = [
        value for name, value in world.process.env.items() if name not in {"NO_PROXY", "SMA_LOG_LLM_PAYLOAD"}
    ]
    assert len(secrets) == 7
    await world.start(channel, "web")
    address = world.process.ready_line.split()[-1]
    for turns, secret in enumerate(secrets, 1):
        words = "\n".join(f"- it is: {form} ({codecs.encode(form, 'rot13')})" for form in said(secret))
        await say(words, f"Ann {secret}"[:60])
        world.model.answer(
            tool_use("memory", {"command": "create", "path": "/memories/chat/n.md", "file_text": words}),
            tool_use("write_file", {"path": f"{turns}.txt", "content": words}),
            *(tool_use("read_file", {"path": form}) for form in said(secret)),
        )
        world.model.answer(f"You said {words}, and I say it too.")
        await world.turns(turns)
    await say("What is wrong?")
    world.model.then(error(400, "invalid_request_error", f"key {secrets[0]} for {SERVER!r}: {said(WEB)[3]}"))
    await world.turns(len(secrets) + 1)
    await world.sent()
    await eventually(lambda: any("gone" in line["message"] for line in world.log()))
    file = tmp_path_factory.mktemp("elsewhere") / "all.backup"
    await command(world.root, "backup", file)
    everywhere = Everywhere(world, file)
    places = [*await everywhere.shown(address), *everywhere.told(), *everywhere.in_backup()]
    commands = [
        ("export", f"{channel}:{person}"),
        ("logs", "--full"),
        ("chats",),
        ("stats", "--by", "person"),
    ]
    places += [(given[0], await command(world.root, *given)) for given in commands]
    await world.process.stop()
    places += [*everywhere.on_disk(), *everywhere.told()]
    names = {name.partition("/")[0] for name, _ in places}
    assert {"chats", "logs", "shipmate.db", "memory", "backup: shipmate.db"} <= names
    wanted = {form: secret for secret in secrets for form in looked_for(secret)}
    found = [(name, form) for name, data in places for form in wanted if form in data]
    assert found == []
    assert any(b"[redacted]" in data for _, data in places)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_a_crash_leaves_no_memory_on_the_disk(world: World) -> None:
    """The process and its child processes may not write core dumps, whatever the user's limit is. The systemd unit forbids
    them too.
    """
    world.process.module = ["tests.limited", "RLIMIT_CORE", "-1", "-1", "bot"]
    await world.start("telegram")
    limits = Path(f"/proc/{world.process.pid}/limits").read_text(encoding="utf-8")
    (core,) = [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core == ["0", "0"]
    unit = Path(__file__).parents[2] / "deploy" / "shipmate.service"
    assert "\nLimitCORE=0\n" in unit.read_text(encoding="utf-8")
    assert await world.process.stop() == 0
