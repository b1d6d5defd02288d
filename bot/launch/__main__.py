"""Entry point of `python -m shipmate`, which runs the command `shipmate`."""

from __future__ import annotations

import sys

from . import leave_folder, main

if __name__ == "__main__":
    leave_folder()
    sys.exit(main())
