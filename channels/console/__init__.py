"""The console channel: conversations in a terminal, through a Unix socket in the folder `.ship`."""
