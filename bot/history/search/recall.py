"""Searching the archive by its index: lines with their neighbours, best first. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.recall import Hit
from bot.core import file_names
from bot.history.search import index_file, ranking
from bot.history.search.finder import Finder, FoundLine, SearchQuery
from bot.history.search.index import Index
from bot.history.search.ranking import Weights

_AT_ONCE = 40  # lines that are read together


class Recall:
    """An index and what is found by it, for one thread. Raises `sqlite3.Error` and `OSError`."""

    def __init__(self, index: Index, *, weights: Weights = ranking.DEFAULT) -> None:
        self.index = index
        self._finder = Finder(index.db, index.streams, weights=weights)

    @classmethod
    def opened(
        cls, path: Path | None, folder: Path, disk: Disk, *, weights: Weights = ranking.DEFAULT
    ) -> Recall:
        """Over the JSONL files of a folder; with None for `path` the index is in memory."""
        return cls(Index.opened(path, folder, disk), weights=weights)

    def close(self) -> None:
        self.index.close()

    def catch_up(self) -> None:
        """Take in everything that the folder holds."""
        for _ in self.index.all():
            pass

    def search(
        self,
        chat_keys: Iterable[ChatKey],
        query: str,
        now: int,
        limit: int = 30,
        phrasings: Sequence[str] = (),
    ) -> list[Hit]:
        """The lines of these chats that answer best, best first; `now` in milliseconds, `phrasings` further ones."""
        return self.hits(chat_keys, SearchQuery((query, *phrasings), now), limit=limit)[0]

    def hits(
        self,
        chat_keys: Iterable[ChatKey],
        query: SearchQuery,
        *,
        limit: int,
        offset: int = 0,
        keep: Callable[[ArchiveLine], bool] | None = None,
        reach: int = 1,
    ) -> tuple[list[Hit], int]:
        """`limit` hits after the first `offset` of those that `keep` takes, with `reach` neighbours on each side, and
        how many lines were found in all.
        """
        with self.index.streams.keeping(), index_file.snapshot(self.index.db):
            places = self._finder.find([file_names.encode(key) for key in chat_keys], query)
            taken: list[tuple[FoundLine, ArchiveLine]] = []
            refused = 0
            for begin in range(0, len(places), _AT_ONCE):
                some = places[begin : begin + _AT_ONCE]
                for place, line in self._said(some):
                    if line is None or (keep is not None and not keep(line)):
                        refused += 1
                    else:
                        taken.append((place, line))
                if len(taken) >= offset + limit:
                    break
            page = taken[offset : offset + limit]
            known = {(place.name, place.line): place.said for place in places if place.said is not None}
            return self._with_neighbours(page, reach, known), len(places) - refused

    def _said(self, places: Sequence[FoundLine]) -> list[tuple[FoundLine, ArchiveLine | None]]:
        said: dict[tuple[str, int], ArchiveLine] = {}
        for name in {place.name for place in places}:
            lines = self._finder.read(
                name, [place.line for place in places if place.name == name and place.said is None]
            )
            said |= {(name, number): line for number, line in lines.items()}
        return [(place, place.said or said.get((place.name, place.line))) for place in places]

    def _with_neighbours(
        self,
        page: Sequence[tuple[FoundLine, ArchiveLine]],
        reach: int,
        known: dict[tuple[str, int], ArchiveLine],
    ) -> list[Hit]:
        around = {place: self._finder.around(place.line, reach) if reach else [] for place, _ in page}
        said = dict(known)
        for name in {place.name for place in around}:
            near_by = {near for place, lines in around.items() if place.name == name for near in lines}
            wanted = [near for near in near_by if (name, near) not in known]
            said |= {(name, number): line for number, line in self._finder.read(name, wanted).items()}
        return [
            Hit(
                line,
                place.score,
                tuple(said[place.name, near] for near in around[place] if (place.name, near) in said),
            )
            for place, line in page
        ]
