"""What was said and what the model saw: archive and transcript, JSONL on disk."""
