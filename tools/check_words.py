"""Refuses new uses of words that the style guide replaces by the terms of the field.

A word counts wherever a person reads it: in prose, in a string, in one part of an identifier or of
a file's name. words_allowed.toml holds how often a file may still use each of them, most of all in
public names that cannot change. `--write` lowers the numbers to what is there; they never rise.

Text may move from file to file: a file above its numbers passes as long as the whole tree uses the
word no more often than is allowed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = ROOT / "tools" / "words_allowed.toml"

# Each with what is written instead. A word is a regular expression between two word borders; an
# underscore, a hyphen and a capital letter inside an identifier are borders too.
WORDS = {
    "room": ("rooms?", "component, space"),
    "house": ("houses?", "nothing, or the installation"),
    "desk": ("desks?", "what it does"),
    "door": ("doors?", "interface"),
    "nursery": ("nurser(?:y|ies)", "process pool"),
    "appetite": ("appetites?", "batch size"),
    "hands": (r"hands(?! (?:over|out|back)\b)", "connections"),
    "turn": (r"(?<!in )turns?(?! (?:\w+ ){0,3}(?:on|off|into|out)\b)", "slot, iteration"),
    "trail": ("(?<!audit )trails?", "history, dead letters"),
    "marks": (r"marks(?! (?:a|an|the|it|its|them|each|every|messages?|rows?)\b)", "markers"),
    "looks": (r"(?:looks|looked|looking)(?! up\b)", "cache, check, read"),
    "look": (r"look(?! up\b)", "check, read"),
    "company": ("company", "batching"),
    "say": ("say|says|said|saying", "report, return, state"),
    "tell": ("tell|tells|told|telling", "notify, report, return"),
    "hear": ("hear|hears|heard|hearing", "receive, detect"),
    "know": ("(?<!you )(?:know|knows|knew)", "store, read, detect"),
    "learn": ("learn|learns|learned|learnt", "read, detect"),
    "stand": (r"(?:stand|stands|stood)(?! (?:for|by)\b)", "be, status"),
    "bear": ("bear|bears|bore|borne", "carry, create"),
    "lives": ("lives|lived", "run, exist"),
    "anew": ("anew", "again"),
    "whoever": ("whoever", "the caller, the client"),
    "nobody": ("nobody|anybody", "no client, no process"),
    "bury": ("bury|buries|buried", "dead-letter"),
    "tally": ("tally|tallies", "count"),
    "restless": ("restless", "busy, to be visited"),
    "by itself": ("by itself|by themselves", "automatically"),
    "at once": ("at once", "immediately, together"),
    "_MOST": (r"(?-i:[A-Z]+ MOST)", "MAX_…"),
    "module": (r"(?:gathering|holding|settling|probing) py", "a noun of the domain"),
}
PATTERN = re.compile(
    "|".join(f"(?P<w{n}>\\b(?:{word})\\b)" for n, (word, _) in enumerate(WORDS.values())),
    re.IGNORECASE,
)
NAMES = list(WORDS)
BORDER = re.compile(r"[_\-\s.]+|(?<=[a-z])(?=[A-Z])")

PATHS = ("src", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
# Pages that tools.docs writes from the sources, and migrations, which are never edited.
SKIPPED = re.compile(r"docs/reference/|src/.*/sql/migrations/")
TEXT = {".py", ".sql", ".md", ".toml", ".css", ".js", ".html", ".service", ".yml"}

Counts = dict[str, dict[str, int]]


def found_in(text: str) -> list[str]:
    """The replaced words in one line of text, by the name they have in the table."""
    plain = BORDER.sub(" ", text)
    return [NAMES[int(hit.lastgroup[1:])] for hit in PATTERN.finditer(plain) if hit.lastgroup]


def _read() -> tuple[Counts, dict[tuple[str, str], list[int]]]:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", *PATHS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    counts: Counts = {}
    places: dict[tuple[str, str], list[int]] = {}
    for name in sorted(filter(None, tracked)):
        file = ROOT / name
        if not file.is_file() or file.suffix not in TEXT or SKIPPED.match(name):
            continue
        lines = [name, *file.read_text(encoding="utf-8").splitlines()]
        of_file: Counter[str] = Counter()
        for number, line in enumerate(lines):
            for word in found_in(line):
                of_file[word] += 1
                places.setdefault((name, word), []).append(number)
        if of_file:
            counts[name] = dict(sorted(of_file.items()))
    return counts, places


def _total(counts: Counts) -> Counter[str]:
    total: Counter[str] = Counter()
    for of_file in counts.values():
        total.update(of_file)
    return total


def _written(counts: Counts) -> str:
    lines = ["# Written by `python tools/check_words.py --write`: a number may only go down.\n"]
    for name, of_file in counts.items():
        pairs = ", ".join(f'"{word}" = {number}' for word, number in of_file.items())
        lines.append(f'"{name}" = {{ {pairs} }}\n')
    return "".join(lines)


def main(arguments: list[str]) -> int:
    allowed: Counts = tomllib.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}
    counts, places = _read()
    total, limit = _total(counts), _total(allowed)
    worse = {word for word in total if total[word] > limit[word]} if ALLOWED.exists() else set()
    for name, of_file in counts.items():
        for word in sorted(worse & of_file.keys()):
            before = allowed.get(name, {}).get(word, 0)
            if of_file[word] > before:
                lines = ", ".join(map(str, places[name, word]))
                print(f"{name}: {word!r} {before} → {of_file[word]} (lines {lines}):", end=" ")
                print(f"write {WORDS[word][1]}")
    if "--totals" in arguments:
        for word, number in total.most_common():
            print(f"{number:6} {word}")
    if "--write" in arguments and not worse:
        ALLOWED.write_text(_written(counts), encoding="utf-8")
    print(f"words: {total.total()} of {limit.total()} allowed, {len(worse)} complaints")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
