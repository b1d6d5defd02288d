"""`/metrics` of the real process has all metrics of the Grafana dashboard, and they count."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bot.testing.anthropic_script import error
from tests.blackbox.conftest import START_SECONDS, World

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana.json"
COUNTED = {
    "turns": "shipmate_turns_total",
    "latency of turns": "shipmate_turn_seconds_count",
    "wait for the answer": "shipmate_answer_seconds_count",
    "latency of the model": "shipmate_model_latency_seconds_count",
    "first token": "shipmate_model_first_token_seconds_count",
    "loop lag": "shipmate_loop_lag_seconds_count",
    "memory": "shipmate_memory_bytes",
    "free disk": "shipmate_disk_free_bytes",
    "cache": "shipmate_model_tokens_total",
    "deliveries": "shipmate_deliveries_total",
    "retries": "shipmate_model_retries_total",
    "cost": "shipmate_model_cost_usd_total",
}
PRESENT = {"queue": "shipmate_queue_messages", "dropped lines": "shipmate_log_dropped_lines_total"}


async def test_all_that_operators_look_at_is_there_and_counts(world: World) -> None:
    world.only("telegram")
    world.config["dashboard"] = {"enabled": True, "port": 0}
    world.config["llm"]["model"] = "claude-sonnet-5-5"
    await world.start()
    world.model.then(error(529, "overloaded_error", "busy"))
    for number, words in enumerate(["ahoy", "又见面了"], 1):
        world.model.answer(f"Answer to {words}")
        world.telegram.say(words)
        await world.turns(number)
    await world.sent()
    page, found = "", dict[str, float]()
    async with asyncio.timeout(START_SECONDS):
        # Some metrics are updated only every half second or more.
        while any(not found.get(name) for name in COUNTED.values()):
            async with world.session.get(f"{world.process.ready_line.split()[-1]}/metrics") as answer:
                page = await answer.text()
            found = {}
            for family in text_string_to_metric_families(page):
                for sample in family.samples:
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
    assert set(PRESENT.values()) <= found.keys()
    assert found["shipmate_turns_total"] == found["shipmate_turn_seconds_count"] == 2
    assert found["shipmate_answer_seconds_count"] == 2
    assert found["shipmate_model_retries_total"] == 1
    assert '{model="claude-sonnet-5-5",type="cache_read"}' in page
    asked = set(
        re.findall(
            r"\b(?:shipmate|process)_\w+", json.dumps(json.loads(GRAFANA.read_text("utf-8"))["panels"])
        )
    )
    never = {"shipmate_model_unpriced_calls_total"}
    assert {name for name in asked if name not in found} <= never, "panels of what does not exist"
