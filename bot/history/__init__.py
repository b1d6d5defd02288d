"""Archive (what was said), transcript (what the model saw), search and memories, as JSONL and SQLite on disk."""
