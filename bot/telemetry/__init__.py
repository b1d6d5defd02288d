"""The operator's log, its redaction, totals of usage, and OpenTelemetry spans."""
