"""Features: each is a folder with a `FEATURE`, which the core finds here and does not know."""
