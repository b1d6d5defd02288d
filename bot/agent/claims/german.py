"""German."""

from __future__ import annotations

from bot.agent.claims.language import Language, Saying, compiled

_ICH = r"(?:\b(?:ich hab(?:e|['’])?|hab(?:e|['’])? ich)\b|^\W*(?:(?:erledigt|ok|gut|alles klar|fertig|ja|gern)\b[\s!,.:–—-]*)*habe\b)(?:(?!\b(?:nichts?|nie|niemand\w*|kein\w*|ob|dass|was|wie)\b)[^;\n]){0,140}?\b"
_LEAD = r"^\W*(?:(?:erledigt|ok|okay|gut|alles klar|fertig|ja|gern|super)\b[\s!,.:–—-]*)*(?:(?:die|der|das|deine?|ihre?|eine?) )?(?:[\w-]+ ){0,2}?"
_DIE = r"\b(?:die|der|das|deine?|ihre?|eine?|alle) (?:[\w.-]+ ){1,5}?(?:wurden?|ist|sind) (?:(?:jetzt|nun|erfolgreich|für (?:dich|sie)|um|am|auf|im|in|unter|an) )*(?:[\w.:-]+ ){0,4}?"
_END = r"(?=\s*(?:$|[.!,✅✔🎉–—)-]|und\b))"
_FILE = r"(?:<name>|\b(?:datei(?:en)?|ordners?|verzeichniss?e?|datenbank|gedächtnis|notizen|repository|repo|tabelle|festplatte|backup)\b)"
_MAIL = r"(?:e-?mails?|mails?|sms|slack|telegram|whatsapp|teams|einladung(?:en)?|rundmail|postfach|direktnachricht)"
_SEND = r"(?:gesendet|geschickt|abgeschickt|verschickt|versendet|versandt|gepostet|weitergeleitet|übermittelt|veröffentlicht|eingereicht)"
_YOU = (
    rf"(?<!\b(?:dir|ihnen|euch)\b(?:(?!{_MAIL})[^;\n]){{0,100}})(?<!\b(?:oben|unten|hier)\b[^;\n]{{0,100}})"
)
_EVENT = (
    r"(?:erinnerung(?:en)?|termine?|wecker|timer|meetings?|besprechung(?:en)?|kalendereintrag|aufgabe|job)"
)

_SAYINGS = (
    Saying(
        "mailed",
        compiled(
            rf"{_ICH}(?:benachrichtigt|gemailt|angeschrieben|angeschrieben|informiert)\b(?<!\b(?:dich|sie|euch) (?:darüber )?informiert)"
        ),
    ),
    Saying("mailed", compiled(rf"{_ICH}{_MAIL}\b(?:(?!\bnicht\b)[^;\n]){{0,80}}?\b{_SEND}\b")),
    Saying(
        "mailed", compiled(rf"{_ICH}\ban (?!dich\b|sie\b|euch\b)(?:(?!\bnicht\b)[^;\n]){{1,60}}?\b{_SEND}\b")
    ),
    Saying("sent", compiled(rf"{_ICH}(?=\b{_SEND}{_END}){_YOU}{_SEND}")),
    Saying("sent", compiled(rf"{_LEAD}{_SEND}{_END}"), own=False),
    Saying("sent", compiled(rf"{_DIE}{_SEND}\b"), own=False),
    Saying("saved", compiled(rf"{_ICH}(?:gespeichert|abgespeichert|abgelegt|gesichert|hinterlegt)\b")),
    Saying(
        "saved",
        compiled(
            rf"{_ICH}{_FILE}(?:(?!\bnicht\b)[^;\n]){{0,80}}?\b(?:angelegt|erstellt|aktualisiert|geändert|bearbeitet|geschrieben|ergänzt|umbenannt|verschoben|kopiert|eingetragen|überschrieben|angepasst)\b"
        ),
    ),
    Saying("saved", compiled(rf"{_LEAD}(?:ab)?gespeichert{_END}"), own=False),
    Saying("saved", compiled(rf"{_DIE}(?:gespeichert|abgelegt|gesichert)\b"), own=False),
    Saying(
        "deleted",
        compiled(
            rf"{_ICH}gelöscht\b(?<!\b(?:absatz|satz|sätze|wort|wörter|zeilen?|abschnitt)\b[^;\n]{{0,40}})"
        ),
    ),
    Saying("deleted", compiled(rf"{_ICH}{_FILE}(?:(?!\bnicht\b)[^;\n]){{0,60}}?\b(?:entfernt|geleert)\b")),
    Saying("deleted", compiled(rf"{_LEAD}gelöscht{_END}"), own=False),
    Saying("deleted", compiled(rf"{_DIE}gelöscht\b"), own=False),
    Saying("ran", compiled(rf"{_ICH}(?:ausgeführt|laufen lassen|laufen gelassen|durchlaufen lassen)\b")),
    Saying(
        "scheduled",
        compiled(
            rf"{_ICH}{_EVENT}\b(?:(?!\bnicht\b)[^;\n]){{0,80}}?\b(?:eingerichtet|gestellt|eingetragen|angelegt|erstellt|geplant|gesetzt|vereinbart|verschoben|abgesagt|gelöscht|eingestellt)\b"
        ),
    ),
    Saying(
        "scheduled",
        compiled(
            rf"{_LEAD}{_EVENT} (?:[\w.:-]+ ){{0,5}}?(?:eingerichtet|gestellt|eingetragen|angelegt|erstellt|geplant|gesetzt){_END}"
        ),
        own=False,
    ),
    Saying(
        "scheduled",
        compiled(
            rf"{_DIE}(?<={_EVENT}\b[^;\n]{{0,60}})(?:eingerichtet|gestellt|eingetragen|angelegt|gesetzt)\b"
        ),
        own=False,
    ),
    Saying(
        "acted",
        compiled(
            rf"{_ICH}(?:installiert|gebucht|bestellt|bezahlt|überwiesen|deployt|ausgerollt|neu gestartet|neugestartet|committet|gepusht|hochgeladen|reserviert|storniert)\b"
        ),
    ),
    Saying(
        "acted",
        compiled(rf"{_DIE}(?:installiert|gebucht|bestellt|bezahlt|überwiesen|hochgeladen)\b"),
        own=False,
    ),
)

GERMAN = Language(
    name="de",
    deed=compiled(
        rf"{_SEND}|benachrichtigt|gemailt|angeschrieben|informiert|gespeichert|gelegt|gesichert|hinterlegt|erstellt|"
        r"aktualisiert|geändert|bearbeitet|schrieben|ergänzt|umbenannt|verschoben|kopiert|getragen|angepasst|gelöscht|"
        r"entfernt|geleert|ausgeführt|lassen|gerichtet|gestellt|geplant|gesetzt|vereinbart|abgesagt|installiert|gebucht|"
        r"bestellt|bezahlt|überwiesen|deployt|gerollt|gestartet|committet|gepusht|geladen|reserviert|storniert"
    ),
    sayings=_SAYINGS,
    before=compiled(
        r"\b(?:gestern|vorgestern|neulich|damals|letzte\w*|früher|wenn|falls|sobald|nachdem|bevor|bis|ob|würde\w*|könnte\w*|sollte\w*|möchte\w*|werde|wird|werden|kann|laut|sagt\w*|schreibt|schrieb|meint\w*|"
        r"angeblich|zum beispiel|z\. ?b\.|stell dir vor|angenommen|hätte|wäre|dass|damit|weil du)\b"
    ),
    around=compiled(
        r"\b(?:nichts?|nie|niemand\w*|kein\w*|ohne|gestern|vorgestern|vorhin|letzte\w*|früher|damals|neulich|heute (?:morgen|früh)|im (?:vorigen|letzten)|zuvor|20\d\d|entwurf)\b|\bvon (?:(?-i:[A-ZÄÖÜ])|ihm\b|ihr\b|jemand)|\bvor (?:\w+ )?(?:minuten?|stunden?|tag(?:en)?|wochen?|monat(?:en)?|jahr(?:en)?)\b"
    ),
    earlier=compiled(r"\b(?:bereits|schon|wie (?:gesagt|erwähnt))\b"),
    admits=compiled(
        r"\b(?:fehler\w*|fehlgeschlagen|gescheitert|scheiterte|konnte\w* nicht|leider|nicht möglich|exit-?code|abgebrochen|verweigert)\b"
    ),
    draft=compiled(
        r"\b(?:entwurf|e-?mail|mail|nachricht|brief|text|version|übersetzung|beispiel|antwort|betreff|vorlage|formulierung|vorschlag|schreibt|sagt|lautet|steht|ausgabe|protokoll|zusammenfassung)\b[^.!?\n]{0,60}:\s*$"
    ),
    composing=compiled(
        r"\b(?:entw[iu]rf\w*|übersetz\w*|formulier\w*|umschreib\w*|korrigier\w*|schreib\w* (?:mir )?(?:eine?n?|den|die|das) (?:\w+ ){0,3}?(?:e-?mail|mail|nachricht|brief|text|antwort|satz|geschichte|gedicht)|verfass\w*|fass\w* .{0,60}zusammen|wie sagt man|geschichte|gedicht)\b"
    ),
    requests=compiled(r"\b(?:kannst du|können sie|könntest du|könnten sie|würdest du|bitte|magst du)\b"),
    reviewing=compiled(r"\b(?:hast du|haben sie|wurden?|ist|sind)\b[^.\n]*\?|\bwas hast du\b"),
    orders={
        "sent": compiled(r"\b(?:send\w*|schick\w*|verschick\w*|poste\w*|leite\w*|abschicken|weiterleiten)\b"),
        "mailed": compiled(
            r"\b(?:send\w*|schick\w*|verschick\w*|maile?\w*|benachrichtig\w*|leite\w*|informier\w*|sag \w+)\b"
        ),
        "saved": compiled(
            r"\b(?:speicher\w*|sicher\w*|merk\w*|leg\w*|erstell\w*|aktualisier\w*|änder\w*|trag\w*|ergänz\w*|umbenenn\w*|benenn\w*)\b"
        ),
        "deleted": compiled(r"\b(?:lösch\w*|entfern\w*|leer\w*)\b"),
        "ran": compiled(r"\b(?:führ\w*|ausführen|start\w*|laufen|teste\w*)\b"),
        "scheduled": compiled(
            r"\b(?:erinner\w*|plan\w*|stell\w*|trag\w*|richte\w*|vereinbar\w*|einrichten|eintragen)\b"
        ),
        "acted": compiled(
            r"\b(?:installier\w*|buch\w*|bestell\w*|bezahl\w*|überweis\w*|deploy\w*|lade\w*|hochladen|stornier\w*|reservier\w*)\b"
        ),
    },
    done={
        "sent": compiled(_SEND),
        "mailed": compiled(_SEND),
        "saved": compiled(r"gespeichert|geändert|angelegt|erstellt"),
        "deleted": compiled(r"gelöscht|entfernt|weg\b"),
        "ran": compiled(r"ausgeführt|laufen lassen"),
        "scheduled": compiled(r"eingetragen|geplant|gestellt|abgesagt"),
        "acted": compiled(r"installiert|gebucht|bestellt|bezahlt|überwiesen|hochgeladen|storniert"),
    },
    note="(Bitte prüfen: „{claim}“ – nichts, was ich für diese Nachricht getan habe, hat das getan.)",
)
