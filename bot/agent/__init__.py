"""One agent for each chat: the turn loop, recovery from overflow, the runtimes."""
