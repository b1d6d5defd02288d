"""Words that say little about what a text is about."""

from __future__ import annotations

import re

NOISE = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "him",
        "his",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "my",
        "nor",
        "of",
        "on",
        "or",
        "our",
        "she",
        "so",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "too",
        "us",
        "was",
        "we",
        "were",
        "with",
        "you",
        "your",
        "im",
        "ive",
        "id",
        "ill",
        "youre",
        "youve",
        "youll",
        "youd",
        "hes",
        "shes",
        "its",
        "theyre",
        "theyve",
        "weve",
        "wed",
        "dont",
        "doesnt",
        "didnt",
        "isnt",
        "arent",
        "wasnt",
        "werent",
        "cant",
        "couldnt",
        "wouldnt",
        "shouldnt",
        "havent",
        "hasnt",
        "hadnt",
        "wont",
        "thats",
        "theres",
        "lets",
    ]
)
"""Not indexed at all: they are in every other line."""

ASKING = frozenset(
    [
        "about",
        "again",
        "am",
        "any",
        "can",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "done",
        "ever",
        "exactly",
        "get",
        "give",
        "got",
        "how",
        "just",
        "kind",
        "know",
        "let",
        "many",
        "may",
        "mention",
        "might",
        "much",
        "must",
        "no",
        "not",
        "off",
        "once",
        "only",
        "out",
        "please",
        "recall",
        "remember",
        "remind",
        "said",
        "say",
        "should",
        "some",
        "such",
        "tell",
        "told",
        "up",
        "very",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "would",
    ]
)
"""Words of questions rather than of answers: in a question they count only where nothing else is left."""

_ASKING_CJK = (
    "什么时候 什麼時候 什么 什麼 怎么样 怎麼樣 怎么 怎麼 为什么 為什麼 什么样 什麼樣 如何 是否 有没有 有沒有 是不是 多少 多久 多长时间 多長時間 "
    "多长 多長 多大 多远 多遠 多高 几点 幾點 几个 幾個 几次 幾次 几号 幾號 哪里 哪裡 哪儿 哪兒 哪个 哪個 哪些 哪家 哪位 哪天 哪年 哪种 哪種 哪款 "
    "哪本 谁的 誰的 是谁 是誰 还记得 還記得 记得 記得 告诉我 告訴我 提醒我 请问 請問 帮我 幫我 列出 列一下 说说 說說 说一下 說一下 讲讲 講講 "
    "一下 来着 來著 到底 究竟 曾经 曾經 吗 嗎 呢 吧 的 了 "
    "いつですか どこですか 何ですか でしたか ましたか ますか ですか ました でした でしょうか だっけ っけ について 教えて 挙げて 思い出して "
    "覚えている 覚えてる ください どんな どうやって どうして どちら どれ どの どう どこ いつ いくつ いくら だれ 誰 なぜ なに 何時 何 "
    "무엇 언제 어디 누구 인가요 했나요 인가"
)
# Longer ones first: the first that fits is taken out.
ASKING_CJK = re.compile("|".join(map(re.escape, sorted(_ASKING_CJK.split(), key=len, reverse=True))))
"""Question words in Chinese, Japanese and Korean, where no space sets them apart."""

ASKING_PHRASES = re.compile(
    r"\b(?:so far|to date|until now|up to now|these days|at (?:the moment|present)|right now|as of now)\b"
    r"|^\W*(?:please\s+)?(?:list|name|describe|summari[sz]e|show|find)\b",
    re.IGNORECASE,
)
"""Phrases that frame a question in English and are no part of its subject."""

PARTICLES = frozenset(
    "的了是在我你您他她它们們咱有和就不也都很过過给給到对對把被让讓从從这這那个個一上下来來去要会會能可么麼什谁誰哪怎几幾多少为為"
    "与與及或但而还還又再之其此些样樣里裡后後吗嗎呢吧啊呀着著得地所以"
)
"""Characters that join words in Chinese: a pair with one of them is rarely a word."""
