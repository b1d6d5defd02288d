"""`python -m bot.cli.schema` writes the schemas of this folder's `.ship/schema` anew."""

from __future__ import annotations

from pathlib import Path

from bot import config, discovery
from bot.system import SystemDisk

if __name__ == "__main__":
    config.write_schema(Path(".ship/schema"), discovery.manifests(), SystemDisk())
