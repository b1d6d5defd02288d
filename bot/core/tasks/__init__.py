"""Subagent tasks: work that a turn delegates. A task has its own chat, and the turn gets only the task's report."""
