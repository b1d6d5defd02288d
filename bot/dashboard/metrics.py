"""Metrics for Prometheus. Counters are updated from lines of the operator's log, and gauges are read at each
scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from bot.contracts.environment import Clock

LOOP_SECONDS = 0.5
"""Interval in seconds between two measurements of the event loop's lag."""
_TOKENS = {
    "inputTokens": "input",
    "cacheReadTokens": "cache_read",
    "cacheWriteTokens": "cache_write",
    "outputTokens": "output",
}
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "turns": ("Turns that ended, by status.", "status"),
    "model_calls": (
        "Calls of the model, by outcome: ok, or the error's type.",
        "model",
        "purpose",
        "outcome",
    ),
    "model_tokens": ("Tokens of the model: input, cache_read, cache_write, output.", "model", "type"),
    "model_cost_usd": ("US dollars.", "model", "purpose"),
    "model_unpriced_calls": ("Calls whose price is not known.",),
    "model_retries": ("Calls of the model that are tried again.", "error"),
    "deliveries": ("Messages: sent, failed, unknown, uncertain, deferred, throttled.", "channel", "state"),
    "log_lines": ("Lines of the log, by level.", "level"),
}
"""Description and label names of each counter."""
_TURN = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_MODEL = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)
_LAG = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_HISTOGRAMS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "turn": ("Seconds of a turn.", _TURN),
    "answer": ("Seconds from a person's message to the first words of the answer.", _TURN),
    "model_latency": ("Seconds of an answer of the model.", _MODEL),
    "model_first_token": ("Seconds until its first token.", _MODEL),
    "loop_lag": ("Seconds by which the event loop is late.", _LAG),
}
"""Description and buckets in seconds of each histogram."""
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


class Metrics:
    """The metrics of the page `/metrics`. `observe`, an observer of `bot.telemetry.JsonlLog`, updates the counters.
    Thread-safe.
    """

    def __init__(self) -> None:
        self.figures: Callable[[], Figures] = dict
        """Function that returns the values of the gauges."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counters = {
            name: Counter(f"shipmate_{name}", meaning, labels, registry=self.registry)
            for name, (meaning, *labels) in _COUNTERS.items()
        }
        self._labelled = dict[tuple[str, tuple[Any, ...]], Counter]()
        """Counters by name and label values, because finding one in the library takes 5 µs."""
        self._histograms = {
            name: Histogram(f"shipmate_{name}_seconds", meaning, buckets=buckets, registry=self.registry)
            for name, (meaning, buckets) in _HISTOGRAMS.items()
        }

    def _add(self, name: str, *labels: Any, amount: float = 1) -> None:
        if (counter := self._labelled.get((name, labels))) is None:
            counter = self._counters[name]
            counter = self._labelled[name, labels] = counter.labels(*labels) if labels else counter
        counter.inc(amount)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Update the counters from one log line."""
        self._add("log_lines", line["level"])
        details = line["details"]
        match line["kind"]:
            case "turn_end":
                self._add("turns", details.get("status"))
                self._histograms["turn"].observe(line.get("duration", 0) / 1000)
            case "answer_shown":
                self._histograms["answer"].observe(details["waitedMs"] / 1000)
            case "llm_response":
                self._response(details)
            case "llm_retry":
                self._add("model_retries", details.get("error"))
            case "delivery" if "state" in details:
                self._add("deliveries", line.get("chatKey", "").partition(":")[0], details["state"])

    def _response(self, details: Mapping[str, Any]) -> None:
        model, purpose, cost = details.get("model"), details.get("purpose"), details.get("costUsd")
        self._add("model_calls", model, purpose, details.get("error", "ok"))
        if (usage := details.get("usage")) is not None:
            for name, label in _TOKENS.items():
                self._add("model_tokens", model, label, amount=usage.get(name, 0))
            if cost is not None:
                self._add("model_cost_usd", model, purpose, amount=cost)
            else:
                self._add("model_unpriced_calls")
        if "error" not in details:
            self._histograms["model_latency"].observe(details.get("latencyMs", 0) / 1000)
        if (first := details.get("firstTokenMs")) is not None:
            self._histograms["model_first_token"].observe(first / 1000)

    async def watch_loop(self, clock: Clock) -> None:
        """Measure the event loop's lag until cancelled."""
        while True:
            began = clock.monotonic()
            await clock.sleep(LOOP_SECONDS)
            self._histograms["loop_lag"].observe(max(0.0, clock.monotonic() - began - LOOP_SECONDS))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in a format that the `Accept` header allows."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, in the form that `prometheus_client` reads."""
        yield from self.registry.collect()
        for name, value in self.figures().items():
            meaning, label = FIGURES[name]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = kind(name, meaning, labels=[label] if label else ())
            for part, one in value.items() if isinstance(value, Mapping) else [("", value)]:
                if one is not None:
                    metric.add_metric([part] if label else [], one)
            yield metric
