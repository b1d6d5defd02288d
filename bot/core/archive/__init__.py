"""The archive: JSONL files of the chats for people and operators, exported from the log."""
