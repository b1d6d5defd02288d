from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import config, errors
from bot.contracts.channel import ChannelSettings
from tests.shares import examples

from .conftest import MANIFESTS, TOKENS, Load, manifest

BAD: dict[str, Any] = {
    'nmae: found an unknown key; expected one of $schema, .*; did you mean "name"?': {"nmae": "x"},
    'llm.max_tokens: .*did you mean "maxTokens"?': {"llm": {"max_tokens": 1}},
    'adapters: .*; write "channels" in place of it': {"adapters": {"telegram": {}}},
    "zzzzzz: .*; remove it": {"zzzzzz": 1},
    'channels.pigoen: .*one of door, pigeon; did you mean "pigeon"?': {"channels": {"pigoen": {}}},
    'channels.door.prot: .*did you mean "port"?': {"channels": {"door": {"prot": 1}}},
    'channels.pigeon.base_url: .*"baseUrl"?': {"channels": {"pigeon": {"base_url": "x"}}},
    'llm.maxTokens: found "12" (text); expected a valid integer; change it': {"llm": {"maxTokens": "12"}},
    "name: found 7 (a number); expected a valid string; change it": {"name": 7},
    "llm.logMessages: .*expected a valid boolean": {"llm": {"logMessages": "true"}},
    "name: found null; expected a valid string; ": {"name": None},
    "llm: found a list; expected an object; ": {"llm": []},
    'channels: found "all" (text); expected an object; ': {"channels": "all"},
    "operators: found an object; expected a valid array; ": {"operators": {}},
    "context.maxMessages: found 0 (a number); expected greater than or equal to 2; ": {
        "context": {"maxMessages": 0}
    },
    'name: found " " (text); expected one line of text; ': {"name": " "},
    "name: .*expected one line of text; ": {"name": "a\nb"},
    'llm.provider: found "openai" (text); expected "anthropic" or "demo"': {"llm": {"provider": "openai"}},
    "llm.baseUrl: .*expected an address such as https://": {"llm": {"baseUrl": "example.org"}},
    "llm.baseUrl: .*expected an address": {"llm": {"baseUrl": "https://me:password-1@[::1/"}},
    'engine.kind: found "mongodb" (text); expected "embedded" or "postgresql"; ': {
        "engine": {"kind": "mongodb"}
    },
    "engine: found an object; expected a databaseUrl such as postgresql://": {
        "engine": {"kind": "postgresql"}
    },
    "engine: .*expected a databaseUrl such as postgresql://.*; set it to ": {
        "engine": {"kind": "postgresql", "databaseUrl": "mysql://u:geheim-und-lang@h/d"}
    },
    "engine.databaseUrl: found ${NO_SUCH_DATABASE}, which is set neither": {
        "engine": {"kind": "postgresql", "databaseUrl": "${NO_SUCH_DATABASE}"}
    },
    'schedule.timezone: found "Mars/Olympus" (text); expected a name of the tz database': {
        "schedule": {"timezone": "Mars/Olympus"}
    },
    "schedule.timezone: .*expected a name of the tz database": {"schedule": {"timezone": "../etc/passwd"}},
    "mcp.servers.x: found an object; expected command or url alone; ": {"mcp": {"servers": {"x": {}}}},
    "mcp.servers.x: .*expected command or url alone; set ": {
        "mcp": {"servers": {"x": {"command": "y", "url": "http://z/"}}}
    },
    "mcp.servers.x: found an object; expected url alone; ": {
        "mcp": {"servers": {"x": {"type": "http", "command": "y"}}}
    },
    "mcp.servers.x.url: .*expected an address": {"mcp": {"servers": {"x": {"url": "y"}}}},
    "mcp.servers.x__y.*: .*expected at most 32 of ": {"mcp": {"servers": {"x__y": {"command": "y"}}}},
    "mcp.servers.x: found ${NO_SUCH}": {"mcp": {"servers": {"x": "${NO_SUCH}"}}},
    "mcp.servers.x.env.T: found ${NO_SUCH}": {
        "mcp": {"servers": {"x": {"command": "y", "env": {"T": "${NO_SUCH}"}}}}
    },
    'engine: found an object; expected no databaseUrl for "embedded"; ': {
        "engine": {"databaseUrl": "postgres://u:hunter2hunter2@h/d"}
    },
    'channels.pigeon.allow[0]: found "@alice" (text); expected a stable id of pigeon; .*shipmate pending': {
        "channels": {"pigeon": {"allow": ["@alice"]}}
    },
    "channels.pigeon.allow[0]: .*stands for many people": {"channels": {"pigeon": {"allow": ["P0"]}}},
    "operators[0]: found 5 (a number); expected a valid string; ": {"operators": [5]},
    'llm.maxTokens: found "many" (text); expected a valid integer; change it': {"llm": {"maxTokens": "many"}},
    'operators[0]: found "alice" (text); expected channel:ID with one of door, pigeon; ': {
        "operators": ["alice"]
    },
    'operators[0]: found "pigeon:alice@example.org" (text); expected a stable id': {
        "operators": ["pigeon:alice@example.org"]
    },
    'channels.door.host: found "0.0.0.0" (text); expected 127.0.0.1, or a token': {
        "channels": {"door": {"host": "0.0.0.0"}}
    },
    'dashboard.host: found "0.0.0.0" (text); expected 127.0.0.1, or a token': {
        "dashboard": {"host": "0.0.0.0"}
    },
    "channels.pigeon.wingToken: found [hidden]; expected a token without white space": {
        "channels": {"pigeon": {"wingToken": "abc defgh", "beakToken": "beak-12345678"}}
    },
    "llm.apiKey: found [hidden] (text); expected a token without white space": {
        "llm": {"apiKey": "sk-ant-abc\n"}
    },
    "llm.apiKey: .*white space and odd": {"llm": {"apiKey": "ключ-ключ"}},
    "llm.apiKey: found [hidden] (a number); expected a valid string; ": {"llm": {"apiKey": 12345678}},
    "name: found ${ without a name in }; expected ${NAME}; ": {"name": "${NAME"},
    "channels.pigeon.wingToken: found ${PIGEON_WING_TOKEN}, which is set neither .*set PIGEON_WING_TOKEN": {
        "channels": {"pigeon": {"enabled": True, "beakToken": "beak-12345678"}}
    },
    "channels.pigeon.wingToken: found nothing; expected a token; set PIGEON_WING_TOKEN": {
        "channels": {"pigeon": {"enabled": True, "wingToken": None, "beakToken": "beak-12345678"}}
    },
    "llm.apiKey: found ${ANTHROPIC_API_KEY}, which is set neither": {"llm": {"provider": "anthropic"}},
    "llm.apiKey: found nothing; expected a key; ": {"llm": {"provider": "anthropic", "apiKey": None}},
    "name: found ${SHIP_NAME}, which is set neither": {"name": "${SHIP_NAME}"},
    "llm: found ${SHIP_LLM}, which is set neither": {"llm": "${SHIP_LLM}"},
    "engine: found ${SHIP_ENGINE}, which is set neither": {"engine": "${SHIP_ENGINE}"},
    "ship.json: ": {"mcp": {"servers": {"a": {"b": json.loads("[" * 300 + "]" * 300)}}}},
}
"""Invalid settings, keyed by the finding that they cause. In a finding, `.*` matches any text."""


def matches(line: str, pattern: str) -> bool:
    """Return True if a line begins with the pattern's first piece and contains the others in order. `.*` separates
    pieces.
    """
    first, *rest = pattern.split(".*")
    at = len(first) if line.startswith(first) else -1
    for piece in rest:
        at = line.find(piece, at) if at >= 0 else -1
    return at >= 0


@pytest.mark.parametrize("pattern", BAD)
def test_each_fault_is_one_line_that_says_how_to_mend_it(load: Load, pattern: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load(BAD[pattern])
    (line,) = caught.value.findings
    assert matches(line, pattern), line
    assert "\n" not in line
    assert caught.value.exit_code == 78
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("content", "start"),
    [
        ('{"name": "x",\n  "llm": }', "ship.json line 2 column 10: found broken JSON"),
        ("", "ship.json line 1 column 1: found broken JSON"),
        ('{\n  // the name\n  "name": "x"}', "ship.json line 2 column 3: found broken JSON"),
        ("{'name': 'x'}", "ship.json line 1 column 2: found broken JSON"),
        ("[]", "ship.json: found no object"),
        ('{"name": "a", "name": "b"}', 'ship.json: found the key "name" twice'),
        ('{"llm": {"maxTokens": NaN}}', "ship.json: found NaN"),
        ("[" * 100_000, "ship.json: found too many levels"),
        ('{"llm": {"maxTokens": ' + "9" * 5_000 + "}}", "ship.json: found "),
    ],
)
def test_a_file_that_is_no_json_says_where(load: Load, content: str, start: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load(content)
    assert caught.value.findings[0].startswith(start)
    assert len(caught.value.findings) == 1


def test_a_channel_whose_setting_has_no_default_is_a_finding(tmp_path: Path) -> None:
    class RoomSettings(ChannelSettings):
        room: str

    (tmp_path / "ship.json").write_text("{}")
    with pytest.raises(errors.ConfigError, match=r'channels\.hall\.room: found nothing; .*add "room"'):
        config.load(tmp_path, {**MANIFESTS, "hall": manifest("hall", RoomSettings)}, {})


def test_without_a_file_the_way_to_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config.load(tmp_path, MANIFESTS, {})
    assert caught.value.findings == (f"no ship.json here: run `shipmate init --dir {tmp_path}`",)


@pytest.mark.parametrize("name", ["ship.json", ".env"])
def test_files_that_cannot_be_read_are_findings(load: Load, tmp_path: Path, name: str) -> None:
    load({}, dotenv="A=1")
    (tmp_path / name).write_bytes(b'{"name": "\xff"}')
    with pytest.raises(errors.ConfigError, match=f"{name}: found bytes that are not UTF-8"):
        config.load(tmp_path, MANIFESTS, {})
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(errors.ConfigError, match=f"{name}: found Is a directory"):
        config.load(tmp_path, MANIFESTS, {})


def test_a_line_of_the_env_file_that_cannot_be_read_is_named_and_not_shown(load: Load) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        load({}, dotenv="A=1\nTOKEN='hunter2hunter2\n")
    assert caught.value.findings == (
        ".env line 2: found a line I cannot read; expected NAME=value; mend or remove it",
    )


def test_everything_that_is_wrong_is_told_at_once(load: Load) -> None:
    document = {
        "nmae": "x",
        "llm": {"provider": "anthropic", "maxTokens": "12"},
        "channels": {
            "pigeon": {"enabled": True, "allow": ["@bob", 5]},
            "other": {},
        },
        "operators": ["bob"],
        "engine": {"kind": "mongodb"},
    }
    with pytest.raises(errors.ConfigError) as caught:
        load(document, dotenv="A=1\nTOKEN='x")
    assert sorted(line.split(": ")[0] for line in caught.value.findings) == [
        ".env line 2",
        "channels.other",
        "channels.pigeon.allow[1]",
        "engine.kind",
        "llm.maxTokens",
        "nmae",
        "operators[0]",
    ]
    document = {
        "llm": {"provider": "anthropic"},
        "channels": {"door": {"host": "0.0.0.0"}, "pigeon": {"allow": ["@bob"]}},
    }
    with pytest.raises(errors.ConfigError) as caught:
        load(document, dotenv="A=1")
    assert sorted(line.split(": ")[0] for line in caught.value.findings) == [
        "channels.door.host",
        "channels.pigeon.allow[0]",
        "llm.apiKey",
    ]


def test_a_feature_that_is_on_needs_its_other_variables_too(load: Load) -> None:
    document = {"llm": {"model": "${MODEL}"}, "channels": {"pigeon": {"baseUrl": "${NEST}"}}}
    assert load(document).llm.model == "claude-sonnet-5-5"
    with pytest.raises(errors.ConfigError) as caught:
        load(document, TOKENS | {"ANTHROPIC_API_KEY": "sk-ant-12345678"})
    assert [line.split(": ")[0] for line in caught.value.findings] == ["channels.pigeon.baseUrl", "llm.model"]


def test_values_from_the_environment_are_never_shown(load: Load) -> None:
    env = {"SECRET_VALUE": "hunter2-hunter2", **TOKENS}
    document = {
        "name": ["${SECRET_VALUE}"],
        "llm": {"provider": "${SECRET_VALUE}", "maxTokens": "${SECRET_VALUE}", "apiKey": "${SECRET_VALUE} x"},
        "channels": {
            "pigeon": {"allow": ["${SECRET_VALUE}", "hunter2-hunter2"]},
            "door": {"host": "${SECRET_VALUE}"},
        },
        "operators": ["${SECRET_VALUE}"],
    }
    with pytest.raises(errors.ConfigError) as caught:
        load(document, env)
    assert len(caught.value.findings) >= 5
    assert "hunter2" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["llm", "channels", "operators", "name", "context", "mcp", "skills", "dashboard", "x"])
INNER = st.sampled_from(
    ["apiKey", "provider", "pigeon", "door", "allow", "servers", "paths", "host", "enabled"]
)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.dictionaries(KEYS, JSON | st.dictionaries(INNER, JSON | st.dictionaries(INNER, JSON)), max_size=4))
def test_any_json_is_either_settings_or_findings(
    tmp_path_factory: pytest.TempPathFactory, document: Any
) -> None:
    root = tmp_path_factory.getbasetemp()
    (root / "ship.json").write_text(json.dumps(document))
    findings: tuple[str, ...] = ("none",)
    try:
        config.load(root, MANIFESTS, {})
    except errors.ConfigError as error:
        findings = error.findings
    assert findings
    assert all(len(line.splitlines()) == 1 for line in findings)


def test_a_file_in_the_place_of_the_folder_is_a_finding(load: Load, tmp_path: Path) -> None:
    (tmp_path / ".ship").write_text("x")
    with pytest.raises(errors.ConfigError, match=r"\.ship: found a file; expected a folder"):
        load({})
