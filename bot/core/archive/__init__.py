"""Chat archive: JSONL files for people and operators, exported from the event log."""
