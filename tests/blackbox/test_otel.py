"""Spans of the real process at a loopback collector (OTLP over HTTP) form the tree of a turn and contain no text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bot.contracts.base import Json
from bot.system import ulid_number
from bot.testing.anthropic_script import Reply, error, reply, tool_use
from tests.blackbox.conftest import PERSON, World, eventually

SAID, ANSWERED, READ = "PLEASE-LOOK 猫", "IT-IS-SMALL 完了", "CONTENT-OF-THE-FILE"


class Collector:
    """A collector that stores received spans. It can be restarted at the same port."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resource: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        asked = ExportTraceServiceRequest.FromString(await request.read())
        self.headers = dict(request.headers)
        for part in asked.resource_spans:
            self.resource = facts(part.resource)
            self.spans += [span for scope in part.scope_spans for span in scope.spans]
        return web.Response()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        (span,) = self.named(name)
        return span


def facts(told: Any) -> dict[str, Any]:
    """Return the attributes of a span or resource."""
    found = dict[str, Any]()
    for one in told.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        found[one.key] = [part.string_value for part in value.values] if kind == "array_value" else value
    return found


def told(span: Span, expected: dict[str, Any]) -> bool:
    """Return True if a span has these attributes."""
    return facts(span).items() >= expected.items()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    await made.start()
    yield made
    await made.stop()


def prepare(world: World, collector: Collector) -> None:
    world.only("telegram")
    world.config["name"] = "Ferry"
    world.config["telemetry"] = {"otel": {"enabled": True, "endpoint": collector.url}}
    world.process.env |= {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}


def script(body: Json) -> Reply:
    """Return the model's answers for a turn with a task that reads two files, one of them missing."""
    answered = body["messages"][-1]["content"][-1]["type"] == "tool_result"
    if "carry out one task" in json.dumps(body["system"]):
        calls = [tool_use("read_file", {"path": name}) for name in ("small.txt", "SECRET-PLAN.txt")]
        return reply("- small") if answered else reply(*calls)
    return reply(ANSWERED) if answered else reply(tool_use("task", {"prompt": "Look at small.txt"}))


async def test_a_turn_with_a_tool_and_a_subagent_is_one_tree_without_a_word_of_anybody(
    world: World, collector: Collector
) -> None:
    prepare(world, collector)
    world.config["llm"]["model"] = "claude-sonnet-5-5"
    world.process.env |= {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=night",
    }
    (world.root / "small.txt").write_text(READ, encoding="utf-8")
    world.model.script(script)
    await world.start()
    world.model.then(error(529, "overloaded_error", "busy"))
    world.telegram.say(SAID)
    await world.telegram.until(lambda: ANSWERED in world.texts())
    await world.turns(1)
    await world.sent()
    assert await world.process.stop() == 0

    (end,) = (line for line in world.log() if line["kind"] == "turn_end")
    assert {span.trace_id for span in collector.spans if facts(span).get("shipmate.request_id")} == {
        (ulid_number(end["requestId"]) or 0).to_bytes(16)
    }
    turn, task, call = (
        collector.one(name) for name in ("invoke_agent Ferry", "invoke_agent task", "execute_tool task")
    )
    reads, (sent,) = collector.named("execute_tool read_file"), collector.named("send telegram")[-1:]
    chats = sorted(collector.named("chat claude-sonnet-5-5"), key=lambda span: span.start_time_unix_nano)
    assert not turn.parent_span_id
    assert call.parent_span_id == sent.parent_span_id == turn.span_id
    assert task.parent_span_id == call.span_id
    assert [one.parent_span_id for one in reads] == [task.span_id, task.span_id]
    parents = [turn.span_id, turn.span_id, task.span_id, task.span_id, turn.span_id]
    assert [one.parent_span_id for one in chats[:5]] == parents
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert abs(turn.end_time_unix_nano - turn.start_time_unix_nano - end["duration"] * 1e6) < 2
    for span in (call, task, *reads):
        assert turn.start_time_unix_nano - 2e6 <= span.start_time_unix_nano <= span.end_time_unix_nano

    key = f"telegram:chat:{PERSON}"
    common = {"gen_ai.conversation.id": key, "shipmate.request_id": end["requestId"]}
    for span in (turn, task, call, sent, *reads, *chats[:5]):
        assert told(span, common)
    assert told(
        turn,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.agent.name": "Ferry",
            "shipmate.turn.status": "done",
        },
    )
    assert facts(chats[0])["error.type"] == "Overloaded"
    assert (chats[0].status.code, chats[1].status.code) == (
        Status.STATUS_CODE_ERROR,
        Status.STATUS_CODE_UNSET,
    )
    answer = next(
        line["details"]
        for line in world.log()
        if line["kind"] == "llm_response" and line["details"].get("usage")
    )
    usage = answer["usage"]
    assert told(
        chats[1],
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-sonnet-5-5",
            "gen_ai.response.model": "claude-sonnet-5-5",
            "gen_ai.response.finish_reasons": ["tool_use"],
            "gen_ai.usage.input_tokens": sum(usage.values()) - usage["outputTokens"],
            "gen_ai.usage.output_tokens": usage["outputTokens"],
            "shipmate.purpose": "turn",
        },
    )
    assert chats[1].kind == sent.kind == Span.SPAN_KIND_CLIENT
    assert facts(call)["gen_ai.tool.name"] == "task"
    assert sorted(facts(one).get("error.type", "") for one in reads) == ["", "FileNotFoundError"]
    assert told(
        sent,
        {
            "messaging.system": "telegram",
            "messaging.operation.type": "send",
            "messaging.destination.name": str(PERSON),
        },
    )
    assert collector.headers["x-key"] == "abc"
    assert collector.resource["service.name"] == "shipmate"
    assert collector.resource["deployment.environment.name"] == "night"
    sent_out = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"read_file" in sent_out
    for words in (SAID, ANSWERED, READ, "small.txt", "SECRET", "猫", "完了"):
        assert words.encode() not in sent_out


async def test_a_collector_that_is_away_changes_nothing_and_is_told_once(
    world: World, collector: Collector
) -> None:
    prepare(world, collector)
    world.config["telemetry"]["otel"].pop("endpoint")
    world.process.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "ferry"}
    await collector.stop()
    await world.start()

    def noted() -> list[tuple[str, str]]:
        found = [line for line in world.log() if "collector" in line["message"] or line["kind"] == "library"]
        return [(line["level"], line["message"]) for line in found]

    for number in (1, 2, 3):
        world.model.answer(f"answer {number}")
        world.telegram.say(f"question {number}")
        await world.heard(*(f"answer {one}" for one in range(1, number + 1)))
        await eventually(lambda: len(noted()) == 1)
    away, well = ("warn", "spans do not reach the collector"), ("info", "spans reach the collector again")
    await collector.start()
    world.model.answer("answer 4")
    world.telegram.say("question 4")
    await eventually(lambda: len(noted()) == 2)
    assert noted() == [away, well]
    assert collector.resource["service.name"] == "ferry"
    (cause,) = (line["details"]["cause"] for line in world.log() if line["message"] == away[1])
    assert "refused" in cause
    await collector.stop()
    assert await world.process.stop() == 0


async def test_a_start_without_the_extra_says_what_to_install(world: World, tmp_path: Path) -> None:
    world.config["telemetry"] = {"otel": {"enabled": True}}
    hiding = tmp_path / "path" / "opentelemetry" / "exporter"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()
    world.process.env["PYTHONPATH"] = str(tmp_path / "path")
    world.process.fresh = True
    await world.start(wait=False)
    assert await world.process.ended() == 78
    assert world.process.stderr.count("pip install 'opentelemetry-exporter-otlp-proto-http>=1.45,<2'") == 1
    assert "telemetry.otel.enabled" in world.process.stderr
