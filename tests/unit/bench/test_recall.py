"""The benchmark of the search: its figures, its form, its invented conversations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import recall_corpus, recall_form, recall_metrics, recall_report
from tests.bench.recall_form import FormError
from tests.bench.recall_metrics import Asked, Scores
from tests.bench.recall_ours import Searched
from tests.bench.recall_plain import PlainBm25

DAY = 86_400_000
SMALL = {
    "conversations": [
        {
            "id": "a",
            "sessions": [
                {
                    "start": "2026-03-02T09:00:00+01:00",
                    "turns": [
                        {"id": "later", "role": "user", "text": "The boat is called Petrel"},
                    ],
                },
                {
                    "start": "2026-03-01T09:00:00",
                    "turns": [
                        {"id": 1, "role": "user", "text": "x"},
                        {"id": "2", "role": "assistant", "speaker": "bot", "text": "我们下周退款", "ts": 7},
                    ],
                },
            ],
            "questions": [
                {"text": "Name of the boat?", "asked_at": 1, "evidence": ["later"], "kind": "fact"},
                {"text": "退款", "asked_at": "2026-03-03", "evidence": ["2"]},
                {"text": "?", "asked_at": "2026-03-03", "evidence": []},
            ],
        }
    ]
}


def small() -> dict[str, list[dict[str, list[dict[str, list[dict[str, object]]]]]]]:
    value = json.loads(json.dumps(SMALL))
    value["conversations"][0]["sessions"][1]["turns"][0]["id"] = "1"
    return value  # type: ignore[no-any-return]


def phrased(text: str, *phrasings: str) -> object:
    """`small` with another first question, and further phrasings of it."""
    value = json.loads(json.dumps(small()))
    value["conversations"][0]["questions"][0] |= {"text": text, "phrasings": phrasings}
    return json.loads(json.dumps(value))


class TestMetrics:
    def test_recall_is_the_share_of_the_evidence(self) -> None:
        ranked = ["a", "x", "b", "y", "z"]
        assert [recall_metrics.recall(ranked, {"a", "b", "c"}, k) for k in (1, 2, 3, 5)] == [
            1 / 3,
            1 / 3,
            2 / 3,
            2 / 3,
        ]

    def test_the_reciprocal_rank_is_that_of_the_first_one(self) -> None:
        assert recall_metrics.reciprocal(["x", "b", "a"], {"a", "b"}) == 1 / 2
        assert recall_metrics.reciprocal(["x"], {"a"}) == 0

    def test_gain_is_one_for_the_best_order_and_less_for_every_other(self) -> None:
        assert recall_metrics.ndcg(["a", "b", "x"], {"a", "b"}, 10) == pytest.approx(1.0)
        assert recall_metrics.ndcg(["x", "a"], {"a"}, 10) == pytest.approx(0.6309, abs=1e-4)
        assert recall_metrics.ndcg(["x", "a"], {"a"}, 1) == 0

    def test_what_has_no_answer_counts_in_times_alone(self) -> None:
        scores = Scores.of(
            [
                Asked("fact", frozenset("a"), ("a",), 1.0),
                Asked("fact", frozenset("ab"), ("x", "b"), 2.0),
                Asked("unanswerable", frozenset(), ("x",), 9.0),
            ]
        )
        assert scores.questions == 2
        assert scores.recall == (0.5, 0.75, 0.75, 0.75)
        assert scores.mrr == 0.75
        assert (scores.p50, scores.p95) == (2.0, 9.0)

    def test_nothing_asked_is_nothing_found(self) -> None:
        assert Scores.of([]) == Scores(0, (0.0,) * 4, 0.0, 0.0, 0.0, 0.0)

    def test_scores_that_tell_apart(self) -> None:
        assert recall_metrics.parted([3, 2], [1, 0]) == 1
        assert recall_metrics.parted([1], [1]) == 0.5
        assert recall_metrics.parted([], [1]) == 0


class TestForm:
    def test_sessions_are_put_in_order_and_times_are_filled_in(self) -> None:
        (one,) = recall_form.parse(small())
        assert [turn.id for turn in one.turns] == ["1", "2", "later"]
        assert [turn.ts for turn in one.turns] == [1772355600000, 7, 1772438400000]
        assert [turn.speaker for turn in one.turns] == ["user", "bot", "user"]
        assert [question.kind for question in one.questions] == ["fact", "question", "question"]
        assert one.questions[0].asked_at == 1

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        people = recall_corpus.people("tuned", "ja", 5, 1)
        path = tmp_path / "people.json"
        path.write_text(json.dumps(recall_form.dump(people)), encoding="utf-8")
        assert recall_form.load(path) == people

    def test_other_phrasings_of_a_question_are_read_and_written(self) -> None:
        people = recall_form.parse(phrased("Name of the boat?", "boat, Petrel", "the ship"))
        assert [question.phrasings for question in people[0].questions] == [
            ("boat, Petrel", "the ship"),
            (),
            (),
        ]
        assert recall_form.parse(recall_form.dump(people)) == people

    def test_a_report_tells_one_phrasing_from_all_of_them(self) -> None:
        told: list[str] = []
        people = recall_form.parse(phrased("What floats?", "ship", "the boat is called"))
        found = recall_report.told([("small", people)], told.append)["small"]
        assert (found["shipmate"]["recall@1"], found["phrased"]["recall@1"]) == (0.5, 1.0)
        assert any("all phrasings" in line for line in told)
        plain = recall_report.told([("small", recall_form.parse(small()))], told.append)
        assert "phrased" not in plain["small"]

    @pytest.mark.parametrize(
        ("where", "key", "value", "told"),
        [
            ("turn", "role", "system", "not user or assistant"),
            ("turn", "text", "", "is no text"),
            ("turn", "id", "2", "two turns have the same id"),
            ("turn", "ts", "soon", "neither ISO 8601"),
            ("question", "evidence", ["9"], "no turn has the id '9'"),
            ("question", "evidence", None, "is no list"),
            ("question", "asked_at", True, "neither ISO 8601"),
        ],
    )
    def test_what_is_not_of_the_form_is_told_with_its_place(
        self, where: str, key: str, value: object, told: str
    ) -> None:
        form = small()
        conversation = form["conversations"][0]
        one = conversation["questions"][0] if where == "question" else conversation["sessions"][1]["turns"][0]
        one[key] = value  # type: ignore[assignment]
        with pytest.raises(FormError, match=told):
            recall_form.parse(form)

    def test_a_file_of_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "form.json"
        path.write_text("[]", encoding="utf-8")
        with pytest.raises(FormError, match="the file has no conversations"):
            recall_form.load(path)
        path.write_text("{", encoding="utf-8")
        with pytest.raises(FormError, match=r"form\.json is no JSON"):
            recall_form.load(path)


class TestCorpus:
    def test_the_same_seed_makes_the_same_conversations(self) -> None:
        one, other = recall_corpus.people("held", "zh", 7, 1), recall_corpus.people("held", "zh", 7, 1)
        assert one == other
        assert one != recall_corpus.people("held", "zh", 8, 1)

    @pytest.mark.parametrize("language", ["en", "zh", "ja"])
    def test_fifty_sessions_of_twenty_turns_and_evidence_that_was_said(self, language: str) -> None:
        for family in recall_corpus.FAMILIES:
            (person,) = recall_corpus.people(family, language, 3, 1)
            assert [len(session) for session in person.sessions] == [20] * 50
            times = [turn.ts for turn in person.turns]
            assert times == sorted(times)
            ids = {turn.id for turn in person.turns}
            assert all(question.evidence <= ids for question in person.questions)
            assert all(bool(q.evidence) != (q.kind == "unanswerable") for q in person.questions)

    def test_there_are_more_than_five_hundred_questions_of_every_kind(self) -> None:
        asked = [
            question
            for language in ("en", "zh", "ja")
            for person in recall_corpus.people("tuned", language, 1)
            for question in person.questions
        ]
        assert len(asked) > 500
        assert {question.kind for question in asked} == {
            "fact",
            "several",
            "time",
            "changed",
            "preference",
            "unanswerable",
        }

    def test_a_question_of_a_time_means_what_was_said_then(self) -> None:
        found = 0
        for person in recall_corpus.people("tuned", "en", 3, 4):
            said = {turn.id: turn for turn in person.turns}
            for question in person.questions:
                if question.text.endswith((" yesterday?", " days ago?")):
                    (day,) = {said[one].ts // DAY for one in question.evidence}
                    ago = 1 if "yesterday" in question.text else int(question.text.split()[-3])
                    assert question.asked_at // DAY - day == ago
                    found += 1
        assert found

    def test_no_topic_is_of_both_families(self) -> None:
        for language in ("en", "zh", "ja"):
            tuned, held = (
                {topic["name"] for topic in recall_corpus.topics(language, family)}
                for family in recall_corpus.FAMILIES
            )
            assert tuned
            assert held
            assert not tuned & held

    def test_many_sessions_in_one_chat(self) -> None:
        chat = recall_corpus.pooled("zh", 3, 120)
        assert len(chat.sessions) == 120
        assert {question.kind for question in chat.questions} >= {"fact", "time", "changed"}


class TestReport:
    def test_both_are_asked_and_every_figure_is_printed(self, tmp_path: Path) -> None:
        said: list[str] = []
        found = recall_report.told([("small", recall_form.parse(small()))], said.append, kinds=True)
        assert found["small"]["shipmate"]["recall@1"] == 1.0
        assert found["small"]["plain"]["recall@25"] == 0.5
        assert found["small"]["spaced"]["recall@25"] == 1.0
        assert any("FTS5, CJK spaced" in line for line in said)
        assert any("FTS5 porter BM25" in line for line in said)
        assert any(line.strip().startswith("ratio") for line in said)
        assert any("questions without an answer" in line for line in said)

    def test_a_file_that_is_not_of_the_form_ends_with_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "form.json"
        path.write_text("{}", encoding="utf-8")
        assert recall_report.main(["--json", str(path)]) == 2
        assert capsys.readouterr().err == "the file has no conversations\n"

    def test_plain_search_takes_chinese_for_one_word_unless_it_is_spaced(self) -> None:
        (one,) = recall_form.parse(small())
        question = recall_form.Question("退款", 0, frozenset({"2"}), "fact")
        plain, spaced, ours = PlainBm25(one), PlainBm25(one, spaced=True), Searched(one)
        assert plain.search(question, 5) == []
        assert [key for key, _ in spaced.search(question, 5)] == ["2"]
        assert [key for key, _ in ours.search(question, 5)][:1] == ["2"]
        for search in (plain, spaced, ours):
            search.close()
