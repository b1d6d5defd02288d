"""English words reduced to what their forms share: Porter's rules from `snowballstemmer`, and forms that no rule gives."""

from __future__ import annotations

import functools
import threading

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
_STEMMERS = threading.local()
"""One a thread: a stemmer keeps the word that it works on."""


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a lower-case word of the letters a to z. Cached: a stemmer takes some 100 µs for a word."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 3:
        return word
    if not hasattr(_STEMMERS, "porter"):
        # The package imports its stemmers of all languages, which a start does without.
        from snowballstemmer.porter_stemmer import PorterStemmer

        _STEMMERS.porter = PorterStemmer()
    return str(_STEMMERS.porter.stemWord(word))
