"""`python -m tests.limited SOFT HARD MODULE WORD…`: runs a module in a process that may have so many files open."""

from __future__ import annotations

import resource
import runpy
import sys

if __name__ == "__main__":
    soft, hard, module, *words = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
