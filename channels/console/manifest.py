"""Manifest, settings, chatKeys and socket of the console channel."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from bot.contracts.channel import ChannelSettings, Manifest
from channels import ChatKeys, lazy
from channels.local import CHAT_ID

NAME = "console"
KEYS = ChatKeys(NAME, valid=CHAT_ID)
LONGEST = 100
"""Max bytes of a socket's path. With the final NUL, macOS allows 104 bytes and Linux 108."""
_FOLDER = "shipmate-console-"


class ConsoleSettings(ChannelSettings):
    """Settings of the terminal: `shipmate chat`."""


MANIFEST = Manifest(
    name=NAME,
    settings=ConsoleSettings,
    build=lambda _, around: lazy("channels.console.adapter:ConsoleChannel")(around),
    encode=KEYS.encode,
    decode=KEYS.decode,
    access="local",
    operators=frozenset({str(os.getuid())}),
    valid_id=str.isdecimal,
    rules="The person reads in a terminal that shows text as it is: keep Markdown light, no tables.",
)


def socket_path(home: Path) -> Path:
    """Return the path of the console's socket for the `.ship` folder `home`."""
    with contextlib.suppress(FileNotFoundError):
        return Path((home / "console.path").read_text(encoding="utf-8").strip() or home / "console.sock")
    return home / "console.sock"


def new_socket_path(home: Path) -> Path:
    """Remove the socket of an earlier process. Return the path for a new socket. If the path in `home` is too long, make a
    private folder elsewhere, and write its path into the file `console.path`.
    """
    remove_socket(home)
    path = home / "console.sock"
    if len(os.fsencode(path)) > LONGEST:
        path = Path(tempfile.mkdtemp(prefix=_FOLDER)) / "console.sock"
        note = home / "console.path"
        note.write_text(str(path), encoding="utf-8")
        note.chmod(0o600)
    return path


def remove_socket(home: Path) -> None:
    folder = socket_path(home).parent
    if folder.name.startswith(_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    (home / "console.path").unlink(missing_ok=True)
    (home / "console.sock").unlink(missing_ok=True)
