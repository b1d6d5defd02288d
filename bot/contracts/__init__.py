"""Values that the packages pass to each other, and protocols of the outside world; one module for each subject.

A time (`ts`) is an integer of milliseconds since the epoch unless a docstring says seconds. A duration is a float in
seconds. Ids of platforms are strings.
"""
