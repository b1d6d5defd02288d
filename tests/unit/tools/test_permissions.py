"""Permission rules: their meaning, their precedence, and attempts to evade them."""

from __future__ import annotations

import random
import time
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.config.ship_file import Mcp, McpServer, Permissions, ShipFile
from bot.configuration import mistakes
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Taint
from bot.contracts.tools import Effect
from bot.system import read_link
from bot.tools.permissions.patterns import Paths, glob, literal_words, path_glob
from bot.tools.permissions.rules import Call, PolicyContext, Rules, Subject
from tests.shares import examples
from tests.unit.tools.adversary import MEMBER, NOON, Adversary, plant

OPERATOR = Subject("telegram", "7", "operator", ChatKey.parse("telegram:chat:7"))
NOBODY = Subject(None, None, "nobody", ChatKey.parse("jobs:chat:1"))
EFFECTS: dict[str, frozenset[Effect]] = {
    "read_file": frozenset({"read"}),
    "search_files": frozenset({"read"}),
    "list_dir": frozenset({"read"}),
    "write_file": frozenset({"write"}),
    "edit_file": frozenset({"read", "write"}),
    "run_shell": frozenset({"run"}),
    "web_fetch": frozenset({"network"}),
    "memory": frozenset({"read", "write"}),
    "chat_send": frozenset({"message"}),
    "chat_load_history": frozenset({"read", "write"}),
    "schedule_create": frozenset({"write"}),
}
TAINTED = PolicyContext(NOON.time, taint=Taint.FOREIGN)
READ = PolicyContext(NOON.time, taint=Taint.WORKSPACE)


def no_links(_: str) -> None:
    return None


def rules(**lists: Sequence[str]) -> Rules:
    return Rules(Paths("/srv/project", no_links), **lists)


def call(tool: str, argument: str | None = None, **more: Any) -> Call:
    name = {"run_shell": "command", "web_fetch": "url"}.get(tool, "path")
    arguments = more | ({name: argument} if argument is not None else {})
    return Call(tool, arguments, EFFECTS.get(tool, frozenset({"network"})))


def outcome(of: Rules, asked: Call, who: Subject = MEMBER, now: PolicyContext = NOON) -> str:
    return of.judge(asked, [who], now).outcome


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("run_shell", "ask"),
        ("write_file", "ask"),
        ("edit_file", "ask"),
        ("web_fetch", "ask"),
        ("mcp__a__b", "ask"),
        ("something_new", "ask"),
        ("chat_send", "allow"),
        ("chat_load_history", "allow"),
        ("memory", "allow"),
        ("schedule_create", "allow"),
        ("read_file", "allow"),
        ("search_files", "allow"),
    ],
)
def test_without_a_rule_effects_are_asked_for_and_reads_are_not(tool: str, expected: str) -> None:
    assert outcome(rules(), call(tool)) == expected


def test_a_tool_of_a_server_is_asked_for_even_where_it_says_that_it_only_reads() -> None:
    assert outcome(rules(), Call("mcp__a__look", {}, frozenset({"read"}))) == "ask"


def test_deny_goes_before_ask_and_ask_before_allow_whatever_their_order() -> None:
    every = rules(
        allow=["run_shell(git *)"], ask=["run_shell(git push*)"], deny=["run_shell(git push --force*)"]
    )
    assert outcome(every, call("run_shell", "git status")) == "allow"
    assert outcome(every, call("run_shell", "git push")) == "ask"
    assert outcome(every, call("run_shell", "git push --force")) == "deny"
    decision = every.judge(call("run_shell", "git push --force"), [MEMBER], NOON)
    assert decision.rule == "deny run_shell(git push --force*)"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/", "src/a/b.py", "allow"),
        ("src/", "src", "allow"),
        ("src/", "srcs/a", "ask"),
        ("src", "src/a", "ask"),
        ("src/*", "src/a", "allow"),
        ("src/*", "src/a/b", "ask"),
        ("src/**", "src/a/b", "allow"),
        ("**/*.py", "a.py", "allow"),
        ("**/*.py", "a/b/c.py", "allow"),
        ("*.py", "a/b.py", "ask"),
        ("a?.py", "ab.py", "allow"),
        ("a?.py", "a.py", "ask"),
        ("src/*/", "src/a/b/c", "allow"),
        ("/srv/project/src/", "src/a", "allow"),
        ("src/", "/srv/project/src/a", "allow"),
        ("src/", "src/../a", "ask"),
        ("src/", "./src//a/", "allow"),
        ("src/", "SRC/a", "ask"),
        ("*", "x/y", "allow"),
        ("src/", "/srv/project/src/../../../etc/passwd", "deny"),
        ("/etc/", "/etc/passwd", "deny"),
    ],
)
def test_path_patterns_of_an_allow_rule(pattern: str, path: str, expected: str) -> None:
    assert outcome(rules(allow=[f"write_file({pattern})"]), call("write_file", path)) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/", "SRC/A", "deny"),
        ("src", "src/a", "deny"),
        ("*.pem", "a/b/C.PEM", "deny"),
        ("/srv/project/a", "A", "deny"),
        ("café/", unicodedata.normalize("NFD", "café/x"), "deny"),
        ("ship/", "ｓｈｉｐ/x", "deny"),
        ("src/a", "src/b", "allow"),
        ("src/*/x", "src/y/x/z", "deny"),
        ("秘密", "deep/秘密/文", "deny"),
        ("src/", "a\0b", "deny"),
        ("src/", "x" * 5_000, "deny"),
    ],
)
def test_a_deny_rule_sees_every_name_of_a_place(pattern: str, path: str, expected: str) -> None:
    assert outcome(rules(deny=[f"read_file({pattern})"]), call("read_file", path)) == expected


def test_a_path_rule_never_matches_a_call_without_a_path() -> None:
    for arguments in ({}, {"path": None}, {"path": 7}, {"path": ""}, {"path": ["src/a"]}):
        asked = Call("write_file", arguments, frozenset({"write"}))
        assert outcome(rules(allow=["write_file(src/)", "write_file(*)"]), asked) == "ask"
        assert outcome(rules(deny=["write_file(src/)"]), asked) == "ask"


def test_a_search_that_would_look_into_a_closed_folder_is_closed() -> None:
    closed = rules(deny=["search_files(src/secret/)", "search_files(*.pem)"])
    assert outcome(closed, call("search_files", "src")) == "deny"
    assert outcome(closed, call("search_files")) == "deny"
    assert outcome(closed, call("search_files", "docs")) == "ask"  # the folder may contain a .pem file
    assert outcome(rules(deny=["search_files(src/*/key)"]), call("search_files", "src/a")) == "ask"


def test_links_are_followed_before_matching(tmp_path: Path) -> None:
    project = plant(tmp_path)
    real = Rules(Paths(str(project), read_link), allow=["write_file(open/)"], deny=["read_file(way/)"])
    assert outcome(real, call("write_file", "open/deep/new")) == "allow"
    assert outcome(real, call("write_file", "open/way/key")) == "ask"  # leads to secret/
    assert outcome(real, call("write_file", "open/out/etc/passwd")) == "deny"  # leads out of the project
    assert outcome(real, call("write_file", "loop/x")) == "deny"
    for path in ("way/key", "secret/key", "open/way/key", str(tmp_path / "linked/way/key")):
        assert outcome(real, call("read_file", path)) == "deny"


def test_a_link_that_takes_the_place_of_an_allowed_folder_opens_nothing(tmp_path: Path) -> None:
    project = plant(tmp_path)
    real = Rules(Paths(str(project), read_link), allow=["write_file(later/)"])
    assert outcome(real, call("write_file", "later/x")) == "allow"
    (project / "later").symlink_to("vault")
    assert outcome(real, call("write_file", "later/x")) == "ask"


@pytest.mark.parametrize(
    "path", [".env", ".ENV.local", "a/.env", ".git/config", ".ship/shipmate.db", "ship.json", "Ship.JSON"]
)
def test_secrets_and_settings_are_closed_whatever_the_rules_say(path: str) -> None:
    assert outcome(rules(allow=["read_file", "write_file"]), call("read_file", path)) == "deny"
    assert outcome(rules(allow=["@trusted:write_file(*)"]), call("write_file", path), OPERATOR) == "deny"


@pytest.mark.parametrize(
    "command",
    (  # noqa: SIM905 - a list would take a page
        "git status; rm -rf /¦git log | sh¦git $(id)¦git `id`¦git a\nid¦git > x¦git 'a b'¦git \\;¦git * ¦"
        "git a && b¦git\u00a0status¦git {a,b}¦A=1 git status¦git ~¦git #x¦git a\0b¦git \u202e"
    ).split("¦"),
)
def test_a_shell_pattern_matches_only_a_command_without_metacharacters(command: str) -> None:
    assert outcome(rules(allow=["run_shell(git *)", "run_shell(*)"]), call("run_shell", command)) == "ask"
    assert literal_words(command) is None
    assert literal_words("  git   log --since=1.week 漢字 ") == ("git", "log", "--since=1.week", "漢字")
    assert literal_words("") is literal_words("x" * 20_000) is None


@pytest.mark.parametrize(
    "command", ["env rm x", "sh -c rm", "git -c alias.x=rm x", "env -S git status", "xargs git status"]
)
def test_a_wrapper_is_not_what_it_wraps(command: str) -> None:
    assert (
        outcome(rules(allow=["run_shell(git status)", "run_shell(rm *)"]), call("run_shell", command))
        == "ask"
    )


def test_a_command_that_a_deny_rule_cannot_judge_is_asked_for_although_a_rule_allows_it() -> None:
    every = rules(allow=["run_shell"], deny=["run_shell(rm *)"])
    assert outcome(every, call("run_shell", "rm -rf x")) == "deny"
    assert outcome(every, call("run_shell", "/bin/RM x")) == "deny"
    assert outcome(every, call("run_shell", "rm")) == "deny"
    decision = every.judge(call("run_shell", "true; rm x"), [MEMBER], NOON)
    assert (decision.outcome, decision.granted) == ("ask", False)
    assert outcome(every, call("run_shell", "make")) == "allow"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://docs.example.org/a/b", "allow"),
        ("https://DOCS.example.org./a/b", "allow"),
        ("https://docs.example.org:443/a/x", "allow"),
        ("https://docs.example.org:8443/a/x", "ask"),
        ("http://docs.example.org/a/b", "ask"),
        ("https://docs.example.org/b", "ask"),
        ("https://docs.example.org/a/../b", "ask"),
        ("https://docs.example.org/a/%2e%2e/b", "ask"),
        ("https://u@docs.example.org/a/", "ask"),
        ("https://docs.example.org\\@evil.org/a/", "deny"),
        ("https://docs.example.org@evil.org/a/", "deny"),
        ("https://evil.org./", "deny"),
        ("http://EVIL.org:81/", "deny"),
        ("https://docs.example.org.evil.org/a/", "ask"),
        ("https://x.bad.org/", "deny"),
        ("https://bad.org/", "ask"),
        ("https://half.org/admin", "deny"),
        ("https://half.org/%61dmin", "deny"),
        ("https://half.org/x", "ask"),
        ("no address", "deny"),
        ("file:///etc/passwd", "deny"),
    ],
)
def test_address_patterns(address: str, expected: str) -> None:
    every = rules(
        allow=["web_fetch(https://docs.example.org/a/*)"],
        deny=["web_fetch(evil.org)", "web_fetch(*.bad.org)", "web_fetch(half.org/admin*)"],
    )
    assert outcome(every, call("web_fetch", address)) == expected


def at(day: int, hour: int, minute: int = 0) -> PolicyContext:
    return PolicyContext(datetime(2026, 11, 16, hour, minute, tzinfo=UTC) + timedelta(days=day))  # a Monday


@pytest.mark.parametrize(
    ("condition", "who", "now", "holds"),
    [
        ("user in slack:U1 slack:U2", MEMBER, NOON, True),
        ("user in slack:U10", MEMBER, NOON, False),
        ("user in (telegram:7, slack:U9)", OPERATOR, NOON, True),
        ("user in telegram:7", NOBODY, NOON, False),
        ("channel in slack", MEMBER, NOON, True),
        ("channel in telegram", MEMBER, NOON, False),
        ("channel in slack:C1", MEMBER, NOON, True),
        ("channel in slack:C", MEMBER, NOON, False),
        ("role operator", OPERATOR, NOON, True),
        ("role operator", MEMBER, NOON, False),
        ("role member", MEMBER, NOON, True),
        ("role member", NOBODY, NOON, False),
        ("arg.command~=make *", MEMBER, NOON, True),
        ("arg~=*test*", MEMBER, NOON, True),
        ("arg.cwd~=*", MEMBER, NOON, False),
        ("arg.timeoutMs~=100", MEMBER, NOON, True),
        ("role member and channel in slack", MEMBER, NOON, True),
        ("role member and channel in web", MEMBER, NOON, False),
        ("time 08:00-18:00", MEMBER, at(0, 8), True),
        ("time 08:00-18:00", MEMBER, at(0, 18), False),
        ("time 22:00-06:00", MEMBER, at(0, 23), True),
        ("time 22:00-06:00", MEMBER, at(0, 6), False),
        ("time mon-fri 22:00-06:00", MEMBER, at(5, 5), True),
        ("time mon-fri 22:00-06:00", MEMBER, at(0, 5), False),
        ("time sat 00:00-12:00", MEMBER, at(5, 1), True),
        ("time fri-mon 00:00-12:00", MEMBER, at(2, 1), False),
    ],
)
def test_conditions(condition: str, who: Subject, now: PolicyContext, *, holds: bool) -> None:
    asked = call("run_shell", "make test", timeoutMs=100)
    assert outcome(rules(allow=[f"run_shell(*, {condition})"]), asked, who, now) == (
        "allow" if holds else "ask"
    )
    assert outcome(rules(deny=[f"run_shell(*, {condition})"]), asked, who, now) == (
        "deny" if holds else "ask"
    )


def test_a_chat_is_named_by_its_id_or_its_key() -> None:
    thread = Subject("slack", "U1", "member", ChatKey.parse("slack:chat:C1:thread:17.5"))
    for place, expected in (
        ("slack:C1", "deny"),
        ("slack:chat:C1", "deny"),
        ("slack:C10", "ask"),
        ("slack:chat:C", "ask"),
    ):
        assert (
            outcome(rules(deny=[f"run_shell(*, channel in {place})"]), call("run_shell", "make"), thread)
            == expected
        )


def test_wildcards_name_the_tools_of_a_server() -> None:
    every = rules(allow=["mcp__files__*"], deny=["mcp__*__delete", "mcp__files__write(*, arg.path~=/etc/*)"])
    assert outcome(every, call("mcp__files__read")) == "allow"
    assert outcome(every, call("mcp__other__read")) == "ask"
    assert outcome(every, call("mcp__files__delete")) == "deny"
    assert outcome(every, call("mcp__files__write", "/etc/x")) == "deny"
    assert outcome(every, call("mcp__files__write", "/srv/x")) == "allow"


def test_a_wildcard_with_a_path_holds_for_the_tools_that_have_one() -> None:
    every = rules(deny=["*_file(src/)"])
    assert [outcome(every, call(tool, "src/a")) for tool in ("read_file", "edit_file", "mcp__a_file")] == [
        "deny",
        "deny",
        "ask",
    ]


def test_of_several_people_the_weakest_counts() -> None:
    every = rules(allow=["run_shell(*, role operator)"], deny=["run_shell(*, user in slack:U9)"])
    make, other = (
        call("run_shell", "make"),
        Subject("slack", "U9", "operator", ChatKey.parse("slack:chat:C1:thread:10")),
    )
    assert every.judge(make, [OPERATOR], NOON).outcome == "allow"
    assert every.judge(make, [OPERATOR, MEMBER], NOON).outcome == "ask"
    assert every.judge(make, [MEMBER, OPERATOR, other], NOON).outcome == "deny"
    assert every.judge(make, [], NOON).outcome == "deny"
    asks = rules(allow=["run_shell(*, role operator)"], ask=["run_shell"])
    assert asks.judge(make, [OPERATOR], NOON).granted
    assert not asks.judge(make, [OPERATOR, MEMBER], NOON).granted


def test_untrusted_text_in_view_takes_defaults_and_unmarked_rules_away() -> None:
    every = rules(allow=["run_shell(make)", "@trusted:web_fetch(docs.example.org)", "@ops:write_file(src/)"])
    for asked in (
        call("run_shell", "make"),
        call("write_file", "src/a"),
        call("memory", command="create"),
        call("schedule_create"),
    ):
        assert outcome(every, asked) == "allow"
        decision = every.judge(asked, [MEMBER], TAINTED)
        assert (decision.outcome, decision.source) == ("ask", "taint")
    for asked in (
        call("web_fetch", "https://docs.example.org/"),
        call("chat_send"),
        call("chat_load_history"),
        call("read_file", "a"),
        call("memory", command="view"),
    ):
        assert outcome(every, asked, now=TAINTED) == "allow"


def test_text_of_the_project_takes_no_rule_of_an_operator_away() -> None:
    every = rules(
        allow=["run_shell(make)", "write_file(src/)", "web_fetch(docs.example.org)", "mcp__a__b"],
        ask=["edit_file"],
        deny=["run_shell(rm *)"],
    )
    for asked in (
        call("run_shell", "make"),
        call("write_file", "src/a"),
        call("web_fetch", "https://docs.example.org/"),
        call("mcp__a__b"),
        call("edit_file", "src/a"),
        call("run_shell", "rm x"),
        call("run_shell", "ls"),
    ):
        assert every.judge(asked, [MEMBER], READ) == every.judge(asked, [MEMBER], NOON)


@pytest.mark.parametrize("now", [READ, TAINTED])
def test_what_concerns_only_the_asker_is_confirmed_by_them(now: PolicyContext) -> None:
    for asked in (call("memory", command="create"), call("schedule_create"), call("schedule_cancel")):
        decision = rules().judge(asked, [MEMBER], now)
        assert (decision.outcome, decision.granted, decision.own) == ("ask", True, True)
    ruled = rules(allow=["memory", "schedule_*"])
    assert outcome(ruled, call("memory", command="create"), now=now) == ("allow" if now is READ else "ask")
    assert outcome(rules(), call("memory", command="view"), now=now) == "allow"
    assert not rules().judge(call("run_shell", "make"), [MEMBER], now).granted


def test_untrusted_text_brings_no_other_chats_to_where_others_read_along() -> None:
    mine, here = call("chat_load_history", scope="mine"), call("chat_load_history", scope="chat")
    for every in (rules(), rules(allow=["chat_load_history"])):
        decision = every.judge(mine, [MEMBER], TAINTED)
        assert (decision.outcome, decision.granted, decision.lasting) == ("ask", True, False)
        assert (
            outcome(every, mine, now=PolicyContext(NOON.time, taint=Taint.FOREIGN, private=True)) == "allow"
        )
        assert outcome(every, here, now=TAINTED) == outcome(every, mine) == "allow"
    assert outcome(rules(allow=["@trusted:chat_load_history"]), mine, now=TAINTED) == "allow"


SERVERS = Mcp(servers={"a": McpServer(command="a"), "tracker": McpServer(command="t")})


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "@tag:Tool"),
        ("run_shell(", "the bracket is not closed"),
        ("run shell", "@tag:Tool"),
        ("run_shell()", "pattern between"),
        ("run_shel", 'did you mean "run_shell"?'),
        ("Bash(ls)", "the name of a tool"),
        ("write_file(a, )", "after the comma"),
        ("write_file(a, weather fine)", "arg~="),
        ("write_file(../a)", "without .."),
        ("write_file(~/a)", "without .."),
        ("memory(a)", "no pattern for this tool"),
        ("mcp__a__y(a/b)", "no pattern for this tool"),
        ("run_shell(a | b)", "plainly"),
        ("run_shell(A=1 b)", "plainly"),
        ("web_fetch(ftp://x)", "a host or an address"),
        ("web_fetch(http://)", "a host or an address"),
        ("run_shell(*, user in @someone)", "names count for nothing"),
        ("run_shell(*, user in U1)", "ids such as"),
        ("run_shell(*, user slack:U1)", "in and ids"),
        ("run_shell(*, role boss)", "role operator"),
        ("run_shell(*, time 25:00-26:00)", "hours such as"),
        ("run_shell(*, time xyz 01:00-02:00)", "hours such as"),
        ("run_shell(*, arg.x=1)", "arg~="),
        ("a" * 1_001, "one line"),
        ("run_shell\n", "one line"),
        ("read_file(a)b)", "pattern between"),
        ("@:run_shell", "@tag:Tool"),
    ],
)
def test_a_malformed_rule_is_a_finding_that_says_what_to_write(rule: str, said: str) -> None:
    (line,) = mistakes(ShipFile(permissions=Permissions(deny=("chat_send", rule)), mcp=SERVERS))
    assert line.startswith("permissions.deny[1]: found ")
    assert said in line
    assert "\n" not in line


def test_good_rules_are_no_findings() -> None:
    good = (
        "run_shell",
        "run_shell(git *)",
        "read_file(/etc/*, role operator)",
        "@trusted:mcp__a__*",
        "*",
        "*_file(a/)",
        "mcp__*(*, arg~=x)",
    )
    assert not list(mistakes(ShipFile(permissions=Permissions(allow=good, ask=good, deny=good), mcp=SERVERS)))


_LISTS = st.lists(
    st.sampled_from(
        (  # noqa: SIM905 - a list would take a page
            "run_shell¦run_shell(make)¦run_shell(*, user in slack:U1)¦memory¦schedule_*¦write_file(src/)¦"
            "@trusted:run_shell(make)¦@trusted:*¦web_fetch(a.org)¦mcp__a__*¦*¦chat_load_history¦task"
        ).split("¦")
    ),
    max_size=4,
)
_CALLS = st.sampled_from(
    [
        call("run_shell", "make"),
        call("run_shell", "ls; rm"),
        call("memory", command="create"),
        call("schedule_create"),
        call("write_file", "src/a"),
        call("write_file", "Agent.md"),
        call("web_fetch", "https://a.org/"),
        call("mcp__a__b"),
        call("chat_load_history", scope="mine"),
        call("task"),
        call("chat_send"),
        call("read_file", "a"),
    ]
)
_WHO = st.lists(st.sampled_from([MEMBER, OPERATOR, NOBODY]), min_size=1, max_size=3)
STRICT = {"deny": 0, "ask": 1, "allow": 2}


@given(
    lists=st.tuples(_LISTS, _LISTS, _LISTS),
    asked=_CALLS,
    who=_WHO,
    private=st.booleans(),
    levels=st.tuples(st.sampled_from(Taint), st.sampled_from(Taint)),
)
@settings(max_examples=examples(400), deadline=None)
def test_less_trusted_text_never_turns_a_question_into_an_allowance(
    lists: tuple[list[str], ...],
    asked: Call,
    who: list[Subject],
    levels: tuple[Taint, Taint],
    *,
    private: bool,
) -> None:
    every = rules(allow=lists[0], ask=lists[1], deny=lists[2])
    fewer, more = (
        every.judge(asked, who, PolicyContext(NOON.time, taint=level, private=private))
        for level in sorted(levels)
    )
    assert STRICT[more.outcome] <= STRICT[fewer.outcome]
    assert (fewer.outcome == "deny") == (more.outcome == "deny"), "text forbids nothing by itself"
    assert more.lasting <= fewer.lasting


def test_a_deep_path_is_judged_without_holding_others_up() -> None:
    every = rules(allow=["read_file(a/)"], deny=["read_file(*.pem)", "read_file(**/secret/*)"])
    began = time.thread_time()
    assert outcome(every, call("read_file", "a/" * 2_000 + "x")) == "allow"
    assert time.thread_time() - began < 0.5, "every prefix of the path was judged by itself"
    assert outcome(every, call("read_file", "a/" * 2_000 + "x.pem")) == "deny"
    assert outcome(every, call("read_file", "a/" * 1_000 + "secret/" + "a/" * 100)) == "deny"


def test_nobody_gets_around_the_rules(tmp_path: Path) -> None:
    adversary = Adversary(plant(tmp_path), random.Random(300))
    adversary.attack(300)
    assert adversary.bypasses == []
    assert all(adversary.decided.values())
    assert len(adversary.levels) == 9, "each outcome at each level"


@given(pattern=st.text(alphabet="ab*?", max_size=8), words=st.text(alphabet="ab", max_size=10))
@settings(max_examples=examples(150), deadline=None)
def test_wildcards_match_as_their_definition_says(pattern: str, words: str) -> None:
    def matches(form: str, rest: str) -> bool:
        if not form:
            return not rest
        if form[0] == "*":
            return any(matches(form[1:], rest[cut:]) for cut in range(len(rest) + 1))
        return bool(rest) and form[0] in {"?", rest[0]} and matches(form[1:], rest[1:])

    assert glob(pattern)(words) == matches(pattern, words)


def test_no_pattern_is_slow() -> None:
    assert not glob("*a" * 300 + "b")("a" * 5_000)
    assert not path_glob(["**", "*a*"] * 20 + ["b"])(["a" * 20] * 200)
