"""What is kept of conversations, as JSONL and SQLite on disk: archive, transcript, search, memory and usage have a package each."""
