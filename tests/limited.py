"""Run a module with a limit on a resource: `python -m tests.limited RLIMIT_NAME SOFT HARD MODULE WORD…`."""

from __future__ import annotations

import resource
import runpy
import sys

if __name__ == "__main__":
    name, soft, hard, module, *words = sys.argv[1:]
    resource.setrlimit(getattr(resource, name), (int(soft), int(hard)))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
