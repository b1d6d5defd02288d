"""Entry point of `python -m bot`. It runs the command `shipmate` with the package `bot` of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

from bot import launch

if __name__ == "__main__":
    launch.leave_folder()
    launch.prefer(str(Path(__file__).absolute().parents[1]))
    from bot.cli import main

    sys.exit(main())
