"""Scores how well the form of a line fits the query: who is speaking ("what did I say" versus "what did you
recommend"), first person, and numbers.
"""

from __future__ import annotations

import re

from bot.features.search.ranking import Weights

LONGEST = 4_000
"""Max characters examined of a line and of a query."""
_YOU = re.compile(
    r"\byou(?:'ve|'d)?\s(?:\w+\s){0,2}?(?:recommend|suggest|t[eo]ll?d?\b|sa(?:y|id)\b|advis|propos|mention|expla|g[ia]ve|"
    r"wr[io]te|answer|show|promis|offer)"
    r"|\byour\s(?:\w+\s)?(?:recommend|suggest|advice|answer|reply|propos|expla|idea|tip)"
    r"|[你您](?:[给給帮幫对對跟]我|[^我，,。?？]){0,6}?(?:推荐|推薦|建议|建議|说|說|告诉|告訴|回答|提到|提过|讲|講|解释|解釋|列)"
    r"|(?:あなた|きみ|君)[^私、。?？]{0,8}(?:言|勧|すす|提案|教え|答え)|(?:勧め|すすめ|提案し|教え)て(?:くれ|もら)",
    re.IGNORECASE,
)
_ME = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|[我咱俺私僕]|自分|うち", re.IGNORECASE)


def speaker_meant(query: str) -> str | None:
    """Return whose words a query asks about, `user` or `assistant`; None if the query does not say. Never raises."""
    text = query[:LONGEST].replace("\u2019", "'")
    if _YOU.search(text):
        return "assistant"
    return "user" if _ME.search(text) else None


_LONG = 160  # min characters of a long line, which is never counted as being about one person
# In English the subject may be omitted: "Finally bought a boat", "Back from Rome".
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|me|my|mine|we|us|our)\b|[我咱俺私僕]|うち"
    r"|^(?:(?:just|finally|only|again|well|so|and|then)[\s,]{1,3}){0,3}(?!\w*thing\b|morning|evening)(?:[a-z]{2,20}(?:ed|ing)|made|went|got|had|saw|bought|"
    r"took|came|ate|ran|met|gave|found|spent|won|lost|left|began|wrote|drove|flew|back|done)\b",
    re.IGNORECASE,
)
# "My sister works in a mill" is not about the speaker; "I work for my sister" is.
_PERSON = (
    "mother|mum|mom|father|dad|parents?|grand(?:ma|pa|mother|father|parents|son|daughter)|sister|brother|son|daughter|kid|child|"
    "children|wife|husband|partner|aunt|uncle|cousin|niece|nephew|friend|neighbou?r|colleague|co-?worker|boss|flatmate|roommate"
)
_PERSON_EAST = "妈妈|媽媽|爸爸|妈|媽|爸|爷爷|爺爺|奶奶|外公|外婆|姐|妹|哥|弟|叔|姑|舅|姨|儿子|兒子|女儿|女兒|老婆|老公|妻子|丈夫|同事|邻居|鄰居|朋友|老板|老闆|孩子"
_SOMEBODY = re.compile(
    rf"\b(?:my|our|his|her|their|the|an?|some)\s(?:\w+\s)?(?:{_PERSON})s?\b|\b(?:some|every|no)(?:one|body)\b|\bpeople\b"
    rf"|{_PERSON_EAST}|有人|大家|隔壁"
    r"|(?:[母父兄弟姉妹娘妻夫]|息子|叔父|叔母|祖父|祖母|同僚|友人|友達|上司|子ども|みんな|隣の人)[はがのも]|という人",
    re.IGNORECASE,
)
_MYSELF = re.compile(rf"\b(?:i|i'm|i've|we|we've|us)\b|^[我私](?!の|{_PERSON_EAST})", re.IGNORECASE)
_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千]")
_ASKS_NUMBER = re.compile(
    r"\bhow (?:much|many|long|fast|old|heavy|warm|far|often|big|tall)\b|\b(?:what time|when|which day|number|price|costs?|"
    r"code|version|port|deadline|date|address|amount|size)\b"
    r"|多少|多久|多长|多長|几点|幾點|几个|幾個|几号|幾號|号码|號碼|什么时间|什么时候|什麼時候|哪天|哪年|日期|代码|代碼|版本|端口|价格|價格"
    r"|いくら|いくつ|何(?:[時分日月年人個回歳円番度本枚]|曜日)|番号|いつ|日付",
    re.IGNORECASE,
)


class AnswerScorer:
    """Scores lines for one query by their form; the score is added to the score for shared words. Has no
    side effects and never raises.
    """

    def __init__(self, query: str, said_by: str | None, weights: Weights) -> None:
        """Create a scorer. `said_by` is the role whose words the query asks about; None if the query names a person."""
        self._others = _SOMEBODY.search(query[:LONGEST]) is not None
        self._number = _ASKS_NUMBER.search(query[:LONGEST]) is not None
        self._said_by = said_by
        self._weights = weights

    def score(self, text: str, role: str) -> float:
        """Return the score of a line, as a share of the best line's score."""
        text = text[:LONGEST].strip()
        weights = self._weights
        worth = weights.speaker if role == self._said_by else 0.0
        if _FIRST_PERSON.search(text) and (self._others or not _of_others(text)):
            worth += weights.first_person
        if self._number and _NUMBER.search(text):
            worth += weights.number
        return worth


def _of_others(text: str) -> bool:
    """Return True if a line is about somebody other than its author. A long line is about many things, so it
    never counts.
    """
    return len(text) < _LONG and _SOMEBODY.search(text) is not None and _MYSELF.search(text) is None
