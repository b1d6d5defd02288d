"""Permissions of tool calls."""
