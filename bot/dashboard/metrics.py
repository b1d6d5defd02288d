"""Metrics for Prometheus. Lines of the operator's log update the counters and histograms. The figures are read at each scrape."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
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
TABLE: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""Meaning, labels and buckets of each counter, histogram and figure."""

Figures = Mapping[str, float | Mapping[str, float] | None]
"""Current value of each metric in the section `figures` of the table; None if unknown. A metric with a label has a mapping from
label values to numbers.
"""


class Metrics:
    """The metrics of the page `/metrics`. `bot.telemetry.JsonlLog` passes each log line to `observe`, which updates the
    counters. Thread-safe.
    """

    def __init__(self) -> None:
        self.figures: Callable[[], Figures] = dict
        """Function that returns the current values of the figures."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counters = {
            name: Counter(f"shipmate_{name}", one["meaning"], one["labels"], registry=self.registry)
            for name, one in TABLE["counters"].items()
        }
        self._labelled = dict[tuple[str, tuple[Any, ...]], Counter]()
        """Counters by name and label values. They are cached, because each lookup in the library converts and compares all label values."""
        self._histograms = {
            name: Histogram(
                f"shipmate_{name}_seconds", one["meaning"], buckets=one["buckets"], registry=self.registry
            )
            for name, one in TABLE["histograms"].items()
        }

    def _add(self, name: str, *labels: Any, amount: float = 1) -> None:
        if (counter := self._labelled.get((name, labels))) is None:
            counter = self._counters[name]
            counter = self._labelled[name, labels] = counter.labels(*labels) if labels else counter
        counter.inc(amount)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Update the counters and histograms from one log line."""
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
            one = TABLE["figures"][name]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = kind(name, one["meaning"], labels=one["labels"])
            for part, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                if number is not None:
                    metric.add_metric([part] if one["labels"] else [], number)
            yield metric
