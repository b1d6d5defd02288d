"""Fakes that ship with the package: loopback servers for the chat platforms and the model, and a fake clock and disk.

Each server is as strict as the real service, and each fake can fail on command. `shipmate doctor`, the tests
of this repository and the tests of extensions use the fakes.
"""
