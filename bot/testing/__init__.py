"""Shipped fakes: loopback servers of the platforms and the model, an injected clock and disk.

They are as strict as the services they stand for, and each can be told to fail. `shipmate doctor`, the tests
here and the tests of whoever extends Shipmate use them. They import `bot.contracts` and nothing else of the bot.
"""
