"""Files that one host has written to disk exist on the next host too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from tests import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    from bot.cluster import shared_disk
    from bot.cluster.shared_disk import SharedDisk


class Hosts:
    """Hosts of one database. Each new host gets the next epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = postgres.shared().schema("files")
        self.epoch = 0
        self.made: list[SharedDisk] = []

    def __call__(self, name: str) -> SharedDisk:
        (self.folder / name).mkdir(exist_ok=True)
        disk = SharedDisk(SystemDisk(), self.folder / name, self.url, MemoryLog())
        self.made.append(disk)
        disk.fetch()
        self.epoch += 1
        with psycopg.connect(self.url) as db:
            db.execute("UPDATE cluster_leader SET epoch = %s", (self.epoch,))
        disk.begin(self.epoch)
        return disk

    def there(self, name: str) -> dict[str, bytes]:
        home = self.folder / name
        return {path.relative_to(home).as_posix(): path.read_bytes() for path in shared_disk.files(home)}


@pytest.fixture
def leads(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    for one in made.made:
        one.close()


def test_another_host_has_what_was_on_disk(leads: Hosts, tmp_path: Path) -> None:
    home = tmp_path / "a"
    (home / "memory").mkdir(parents=True)
    (home / "memory/of-before.md").write_bytes(b"kept")
    a, part = leads("a"), home / "cache/uploads/1.bin"
    a.replace(home / "memory/x/session.md", b"old")
    a.replace(home / "memory/x/session.md", "新 \0".encode())
    a.replace(home / "artifacts/x/1.txt", bytes(range(256)) * 20_000)
    a.append(part, b"one")
    a.append(part, b"two")
    a.rename(part, home / "received/x/1.bin")
    a.replace(home / "sent/x/1.bin", b"1234")
    a.replace(home / "outgoing/gone", b"x")
    a.remove(home / "outgoing/gone")
    a.replace(home / "logs/day.jsonl", b"of this host")
    a.replace(home / "memory/x/.lock", b"of this host")
    kept = leads.there("a")
    assert kept["received/x/1.bin"] == b"onetwo"
    b = leads("b")
    assert leads.there("b") == kept
    assert not (tmp_path / "b/logs").exists()
    with pytest.raises(OSError, match="another process leads"):
        a.replace(home / "memory/x/session.md", b"too late")
    b.remove(tmp_path / "b/memory/of-before.md")
    leads("a")
    assert leads.there("a") == leads.there("b")
    assert (home / "memory/x/session.md").read_bytes() == "新 \0".encode()


def test_files_of_another_shipmate_are_put_aside_and_what_was_erased_goes_everywhere(
    leads: Hosts, tmp_path: Path
) -> None:
    leads("a").replace(tmp_path / "a/memory/x.md", b"ours")
    for name in ("memory/theirs.md", "chats/c.jsonl", "index.db"):
        (tmp_path / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "b" / name).write_bytes(b"theirs")
    b = leads("b")
    assert leads.there("b") == {"memory/x.md": b"ours"}
    (aside,) = (tmp_path / "b").glob("before-*")
    assert (aside / "memory/theirs.md").read_bytes() == (aside / "chats/c.jsonl").read_bytes() == b"theirs"
    for host in "ab":
        (tmp_path / host / "chats").mkdir(exist_ok=True)
        (tmp_path / host / "chats/c.jsonl").write_bytes(b"exported")
    b.remove(tmp_path / "b/memory/x.md")
    b.erase()
    with psycopg.connect(leads.url) as db:
        assert db.execute("SELECT count(*) FROM files").fetchone() == (0,)
    b.replace(tmp_path / "b/memory/y.md", b"later")
    leads("a")
    assert leads.there("a") == {"memory/y.md": b"later"}
    assert not (tmp_path / "a/chats").exists()
    assert not list((tmp_path / "a").glob("before-*"))


def test_what_a_command_writes_beside_the_leader_is_brought(leads: Hosts, tmp_path: Path) -> None:
    a = leads("a")
    (tmp_path / "a/access.json").write_text(json.dumps({"v": 1}))
    a.store_changed()
    leads("b")
    assert leads.there("b") == {"access.json": b'{"v": 1}'}
