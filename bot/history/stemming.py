"""English words reduced to what their forms share: Porter's rules, and the forms that no rule gives."""

from __future__ import annotations

import re

# Forms that people use when they ask about what somebody said in another form.
_IRREGULAR = {
    form: words.split()[0]
    for words in (
        "be been being",
        "become became",
        "begin began begun",
        "bite bit bitten",
        "break broke broken",
        "bring brought",
        "build built",
        "buy bought",
        "catch caught",
        "choose chose chosen",
        "come came",
        "draw drew drawn",
        "drink drank drunk",
        "drive drove driven",
        "eat ate eaten",
        "fall fell fallen",
        "feel felt",
        "fight fought",
        "find found",
        "fly flew flown",
        "forget forgot forgotten",
        "freeze froze frozen",
        "get got gotten",
        "give gave given",
        "go went gone goes",
        "grow grew grown",
        "hear heard",
        "hide hid hidden",
        "hold held",
        "keep kept",
        "know knew known",
        "lead led",
        "learn learnt",
        "leave left",
        "lend lent",
        "lose lost",
        "make made",
        "mean meant",
        "meet met",
        "pay paid",
        "ride rode ridden",
        "ring rang rung",
        "rise rose risen",
        "run ran",
        "say said",
        "see saw seen",
        "sell sold",
        "send sent",
        "shoot shot",
        "sing sang sung",
        "sit sat",
        "sleep slept",
        "speak spoke spoken",
        "spend spent",
        "stand stood",
        "steal stole stolen",
        "swim swam swum",
        "take took taken",
        "teach taught",
        "tell told",
        "think thought",
        "throw threw thrown",
        "understand understood",
        "wake woke woken",
        "wear wore worn",
        "win won",
        "write wrote written",
        "child children",
        "foot feet",
        "man men",
        "mouse mice",
        "person people",
        "tooth teeth",
        "wife wives",
        "woman women",
        "life lives",
        "knife knives",
        "leaf leaves",
        "good better best",
        "bad worse worst",
    )
    for form in words.split()[1:]
}
_HAS_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_RUNS = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)+(?:[^aeiouy]|y(?<![^aeiou]y))")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_CVC = re.compile(r"(?:^|[^aeiou])[^aeiou][aeiouy][^aeiouwxy]$")
_STEP_2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
)
_STEP_3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_STEP_4 = (
    "ement",
    "ance",
    "ence",
    "able",
    "ible",
    "ment",
    "ant",
    "ent",
    "ion",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "al",
    "er",
    "ic",
    "ou",
)


def stem(word: str) -> str:
    """The stem of a lower-case word of the letters a to z."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 3:
        return word
    word = _ends(_participles(_plural(word)))
    word = _replaced(_replaced(word, _STEP_2), _STEP_3)
    return _tidied(_bare(word))


def _measure(stem_: str) -> int:
    """How often vowels are followed by consonants: Porter's m."""
    return len(_RUNS.findall(stem_))


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _participles(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and _HAS_VOWEL.search(rest):
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _DOUBLE.search(rest):
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _CVC.search(rest) else rest
    return word


def _ends(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.search(word[:-1]) else word


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for ending, other in rules:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + other if _measure(rest) else word
    return word


def _bare(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            fits = _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t")))
            return rest if fits else word
    return word


def _tidied(word: str) -> str:
    rest = word[:-1]
    if word.endswith("e") and (_measure(rest) > 1 or (_measure(rest) == 1 and not _CVC.search(rest))):
        return rest
    return rest if word.endswith("ll") and _measure(rest) > 1 else word
