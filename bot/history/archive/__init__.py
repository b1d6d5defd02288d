"""The archive: what people and the bot said, one JSON object a line, read with its edits and removals applied."""
