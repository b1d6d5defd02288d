"""Messages that ask to stop the running turn, in many languages."""

from __future__ import annotations

import re
import unicodedata

# A message that consists only of such a word asks to stop. Ambiguous words are left out.
_WORDS = frozenset(
    """
    stop | stopp | halt | stop it | stop that | please stop | stop please | bitte stopp | hör auf
    停 | 停止 | 停下 | 停下来 | 停下來 | 停一下 | 请停止 | 請停止 | 请停下 | 別說了 | 别说了
    ストップ | 止めて | とめて | やめて | 止まって | 停止して | 止めてください | やめてください
    중지 | 정지 | 멈춰 | 그만 | 그만해 | arrête | arrete | arrêtez | arrêter | para | detente | detén | pare | fermati
    стоп | остановись | остановитесь | стій | stój | dur | dừng | dừng lại | หยุด | रुको | रुकिए
    توقف | قف | עצור | תעצור | 🛑
    """.replace("\n", "|").split("|")
)
_STOP_WORDS = frozenset(unicodedata.normalize("NFKC", word.strip()).casefold() for word in _WORDS) - {""}
_LONGEST_STOP = 200
_MENTION = re.compile(r"(?:<@[^<>\s]{1,80}>|@\w{1,80})[\s:,，：]*")
_AROUND = " \t\r\n\u200b\u200e\u200f\ufe0f\ufeff.!?,;…。！？、，¡¿؟"


def asks_to_stop(words: str) -> bool:
    """Return True for a message that asks to stop, with or without a mention, in any case and punctuation."""
    if len(words) > _LONGEST_STOP:
        return False
    said = unicodedata.normalize("NFKC", words.strip(_AROUND))
    said = _MENTION.sub("", said, count=1) if _MENTION.match(said) else said
    return " ".join(said.strip(_AROUND).casefold().split()) in _STOP_WORDS
