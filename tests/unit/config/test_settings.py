from __future__ import annotations

from pathlib import Path

import pytest

from bot import config, errors

from .conftest import TOKENS, Load

KEY = {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}


def test_credentials_in_the_environment_turn_things_on(load: Load) -> None:
    settings = load({}, KEY | TOKENS)
    assert settings.enabled == ("pigeon", "door")
    assert settings.llm.provider == "anthropic"
    assert settings.llm.api_key == "sk-ant-0123456789"
    assert settings.channels["pigeon"].wing_token == "wing-12345678"  # type: ignore[attr-defined]
    assert settings.secrets == {"sk-ant-0123456789", "wing-12345678", "beak-12345678"}
    assert "sk-ant-0123456789" not in repr(settings)
    assert "wing-12345678" not in repr(settings)


def test_an_empty_variable_is_not_set(load: Load) -> None:
    assert load({}, {"ANTHROPIC_API_KEY": ""}).llm.provider == "demo"
    assert load({}, {"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY=from-dotenv").llm.api_key == "from-dotenv"


def test_what_is_off_stays_off_and_needs_no_tokens(load: Load) -> None:
    document = {"channels": {"pigeon": {"enabled": False, "baseUrl": "${NEST}"}, "door": {"enabled": False}}}
    settings = load(document, TOKENS)
    assert settings.enabled == ()
    assert settings.channels["pigeon"].base_url == "https://pigeon.example/"  # type: ignore[attr-defined]
    assert load({"llm": {"provider": "demo"}}, KEY).llm.provider == "demo"
    assert load({"mcp": {"servers": {"x": {"enabled": False, "url": "${NEST}"}}}}).warnings == ()


def test_the_environment_wins_over_the_env_file(load: Load) -> None:
    dotenv = "# 注释\nexport NAME='kite 🪁'\nMODEL=\"a\\nb\"\nOTHER=${HOME}\n"
    settings = load({"name": "${NAME} & ${WHO}", "llm": {"model": "${OTHER}"}}, {"WHO": "me"}, dotenv)
    assert settings.name == "kite 🪁 & me"
    assert settings.llm.model == "${HOME}"  # the value is used as it is written in the file


def test_secrets_are_everything_that_may_not_be_shown(load: Load) -> None:
    settings = load(
        {
            "name": "${TITLE}",
            "llm": {"apiKey": "literal-key-1", "baseUrl": "http://user:pass%20word1@127.0.0.1:9/"},
            "channels": {"door": {"token": "short", "host": "${HOST}"}},
        },
        {"TITLE": "not-a-secret", "HOST": "127.0.0.1"},
        "UNUSED_API_KEY=unused-12345\nGREETING=hello-there\n",
    )
    assert settings.secrets == {"literal-key-1", "pass%20word1", "pass word1", "unused-12345"}


@pytest.mark.parametrize(
    ("switch", "in_file", "messages"),
    [
        (None, True, True),
        ("0", True, False),
        ("maybe", True, False),
        ("1", False, False),
        (None, False, False),
    ],
)
def test_message_logging_is_off_where_anything_says_off(
    load: Load, switch: str | None, in_file: bool, messages: bool
) -> None:
    env = {"SMA_LOG_LLM_PAYLOAD": "1"} | ({"SMA_LOG_LLM_MESSAGES": switch} if switch else {})
    llm = load({"llm": {"logMessages": in_file}}, env).llm
    assert (llm.log_messages, llm.log_payload) == (messages, messages)


def test_what_works_but_should_be_looked_at_is_a_warning(load: Load, tmp_path: Path) -> None:
    load({}, dotenv="A=1")
    (tmp_path / ".env").chmod(0o644)
    settings = load(
        {
            "llm": {"apiKey": "sk-ant-literal"},
            "channels": {"pigeon": {"baseUrl": "http://nest.example/"}},
        },
        TOKENS,
    )
    assert [line.split(":")[0] for line in settings.warnings] == [
        ".env",
        "llm.apiKey",
        "channels.pigeon.baseUrl",
    ]
    assert not any("sk-ant-literal" in line for line in settings.warnings)
    everyone = load({"channels": {"pigeon": {"allow": ["*"]}}}, TOKENS)
    assert any('holds "*"' in line for line in everyone.warnings)


def test_a_loopback_address_may_be_plain(load: Load) -> None:
    for address in ("http://127.0.0.1:8081", "http://localhost/", "http://[::1]:1/"):
        document = {"channels": {"pigeon": {"baseUrl": address, "allow": ["P1"]}}}
        assert load(document, TOKENS).warnings == ()


def test_prompts_are_texts_or_files_of_the_project(load: Load, tmp_path: Path) -> None:
    (tmp_path / "own.md").write_text("You are a parrot.")
    settings = load({"prompt": {"custom": "own.md", "append": "Ends in notes.txt\nor not."}})
    assert settings.prompt.sources(tmp_path) == {
        "custom": tmp_path / "own.md",
        "append": "Ends in notes.txt\nor not.",
    }
    assert load({}).prompt.sources(tmp_path) == {"custom": "", "append": ""}
    with pytest.raises(errors.ConfigError) as caught:
        load({"prompt": {"append": "none.txt"}})
    assert caught.value.findings == (
        (
            'prompt.append: found "none.txt" (text); expected a file in the project, or a text; '
            "write it, or the text itself"
        ),
    )


def test_what_is_shown_of_them_hides_every_secret(load: Load) -> None:
    key, quoted = "sk-ant-0123456789", 'pass"wörd\\1'
    server = {
        "command": "tool",
        "args": ["--key", "${TOOL_KEY}", "--url", f"https://me:{quoted}@a.example/"],
        "env": {"PLAIN": "in the environment"},
        "headers": {},
    }
    settings = load(
        {
            "mcp": {"servers": {"tool": server}},
            "permissions": {"allow": ["read_file"]},
            "operators": ["pigeon:P1"],
        },
        KEY | TOKENS | {"TOOL_KEY": "tool-12345678"},
    )
    shown = config.shown_leaves(settings)
    assert shown["llm.apiKey"] == shown["channels.pigeon.wingToken"] == "[hidden]"
    assert shown["mcp.servers.tool.env.PLAIN"] == "[hidden]"
    assert shown["dashboard.token"] == "null"
    assert shown["permissions.allow"] == '["read_file"]'
    assert shown["operators"] == '["pigeon:P1"]'
    assert (
        shown["mcp.servers.tool.args"] == '["--key", "[hidden]", "--url", "https://me:[hidden]@a.example/"]'
    )
    assert not any(secret in str(shown) for secret in (key, quoted, "tool-12345678", "wing-12345678"))
