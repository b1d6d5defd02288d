"""What stands where once Shipmate is installed: all of it below one package, `shipmate`.

`bot` and `channels` are names that others use too. The launcher finds ours by their place (`bot/launch`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LAUNCHER = "bot/launch"


class Layout(BuildHookInterface[Any]):
    """Each install has the launcher, and a line that imports it at each start of the interpreter: so `python -m shipmate` is never
    a module of that name in the folder that it is called in. The line of an editable install tells where the source is too.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        line = Path(self._scratch.name, "shipmate.pth")
        # The only kind of line in such a file that is run; a path would let everything in the folder be imported.
        if version == "editable":
            line.write_text(f"import shipmate; shipmate.find({self.root!r})\n", encoding="utf-8")
            build_data["force_include_editable"] = {LAUNCHER: "shipmate", str(line): "shipmate.pth"}
        else:
            line.write_text("import shipmate\n", encoding="utf-8")
            build_data["force_include"] |= {
                LAUNCHER: "shipmate",
                "bot": "shipmate/bot",
                "channels": "shipmate/channels",
                str(line): "shipmate.pth",
            }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        self._scratch.cleanup()
