"""`shipmate doctor` as a process, with services that work and with services that refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bot.testing.slack import APP_TOKEN, BOT_TOKEN
from tests.blackbox.conftest import World

Found = dict[str, dict[str, str]]


async def doctor(world: World, code: int, *more: str) -> Found:
    """Run `shipmate doctor`, and return the last finding about each part."""
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    process = await world.process.start(command=("doctor", "--json", *more), wait=False)
    ended = await process.ended()
    assert ended == code, [process.lines, process.stderr]
    for token in (BOT_TOKEN, APP_TOKEN, *world.process.env.values()):
        assert token == "127.0.0.1" or token not in "\n".join(process.lines) + process.stderr
    return {line["part"]: line for line in map(json.loads, process.lines)}


async def test_where_all_is_well_each_part_says_so_and_nothing_is_taken_in(world: World) -> None:
    world.config["operators"] = ["telegram:1001"]
    world.telegram.say("waits for the gateway")
    found = await doctor(world, 0)
    assert {one["verdict"] for one in found.values()} <= {"ok", "warn"}
    assert found["slack scopes"]["found"] == "all 16"
    assert found["slack botToken"]["verdict"] == found["slack appToken"]["verdict"] == "ok"
    assert "in the workspace Example" in found["slack botToken"]["found"]
    assert found["telegram botToken"]["found"].startswith("@")
    assert found["telegram link"]["found"] == f"https://t.me/{world.telegram.me['username']}"
    assert found["slack link"]["found"].startswith("https://slack.com/app_redirect?app=A0SHIP")
    assert found["model key"]["found"] == "the provider accepts it"
    assert "claude-sonnet-5-5, reads 1,000,000 tokens, $2 and $10" in found["llm.model"]["found"]
    assert "within 30 s" in found["clock"]["found"]
    assert "GB are free" in found["disk"]["found"]
    assert {"versions", "permissions", "journal", "search index", "isolation", "gateway"} <= set(found)
    assert not world.telegram.called("getUpdates")


async def test_beside_a_running_gateway_it_looks_at_the_journal_and_disturbs_nothing(
    world: World,
) -> None:
    await world.start()
    await world.ask("hello", 1)
    running, world.process = world.process, type(world.process)(world.root, world.process.env)
    try:
        found = await doctor(world, 0)
        assert found["gateway"]["found"] == "running in this folder"
        assert found["journal"]["found"].startswith("intact, ")
    finally:
        world.process = running
    await world.ask("still there?", 2)


@pytest.mark.parametrize(
    ("env", "part", "words"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-wrong-wrong"}, "slack botToken", "invalid_auth"),
        ({"SLACK_APP_TOKEN": "xapp-wrong-wrong"}, "slack appToken", "invalid_auth"),
        (
            {"SLACK_BOT_TOKEN": APP_TOKEN, "SLACK_APP_TOKEN": BOT_TOKEN},
            "slack tokens",
            "botToken and appToken are swapped",
        ),
        ({"TELEGRAM_BOT_TOKEN": "1:wrong-wrong-wrong"}, "telegram botToken", "Unauthorized"),
        ({"ANTHROPIC_API_KEY": "sk-ant-wrong-wrong"}, "model key", "refuses it"),
    ],
)
async def test_a_credential_that_is_refused_is_named_with_what_to_do(
    world: World, env: dict[str, str], part: str, words: str
) -> None:
    world.process.env |= env
    found = await doctor(world, 78)
    assert found[part]["verdict"] == "wrong"
    assert words in found[part]["found"]
    assert found[part]["remedy"]


async def test_missing_scopes_are_named(world: World) -> None:
    world.slack.api.scopes -= {"files:read", "chat:write"}
    world.slack.app_scopes.clear()
    found = await doctor(world, 78)
    assert found["slack scopes"]["found"] == (
        "missing: chat:write (to answer), files:read (to read files that people send)"
    )
    assert "install the app again" in found["slack scopes"]["remedy"]
    assert found["slack appToken"]["found"] == "it lacks the scope connections:write"


async def test_what_does_not_answer_is_for_later(world: World) -> None:
    for server in (world.slack, world.telegram, world.model):
        await server.stop()
    found = await doctor(world, 75)
    assert {name for name, one in found.items() if one["verdict"] == "later"} == {
        "slack",
        "telegram",
        "model",
    }


async def test_a_webhook_and_a_model_that_the_provider_lacks_are_named(world: World) -> None:
    world.telegram.hook.url = "https://elsewhere.example/hook"
    world.config["llm"]["model"] = "claude-none-1"
    found = await doctor(world, 78)
    assert found["telegram webhook"]["verdict"] == "warn"
    assert found["llm.model"]["verdict"] == "wrong"
    assert "name one that it has" in found["llm.model"]["remedy"]


async def test_damage_on_disk_and_open_files_are_found(world: World) -> None:
    await world.start()
    await world.ask("hello", 1)
    await world.turns(1)
    await world.process.stop()
    home = world.root / ".ship"
    journal = bytearray((home / "shipmate.db").read_bytes())
    journal[5_000:9_000] = b"\xff" * 4_000
    (home / "shipmate.db").write_bytes(journal)
    (home / "index.db").write_bytes(b"no database at all" * 500)
    home.chmod(0o755)
    found: dict[str, Any] = await doctor(world, 78)
    assert found["journal"]["found"].startswith("it cannot be used: ")
    assert "shipmate index rebuild" in found["search index"]["remedy"]
    assert found["permissions"]["remedy"] == "run `chmod 700 .ship`"


async def test_a_turn_goes_through_model_and_tools_with_and_without_a_gateway(world: World) -> None:
    word = re.compile(r"word alone: (\w+)")
    world.config["channels"]["console"]["enabled"] = True
    world.model.script(lambda body: word.findall(json.dumps(body["messages"]))[-1])
    gateway = world.process
    for running in (False, True):
        if running:
            await world.start()
        world.process = type(gateway)(world.root, gateway.env)
        assert (await doctor(world, 0, "--turn"))["turn"]["found"].startswith("answered within ")
        world.process = gateway
    assert [line["chatKey"] for line in world.archive()] == ["console:chat:doctor"] * 4
    world.model.answer("I will not.")
    world.process = type(world.process)(world.root, world.process.env)
    refused = await doctor(world, 78, "--turn")
    assert "I will not." in refused["turn"]["found"]
    await gateway.stop()


async def test_a_port_and_a_token_that_others_hold_are_for_later(world: World) -> None:
    other = world.root / "other"
    other.mkdir()
    world.config["dashboard"] = {"enabled": True, "port": world.model.port}
    (other / "ship.json").write_text(
        json.dumps(world.config | {"dashboard": {"enabled": False}}), encoding="utf-8"
    )
    elsewhere = type(world.process)(other, world.process.env)
    await elsewhere.start()
    try:
        found = await doctor(world, 75)
        assert "is taken" in found["dashboard.port"]["found"]
        (held,) = [one for one in found.values() if "this token is used by process" in one["found"]]
        assert str(elsewhere.pid) in held["found"]
    finally:
        await elsewhere.stop()


async def test_a_broken_configuration_is_told_with_all_else_that_can_be_said(world: World) -> None:
    world.config["llm"]["modell"] = "x"
    found = await doctor(world, 78)
    assert found["configuration"]["found"] == "llm.modell"
    assert found["disk"]["verdict"] in {"ok", "warn"}
