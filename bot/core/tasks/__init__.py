"""Tasks (subagents): work that a turn delegates, each in a chat of its own; only the report comes back."""
