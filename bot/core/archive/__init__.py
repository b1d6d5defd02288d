"""The archive of the chats: lines that people and operators read, exported from the log."""
