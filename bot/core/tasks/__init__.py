"""Subagent tasks: work that a turn delegates. Each task has a chat of its own, and only its report returns
to the turn.
"""
