"""The nouns of Shipmate: values that travel between rooms, and the protocols at which rooms meet; one module a subject.

Nothing here does anything. Times of day are integer milliseconds since the epoch (`ts`), durations are
float seconds; ids of platforms are always strings.
"""
