"""Shipmate: a gateway that connects chat services with a language model and runs its agent.
`ARCHITECTURE.md` describes the packages.
"""
