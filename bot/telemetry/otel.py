"""Exports turns, model calls, tool calls, subagents and deliveries as OpenTelemetry spans (`telemetry.otel`).

The spans are made from lines of the operator's log. They have ids, names, sizes and times, and no text of people, the model or
tools. This module needs the optional dependencies `otel`. It is imported only if the setting `telemetry.otel` is on.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from logging.handlers import BufferingHandler
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, id_generator
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision

from bot.contracts.environment import Log, Redact
from bot.system import ulid_number
from bot.telemetry.usage import TOKENS

GRACE = 2.0
"""Max seconds that `close` waits until the last spans are sent."""

Attributes = dict[str, Any]
Ids = tuple[int, int | None]
Line = Mapping[str, Any]


class SpanExport:
    """Makes a span of each log line that ends an action, and queues the span for the collector. A separate
    thread sends the spans; if the queue is full, spans are lost. Thread-safe.

    The ids of traces and spans are derived from ids in the log. So a turn stays one trace even if Shipmate is
    restarted during it.
    """

    def __init__(
        self, log: Log, *, endpoint: str | None, agent: str, provider: str, version: str, redact: Redact
    ) -> None:
        self._agent, self._llm, self._redact = agent, provider, redact
        self._models: dict[str, str] = {}
        """Name of the requested model, by the callId of each running call."""
        self._ids, self._lock = _Ids(), threading.Lock()
        named = Resource.create({"service.name": "shipmate", "service.version": version})
        named = named.merge(OTELResourceDetector().detect())  # names in the environment have priority
        self._provider = TracerProvider(resource=named, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_Exporter(log, endpoint)))
        self._tracer = self._provider.get_tracer("shipmate", version)

    def close(self) -> None:
        """Send the queued spans, for at most `GRACE` seconds. Blocking."""
        closing = threading.Thread(target=self._provider.shutdown, name="shipmate-otel", daemon=True)
        closing.start()
        closing.join(GRACE)

    def observe(self, line: Line) -> None:
        """Queue a span if the log line ends an action. `JsonlLog` calls this method as an observer."""
        details, request = line["details"], line.get("requestId", "")
        task, call, error = details.get("task", ""), details.get("toolUseId", ""), details.get("error")
        own, parent = _span_id(line["id"]), _span_id(request, task) if request else None
        match line["kind"]:
            case "turn_end":
                own, status = _span_id(request, ""), details.get("status")
                error = details.get("cause", status) if status == "failed" else None
                attributes = {"shipmate.turn.status": status}
                self._span(line, ("invoke_agent", self._agent), attributes, (own, None), error)
            case "task" if "duration" in line:
                own, parent = _span_id(request, details.get("artifact", task)), _span_id(request, "", call)
                self._span(line, ("invoke_agent", "task"), {}, (own, parent), error)
            case "llm_request":
                self._models[details.get("callId", "")] = details.get("model", "")
            case "llm_response":
                model = self._models.pop(details.get("callId", ""), details.get("model", ""))
                usage, reason = details.get("usage") or {}, details.get("stopReason")
                first = details.get("firstTokenMs")
                # The number of input tokens includes tokens from the provider's cache.
                tokens = sum(usage.get(name, 0) for name in TOKENS[:3]) if usage else None
                attributes = {
                    "gen_ai.request.model": model,
                    "gen_ai.response.model": None if "error" in details else details.get("model"),
                    "gen_ai.response.finish_reasons": None if reason is None else [reason],
                    "gen_ai.response.time_to_first_chunk": None if first is None else first / 1000,
                    "gen_ai.usage.input_tokens": tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.get("cacheReadTokens"),
                    "gen_ai.usage.cache_creation.input_tokens": usage.get("cacheWriteTokens"),
                    "gen_ai.usage.output_tokens": usage.get("outputTokens"),
                    "shipmate.cost_usd": details.get("costUsd"),
                    "shipmate.purpose": details.get("purpose"),
                }
                self._span(line, ("chat", model), attributes, (own, parent), error)
            case "tool_result" if call:
                own, attributes = _span_id(request, task, call), {"gen_ai.tool.call.id": call}
                tool = ("execute_tool", details.get("tool", ""))
                self._span(line, tool, attributes, (own, parent), details.get("failure"))
            case "delivery" if "state" in details:
                channel, _, chat = line.get("chatKey", "").partition(":chat:")
                error = None if details["state"] == "sent" else details["state"]
                attributes = {
                    "messaging.operation.name": "send",
                    "messaging.operation.type": "send",
                    "messaging.system": channel,
                    "messaging.destination.name": chat.partition(":")[0],
                    "messaging.message.id": details.get("messageId"),
                }
                self._span(line, ("send", channel), attributes, (own, parent), error)

    def _span(
        self, line: Line, name: tuple[str, str], attributes: Attributes, ids: Ids, error: str | None
    ) -> None:
        """Queue a span that ends at the line's time. `ids` are the ids of the span and its parent; `error` begins with a type."""
        (operation, subject), (own, parent) = name, ids
        attributes |= {
            "gen_ai.operation.name": None if operation == "send" else operation,
            "gen_ai.agent.name": subject if operation == "invoke_agent" else None,
            "gen_ai.tool.name": subject if operation == "execute_tool" else None,
            "gen_ai.provider.name": self._llm if operation in {"chat", "invoke_agent"} else None,
            "gen_ai.conversation.id": line.get("chatKey"),
            "shipmate.request_id": line.get("requestId"),
            "shipmate.step": line.get("step"),
            "shipmate.task": line["details"].get("task"),
            "error.type": error and error_type(error),
        }
        fields = {key: one for key, one in attributes.items() if one is not None}
        fields |= {key: self._redact(one) for key, one in fields.items() if isinstance(one, str)}
        number = ulid_number(line.get("requestId") or line["id"]) or own
        ended = round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1000) * 1_000_000
        context = Context()
        if parent is not None:
            # The parent's span does not exist yet, because it ends later. So ask the sampler whether the trace is exported.
            decision = self._provider.sampler.should_sample(context, number, "").decision
            flags = trace.TraceFlags(decision is Decision.RECORD_AND_SAMPLE)
            above = trace.NonRecordingSpan(
                trace.SpanContext(number, parent, is_remote=False, trace_flags=flags)
            )
            context = trace.set_span_in_context(above, context)
        with self._lock:
            self._ids.trace, self._ids.span = number, own
            span = self._tracer.start_span(
                self._redact(" ".join(name)),
                context,
                trace.SpanKind.CLIENT if operation in {"chat", "send"} else trace.SpanKind.INTERNAL,
                fields,
                start_time=ended - round(line.get("duration", 0) * 1_000_000),
            )
        if error:
            span.set_status(trace.StatusCode.ERROR)
        span.end(ended)


class _Ids(id_generator.IdGenerator):
    """Gives the next span the ids that `SpanExport` has set."""

    trace = span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Exporter(OTLPSpanExporter):
    """Sends spans. The library's log lines are replaced: one line says that sending fails, another that sending works again."""

    def __init__(self, log: Log, endpoint: str | None) -> None:
        super().__init__(endpoint and f"{endpoint.rstrip('/')}/v1/traces")
        self._log, self._well, self._said = log, True, BufferingHandler(1_000)
        library = logging.getLogger("opentelemetry")
        library.handlers, library.propagate = [self._said], False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._said.flush()
        result = super().export(spans)
        well = result is SpanExportResult.SUCCESS
        if well != self._well:
            self._well = well
            words = "spans reach the collector again" if well else "spans do not reach the collector"
            cause = next((one.getMessage() for one in self._said.buffer), None)
            self._log.write("log", words, level="info" if well else "warn", cause=cause)
        return result


def _span_id(*names: str) -> int:
    return int.from_bytes(hashlib.blake2b("/".join(names).encode(), digest_size=8).digest())


def error_type(error: str) -> str:
    """Return the error type with which a text begins, else `_OTHER`. The rest of the text is left out, because it may quote people."""
    found = re.match(r"(\w+(?: \w+)?)(?:$|:| \()", error)
    return "_OTHER" if found is None else found[1].replace(" ", "_")
