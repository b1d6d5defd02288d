"""Channels: the adapters of the chat platforms, one folder for each. `bot.contracts.channel` defines what a channel is."""
