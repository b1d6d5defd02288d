"""Metrics for Prometheus. Counters are updated from lines of the operator's log, and gauges are read at each
scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from bot.contracts.environment import Clock

LOOP_SECONDS = 0.5
"""Interval in seconds between two measurements of the event loop's lag."""
_TURN = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_MODEL = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)
_LAG = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_TOKENS = {
    "inputTokens": "input",
    "cacheReadTokens": "cache_read",
    "cacheWriteTokens": "cache_write",
    "outputTokens": "output",
}

_SERIES = 1_000
"""Max counters that are cached for each metric. Each combination of label values has one counter."""

FIGURES: Mapping[str, tuple[str, str]] = {
    "shipmate_turns_running": ("Turns that run now.", ""),
    "shipmate_queue_messages": ("Messages that wait in memory for a turn.", ""),
    "shipmate_conversations": ("Conversations in memory.", ""),
    "shipmate_memory_bytes": ("Resident memory of the process.", ""),
    "shipmate_memory_limit_bytes": ("Memory above which files are refused (memory.limitMb).", ""),
    "shipmate_disk_free_bytes": ("Free bytes of the disk of .ship.", ""),
    "shipmate_disk_bytes": ("Size of the disk of .ship.", ""),
    "shipmate_part_ok": ("1 if a part of /readyz is well.", "part"),
    "shipmate_log_dropped_lines_total": ("Lines of the log that could not be written.", ""),
}
"""Description and label name of each metric in `Figures`. The label name is "" if the metric has no label."""

Figures = Mapping[str, float | Mapping[str, float] | None]
"""Values of the metrics in `FIGURES`, by name. A metric with a label has a mapping from label values to numbers. None
means that the value is unknown.
"""


class LogMetrics:
    """Updates counters from log lines as `bot.telemetry.JsonlLog` writes them. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._turns = self._counters("turns", "Turns that ended, by status.", "status")
        self._turn_seconds = self._histogram("turn", "Seconds of a turn.", _TURN)
        self._calls = self._counters(
            "model_calls",
            "Calls of the model, by how they ended: ok, or the type of the error.",
            "model",
            "purpose",
            "outcome",
        )
        self._tokens = self._counters(
            "model_tokens", "Tokens of the model: input, cache_read, cache_write, output.", "model", "type"
        )
        self._cost = self._counters("model_cost_usd", "US dollars.", "model", "purpose")
        self._unpriced = Counter(
            "shipmate_model_unpriced_calls", "Calls whose price is not known.", registry=self.registry
        )
        self._answer = self._histogram(
            "answer", "Seconds from a person's message to the first words of the answer.", _TURN
        )
        self._latency = self._histogram("model_latency", "Seconds of an answer of the model.", _MODEL)
        self._first = self._histogram("model_first_token", "Seconds until its first token.", _MODEL)
        self._retries = self._counters("model_retries", "Calls of the model that are tried again.", "error")
        self._deliveries = self._counters(
            "deliveries",
            "Messages that go out: sent, failed, unknown, uncertain, deferred, throttled.",
            "channel",
            "state",
        )
        self._lines = self._counters("log_lines", "Lines of the log, by level.", "level")
        self.loop_lag = self._histogram("loop_lag", "Seconds by which the event loop is late.", _LAG)
        self._of: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], None]] = {
            "turn_end": self._turn,
            "answer_shown": lambda _, details: self._answer.observe(details["waitedMs"] / 1000),
            "llm_response": self._response,
            "llm_retry": lambda _, details: self._retries(details.get("error")).inc(),
            "delivery": self._delivery,
        }

    def _counters(self, name: str, meaning: str, *labels: str) -> Callable[..., Counter]:
        """Return a function that maps label values to their counter. The function caches counters, because
        `Counter.labels` takes a lock.
        """
        counter = Counter(f"shipmate_{name}", meaning, labels, registry=self.registry)
        return lru_cache(_SERIES)(counter.labels)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"shipmate_{name}_seconds", meaning, buckets=buckets, registry=self.registry)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Update the counters from one log line."""
        self._lines(line["level"]).inc()
        if (count := self._of.get(line["kind"])) is not None:
            count(line, line["details"])

    def _turn(self, line: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        self._turns(details.get("status")).inc()
        self._turn_seconds.observe(line.get("duration", 0) / 1000)

    def _response(self, _: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        model, purpose = details.get("model"), details.get("purpose")
        self._calls(model, purpose, details.get("error", "ok")).inc()
        usage, cost, first = details.get("usage"), details.get("costUsd"), details.get("firstTokenMs")
        if usage is not None:
            for name, label in _TOKENS.items():
                self._tokens(model, label).inc(usage.get(name, 0))
            if cost is not None:
                self._cost(model, purpose).inc(cost)
            else:
                self._unpriced.inc()
        if "error" not in details:
            self._latency.observe(details.get("latencyMs", 0) / 1000)
        if first is not None:
            self._first.observe(first / 1000)

    def _delivery(self, line: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        if (state := details.get("state")) is not None:
            self._deliveries(line.get("chatKey", "").partition(":")[0], state).inc()

    async def watch_loop(self, clock: Clock) -> None:
        """Measure the event loop's lag until cancelled."""
        while True:
            began = clock.monotonic()
            await clock.sleep(LOOP_SECONDS)
            self.loop_lag.observe(max(0.0, clock.monotonic() - began - LOOP_SECONDS))


class MetricsPage:
    """Renders the page `/metrics`: the counters, and the gauges that `figures` returns."""

    def __init__(self, counted: LogMetrics, figures: Callable[[], Figures]) -> None:
        self.counted = counted
        self._figures = figures
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in a format that the `Accept` header allows."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, in the form that `prometheus_client` reads."""
        yield from self.counted.registry.collect()
        yield from self._process.collect()
        for name, value in self._figures().items():
            meaning, label = FIGURES[name]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = kind(name, meaning, labels=[label] if label else ())
            if isinstance(value, Mapping):
                for part, one in value.items():
                    metric.add_metric([part], one)
            elif value is not None:
                metric.add_metric([], value)
            yield metric
