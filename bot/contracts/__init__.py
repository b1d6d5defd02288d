"""Values that travel between rooms, and protocols of the outside world; one module a subject.

Times of day are integer milliseconds since the epoch (`ts`) unless a docstring says seconds; durations are float seconds. Ids of
platforms are strings.
"""
