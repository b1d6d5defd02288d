"""Shipmate: a gateway between chat services and a model, with its agent; `ARCHITECTURE.md` has the map of its rooms."""
