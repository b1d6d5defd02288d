"""Builds the error of a server whose port cannot be bound."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from bot import errors


async def port_error(
    key: str, host: str, port: int, failure: OSError, holder: Callable[[int], int | None]
) -> errors.ShipmateError:
    """Return `errors.Unavailable` with the process that uses the port, if the port is in use; else
    `errors.ConfigError`. `key` is the settings section, as the error names it.
    """
    where = f"{key}.port: {port} on {host}"
    if failure.errno != errno.EADDRINUSE:
        return errors.ConfigError(f"{where} cannot be listened on ({failure.strerror}); set another one")
    pid = await asyncio.to_thread(holder, port)
    by = f" by process {pid}" if pid else ""
    return errors.Unavailable(
        f"{where} is in use{by}; stop it, or set {key}.port to another one (0 takes a free one)"
    )
