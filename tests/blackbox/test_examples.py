"""The examples of docs/extend work in the real process, as their pages say."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "docs" / "examples"


def installed(example: str, world: World) -> None:
    """Install a package and restart the process, so that the process finds the package."""
    place = world.root.parent / f"{world.root.name}-{example}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(place), str(EXAMPLES / example)], check=True)
    world.process.env |= {"PYTHONPATH": str(place)}
    world.process.fresh = True


def settings(example: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / example / "ship.json").read_text("utf-8"))
    return found


def results(world: World) -> list[dict[str, Any]]:
    """Return the tool results in the model's requests so far."""
    blocks = [block for one in world.model.bodies[-1]["messages"] for block in one["content"]]
    return [one for one in blocks if isinstance(one, dict) and one["type"] == "tool_result"]


def questions(world: World) -> list[str]:
    return [one["text"] for one in world.telegram.chats[PERSON].messages.values() if "reply_markup" in one]


async def test_a_channel_in_a_package_is_configured_and_talks(world: World) -> None:
    installed("channel", world)
    world.only()
    world.config["llm"] = {"provider": "demo"}
    world.config["channels"]["lines"] = {"greeting": "ahoy"}
    await world.start()
    assert world.process.ready_line.startswith("ready lines tcp://127.0.0.1:")
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(world.process.ready_line.rpartition(":")[2])
    )
    assert await reader.readline() == b"ahoy\n"
    writer.write("Polly 你好\n".encode())
    assert "Polly 你好" in (await asyncio.wait_for(reader.readline(), START_SECONDS)).decode()
    writer.close()
    assert await world.process.stop() == 0
    assert (world.root / ".ship" / "chats" / "lines%3Achat%3Aone.jsonl").is_file()


async def test_a_feature_in_a_package_adds_a_command(world: World) -> None:
    installed("feature", world)
    await world.start("telegram")
    world.telegram.say("/oncall")
    await world.heard("Nobody is on call: oncall.txt has no names.")
    (world.root / "oncall.txt").write_text("Ann\n", encoding="utf-8")
    world.telegram.say("/oncall")
    await world.heard("Nobody is on call: oncall.txt has no names.", "Ann is on call this week.")
    assert world.model.bodies == []


async def test_a_tool_of_an_mcp_server_is_found_and_called(world: World) -> None:
    world.config |= settings("tool")
    world.config["mcp"]["servers"]["orders"] = {
        "command": sys.executable,
        "args": [str(EXAMPLES / "tool" / "orders.py")],
    }
    for said in (
        tool_use("tool_search", {"query": "state of an order"}),
        tool_use("mcp__orders__order_status", {"number": "A-17"}),
        "It was shipped.",
    ):
        world.model.answer(said)
    world.config["dashboard"] = {"port": 0}
    await world.start("telegram")
    await eventually(lambda: any("orders has 1 tool" in line["message"] for line in world.log()))
    world.telegram.say("where is A-17?")
    await world.heard("It was shipped.")
    assert results(world)[-1]["content"] == "shipped on Tuesday"


async def test_a_tool_in_a_file_is_declared_and_called(world: World, tmp_path: Path) -> None:
    code = tmp_path / "code"
    for package in ("bot", "channels"):
        shutil.copytree(PROJECT / package, code / package)
    shutil.copy(EXAMPLES / "tool" / "roll_dice.py", code / "bot" / "tools" / "builtin")
    world.process.env |= {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    world.process.fresh = True
    world.model.answer(tool_use("roll_dice", {"count": 3, "sides": 2}))
    world.model.answer("Rolled.")
    await world.start("telegram")
    world.telegram.say("roll three coins")
    await world.heard("Rolled.")
    assert "roll_dice" in [one["name"] for one in world.model.bodies[0]["tools"]]
    (rolled,) = results(world)
    assert 3 <= int(rolled["content"].rpartition(" ")[2]) <= 6


async def test_a_skill_is_listed_loaded_and_narrows_the_tools(world: World) -> None:
    shutil.copytree(EXAMPLES / "skill", world.root / ".claude" / "skills")
    world.config["permissions"] = {"allow": ["run_shell(date)"]}
    for said in (
        tool_use("skills_load", {"name": "release-notes"}),
        tool_use("run_shell", {"command": "date"}),
        "Here are the notes.",
    ):
        world.model.answer(said)
    await world.start("telegram")
    world.telegram.say("write the release notes")
    await world.heard("Here are the notes.")
    assert "Writes the notes of a release" in json.dumps(world.model.bodies[0])
    loaded, refused = results(world)
    assert "Group the entries below it" in loaded["content"]
    assert refused["is_error"]
    assert "release-notes" in refused["content"]


async def test_permission_rules_allow_ask_and_deny(world: World) -> None:
    world.config |= settings("permission")
    world.config["operators"] = [f"telegram:{PERSON}"]
    (world.root / "docs").mkdir()
    (world.root / "key.pem").write_text("not for the model", encoding="utf-8")
    plan = {"path": "docs/plan.md", "content": "The plan."}
    world.model.then(
        reply(tool_use("write_file", plan), tool_use("read_file", {"path": "key.pem"})),
        reply("The plan is written; the key is not for me."),
        reply(tool_use("write_file", plan | {"path": "plan.md"})),
    )
    await world.start("telegram")
    world.telegram.say("write the plan")
    await world.heard("The plan is written; the key is not for me.")
    assert (world.root / "docs" / "plan.md").read_text("utf-8") == "The plan."
    assert [bool(one.get("is_error")) for one in results(world)] == [False, True]
    assert "not for the model" not in json.dumps(world.model.bodies)
    assert questions(world) == []
    world.telegram.say("and one here")
    await world.telegram.until(lambda: bool(questions(world)), START_SECONDS)
    assert not (world.root / "plan.md").exists()


async def test_the_page_works_behind_a_proxy_that_keeps_the_host_name(world: World) -> None:
    """Requests have the browser's `Host` and `Origin`, and the header that the proxy in docs/examples/proxy adds."""
    host, token = "chat.example.org", "0123456789abcdef"
    web = settings("proxy")["channels"]["web"] | {"enabled": True, "host": "0.0.0.0", "port": 0}
    world.only()
    world.config["channels"]["web"] = web
    world.process.env["SHIPMATE_WEB_TOKEN"] = token
    await world.start()
    page = f"http://127.0.0.1:{re.findall(r':([0-9]+)', world.process.ready_line)[0]}"
    passed = {"Host": host, "Origin": f"https://{host}", "X-Forwarded-For": "203.0.113.7"}
    get, post = world.session.get, world.session.post
    async with get(f"{page}/", headers=passed) as shown, get(f"{page}/api/info", headers=passed) as told:
        assert (shown.status, told.status) == (200, 401)
    async with post(f"{page}/login", headers=passed, json={"token": token}) as signed_in:
        assert signed_in.status == 204
        passed["Cookie"] = signed_in.headers["Set-Cookie"].partition(";")[0]
    async with get(f"{page}/api/info", headers=passed) as told:
        assert told.status == 200
    async with post(f"{page}/login", headers=passed | {"Host": "10.0.0.5:3000"}, json={}) as rewritten:
        assert rewritten.status == 403
