from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Shipmate

REPO = Path(__file__).parents[3]
FILES = ("ship.json", "Agent.md", ".env.example", ".ship/.gitignore")


def test_init_writes_a_project_that_check_accepts(shipmate: Shipmate, tmp_path: Path) -> None:
    root = tmp_path / "новый бот"
    done = shipmate("init", root, "--name", "Möwe 🐦", "--operator", "telegram:12345")
    assert done.code == 0
    ship = json.loads((root / "ship.json").read_text())
    assert (ship["name"], ship["operators"]) == ("Möwe 🐦", ["telegram:12345"])
    assert "provider" not in ship["llm"]
    assert not any("enabled" in section for section in ship["channels"].values())
    assert (root / ".ship").stat().st_mode & 0o777 == 0o700
    assert (root / ".ship" / "schema" / "ship.schema.json").is_file()
    assert "ANTHROPIC_API_KEY=\n" in (root / ".env.example").read_text()
    checked = shipmate("check", "--dir", root)
    assert checked.code == 0
    assert "provider demo (no key is set)" in checked.out
    assert "channel slack off (SLACK_BOT_TOKEN is not set)" in checked.out
    assert "channel web on" in checked.out


def test_init_overwrites_nothing(shipmate: Shipmate, project: Path) -> None:
    for name in FILES:
        (project / name).write_text("mine")
    done = shipmate("init", project, "--name", "other", "--operator", "slack:U012ABCDEF")
    assert done.code == 0
    assert [(project / name).read_text() for name in FILES] == ["mine"] * len(FILES)
    assert "kept   ship.json" in done.out
    assert "wrote  .ship/access.json (slack:U012ABCDEF is an operator)" in done.out


def test_init_once_more_names_the_next_steps_and_says_how_to_connect_what_is_named(
    shipmate: Shipmate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "bot"
    assert "For Slack, make an app" in shipmate("init", root).out
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    again = shipmate("init", root).out
    assert again[again.index("wrote  .ship/schema/") :].splitlines() == [
        "wrote  .ship/schema/",
        "",
        f"Next: shipmate check --dir {root}, then shipmate run --dir {root}",
    ]
    out = shipmate("init", "--connect", "slack", root).out
    assert json.loads(out[out.index("{") : out.rindex("}") + 1])["settings"]["socket_mode_enabled"] is True
    assert "@BotFather" not in out
    assert shipmate("init", "--connect", "fax", root).code == 2


@pytest.mark.parametrize("words", ["init", "allow telegram 1", "pending", "chats", "logs", "stats"])
def test_a_file_in_the_place_of_the_folder_is_told_in_a_line(
    shipmate: Shipmate, tmp_path: Path, words: str
) -> None:
    (tmp_path / ".ship").write_text("mine")
    done = shipmate(*words.split(), "--dir", tmp_path)
    assert (done.code, done.out) == (78, "")
    assert done.err == ".ship: found a file; expected a folder; move the file elsewhere\n"
    assert [path.name for path in tmp_path.iterdir()] == [".ship"]


def test_a_project_that_is_a_file_is_wrong_usage(shipmate: Shipmate, tmp_path: Path) -> None:
    (tmp_path / "bot").write_text("mine")
    done = shipmate("init", tmp_path / "bot")
    assert done.code == 2
    assert "is a file" in " ".join(done.err.split())


def test_init_adds_operators_to_a_project_that_stands_and_keeps_its_name(
    shipmate: Shipmate, project: Path
) -> None:
    before = (project / "ship.json").read_bytes()
    done = shipmate("init", project, "--name", "Gull", "--operator", "slack:U012ABCDEF")
    assert "The bot's name stays 'shipmate'" in done.err
    assert (project / "ship.json").read_bytes() == before
    assert "operators slack:U012ABCDEF" in shipmate("check", "--dir", project).out
    again = shipmate("init", project, "--operator", "slack:U012ABCDEF")
    assert "access.json" not in again.out
    assert again.err == ""


def test_commands_that_are_told_reach_the_same_folder(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "my bot"
    assert shipmate("init", folder).code == 0
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-0123456789")
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-0123456789")
    told = shipmate("check", "--dir", folder).err
    assert f"let people in with `shipmate allow slack ID --dir '{folder}'`" in told
    monkeypatch.chdir(folder)
    assert "let people in with `shipmate allow slack ID`" in shipmate("check").err
    assert shipmate("link").err == "shipmate: Shipmate is not running here. Start it with: shipmate run\n"


@pytest.mark.parametrize("way", ["operator", "operator since", "let in", "ship.json"])
def test_a_channel_in_which_somebody_may_talk_is_not_called_empty(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    assert "channels.telegram.allow: is empty" in shipmate("check", "--dir", project).err
    ship = json.loads((project / "ship.json").read_text())
    if way == "operator since":
        assert shipmate("init", project, "--operator", "telegram:12345").code == 0
    elif way == "let in":
        assert shipmate("allow", "telegram", "12345", "--dir", project).code == 0
    elif way == "operator":
        (project / "ship.json").write_text(json.dumps(ship | {"operators": ["telegram:12345"]}))
    else:
        ship["channels"]["telegram"]["allow"] = ["12345"]
        (project / "ship.json").write_text(json.dumps(ship))
    assert "is empty" not in shipmate("check", "--dir", project).err


def test_init_keeps_the_environment_file_out_of_git(shipmate: Shipmate, tmp_path: Path) -> None:
    assert shipmate("init", tmp_path).code == 0
    assert (tmp_path / ".gitignore").read_text() == ".env\n"
    (tmp_path / ".gitignore").write_text("*.pyc")
    assert shipmate("init", tmp_path).code == 0
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n.env\n"
    (tmp_path / ".gitignore").write_text("/.env\n")
    assert "wrote  .gitignore" not in shipmate("init", tmp_path).out
    assert (tmp_path / ".gitignore").read_text() == "/.env\n"


def test_this_repository_is_as_init_leaves_it(project: Path) -> None:
    for name in FILES:
        assert (REPO / name).read_text() == (project / name).read_text(), name


def test_check_tells_everything_that_is_wrong_one_a_line_and_shows_no_token(
    shipmate: Shipmate, project: Path
) -> None:
    slipped = '{"nmae": 1, "operators": ["xoxb-1234567890-abcdef"], "llm": {"provider": "anthropic", "apiKey": "a b"}}'
    (project / "ship.json").write_text(slipped)
    done = shipmate("check", "--dir", project)
    assert (done.code, done.out) == (78, "")
    assert {line.split(": ")[0] for line in done.err.splitlines()} == {"nmae", "operators[0]", "llm.apiKey"}
    assert "xoxb-1" not in done.err


def test_check_as_json(shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    done = shipmate("check", "--dir", project, "--json")
    assert done.code == 0
    (found,) = done.lines
    assert (found["provider"], found["model"]) == ("anthropic", "claude-sonnet-5-5")
    assert found["channels"]["telegram"] == {"on": False, "reason": "TELEGRAM_BOT_TOKEN is not set"}
    assert "sk-ant" not in done.out


def test_check_names_models_whose_cost_cannot_be_told(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "ship.json").write_text(
        json.dumps({"llm": {"model": "claude-next-9", "fastModel": "small-1"}})
    )
    assert "price" not in shipmate("check", "--dir", project).err, "the demo model costs nothing"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    done = shipmate("check", "--dir", project)
    assert done.code == 0
    assert "warning: llm.model: found claude-next-9, whose price is not known" in done.err
    assert "warning: llm.fastModel: found small-1" in done.err

    def with_prices(prices: dict[str, dict[str, int]]) -> str:
        llm = {"model": "claude-next-9", "fastModel": "small-1", "prices": prices}
        (project / "ship.json").write_text(json.dumps({"llm": llm}))
        return shipmate("check", "--dir", project).err

    small = {"input": 0, "output": 0, "cacheRead": 0}
    assert "price" not in with_prices({"claude-next-9": {"input": 3, "output": 9}, "small-1": small})
    wrong = with_prices({"claude-next-9": {"input": 3}, "small-1": small | {"input": -1}})
    assert "llm.prices.claude-next-9.output: found nothing" in wrong
    assert "llm.prices.small-1.input: found -1 (a number)" in wrong


def test_check_warns_of_an_open_env_file(shipmate: Shipmate, project: Path) -> None:
    (project / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-0123456789\n")
    (project / ".env").chmod(0o644)
    done = shipmate("check", "--dir", project)
    assert done.code == 0
    assert "warning: .env: others on this machine can read it" in done.err
    assert "provider anthropic, model claude-sonnet-5-5 (a key is set)" in done.out
