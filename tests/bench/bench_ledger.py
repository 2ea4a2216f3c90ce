"""How often each kind of finding was right when it was blind: in programs that no rule had been written with in view.

    python -m tests.bench ledger             the figures, and records.json of the library, from the looks that are kept
    python -m tests.bench ledger --look      first makes again every look: in a checkout of its commit, about two hours
    python -m tests.bench ledger --look sixth_set

A look is what the tools said of a set of programs at its first look, of each program and each repaired twin, with the
code, the programs and the entries of `meaning.py` of that day (ledger_look.py). Looks are kept in results/looks.json.
A first look at a new set adds to them; what is said today of a set that was opened never does.

A finding is right if it names the cause, a symptom or the place; in a twin or in a healthy program it is wrong.
The words of today are tried without the set that is looked at (its records come from the others), and forward in time
(its records come from earlier looks). A program is misled if a finding with one of the words is wrong."""
import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hooklab.findings import levels
from hooklab.findings.levels import SURE, earned_word
from tests.bench.bars import RESULTS
from tests.bench.measure import share

ROOT = RESULTS.parents[2]
LOOKS = RESULTS/"looks.json"
RECORDS = ROOT/"hooklab"/"findings"/"records.json"
COMMITS = {  # of each look, in the order of time, and where its programs are from if the rules were committed without
    "kept_half": ("722e0c36", ""), "third_set": ("a9f0e3a9", ""), "fourth_set": ("6fdca7b7", ""),
    "healthy_programs": ("d1c03cbb", "36229019"), "fifth_set": ("d1c03cbb", "36229019"),
    "second_healthy_set": ("1f329cfb", ""), "sixth_set": ("1f329cfb", "")}
ON_ONE_DAY = [["kept_half"], ["third_set"], ["fourth_set"], ["healthy_programs", "fifth_set"],
              ["second_healthy_set", "sixth_set"]]
TOOLS = "preflight", "diagnose", "find_nan"
RIGHT = "cause", "symptom or place"
SHOWN = {"certain": SURE[:1], "certain or likely": SURE[:2], "beyond notes": SURE[:3]}


def look(which: str) -> list[dict]:
    "Make a first look again, in a checkout of its commit."
    commit, programs = COMMITS[which]
    def git(*args): subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True)
    try: git("cat-file", "-e", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        raise SystemExit("This clone lacks the commits of the looks: git fetch --unshallow brings them.") from None
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder)/"tree", Path(folder)/"rows.jsonl"
        git("worktree", "add", "--detach", str(tree), commit)
        try:
            if programs: git("-C", str(tree), "checkout", "-q", programs, "--", "tests/bench/programs")
            script = Path(__file__).with_name("ledger_look.py")
            subprocess.run([sys.executable, "-P", str(script), str(tree), which, str(out)], check=True)
            return [json.loads(line) for line in out.read_text().splitlines()]
        finally: git("worktree", "remove", "--force", str(tree))


def counted(looks: dict[str, list[dict]]) -> dict:
    "Records as the library has them: by tool, kind and level, how often right and how often wrong."
    found: dict = {}
    for row in (row for rows in looks.values() for row in rows):
        for tool, what, level, grade in row["findings"]:
            if tool not in TOOLS or level == "note": continue
            counts = found.setdefault(tool, {}).setdefault(what, {}).setdefault(level, [0, 0])
            counts[grade not in RIGHT] += 1
    return {tool: {what: found[tool][what] for what in sorted(found[tool])} for tool in TOOLS if tool in found}


def with_words(row: dict, word_of) -> list[tuple[str, str, str]]:
    "What is said of a program, each kind once: (what, the surest word that a tool has for it, what it is)."
    found: dict = {}
    for tool, what, level, grade in row["findings"]:
        if tool not in TOOLS: continue
        word, old = word_of(tool, what, level), found.get(what, ("note", "wrong"))
        grades = [g for g in ("cause", "symptom or place", "alarm", "wrong") if g in (grade, old[1])]
        found[what] = min(word, old[0], key=SURE.index), grades[0] if what in found else grade
    return [(what, word, grade) for what, (word, grade) in found.items()]


def judged(looks: dict[str, list[dict]], words_for) -> dict:
    "The figures of the words that `words_for` has for each set."
    rows = [(row, said, "healthy" in name) for name in looks for row, said in words_in(looks[name], words_for(name))]
    figures: dict = {}
    for title, words in SHOWN.items():
        def shown(said, words=words): return [(what, grade) for what, word, grade in said if word in words]
        faulty = [shown(said) for row, said, _ in rows if not row["twin"]]
        twins = [shown(said) for row, said, healthy in rows if row["twin"] and not healthy]
        unusual = [shown(said) for row, said, healthy in rows if healthy]
        figures[title] = {
            "cause": share([any(grade == "cause" for _, grade in said) for said in faulty]),
            "misled": share([any(grade == "wrong" for _, grade in said) for said in faulty]),
            "twins": share([bool(said) for said in twins]),
            "unusual healthy programs": share([bool(said) for said in unusual])}
    grades = {word: [grade for _, said, _ in rows for _, w, grade in said if w == word] for word in SURE[:3]}
    figures["words"] = {word: share([grade in RIGHT for grade in of]) for word, of in grades.items()}
    figures["findings"] = {word: len(of) for word, of in grades.items()}
    return figures


def words_in(rows: list[dict], word_of): return [(row, with_words(row, word_of)) for row in rows]
def by_rule(name: str): return lambda tool, what, level: level


def by_records(records: dict): return lambda tool, what, level: earned_word(tool, what, level, records)


def without(looks: dict, name: str) -> dict: return {other: looks[other] for other in looks if other != name}


def before(looks: dict, name: str) -> dict:
    day = next(i for i, names in enumerate(ON_ONE_DAY) if name in names)
    return {other: looks[other] for names in ON_ONE_DAY[:day] for other in names if other in looks}


def kinds(looks: dict, records: dict) -> list[dict]:
    "What each kind did when it was blind, and the word that its levels have earned."
    grades: Counter = Counter()
    for name, rows in looks.items():
        for row in rows:
            for tool, what, level, grade in row["findings"]:
                if tool in TOOLS:
                    where = "healthy" if "healthy" in name else "twins" if row["twin"] else grade
                    grades[tool, what, "note" if level == "note" else where] += 1
    found = []
    for tool in TOOLS:
        for what in sorted({what for of, what, _ in grades if of == tool}):
            n = {where: grades[tool, what, where] for where in (*RIGHT, "wrong", "twins", "healthy", "note")}
            words = {level: earned_word(tool, what, level, records) for level in SURE[:3]}
            found.append({"tool": tool, "kind": what, **n, **{f"{level} is": word for level, word in words.items()}})
    return found


def measure(*arguments: str) -> dict:
    parser = argparse.ArgumentParser(prog="python -m tests.bench ledger")
    parser.add_argument("--look", nargs="*", choices=[*COMMITS])
    asked = parser.parse_args(arguments).look
    looks = json.loads(LOOKS.read_text()) if LOOKS.exists() else {}
    for name in [] if asked is None else asked or COMMITS:
        looks[name] = look(name)
        write(looks)
    looks = {name: looks[name] for name in COMMITS if name in looks}
    records = counted(looks)
    RECORDS.write_text(json.dumps(records, indent=0, sort_keys=True) + "\n")
    levels.records.cache_clear()
    later = {name: looks[name] for name in looks if before(looks, name)}
    def of_all(tool, level): return [kind[level] for kind in records.get(tool, {}).values() if level in kind]
    pooled = {f"{tool}, {level}": [*map(sum, zip(*of_all(tool, level)))] for tool in TOOLS for level in SURE[:3]}
    figures: dict = {}
    for title, of in (("as the rules said", judged(looks, by_rule)),
                      ("without the set", judged(looks, lambda name: by_records(counted(without(looks, name))))),
                      ("forward in time", judged(later, lambda name: by_records(counted(before(looks, name)))))):
        for words in SHOWN: figures[f"{title}: {words}, percent"] = of[words]
        figures[f"{title}: right, percent"] = of["words"]
        figures[f"{title}: findings"] = [of["findings"]]
    faulty = [row["findings"] for rows in looks.values() for row in rows if not row["twin"]]
    figures["cause at any level, percent"] = {
        "all looks": share([any(grade == "cause" for *_, grade in said) for said in faulty])}
    figures["right and wrong by tool and level"] = [
        {"": name, "right": n[0], "wrong": n[1]} for name, n in pooled.items() if n]
    figures["kinds"] = kinds(looks, records)
    return figures


def write(looks: dict):
    def lines(rows): return ",\n".join(f"  {json.dumps(row)}" for row in rows)
    sets = (f' "{name}": [\n{lines(rows)}\n ]' for name, rows in looks.items())
    LOOKS.write_text("{\n" + ",\n".join(sets) + "\n}\n")
