"""OpenTelemetry spans of log lines that lack usual fields."""

from __future__ import annotations

import pytest

from bot.telemetry.otel import SpanExport, error_type
from bot.testing.log import MemoryLog


@pytest.mark.parametrize(
    ("kind", "details"),
    [
        ("turn_end", {}),
        ("task", {}),
        ("llm_request", {}),
        ("llm_response", {"usage": {}, "error": "Overloaded"}),
        ("tool_result", {"toolUseId": "T"}),
        ("delivery", {"state": "sent"}),
        ("of_an_extension", {"callId": 7}),
    ],
)
@pytest.mark.parametrize("known", [{"requestId": "no-ulid"}, {}])
def test_a_line_that_lacks_what_is_usual_is_no_failure_of_whoever_wrote_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, details: dict[str, object], known: dict[str, str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    export = SpanExport(
        MemoryLog(), endpoint=None, agent="Ferry", provider="demo", version="1", redact=lambda words: words
    )
    common = {"id": "01JABCDEFGHJKMNPQRSTVWXYZ0", "timestamp": "2027-01-15T12:00:00.000Z", "duration": 1.5}
    export.observe({"kind": kind, "details": details, **common, **known})
    export.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("FileNotFoundError: [Errno 2] secret.txt", "FileNotFoundError"),
        ("CommandFailed (exit 1)", "CommandFailed"),
        ("invalid input", "invalid_input"),
        ("It was stopped by somebody.", "_OTHER"),
        ("", "_OTHER"),
    ],
)
def test_of_an_error_only_its_type_is_told(text: str, told: str) -> None:
    assert error_type(text) == told
