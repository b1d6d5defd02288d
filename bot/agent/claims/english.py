"""English."""

from __future__ import annotations

from bot.agent.claims.language import Language, Saying, compiled

_ADVERBS = r"(?:(?:just|now|also|already|successfully|then|finally|gone ahead and|went ahead and|quickly) )*"
_I = rf"\bI(?:['’]ve| have|['’]m done and(?: have)?)? {_ADVERBS}"
_AND = r"(?:(?:(?!\b(?:that|which|who|whether|where|how|what|if)\b)[^;\n]){1,90}?(?:,| and|, and) (?:then |also )?)?"
_LEAD = (
    r"^\W*(?:(?:done|ok|okay|all set|all done|great|sure|perfect|got it|yes|alright|success)\b[\s!,.:–—-]*)*"
)
_BARE = r"(?=\s*(?:$|[.!,✅✔🎉–—-]|to\b|it\b|that\b|this\b|them\b|the\b|your\b|as\b|for\b|into\b|successfully\b|and\b))(?!\s*by\b)"
_THE = r"\b(?:your|the|this|that|an?) (?:[\w-]+ ){1,4}?(?:has|have) been (?:successfully |now |all )?"
_FILE = r"(?:<name>|\b(?:files?|folders?|director(?:y|ies)|repo(?:sitory)?|databases?|disk|memory|my notes|notes file|spreadsheet|workspace|backups?|table rows?|records?)\b)"
_MAIL = r"(?:e-?mails?|mail|sms|text message|dm|direct message|inbox|slack|telegram|whatsapp|teams|discord|newsletter|invitations?|invites?|webhook)"
_TELL = r"(?:e-?mailed|texted|notified|messaged|DM['’]?ed|pinged|alerted|faxed)"
_SEND = r"(?:sent|posted|forwarded|mailed|delivered|submitted|published)"
_SAVE = r"(?:saved|stored|persisted|backed up)"
_EDIT = r"(?:created|updated|edited|changed|modified|written|wrote|added|appended|renamed|moved|copied|overwritten|overwrote|recorded|logged|put|fixed)"
_DELETE = r"(?:deleted|erased|wiped|purged|trashed)"
_REMOVE = r"(?:removed|cleared|cleaned up|dropped|emptied)"
_TEXT = r"(?!(?:[^;\n]{0,40}\b)?(?:paragraphs?|sentences?|words?|lines?|sections?|commas?|duplicates?|bullets?|phrases?|typos?|repetitions?|clauses?|steps?)\b)"
_RUN = r"(?:ran|run|executed|re-?ran|launched|kicked off)"
_RUNS = r"(?:[^;\n]{0,40}?)(?:<command>|<name>|\b(?:commands?|scripts?|tests?|test suite|suite|builds?|migrations?|quer(?:y|ies)|code|program|linter|benchmarks?|pipeline|jobs?|playbook|backup)\b)"
_EVENT = r"(?:reminders?|alarms?|timers?|meetings?|appointments?|calls?|events?|jobs?|notifications?|cron jobs?|invites?|recurring tasks?|daily (?:report|summary|digest)|weekly (?:report|summary|digest))"
_ACT = r"(?:installed|deployed|restarted|rebooted|booked|purchased|ordered|paid|transferred|refunded|merged|committed|pushed|uploaded|downloaded|subscribed|unsubscribed|reserved|cancell?ed|rolled back|upgraded|provisioned)"
_ACTS = r" (?:it|this|that|them|the|your|an?|both|all|\d+|two|three|everything|changes|<command>|<name>)\b(?![^;\n]*\b(?:lists?|paragraphs?|sentences?|text|recipes?|points|ideas|numbers|results|columns?|items|words|questions|answers|sections?|bullets?)\b)"
_YOU = rf"(?! (?:you|it to you|this to you|that to you|them to you|above|below)\b(?![^;\n]*\b{_MAIL}\b))(?![^;\n]*\b(?:above|below|in this chat|in this thread)\b)"

_SAYINGS = (
    Saying("mailed", compiled(rf"{_I}{_AND}{_TELL}\b (?!by\b)")),
    Saying("mailed", compiled(rf"{_I}{_AND}let (?:(?!you\b)\w+ ){{1,4}}know\b")),
    Saying("mailed", compiled(rf"{_I}{_AND}{_SEND}\b(?= [^;\n]*\b{_MAIL}\b)(?!\W+through\b)")),
    Saying(
        "mailed",
        compiled(
            rf"{_I}{_AND}{_SEND}\b(?= [^;\n]*?\bto (?:the|your|our|all|every|everyone|#|@|(?-i:[A-Z]))(?! ?chat\b))(?![^;\n]*\bto the (?:same|end|point|chat|conversation)\b)"
        ),
    ),
    Saying(
        "sent",
        compiled(
            rf"{_I}{_AND}{_SEND}{_YOU}(?= (?:(?:it|this|that|them|the|your|out|off|all|both|everything)\b|an? (?:\w+ )?(?:message|note|reply|request|response|link|files?|reports?|form|document|invoice|notification|copy)\b)|\W*$)"
        ),
    ),
    Saying(
        "sent", compiled(rf"{_LEAD}{_SEND}{_BARE}(?! (?:you\b|it to you|the (?:above|below)))"), own=False
    ),
    Saying(
        "mailed",
        compiled(
            rf"{_LEAD}(?:e-?mail|message|invite|invitation|reply|notification)s? (?:successfully )?sent\b(?!\s*(?:by|from)\b)"
        ),
        own=False,
    ),
    Saying(
        "sent",
        compiled(rf"{_THE}(?:sent|posted|forwarded|mailed|delivered|submitted)\b(?!\s*by\b)"),
        own=False,
    ),
    Saying(
        "saved",
        compiled(
            rf"{_I}{_AND}{_SAVE} (?!you\b|a lot\b|(?:a lot of |some |much |the |me |us |\w+ )?(?:time|money|space|the day|work|effort|trouble)\b|\$|€|£|\d+ ?%)"
        ),
    ),
    Saying("saved", compiled(rf"{_I}{_AND}{_EDIT}\b(?= [^;\n]*?{_FILE})")),
    Saying("saved", compiled(rf"{_LEAD}{_SAVE}{_BARE}"), own=False),
    Saying("saved", compiled(rf"{_LEAD}{_EDIT} (?:to |in |the |your |an? )*{_FILE}"), own=False),
    Saying("saved", compiled(rf"{_THE}{_SAVE}\b(?!\s*by\b)"), own=False),
    Saying(
        "saved",
        compiled(
            rf"(?:<name>|\b(?:the|your) (?:[\w-]+ )?(?:file|folder|directory)) (?:has|have) been (?:successfully |now )?{_EDIT}\b(?!\s*by\b)"
        ),
        own=False,
    ),
    Saying("deleted", compiled(rf"{_I}{_AND}{_DELETE}\b {_TEXT}")),
    Saying("deleted", compiled(rf"{_I}{_AND}{_REMOVE}\b(?= [^;\n]*?{_FILE}){_TEXT}")),
    Saying("deleted", compiled(rf"{_LEAD}{_DELETE}{_BARE}"), own=False),
    Saying(
        "deleted",
        compiled(
            rf"(?:<name>|{_THE[: -len('(?:has|have) been (?:successfully |now |all )?')]}|\b(?:it|they|everything) )\s*(?:has|have) been (?:successfully |now )?{_DELETE}\b(?!\s*by\b)"
        ),
        own=False,
    ),
    Saying("ran", compiled(rf"{_I}{_AND}{_RUN}\b(?= {_RUNS})")),
    Saying("ran", compiled(rf"{_LEAD}(?:ran|executed) (?:it|that|this|them|the|your|all)\b"), own=False),
    Saying(
        "scheduled",
        compiled(rf"{_I}{_AND}scheduled\b (?![^;\n]*\b(?:study|plan|itinerary|timetable|as follows)\b)"),
    ),
    Saying(
        "scheduled",
        compiled(
            rf"{_I}{_AND}(?:set(?: up)?|created|added|put|booked|configured|arranged)\b(?= (?:[\w'’:-]+ ){{0,5}}?(?:{_EVENT}|[\w ]*(?:to|on|in) your calendar)\b)"
        ),
    ),
    Saying(
        "scheduled",
        compiled(rf"{_I}{_AND}(?:cancell?ed|paused|rescheduled)\b(?= (?:[\w'’-]+ ){{0,4}}?{_EVENT}\b)"),
    ),
    Saying("scheduled", compiled(rf"{_LEAD}(?:scheduled|rescheduled){_BARE}"), own=False),
    Saying(
        "scheduled",
        compiled(
            rf"{_LEAD}(?:reminder|alarm|timer|meeting|appointment)s? (?:is |are |has been |have been )?(?:now |all )?(?:set|scheduled|booked|created)\b"
        ),
        own=False,
    ),
    Saying(
        "scheduled",
        compiled(
            rf"\b(?:your|the|a) (?:[\w-]+ ){{0,3}}?{_EVENT} (?:is|are|has been|have been) (?:now |all |successfully )?(?:set(?: up)?|scheduled|booked|created|added)\b"
        ),
        own=False,
    ),
    Saying("acted", compiled(rf"{_I}{_AND}{_ACT}{_ACTS}")),
    Saying(
        "acted",
        compiled(rf"{_LEAD}(?:installed|deployed|booked|ordered|paid|merged|pushed|uploaded){_BARE}"),
        own=False,
    ),
    Saying(
        "acted",
        compiled(rf"{_THE}(?:installed|deployed|booked|placed|paid|merged|refunded)\b(?!\s*by\b)"),
        own=False,
    ),
)

ENGLISH = Language(
    name="en",
    deed=compiled(
        rf"\b(?:{_TELL}|know|{_SEND}|{_SAVE}|{_EDIT}|{_DELETE}|{_REMOVE}|{_RUN}|{_ACT}|"
        r"scheduled|rescheduled|paused|set|configured|arranged|placed)\b"
    ),
    sayings=_SAYINGS,
    before=compiled(
        r"\b(?:yesterday|last (?:week|month|year|night|time)|earlier|previously|back then|if|when|whenever|once|after|before|until|unless|whether|would|could|should|might|may|must|can|cannot|will|won['’]t|shall|"
        r"going to|in case|imagine|suppose|pretend|assuming|for example|e\.g\.|such as|said|says|say|(?<!\bI )wrote|writes|told|claims?|according|"
        r"thinks?|thought|assumed?|believed?|seems?|as though|wish|hope|want|like it if|as soon as|by the time|never|without|how|why)\b"
        r"|['’](?:ll|d)\b|n['’]t\b|\bnot\b"
    ),
    around=compiled(
        r"\b(?:not|never|yesterday|ago|earlier|previously|last (?:week|month|year|night|time|\w+day)|back (?:in|then)|the other day|this morning|"
        r"in (?:19|20)\d\d|at the time|in (?:our|a|the) (?:last|previous|earlier) (?:chat|conversation|turn|message)|before (?:that|then|your)|draft|dry[ -]run)\b|n['’]t\b"
    ),
    earlier=compiled(r"\b(?:already|as (?:I )?(?:mentioned|said)|before|at that point|still)\b"),
    admits=compiled(
        r"\b(?:fail(?:ed|s|ing|ures?)?|errors?|couldn['’]t|could not|can(?:no|['’])t|unable|didn['’]t|did not|wasn['’]t|unfortunately|exit(?:ed)? (?:code|status|with)|timed out|denied|refused|problem)\b"
    ),
    draft=compiled(
        r"\b(?:draft|e-?mail|message|letter|text|version|translation|translated|example|reply|subject|script|poem|story|wording|template|snippet|"
        r"quote|says|said|reads|wrote|dialogue|log|transcript|output|suggest\w*|something like|could say|could write|content|summary|minutes|changelog)\b[^.!?\n]{0,60}:\s*$"
    ),
    composing=compiled(
        r"\b(?:draft|compose|translate|translation|rewrite|re-?phrase|paraphrase|proofread|correct (?:my|this|the)|grammar|story|poem|role-?play|pretend|"
        r"write (?:me )?(?:an?|the|my|some) (?:\w+ ){0,3}?(?:e-?mail|message|letter|reply|text|note|post|dialogue|sentence|status|update|script|blog|essay|article|apology|answer)|summari[sz]e|example sentence|how (?:do|would|can) (?:I|you) say)\b"
    ),
    requests=compiled(
        r"\b(?:(?:can|could|would|will) you|please|pls|would you mind|I need you to|I want you to)\b"
    ),
    reviewing=compiled(
        r"\b(?:did|have|had|were|was|are|is) (?:you|it|that|they|the|my)\b[^.\n]*\?|\bwhat (?:did|have) you\b"
    ),
    orders={
        "sent": compiled(r"\b(?:send|post|forward|submit|publish|deliver|mail)\b"),
        "mailed": compiled(
            r"\b(?:send|e-?mail (?!to\b)|mail|forward|notify|tell|let \w+ know|text|message (?!to\b)|ping|post|invite)\b"
        ),
        "saved": compiled(
            r"\b(?:save|store|keep|remember|record|update|edit|append|put|add|create|write (?:it|this|that|them)|rename|move|copy)\b"
        ),
        "deleted": compiled(r"\b(?:get rid of|forget|delete|remove|erase|wipe|clear|clean up|drop)\b"),
        "ran": compiled(r"\b(?:run|execute|launch|start|test)\b"),
        "scheduled": compiled(r"\b(?:schedule|remind|set|reminder|book|cancel|add)\b"),
        "acted": compiled(
            r"\b(?:install|deploy|restart|book|buy|order|pay|transfer|merge|commit|push|upload|download|cancel|reserve)\b"
        ),
    },
    done={
        "sent": compiled(r"\b(?:sent|posted|forwarded|submitted|published|delivered)\b"),
        "mailed": compiled(r"\b(?:sent|e-?mailed|mailed|notified|texted|told)\b"),
        "saved": compiled(r"\b(?:saved|stored|updated|created|changed|wrote|written|added|renamed|moved)\b"),
        "deleted": compiled(r"\b(?:deleted|removed|erased|wiped|cleared|gone)\b"),
        "ran": compiled(r"\b(?:ran|executed)\b|\bI(?:['’]ve| have) run\b"),
        "scheduled": compiled(r"\b(?:scheduled|booked|cancell?ed|set up)\b"),
        "acted": compiled(
            r"\b(?:installed|deployed|restarted|booked|bought|ordered|paid|transferred|merged|committed|pushed|uploaded|cancell?ed)\b"
        ),
    },
    note="(Please check: “{claim}” – nothing that I did for this message has done that.)",
)
