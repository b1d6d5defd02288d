"""Memory: what is remembered of each chat, and the memory files of chats and people, with the origin of each line."""
