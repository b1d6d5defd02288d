from __future__ import annotations

from pathlib import Path

import pytest

from tests import gates

BREACHES = {
    "bot/features/a.py": ('WORDS = "I have done that."\n', "a sentence stands in code"),
    "bot/features/c.py": ('WORDS = "\u505c\u4e0b\u4e86"\n', "a sentence stands in code"),
    "bot/features/mark.py": ('GONE = "[removed]"\n', "a sentence stands in code"),
    "channels/slack/button.py": (
        'BUTTON = {"type": "button", "text": {"type": "plain_text", "text": "deny"}}\n',
        "a label stands in code",
    ),
    "channels/telegram/button.py": (
        'button = InlineKeyboardButton("Deny", callback_data="deny")\n',
        "a label stands in code",
    ),
    "channels/web/page/a.html": (
        "<p>${hello}</p>\n<button title='${new}'>New</button>\n",
        "a label stands in code",
    ),
    "channels/web/page/c.js": ('made.append(button("copy"));\n', "a label stands in code"),
    "channels/web/page/e.js": ('const words = "Not logged in";\n', "a label stands in code"),
    "bot/pages/a.html": (
        '<p>{{ figure("Free disk", size) }}</p>\n<code>ls it</code>\n',
        "a label stands in code",
    ),
    "docs/g.md": ("# TO" + "DO\n", "unfinished work"),
    "docs/h.md": ("pip install -i https://py" + "pi.org/simple x\n", "package registry"),
    "docs/w.md": ("a\n<<" + "<<<<< HEAD\nb\n", "what a merge left"),
    "deploy/i.txt": ("cd /ro" + "ot/shipmate\n", "path of one machine"),
    "bot/j.py": ("raise NotImplemented" + "Error\n", "unfinished code"),
    "channels/w.py": ("a = (1,\n  2)  # fm" + "t: skip\n", "switch of the formatter"),
    "bot/features/w.py": ("from bot.contracts.messages import Outbound as A\n", "Outbound is for bot/"),
    "bot/core/y.py": ("async def f(a):\n    await a.committed()\n", "a wait for the log"),
    "tests/t.py": ("asyncio.timeout(20)\n", "a guard of 20 s"),
}
FINE = {
    "bot/features/k.py": '"""It says this and that."""\nraise ValueError("This and that fails.")\nlog.write("x", f"It said {a} again.")\n',
    "channels/slack/labels.py": 'BUTTON = {"type": "plain_text", "text": say("buttons.deny"), "title": ""}\nsend(text=words, label=f"{a}{b}")\n',
    "channels/telegram/labels.py": 'menu = [BotCommand("stop", say("help.stop"))]\n',
    "channels/web/page/f.html": '<title>Shipmate</title><p title="${new_title}">${new} ↓</p>\n',
    "channels/web/page/g.js": 'if (event.key !== "Enter") item.textContent = `${said.not_sent} 📎 ${name}`;\nitem.dateTime = "";\n',
    "bot/pages/f.html": '{% if a > "b" %}<p title="{{ say("new.title") }} UTC">→ {{ "{:,}".format(a) }}</p><code>ls it</code>{% endif %}\n',
    "bot/core/outbox.py": "a: Outbound\nasync def f(a):\n    await a.committed()\n",
    "channels/slack/z.py": "from bot.contracts.messages import Outbound\n",
    "docs/m.md": "See https://example.org/root/x and ./work/y and other lists.\n",
}


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize("name", BREACHES)
def test_each_breach_is_found(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = BREACHES[name]
    write(tmp_path, name, content)
    (finding,) = gates.examine(tmp_path)
    assert finding.startswith(f"{name}:")
    assert words in finding
    assert gates.main(tmp_path) == 1
    assert finding in capsys.readouterr().out


def test_what_keeps_the_rules_passes(tmp_path: Path) -> None:
    for name, content in FINE.items():
        write(tmp_path, name, content)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    assert list(gates.examine(tmp_path)) == []
    assert gates.main(tmp_path) == 0


def test_a_list_of_exceptions_excuses_so_many_and_shrinks(tmp_path: Path) -> None:
    listed = (
        '[labels]\n"bot/core/b.py" = 3\n[sentences]\n# Why.\n"bot/core/reply.py" = {}\n"bot/core/b.py" = 1\n'
    )
    write(tmp_path, gates.EXCEPTIONS, listed.format(2))
    write(tmp_path, "bot/core/reply.py", 'A = "I have done that."\n')
    assert {finding.split()[1] for finding in gates.examine(tmp_path)} == {
        "bot/core/b.py",
        "bot/core/reply.py",
    }
    assert gates.main(tmp_path, shrink=True) == 0
    left = (tmp_path / gates.EXCEPTIONS).read_text()
    assert left == '[labels]\n[sentences]\n# Why.\n"bot/core/reply.py" = 1\n'
    write(tmp_path, "bot/core/reply.py", 'A = "I have done that."\nB = "I have done this."\n')
    assert [finding.split(":")[:2] for finding in gates.examine(tmp_path)] == [["bot/core/reply.py", "2"]]
