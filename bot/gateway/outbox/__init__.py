"""Everything that leaves: outbox rows, the worker that sends them, what limits it, and the archive of what people saw."""
