"""Features: each is a folder with a `FEATURE`. The core finds them here and imports none."""
