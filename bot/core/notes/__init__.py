"""Memory: session memories of chats, and the memory files of chats and people, with the origin of each line."""
