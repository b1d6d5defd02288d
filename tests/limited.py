"""Run a module with limits on the number of open files: `python -m tests.limited SOFT HARD MODULE WORD…`."""

from __future__ import annotations

import resource
import runpy
import sys

if __name__ == "__main__":
    soft, hard, module, *words = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
