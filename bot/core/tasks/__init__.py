"""Tasks: work that a turn gives out, each in a chat of its own; only its report comes back."""
