"""Generated conversations with questions; the same seed gives the same conversations.

`recall_<language>.toml` holds the sentences: statements that answer a question, near misses about the same
topic that do not answer it, and small talk. A question asks for a statement in other words.

Topics of the family `held` are only for the final check. Search weights are tuned on all other topics.
"""

from __future__ import annotations

import calendar
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from tests.bench.recall_form import Conversation, Question, Turn

TURNS = 20
SESSIONS = 50
POOLED = 10_000
FAMILIES = ("tuned", "held")
PEOPLE = {"tuned": {"en": 9, "zh": 8, "ja": 6}, "held": {"en": 7, "zh": 7, "ja": 6}}
_EPOCH = datetime(2025, 1, 6, 8, tzinfo=UTC)
_ZH, _JA = "一二三四五六日", "月火水木金土日"
_ZH_MONTHS = [f"{name}月" for name in (*"一二三四五六七八九十", "十一", "十二")]


def people(family: str, language: str, seed: int, number: int | None = None) -> list[Conversation]:
    """Return one conversation per person, each with 50 sessions of 20 turns."""
    how_many = PEOPLE[family][language] if number is None else number
    return [
        _Person(language, f"{family}-{language}-{n}", seed, topics(language, family)).talk(
            SESSIONS, timedelta(days=3), timedelta(days=6)
        )
        for n in range(how_many)
    ]


def pooled(language: str, seed: int, sessions: int = POOLED) -> Conversation:
    """Return one conversation over years, with the topics of both families."""
    every = [topic for family in FAMILIES for topic in topics(language, family)]
    person = _Person(language, f"pooled-{language}", seed, every)
    return person.talk(sessions, timedelta(hours=3), timedelta(hours=9))


def _words(language: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"recall_{language}.toml").read_text(encoding="utf-8"))


def topics(language: str, family: str) -> list[dict[str, Any]]:
    """Return the topics that people of a family may speak of and be asked about."""
    return [topic for topic in _words(language)["topic"] if topic.get("family", "tuned") == family]


@dataclass(slots=True)
class _Line:
    role: str
    text: str
    mark: str | None = None
    """Name of the evidence that this line contains; None if the line is no evidence."""


@dataclass(slots=True)
class _Plan:
    """Evidence of each session, and the questions to ask."""

    scenes: dict[int, list[list[_Line]]] = field(default_factory=dict)
    asks: list[tuple[Mapping[str, Any], str, str, frozenset[str]]] = field(default_factory=list)


class _Person:
    def __init__(self, language: str, name: str, seed: int, topics: list[dict[str, Any]]) -> None:
        self._language = language
        self._name = name
        self._topics = topics
        words = _words(language)
        self._chatter = words["chatter"]
        self._replies, self._openings = words["language"]["replies"], words["language"]["openings"]
        self._near = [line for topic in words["topic"] for line in topic["near"]]
        self._random = random.Random(f"{seed} {name}")
        self._deck: list[str] = []
        self._marks = count()

    def talk(self, sessions: int, least: timedelta, most: timedelta) -> Conversation:
        starts = self._starts(sessions, least, most)
        now = starts[-1] + timedelta(days=1, hours=3)
        plan = _Plan()
        facts = [topic for topic in self._topics if topic["kind"] == "fact"]
        unsaid = self._random.sample(facts, max(1, len(facts) // 4)) if len(facts) > 1 else []
        for topic in self._topics:
            if any(topic is one for one in unsaid):
                plan.asks.append((topic, "unanswerable", "", frozenset()))
            else:
                self._PLANS[topic["kind"]](self, topic, plan, starts, now.date())
        told, ids = self._told(plan, starts)
        questions = tuple(
            Question(
                self._random.choice(topic["ask"]).replace("{when}", when),
                round(now.timestamp() * 1000),
                frozenset(ids[mark] for mark in marks),
                kind,
            )
            for topic, kind, when, marks in plan.asks
        )
        return Conversation(self._name, told, questions)

    def _starts(self, sessions: int, least: timedelta, most: timedelta) -> list[datetime]:
        at, starts = _EPOCH + timedelta(days=self._random.randrange(300)), []
        for _ in range(sessions):
            starts.append(at)
            at += least + (most - least) * self._random.random()
        return starts

    # Evidence: which sentences go into which session.

    def _once(self, topic: Any, plan: _Plan, starts: list[datetime], _: date) -> None:
        where = self._random.randrange(len(starts))
        mark = self._plant(topic, topic["say"], self._random.choice(topic["values"]), plan, where)
        plan.asks.append((topic, topic["kind"], "", frozenset({mark})))

    def _several(self, topic: Any, plan: _Plan, starts: list[datetime], _: date) -> None:
        values = self._random.sample(topic["values"], self._random.choice((2, 3, 3, 4)))
        where = self._random.sample(range(len(starts)), len(values))
        marks = [
            self._plant(topic, topic["say"], value, plan, at) for value, at in zip(values, where, strict=True)
        ]
        plan.asks.append((topic, "several", "", frozenset(marks)))

    def _changed(self, topic: Any, plan: _Plan, starts: list[datetime], _: date) -> None:
        before, after = self._random.sample(topic["values"], 2)
        first, second = sorted(self._random.sample(range(len(starts)), 2))
        self._plant(topic, topic["say"], before, plan, first)
        mark = self._plant(topic, topic["later"], after, plan, second)
        plan.asks.append((topic, "changed", "", frozenset({mark})))

    def _times(self, topic: Any, plan: _Plan, starts: list[datetime], today: date) -> None:
        recent = [at for at, start in enumerate(starts) if (today - start.date()).days < 250]
        last = [at for at in recent if (today - starts[at].date()).days < 12]
        where = {self._random.choice(last)}
        while len(where) < min(6, len(topic["values"])):
            where.add(self._random.choice(recent))
        values = self._random.sample(topic["values"], len(where))
        marks = {
            self._plant(topic, topic["say"], value, plan, at): starts[at].date()
            for at, value in zip(sorted(where), values, strict=True)
        }
        for mark in (max(marks, key=lambda one: marks[one]), self._random.choice(sorted(marks))):
            when, first, after = self._random.choice(list(_whens(self._language, marks[mark], today)))
            inside = frozenset(one for one, day in marks.items() if first <= day < after)
            plan.asks.append((topic, "time", when, inside))

    _PLANS: Mapping[str, Callable[[_Person, Any, _Plan, list[datetime], date], None]] = {
        "fact": _once,
        "preference": _once,
        "several": _several,
        "changed": _changed,
        "time": _times,
    }

    def _plant(self, topic: Any, say: list[str], value: str, plan: _Plan, where: int) -> str:
        mark = f"{topic['name']}-{next(self._marks)}"
        speaker = topic.get("speaker", "user")
        scene = []
        if speaker == "assistant":
            scene.append(_Line("user", self._random.choice(topic["lead"])))
        elif self._random.random() < 0.5:
            scene += self._beside(self._random.choice(topic["near"]))
        scene.append(_Line(speaker, self._random.choice(say).replace("{v}", value), mark))
        if speaker == "user":
            told = topic["back"] if topic["back"] and self._random.random() < 0.8 else self._replies
            scene.append(_Line("assistant", self._random.choice(told)))
        plan.scenes.setdefault(where, []).append(scene)
        return mark

    # All other lines of the conversations.

    def _told(
        self, plan: _Plan, starts: list[datetime]
    ) -> tuple[tuple[tuple[Turn, ...], ...], dict[str, str]]:
        sessions, ids = [], {}
        for number, start in enumerate(starts):
            at, turns = start, []
            for place, line in enumerate(self._session(plan.scenes.get(number, []))):
                key = f"{number}:{place}"
                if line.mark is not None:
                    ids[line.mark] = key
                turns.append(Turn(key, line.role, line.role, line.text, round(at.timestamp() * 1000)))
                at += timedelta(seconds=self._random.randint(10, 90))
            sessions.append(tuple(turns))
        return tuple(sessions), ids

    def _session(self, scenes: list[list[_Line]]) -> list[_Line]:
        every = [self._beside(self._dealt()) for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.5:
            every.insert(0, [_Line("user", self._random.choice(self._openings))])
        room = TURNS - sum(map(len, scenes))
        while sum(map(len, every)) < room:
            every.append(self._chat())
        while sum(map(len, every)) > room and every:
            every.pop()
        every += [[_Line("assistant", self._random.choice(self._replies))]] * (room - sum(map(len, every)))
        for scene in scenes:
            every.insert(self._random.randrange(len(every) + 1), scene)
        return [line for scene in every for line in scene]

    def _beside(self, text: str) -> list[_Line]:
        return [_Line("user", text), _Line("assistant", self._random.choice(self._replies))]

    def _dealt(self) -> str:
        """Return a near-miss line. No line repeats until all others have been used."""
        if not self._deck:
            self._deck = self._random.sample(self._near, len(self._near))
        return self._deck.pop()

    def _chat(self) -> list[_Line]:
        about = self._random.choice(self._chatter)
        filled = {slot: self._random.choice(about[slot]) for slot in ("a", "b") if slot in about}
        lines = [
            (role, self._random.choice(about[role]).format(**filled))
            for role in ("user", "assistant") * self._random.choice((1, 1, 2))
        ]
        return [_Line(role, text[:1].upper() + text[1:]) for role, text in lines]


def _whens(language: str, day: date, today: date) -> Iterator[tuple[str, date, date]]:
    """Yield expressions for a day, each with the first day that the expression covers and the day after the last."""
    one, ago = timedelta(days=1), (today - day).days
    month, after = day.replace(day=1), (day.replace(day=28) + 4 * one).replace(day=1)
    monday = today - today.weekday() * one
    in_last_week = monday - 7 * one <= day < monday
    named = {
        "en": (f"on {day.day} {calendar.month_name[day.month]}", f"in {calendar.month_name[day.month]}"),
        "zh": (f"{day.month}月{day.day}日", f"{_ZH_MONTHS[day.month - 1]}"),
        "ja": (f"{day.month}月{day.day}日", f"{day.month}月"),
    }[language]
    yield (named[0], day, day + one)
    if ago > 31 and month != today.replace(day=1):
        yield (named[1], month, after)
    if after == today.replace(day=1):
        yield ({"en": "last month", "zh": "上个月", "ja": "先月"}[language], month, after)
    if ago == 1:
        yield ({"en": "yesterday", "zh": "昨天", "ja": "昨日"}[language], day, day + one)
    if 2 <= ago <= 12:
        yield ({"en": f"{ago} days ago", "zh": f"{ago}天前", "ja": f"{ago}日前"}[language], day, day + one)
    if in_last_week:
        words = {"en": "last week", "zh": "上周", "ja": "先週"}[language]
        yield (words, monday - 7 * one, monday)
    if in_last_week and (language != "en" or 2 <= ago <= 7):
        weekday = day.weekday()
        yield (
            {
                "en": f"last {calendar.day_name[weekday]}",
                "zh": f"上周{_ZH[weekday]}",
                "ja": f"先週の{_JA[weekday]}曜日",
            }[language],
            day,
            day + one,
        )
