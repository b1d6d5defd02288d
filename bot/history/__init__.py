"""Keeps conversations on disk, as JSONL and SQLite. Archive, transcript, search, memory and usage have a package each."""
