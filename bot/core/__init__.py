"""The core of the bot: one event log, one reducer and one agent loop."""
