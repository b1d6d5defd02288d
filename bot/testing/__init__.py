"""Shipped fakes: loopback servers of the platforms and the model, an injected clock and disk.

They are as strict as the real services, and each can fail on command. They are used by `shipmate doctor`, by
the tests here, and by tests of extensions. They import nothing of the bot but `bot.contracts`.
"""
