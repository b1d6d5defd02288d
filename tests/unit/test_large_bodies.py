"""Large request bodies are sent in pieces, because encrypting a whole body would block the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import json
import os
import ssl
import sys
import time
from collections import Counter
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bot.contracts.base import Json
from tests.bench.uploads import SIZE

TRIES = 4
LONGEST_MS = 50.0
SHARE = 0.4
"""Max duration of a step as a share of the time to encrypt a whole body. It applies if the machine is too slow for
`LONGEST_MS`."""


def certificate(folder: Path) -> Path:
    """Return the path of a file with a self-signed certificate for this machine and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2200, 1, 1, tzinfo=dt.UTC))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "loopback.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return file


def at_once(pem: Path) -> float:
    """Return the CPU milliseconds that it takes to encrypt a whole body as one piece."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    trusting = ssl.create_default_context(cafile=str(pem))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = tls.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    began = time.thread_time()
    client.write(bytes(SIZE))
    return (time.thread_time() - began) * 1000


class Service:
    """A server that accepts every request and answers like the platforms and a transcription service."""

    def __init__(self) -> None:
        self.address = ""
        self.came: Counter[str] = Counter()

    async def take(self, request: web.Request) -> web.Response:
        what = request.path.rpartition("/")[2]
        async for piece in request.content.iter_any():
            self.came[what] += len(piece)
        sent = {"message_id": 1, "date": 1, "chat": {"id": 1, "type": "private"}}
        bot = {"id": 1, "is_bot": True, "first_name": "S", "username": "s"}
        place = {"upload_url": f"{self.address}/upload", "file_id": "F1"}
        return web.json_response({"ok": True, "text": "", "result": {**bot, **sent}, **place})


async def test_no_upload_keeps_the_event_loop(tmp_path: Path) -> None:
    """CPU time is measured, and the best of several tries counts, because other work lengthens a different step each time."""
    pem = certificate(tmp_path)
    longest = max(LONGEST_MS, SHARE * min(at_once(pem) for _ in range(TRIES)))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    service = Service()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", service.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    service.address = f"https://127.0.0.1:{runner.addresses[0][1]}"
    long: list[Json] = []
    try:
        for number in range(TRIES):
            long = await blocks(tmp_path / f"told-{number}.jsonl", service.address, pem, longest)
            if not long:
                break
    finally:
        await runner.cleanup()
    assert {what for what, size in service.came.items() if size >= SIZE} == {
        "upload",
        "sendDocument",
        "transcriptions",
    }
    assert long == []


async def blocks(told: Path, address: str, pem: Path, longest: float) -> list[Json]:
    """Yield what blocked the event loop of the sending process for longer than `longest` milliseconds."""
    sender = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.uploads", str(told), address),
        env={**os.environ, "SSL_CERT_FILE": str(pem)},
    )
    assert await sender.wait() == 0
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    return [one for one in lines if one["cpu"] > longest]
