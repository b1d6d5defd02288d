"""The core: one log, one reducer, one loop."""
