// Finds pages: window.searchEngine(index) gives a function from what was typed to the pages that answer it, best first.
// The index is what tools/site_search.py writes. Nothing here touches the page.
(() => {
  const WORD = /[\p{L}_][\p{L}\p{N}_]*|\p{N}+[\p{L}_][\p{L}\p{N}_]*/gu;
  const PART = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g;   // the words in a name
  const IRREGULAR = {
    frozen: "freeze", froze: "freeze", explosion: "explode", died: "die", dying: "die", ran: "run", lost: "lose",
    made: "make", went: "go", shown: "show", drawn: "draw", chosen: "choose", chose: "choose", written: "write", wrote: "write",
    taken: "take", found: "find", kept: "keep", left: "leave", gave: "give", given: "give", began: "begin", begun: "begin",
    hid: "hide", hidden: "hide", fallen: "fall", fell: "fall", broken: "break", broke: "break",
    forgot: "forget", forgotten: "forget", matrices: "matrix", indices: "index", analyses: "analysis", children: "child",
  };
  const ENDINGS = ["ization", "ation", "ating", "ated", "ator", "ate", "ively", "ion", "ing", "ive", "ed", "ly"];
  // What a page of a kind is worth when it answers as well as another: readers want to be taught or helped first.
  const KINDS = { lesson: 1, howto: 1, home: .95, reference: .92, explain: .88, list: .7, other: .75, gallery: .5, inside: .45 };
  const LONG = { "appendix-": .88, glossary: .85, references: .75, changelog: .7 };   // they have a word about everything
  const WEAK = .35;       // of what a question may be made of whatever it asks
  const MEMBER = .5;      // a class has members of many names
  const EXERCISE = .8;    // of the sections of a lesson, one that explains is shown before one that asks
  const FIELDS = { title: .62, description: .3, heading: .45, text: .6 };   // how far a word in one of them answers
  const MOST_WAYS = 16;   // to put one question

  const remember = (f) => {
    const known = new Map();
    return (key) => known.get(key) || (known.set(key, f(key)), known.get(key));
  };
  const grouped = (items, keyOf) => {   // {key: items}
    const found = new Map();
    for (const item of items) {
      const key = keyOf(item);
      found.has(key) ? found.get(key).push(item) : found.set(key, [item]);
    }
    return found;
  };

  // An English word without its ending, the same for all forms of it.
  const stem = remember((word) => {
    let w = IRREGULAR[word] || word;
    if (w.length < 4 || /[_\d]/.test(w)) return w;
    w = w.replace(/is(e|ed|es|ing|ation|ations|er|ers)$/, "iz$1").replace(/([a-z]{2})our/, "$1or");   // British, American
    w = w.replace(/(ss|sh|ch|x)es$/, "$1").replace(/ies$/, "y").replace(/([^su])s$/, "$1");
    const ending = ENDINGS.find((e) => w.endsWith(e) && w.length - e.length >= (e === "ing" || e === "ed" ? 3 : 4));
    if (ending) w = w.slice(0, -ending.length);
    w = w.replace(/([tc])or$/, "$1");                                                   // extractor, extract
    w = w.replace(/(bb|dd|gg|mm|nn|pp|rr|tt)(er|or)?$/, (double) => double[0]);         // clipping, clipper, clip
    return w.length > 3 ? w.replace(/[ey]$/, "") : w;
  });

  // How many letters have to be changed, left out, put in or swapped. More than `most` is not counted.
  const distance = (a, b, most) => {
    if (Math.abs(a.length - b.length) > most) return most + 1;
    let older, before = [], row = Array.from({ length: b.length + 1 }, (_, i) => i);
    for (let i = 1; i <= a.length; i++) {
      [older, before, row] = [before, row, [i]];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], older[j - 2] + 1);
      }
      if (Math.min(...row) > most) return most + 1;
    }
    return row[b.length];
  };

  const tokens = (text) => text.match(WORD) || [];
  const bare = (word) => word.replace(/^_+|_+$/g, "").toLowerCase();
  const parts = (word) => { const found = word.match(PART) || []; return found.length > 1 ? found.map(bare) : []; };

  window.searchEngine = (index) => {
    const { pages, sections } = index, list = index.words.split(" "), packed = index.places.split(" ");
    const digit = Object.fromEntries([...index.digits].map((c, i) => [c, i]));
    const stop = new Set(index.stop.split(" ")), symbols = new Set(index.names.split(" "));
    const weak = new Set(index.weak.split(" "));
    const at = new Map(list.map((word, i) => [word, i]));   // where the text of a word's places is
    const byStem = grouped(list, stem);
    const pageOf = sections.map((section) => section[0]);
    const mean = sections.reduce((sum, section) => sum + section[4], 0)/sections.length;   // words in a section

    const namesIn = (texts) => {   // {word: numbers of the texts that have it}
      const found = new Map();
      texts.forEach((text, i) => {
        for (const word of new Set(tokens(text).flatMap((w) => [bare(w), ...parts(w)]))) {
          found.has(word) ? found.get(word).push(i) : found.set(word, [i]);
        }
      });
      return found;
    };
    const titles = namesIn(pages.map((page) => page[1]));
    const headings = namesIn(sections.map((section) => section[2]));
    const descriptions = namesIn(pages.map(([href, , , text]) => `${text} ${href.match(/([^/]*)\.html/)[1]}`));
    for (const field of [titles, descriptions, headings]) for (const word of field.keys()) if (!at.has(word)) {
      at.set(word, -1);   // such as "not": it stands in a title, and in no list of places
      byStem.has(stem(word)) ? byStem.get(stem(word)).push(word) : byStem.set(stem(word), [word]);
    }
    const all = [...at.keys()];
    const titleWords = pages.map((page) => new Set(tokens(page[1].toLowerCase()).map(stem)));
    const member = sections.map(([, , heading]) => /^\w+\.\w+(, \w+\.\w+)*$/.test(heading));   // of a class
    const headed = [...sections.keys()].filter((i) => member[i] || symbols.has(sections[i][2]));
    const symbolAt = grouped(headed, (i) => tokens(sections[i][2]).map(bare).join("_"));   // where a name is explained
    const long = (href) => Object.entries(LONG).find(([name]) => href.includes(name))?.[1] || 1;
    const worthOf = pages.map(([href, , kind]) => (KINDS[kind] || KINDS.other)*long(href));

    const places = (word) => {   // [section, how often] of each section with the word
      const found = [], text = packed[at.get(word)] || "";
      for (let i = 0, section = -1; i < text.length;) {
        let value = 0, shift = 1, d;
        do { d = digit[text[i++]]; value += d % 32*shift; shift *= 32; } while (d >= 32);
        section += Math.floor(value/3);
        found.push([section, [1, 2.5, 5][value % 3]]);
      }
      return found;
    };

    const synonyms = index.synonyms.flatMap(([from, to]) => from.map((t) => ({ stems: tokens(t).map(stem), to })));
    const typed = new Set([...all, ...index.synonyms.flatMap(([from]) => from.flatMap(tokens))]);
    const typedStems = new Set([...typed].map(stem));

    // The known words that a typed word may stand for, each with how sure that is.
    const forms = remember((word) => {
      const found = new Map(), add = (w, sure) => { if ((found.get(w) || 0) < sure) found.set(w, sure); };
      if (at.has(word)) add(word, 1);
      for (const w of byStem.get(stem(word)) || []) add(w, .88);
      const known = found.size > 0, s = stem(word);
      if (word.length > 2) for (const w of all) {
        if (w.startsWith(word) || (s.length > 3 && w.startsWith(s))) {
          add(w, (known ? .3 : .8)*(.4 + .6*word.length/Math.max(w.length, word.length)));
        } else if (word.length > 3 && w.includes(word)) add(w, known ? .2 : .5);
      }
      return found;
    });
    const nearest = (word) => {   // the known word that differs by the fewest typing errors, and how many
      let least = word.length < 4 ? 0 : word.length < 8 ? 1 : 2, found = [];
      if (least) for (const w of typed) {
        if (w.length < 3) continue;
        const d = distance(word, w, least);
        if (d < least) [least, found] = [d, [w]];
        else if (d === least) found.push(w);
      }
      const good = (w) => (w[0] === word[0])*1e6 + places(w).length;   // the first letter is rarely wrong
      return [found.reduce((best, w) => best === undefined || good(w) > good(best) ? w : best, undefined), least];
    };

    // What was typed, as known words: a name in parts, two words written as one, a typing error mended.
    const understood = (text) => {
      const spoken = [], changed = [];
      for (const word of tokens(text)) {
        const w = bare(word), pieces = parts(word);
        if (!w) continue;
        if (typed.has(w) || typedStems.has(stem(w))) { spoken.push(w); continue; }
        if (pieces.length) { spoken.push(...pieces); continue; }
        if (all.some((known) => known.startsWith(w))) { spoken.push(w); continue; }   // not yet typed to its end
        const [near, errors] = nearest(w), slip = near && errors < 2;   // "gradeint" is one, though it has "grade" and "int" in it
        const cut = slip ? 0 : [...w].findIndex((_, i) => i > 2 && w.length - i > 2 && at.has(w.slice(0, i)) && at.has(w.slice(i)));
        if (cut > 0) { spoken.push(w.slice(0, cut), w.slice(cut)); continue; }
        if (near) changed.push([w, near]);
        spoken.push(near || w);
      }
      const telling = spoken.filter((w) => !stop.has(w));
      return { words: telling.length ? telling : spoken, spoken, changed };
    };

    // What a word finds: how much it says for each page and section. The rarer it is, the more.
    const matches = remember((word) => {
      const page = new Map(), section = new Map(), some = new Set();
      const raise = (map, i, field, value) => {
        if (!map.has(i)) map.set(i, { title: 0, description: 0, heading: 0, text: 0 });
        const m = map.get(i);
        if (m[field] < value) m[field] = value;
      };
      for (const [form, sure] of forms(word)) {
        for (const i of titles.get(form) || []) { raise(page, i, "title", sure); some.add(i); }
        for (const i of descriptions.get(form) || []) { raise(page, i, "description", sure); some.add(i); }
        for (const i of headings.get(form) || []) {
          raise(section, i, "heading", member[i] ? MEMBER*sure : sure);
          raise(page, pageOf[i], "heading", member[i] ? MEMBER*sure : sure);
        }
        const often = new Map();
        for (const [i, times] of places(form)) {
          const longer = .5 + .5*sections[i][4]/mean;   // in a long text a word says less
          raise(section, i, "text", sure*times/(times + 1.2*longer));
          often.set(pageOf[i], (often.get(pageOf[i]) || 0) + times/longer);
          if (sure > .5) some.add(pageOf[i]);
        }
        for (const [p, times] of often) raise(page, p, "text", sure*times/(times + 3));
      }
      const rare = (n) => Math.log(1 + (pages.length - n + .5)/(n + .5));
      const rarity = (some.size || page.size ? rare(some.size) : .8*rare(0))*(weak.has(word) ? WEAK : 1);
      const strength = (m) => 1 - Object.keys(FIELDS).reduce((rest, field) => rest*(1 - FIELDS[field]*m[field]), 1);
      const weighed = (map) => [...map].map(([i, m]) => [i, rarity*strength(m)]);
      return { rarity, page: weighed(page), section: weighed(section) };
    });

    // How well each page answers some words, and with which of its sections.
    const answers = (words) => {
      const found = words.map(matches), whole = found.reduce((sum, f) => sum + f.rarity, 0);
      const values = new Float64Array(pages.length), parts = new Float64Array(sections.length), best = pages.map(() => -1);
      for (const f of found) {
        for (const [p, strength] of f.page) values[p] += strength/whole;
        for (const [i, strength] of f.section) parts[i] += strength/whole*(/^exercise/.test(sections[i][1]) ? EXERCISE : 1);
      }
      parts.forEach((value, i) => { if (value > (parts[best[pageOf[i]]] || 0)) best[pageOf[i]] = i; });
      const both = (p) => (.65*values[p] + .35*(parts[best[p]] || 0))*worthOf[p];
      return best.map((section, p) => values[p] && { value: both(p), section });
    };

    // Every way to put the question: as it was typed, with synonyms for some words, with two words as one name.
    const ways = ({ words, spoken }) => {
      const found = [{ words, spoken, worth: 1 }], stems = spoken.map(stem), seen = new Set([words.join(" ")]);
      const add = (spoken, worth) => {
        const words = [...new Set(spoken.filter((w) => !stop.has(w)))], key = words.join(" ");
        if (!words.length || seen.has(key)) return;
        seen.add(key);
        const rarest = Math.max(...words.map((w) => matches(w).rarity));   // common words say less than a rare one
        found.push({ words, spoken, worth: worth*(.75 + .25*Math.min(1, rarest/2)) });
      };
      const endOf = (phrase, i) => {   // where a phrase ends that begins at the word i; there may be stop words in it
        for (const part of phrase) {
          while (part !== stems[i] && i && stop.has(spoken[i])) i++;
          if (part !== stems[i++]) return 0;
        }
        return i;
      };
      const replace = (i, before, replaced) => {   // from the word i on, longer phrases first
        if (found.length > MOST_WAYS) return;
        if (i >= spoken.length) { if (replaced) add(before, .96 - .08*(1 - replaced/spoken.length)); return; }
        const here = synonyms.map((s) => ({ ...s, end: endOf(s.stems, i) })).filter((s) => s.end);
        for (const { to, end } of here.sort((a, b) => b.stems.length - a.stems.length)) {
          for (const text of to) replace(end, [...before, ...text.split(" ")], replaced + end - i);
        }
        replace(i + 1, [...before, spoken[i]], replaced);
      };
      replace(0, [], 0);
      for (let i = 0; i + 1 < spoken.length; i++) for (const joint of ["", "_"]) {
        const name = spoken[i] + joint + spoken[i + 1];
        if (at.has(name)) add([...spoken.slice(0, i), name, ...spoken.slice(i + 2)], .97);
      }
      return found;
    };

    return (text) => {
      const question = understood(text), said = new Set(), result = new Map();   // said: the words to mark
      if (!question.words.length) return { hits: [], changed: [], said };
      for (const { words, spoken, worth } of ways(question)) {
        const asked = new Set(spoken.map(stem));
        answers(words).forEach((answer, p) => {
          if (!answer) return;
          let both = 0;   // how nearly the title is what was asked, with the words that stand in every title
          for (const word of titleWords[p]) both += asked.has(word);
          const value = worth*(answer.value + .3*(both*both/(titleWords[p].size*asked.size))**2*worthOf[p]);
          if (value > (result.get(p)?.value || 0)) result.set(p, { p, value, section: answer.section });
        });
        for (const word of words) for (const [form, sure] of forms(word)) if (sure > .45) said.add(form);
      }
      const best = Math.max(...[...result.values()].map((hit) => hit.value));
      const close = [...result.values()].filter((hit) => hit.value > .3*best);
      for (const i of symbolAt.get(question.words.join("_")) || []) {   // a name of the library, as it is
        const hit = result.get(pageOf[i]);
        if (hit && !hit.symbol) Object.assign(hit, { value: hit.value + .6*worthOf[hit.p], section: i, symbol: true });
      }
      const hits = close.sort((a, b) => b.value - a.value).map(({ p, section }) => {
        const [page, title, kind, description] = pages[p], [, anchor, heading, text] = sections[section] || [p, "", "", ""];
        const href = page + (anchor && `#${anchor}`);
        return { page, href, title, kind, heading, text: (heading && text) || description || text };
      });
      return { hits, changed: question.changed, said };
    };
  };
})();
