"""Makes `python -m shipmate` the same command as `shipmate`."""

from __future__ import annotations

import sys

from . import leave_folder, main

if __name__ == "__main__":
    leave_folder()
    sys.exit(main())
