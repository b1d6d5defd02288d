"""The model's view of a conversation: store, prompt, replay, compaction, and the rules a request must keep."""
