"""Metrics count each log line once. The dashboard for Grafana uses only metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.contracts.identity import ChatKey
from bot.dashboard.metrics import LOOP_SECONDS, Metrics
from bot.system import SystemDisk, UlidSource
from bot.telemetry.log import JsonlLog
from bot.testing.clock import FakeClock
from tests.unit.dashboard.pages import NOW

GRAFANA = Path(__file__).parents[3] / "deploy" / "grafana.json"
NAME = re.compile(r"\b(?:shipmate|process)_\w+")
USAGE = {"inputTokens": 100, "outputTokens": 50, "cacheReadTokens": 300, "cacheWriteTokens": 0}


@pytest.fixture
def counted() -> Metrics:
    made = Metrics()
    made.figures = lambda: NOW
    return made


@pytest.fixture
def log(tmp_path: Path, counted: Metrics) -> Iterator[JsonlLog]:
    made = JsonlLog(
        tmp_path, clock=FakeClock(), disk=SystemDisk(), ids=UlidSource(), observers=[counted.observe]
    )
    yield made
    made.close()


def a_day(log: JsonlLog) -> None:
    """Write one log line of each kind that the metrics count."""
    call: dict[str, Any] = {"model": "m", "purpose": "turn", "usage": USAGE}
    answer: dict[str, Any] = {"cost_usd": 0.25, "latency_ms": 400, "first_token_ms": 90}
    log.write("llm_response", "answered", **call, **answer)
    log.write("llm_response", "answered", **call | answer | {"cost_usd": None, "first_token_ms": None})
    log.write("llm_response", "failed", level="error", **call, cost_usd=0.5, error="StreamBroken")
    log.write("llm_response", "failed", level="error", model="m", purpose="turn", error="Overloaded")
    log.write("llm_retry", "again", level="warn", error="Overloaded")
    log.write("turn_end", "done", duration=1_500.0, status="done")
    log.write("answer_shown", "seen", waited_ms=1_200)
    for state in ("sent", "sent", "throttled", None):
        log.write("delivery", "x", chat_key=ChatKey("telegram", "1"), state=state)


def page(counted: Metrics) -> dict[str, float]:
    """Return the value of each sample. The key has the name and the label values."""
    words, content_type = counted.render("")
    assert content_type.startswith("text/plain")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(words.decode())
        for sample in family.samples
    }


def test_lines_of_the_log_are_counted(counted: Metrics, log: JsonlLog) -> None:
    a_day(log)
    found = page(counted)
    expected = {
        "shipmate_model_calls_total m ok turn": 2,
        "shipmate_model_calls_total m StreamBroken turn": 1,
        "shipmate_model_calls_total m Overloaded turn": 1,
        "shipmate_model_tokens_total m input": 300,
        "shipmate_model_tokens_total m cache_read": 900,
        "shipmate_model_tokens_total m output": 150,
        "shipmate_model_cost_usd_total m turn": 0.75,
        "shipmate_model_unpriced_calls_total": 1,
        "shipmate_model_latency_seconds_sum": 0.8,
        "shipmate_model_latency_seconds_count": 2,
        "shipmate_model_first_token_seconds_count": 1,
        "shipmate_model_retries_total Overloaded": 1,
        "shipmate_turns_total done": 1,
        "shipmate_turn_seconds_sum": 1.5,
        "shipmate_answer_seconds_sum": 1.2,
        "shipmate_deliveries_total telegram sent": 2,
        "shipmate_deliveries_total telegram throttled": 1,
        "shipmate_log_lines_total error": 2,
        "shipmate_log_lines_total info": 8,
    }
    assert {name: found.get(name) for name in expected} == expected


async def test_a_loop_that_is_late_is_seen(counted: Metrics) -> None:
    class Late(FakeClock):
        """A clock whose first two sleeps take 0.3 s longer than requested."""

        looks = 0

        async def sleep(self, seconds: float) -> None:
            if self.looks == 2:
                raise asyncio.CancelledError
            self.looks += 1
            await self.advance(seconds + 0.3)

    with pytest.raises(asyncio.CancelledError):
        await counted.watch_loop(Late())
    found = page(counted)
    assert found["shipmate_loop_lag_seconds_sum"] == pytest.approx(0.6)
    assert found["shipmate_loop_lag_seconds_bucket 0.5"] == 2
    assert found["shipmate_loop_lag_seconds_bucket 0.25"] == 0
    assert LOOP_SECONDS <= 1


def test_a_prometheus_of_today_gets_the_format_it_asks_for(counted: Metrics) -> None:
    words, content_type = counted.render(
        "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.3"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert words.endswith(b"# EOF\n")


def test_lines_that_the_log_drops_are_counted_as_lost(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path, clock=FakeClock(), disk=SystemDisk(), ids=UlidSource(), max_pending=0)
    log.write("turn_start", "x")
    assert log.lost == 1
    log.close()
    (tmp_path / "file").touch()
    log = JsonlLog(tmp_path / "file", clock=FakeClock(), disk=SystemDisk(), ids=UlidSource())
    log.write("turn_start", "x")
    log.flush()
    assert log.lost == 1
    log.close()


def test_every_metric_and_label_of_the_dashboard_exists(counted: Metrics, log: JsonlLog) -> None:
    a_day(log)
    known = dict[str, set[str]]()
    counted.figures = lambda: {**NOW, "shipmate_disk_free_bytes": 1}
    for family in counted.collect():
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    asked = set[str]()
    for panel in json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            names = set(NAME.findall(target["expr"]))
            assert names, target["expr"]
            assert names <= known.keys(), target["expr"]
            labels = {"job", *(label for name in names for label in known[name])}
            used = re.findall(r"[{,]\s*(\w+)=", target["expr"])
            for by in re.findall(r"by \(([^)]*)\)", target["expr"]):
                used += by.split(", ")
            used += re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            assert set(used) <= labels, target["expr"]
            asked |= names
    ours = {
        name
        for name in known
        if name.startswith("shipmate_") and not name.endswith(("_sum", "_count", "_created"))
    }
    assert ours <= asked, "the dashboard shows all there is"
