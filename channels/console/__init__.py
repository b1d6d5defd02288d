"""The console channel: conversations in a terminal, over a Unix socket in `.ship`."""
