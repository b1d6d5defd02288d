"""The command line: `shipmate`, also `python -m bot`."""

from __future__ import annotations

from bot.cli.entry import main

__all__ = ["main"]
