"""Values that packages pass to each other, and protocols for the world outside: platforms, the model and the system.

A time (`ts`) is an integer of milliseconds since the epoch unless a docstring says seconds. A duration is a float in
seconds. Ids of platforms are strings.
"""
