"""Channels: one folder each, found by its name; `bot.contracts.channel` says what a channel is."""
