"""Channels: one folder per chat platform, with the adapter of the platform. `bot.contracts.channel` defines the interface."""
