"""The transcript: what the model was told, session by session, and every request as it was sent."""
