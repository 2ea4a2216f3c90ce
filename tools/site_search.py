"""What search reads: one script with the pages, their sections, and for each word where it occurs.

A page opened from the disk may load scripts but not fetch files, so the index is a script, which
nbs/assets/search-engine.js reads. `pages` are [address, title, kind, description], `sections` are [number of the page,
anchor, heading, sentences to show, number of words], `words` are all words, and `places` says for each of them in which
sections it occurs, and how often. `chinese` says what pages do, for those who ask in Chinese.
"""
import json
import math
import re
from collections import Counter, defaultdict
from pathlib import Path

from bs4 import BeautifulSoup, Comment, Tag
from site_trees import Code

NOT_SEARCHED = {"h1", "script", "style", "button", "nav", "math", "svg",
                "toc-short", "offer", "source-link", "code-fold", "read-more", "cases"}
LEFT_OUT = {"source", "check", "missing"}  # the reference has the words of the source, and checks show solutions
ENDS = {"p", "div", "li", "tr", "dd", "dt", "pre", "figure", "figcaption", "summary", "code-fold"}  # of a sentence, too
SYNONYMS, CHINESE = (Path(__file__).with_name(f"search_{name}.txt") for name in ("synonyms", "chinese"))
SHOWN = 444  # how much of a section's text is kept to be shown; of pages for contributors, which come last, nothing
WORD = re.compile(r"\b(?!__)[^\W\d]\w*|\d+[^\W\d]\w*")  # __init__ stands in all code
CONTRACTION = re.compile(r"(?<!\bca)n[’']t\b|(?<=[^\W\d_])[’'](?:t|s|re|ve|ll|d|m)\b", re.I)
DEFINED = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.M)
SENTENCE = re.compile(r"\n|(?<=[.!?…])(?<!e\.g\.)(?<!i\.e\.) +(?=[^\sa-z])")  # where one ends
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # the words in a name: in FeatureExtractor, hook_outputs, ReLU6
# words that say nothing about a page
STOP = frozenset("""a about also am an and any are as at be been but by can could did do does for from get
has have how if in into is isn it its just like me must my no not of off on or our per please should so such than
that the their them then there these they thing this those to up us using via was way we were what when where which
who whose why will with wo would you your""".split())
# words of a question that say little about what is asked for
WEAK = frozenset("""after before cannot cause causes class code create error errors every example exception find first
function get give go good happen help inside keep know let look made make need new one produce produces program python
pytorch run runtimeerror see set show simple still take tell traceback tutorial two use used userwarning want work
works wrong""""".split())
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


def page_sections(soup: BeautifulSoup, inside: bool = False) -> list[dict]:
    """The beginning of a page and each part with a heading: anchor, heading, all text, and the text that is no code.

    Of code that only contributors read, the names that it defines are enough: who looks for more has the repository."""
    found = [{"anchor": "", "heading": "", "text": [], "prose": []}]
    symbol = ""
    def visit(node, prose, in_code=False):
        nonlocal symbol
        for child in node.children:
            if isinstance(child, Comment): continue
            if not isinstance(child, Tag):
                said = child.plain if isinstance(child, Code) else str(child)
                found[-1]["text"].append(said if not in_code else " ".join(DEFINED.findall(said)))
                if prose: found[-1]["prose"].append(str(child))
            elif re.fullmatch("h[2-6]", child.name) and (anchor := child.get("id") or child.get("data-anchor-id")):
                found.append({"anchor": anchor, "heading": child.get_text(" ", strip=True), "text": [], "prose": []})
                symbol = found[-1]["heading"]
            elif child.name == "dt" and (members := child.select("a.member[href^='#']")):  # of the class above
                names = ", ".join(f"{symbol}.{member['href'].rpartition('.')[2]}" for member in members)
                found.append({"anchor": members[0]["href"][1:], "heading": names, "text": [], "prose": []})
                found[-1]["text"].append(child.get_text(" ", strip=True))
            elif child.name == "a" and leads_on(child): continue
            elif child.name not in NOT_SEARCHED and not NOT_SEARCHED.intersection(child.get("class", [])):
                is_code = in_code or inside and child.name == "pre"
                visit(child, prose and child.name not in ("pre", "details", "thead"), is_code)
                if child.name in ("td", "th"): found[-1]["prose"].append(" · ")
                elif child.name in ENDS: found[-1]["prose"].append("\0")
                elif "hl-row" not in node.get("class", []): continue  # a row of the table of layers
                found[-1]["text"].append(" ")
    visit(soup.main, True)
    for section in found:
        rows = (" ".join(line.split()) for line in "".join(section["prose"]).split("\0"))
        lines = (re.sub("( ·){2,}", " ·", row).strip(" ·") for row in rows)  # without the empty cells
        # a new line only where one does not see that a sentence ends
        prose = re.sub(r"(?<=[.!?…])\n(?=[^\sa-z])", " ", "\n".join(filter(None, lines)))
        section.update(text=" ".join("".join(section["text"]).split()), prose=prose)
    return [part for part in found if part["text"] or not part["anchor"]]  # a heading right above another says nothing


def leads_on(link: Tag) -> bool:
    "Is it the title of the page to read next? That page is found by itself, and this one is not about it."
    before = "".join(one if isinstance(one, str) else one.get_text() for one in reversed([*link.previous_siblings]))
    return bool(re.search(r"\b(Lesson|Next): *$", before))


def words(text: str) -> list[str]:
    "The words of a text as they are indexed: small letters, names also in parts."
    found = []
    for word in WORD.findall(CONTRACTION.sub("", text)):
        whole = word.strip("_").lower()
        parts = [part.lower() for part in PART.findall(word)]
        found += [w for w in [whole, *(parts if len(parts) > 1 else [])] if len(w) > 1 and w not in STOP]
    return found


def number(n: int) -> str:
    "A number as text, the lowest five bits first: a digit from 32 on says that another follows."
    return DIGITS[n] if n < 32 else DIGITS[32 + n % 32] + number(n//32)


def entries(soup: BeautifulSoup, name: str, site: str) -> dict | None:
    "What the index says of a page, or None if search leaves it out."
    if (kind := soup.body["data-kind"]) in LEFT_OUT: return None
    described = soup.main.select_one("#title-block-header .description")
    description = " ".join(described.get_text(" ", strip=True).split()) if described else ""
    if described: described = described.extract()  # it is a part of the page's name, and not of its text
    sections = page_sections(soup, kind == "inside")
    if described: soup.main.select_one(".quarto-title").insert_after(described)
    title = (soup.h1 or soup.title).get_text(" ", strip=True)
    if kind == "home" and site not in title: title = f"{title} – {site}"  # it is found by the name of the whole
    return {"name": name, "title": title, "kind": kind, "description": description, "sections": sections}


def shortened(text: str, limit: int, rarity: dict[str, float]) -> str:
    "The sentences of a text that say most beyond its first, in their order: those with rare words that no other has."
    if len(text) <= limit: return text
    sentences = [one for one in SENTENCE.split(text) if words(one)]
    new = [{*words(one)} for one in sentences]
    kept, left, known = {0}, limit - len(sentences[0]), {*new[0]}
    def gain(at): return sum(rarity.get(word, 0) for word in new[at] - known)/(20 + len(sentences[at]))
    while fits := [at for at, one in enumerate(sentences) if at not in kept and len(one) < left]:
        best = max(fits, key=gain)
        if not gain(best): break
        kept.add(best)
        known |= new[best]
        left -= len(sentences[best]) + 1
    return "\n".join(cut(sentences[at], limit) for at in sorted(kept))


def cut(text: str, limit: int) -> str:
    "The beginning of a text, up to a word's end."
    return text if len(text) <= limit else text[:text.rfind(" ", 0, limit)] + " …"


def chinese() -> dict[str, str]:
    "What a page does, in Chinese: {address: line}."
    lines = (line.split(" = ") for line in CHINESE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {f"{page}.html": line for page, line in lines}


def synonyms() -> list[list[list[str]]]:
    "What else things are called: [what may be typed, what these pages say]."
    text = re.sub(r"\n\s+", " ", re.sub(r"^#.*\n", "", SYNONYMS.read_text(encoding="utf-8"), flags=re.M))
    def phrases(side): return [" ".join(phrase.split()) for phrase in side.split("|")]
    return [[phrases(side) for side in line.split("=")] for line in text.splitlines()]


def encoded(occurrences: list[tuple[int, int]]) -> str:
    "Sections and frequencies as numbers, each section as the distance from the one before."
    before, found = -1, ""
    for section, often in occurrences:
        found += number(3*(section - before) + often)
        before = section
    return found


def write_index(docs: Path, pages: list[dict], public: frozenset[str]):
    "Writes the script that search loads when it is first used."
    places, sections = defaultdict(list), []
    found = [(at, section, Counter(words(section["text"])))
             for at, page in enumerate(pages) for section in page["sections"]]
    having = Counter(word for _, _, known in found for word in known)
    rarity = {word: math.log(len(found)/n) for word, n in having.items() if word not in WEAK}
    for at, section, known in found:
        for word, n in known.items(): places[word].append((len(sections), (n > 1) + (n > 3)))
        text = "" if pages[at]["kind"] == "inside" else shortened(section["prose"], SHOWN, rarity)
        sections.append([at, section["anchor"], section["heading"], text, known.total()])
    names = {page["name"] for page in pages}
    index = {"pages": [[page[key] for key in ("name", "title", "kind", "description")] for page in pages],
             "sections": sections, "words": " ".join(places), "places": " ".join(map(encoded, places.values())),
             "digits": DIGITS, "stop": " ".join(sorted(STOP)), "weak": " ".join(sorted(WEAK)),
             "names": " ".join(sorted(public)), "synonyms": synonyms(),
             "chinese": {page: line for page, line in chinese().items() if page in names}}
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (docs/"assets"/"search-index.js").write_text(f"window.siteIndex = {text};\n", encoding="utf-8")
