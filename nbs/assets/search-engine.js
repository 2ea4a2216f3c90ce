// Finds pages: window.searchEngine(index) gives a function from what was typed to the pages that answer it, best first.
// The index is what tools/site_search.py writes. Nothing here touches the page.
(() => {
  const WORD = /[\p{L}_][\p{L}\p{N}_]*|\p{N}+[\p{L}_][\p{L}\p{N}_]*/gu;
  const CONTRACTION = /(?<!\bca)n[’']t\b|(?<=\p{L})[’'](?:t|s|re|ve|ll|d|m)\b/giu;
  const PART = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g;   // the words in a name
  const HAN = /\p{Script=Han}+/gu;                 // Chinese, which is written without spaces
  const SENTENCE = /\n| (?=… )|(?<=[.!?…][”’)]?) +(?=[^\s\p{Ll}])/u;   // where one ends in the text of a section
  const OPENING = /^\s*(how (do|can|should) (i|we|you)|how to|i want to)\s+(?=\S+\s+\S+\s+\S)/i;   // says that it is a question, not which
  const INVERTED = /^(\s*why \w+?)(?:n[’']t| not|not)\s+((?:(?:my|the|a)\s+)?\S+)\s+(?=\S)/i;   // "why isn't my hook called"
  const SIGNATURE = /^(class|def) \w+\(/;          // says less than the sentence below it
  const IRREGULAR = {
    frozen: "freeze", froze: "freeze", explosion: "explode", died: "die", dying: "die", ran: "run", lost: "lose",
    made: "make", came: "come", went: "go", shown: "show", drawn: "draw", chosen: "choose", chose: "choose", written: "write", wrote: "write",
    taken: "take", found: "find", kept: "keep", left: "leave", gave: "give", given: "give", began: "begin", begun: "begin",
    hid: "hide", hidden: "hide", fallen: "fall", fell: "fall", broken: "break", broke: "break",
    forgot: "forget", forgotten: "forget", matrices: "matrix", indices: "index", analyses: "analysis", children: "child",
  };
  const OWN = new Set(["checkpointing"]);   // words that mean something else than the same word without its ending
  const ENDINGS = ["ization", "ation", "ating", "ated", "ator", "ate", "ively", "ion", "ing", "ive", "ed", "ly"];
  // What a page of a kind is worth when it answers as well as another: readers want to be taught or helped first.
  const KINDS = { lesson: 1, howto: 1, home: .95, reference: .92, explain: .88, list: .7, other: .75, gallery: .5, inside: .45 };
  const LONG = { glossary: .85, references: .75, changelog: .7 };   // they have a word about everything
  const WEAK = .35;       // of what a question may be made of whatever it asks
  const MEMBER = .5;      // a class has members of many names
  const EXERCISE = .8;    // of the sections of a lesson, one that explains is shown before one that asks
  const ONWARD = /^(next|where-to-|what-you-can-do-now|your-turn)/, LEADS = .6;   // sections that lead to other pages
  const SHOWN = 15;       // hits of which it is worked out what to show
  const FIELDS = { title: .62, description: .3, heading: .45, text: .6 };   // how far a word in one of them answers
  const MOST_WAYS = 16;   // to put one question
  const SURE = .45;       // from here on, a word is shown as a reason
  const SAYING = .7;      // what common words are worth if together they say something else
  const COMMON = .18;     // of the pages have it: a word that is no reason by itself if nobody typed it

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
    if (w.length < 4 || /[_\d]/.test(w) || OWN.has(w)) return w;
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

  const uncontracted = (text) => text.replace(CONTRACTION, (end) => end.endsWith("t") ? " not" : "");
  const tokens = (text) => uncontracted(text).match(WORD) || [];
  const wordsOf = (text) => tokens(text.replace(HAN, " $& "));   // "loss不下降" is two words
  const isHan = (word) => /^\p{Script=Han}/u.test(word);
  const bare = (word) => word.replace(/^_+|_+$/g, "").toLowerCase();
  const parts = (word) => { const found = word.match(PART) || []; return found.length > 1 ? found.map(bare) : []; };
  const read = remember((word) => [bare(word), ...parts(word)]);   // all that a word of a text is known by
  const letters = remember((word) => [...word].reduce((set, c) => set | 1 << c.charCodeAt(0) % 32, 0));
  const bits = (set) => { let n = 0; for (; set; set &= set - 1) n++; return n; };

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
        for (const word of new Set(tokens(text).flatMap(read))) {
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
    const stemsOf = remember((text) => new Set(tokens(text.toLowerCase()).map(stem)));
    const titleWords = pages.map((page) => stemsOf(page[1]));
    const member = sections.map(([, , heading]) => /^\w+\.\w+(, \w+\.\w+)*$/.test(heading));   // of a class
    const worthOfSection = sections.map(([, anchor]) => /^exercise/.test(anchor) ? EXERCISE : ONWARD.test(anchor) ? LEADS : 1);
    const headed = [...sections.keys()].filter((i) => member[i] || symbols.has(sections[i][2]));
    const symbolAt = grouped(headed, (i) => tokens(sections[i][2]).map(bare).join("_"));   // where a name is explained
    const long = (href) => Object.entries(LONG).find(([name]) => href.includes(name))?.[1] || 1;
    const worthOf = pages.map(([href, , kind]) => (KINDS[kind] || KINDS.other)*long(href));

    const eachPlace = (word, visit) => {   // visit(section, how often) for each section with the word, in their order
      const text = packed[at.get(word)] || "";
      for (let i = 0, section = -1; i < text.length;) {
        let value = 0, shift = 1, d;
        do { d = digit[text[i++]]; value += d % 32*shift; shift *= 32; } while (d >= 32);
        section += Math.floor(value/3);
        visit(section, value % 3 === 0 ? 1 : value % 3 === 1 ? 2.5 : 5);
      }
    };

    const synonyms = index.synonyms.flatMap(([from, to]) => from.map((text) => ({ stems: wordsOf(text).map(stem), text, to })));
    const typed = new Set([...all, ...index.synonyms.flatMap(([from]) => from.flatMap(wordsOf))]);
    const chinese = new Set([...typed].filter(isHan)), longest = Math.max(0, ...[...chinese].map((word) => word.length));
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
        if (w.length < 3 || bits(letters(w) ^ letters(word)) > 2*least) continue;   // a quick look before the exact one
        const d = distance(word, w, least);
        if (d < least) [least, found] = [d, [w]];
        else if (d === least) found.push(w);
      }
      const good = (w) => (w[0] === word[0])*1e6 + (packed[at.get(w)] || "").length;   // the first letter is rarely wrong
      return [found.reduce((best, w) => best === undefined || good(w) > good(best) ? w : best, undefined), least];
    };

    // The known words in Chinese text: as few letters as possible are left out, and then as few words as possible taken.
    const segmented = (text) => {
      const best = [{ cost: 0, words: [] }];   // of the last letters: how good, and which words
      for (let n = 1; n <= text.length; n++) {
        const from = text.length - n;
        best[n] = { cost: best[n - 1].cost + 100, words: best[n - 1].words };
        for (let size = 1; size <= Math.min(n, longest); size++) {
          const word = text.slice(from, from + size), rest = best[n - size];
          if (chinese.has(word) && rest.cost < best[n].cost) best[n] = { cost: rest.cost + 1, words: [word, ...rest.words] };
        }
      }
      return best[text.length].words;
    };

    // What was typed, as known words: a name in parts, two words written as one, a typing error mended.
    const understood = (text) => {
      const spoken = [], changed = [], names = new Map();   // names: {as it was typed: its parts}
      for (const word of wordsOf(text)) {
        if (isHan(word)) { spoken.push(...segmented(word)); continue; }
        const w = bare(word), pieces = parts(word);
        if (!w) continue;
        if (pieces.length && !w.includes("_")) names.set(w, pieces);
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
      return { words: telling.length ? telling : spoken, spoken, changed, names };
    };

    // What a word finds: how much it says for each page and section. The rarer it is, the more.
    const matches = remember((word) => {
      const kinds = Object.keys(FIELDS), [TITLE, DESCRIPTION, HEADING, TEXT] = kinds.keys();
      const page = kinds.map(() => new Float32Array(pages.length)), section = kinds.map(() => new Float32Array(sections.length));
      const some = new Set();   // the pages that have it, or another form of it
      const raise = (values, i, value) => { if (values[i] < value) values[i] = value; };
      for (const [form, sure] of forms(word)) {
        const have = (p) => { if (sure > SURE) some.add(p); };
        for (const i of titles.get(form) || []) { raise(page[TITLE], i, sure); have(i); }
        for (const i of descriptions.get(form) || []) { raise(page[DESCRIPTION], i, sure); have(i); }
        for (const i of headings.get(form) || []) {
          raise(section[HEADING], i, member[i] ? MEMBER*sure : sure);
          raise(page[HEADING], pageOf[i], member[i] ? MEMBER*sure : sure);
          have(pageOf[i]);
        }
        let here = -1, often = 0;   // on the page of the last section
        const turn = () => { if (here >= 0) { raise(page[TEXT], here, sure*often/(often + 3)); have(here); } };
        eachPlace(form, (i, times) => {
          const longer = .5 + .5*sections[i][4]/mean;   // in a long text a word says less
          raise(section[TEXT], i, sure*times/(times + 1.2*longer));
          if (pageOf[i] !== here) { turn(); [here, often] = [pageOf[i], 0]; }
          often += times/longer;
        });
        turn();
      }
      const rare = (n) => Math.log(1 + (pages.length - n + .5)/(n + .5));
      const rarity = (forms(word).size ? rare(some.size) : .8*rare(0))*(weak.has(word) ? WEAK : 1);
      const worth = Object.values(FIELDS);
      const weighed = (fields) => fields[TEXT].map((_, i) => rarity*(1 - fields.reduce((rest, f, k) => rest*(1 - worth[k]*f[i]), 1)));
      const named = (p) => page[TITLE][p] > SURE || page[DESCRIPTION][p] > SURE;
      const common = weak.has(word) || some.size > COMMON*pages.length;
      return { rarity, page: weighed(page), section: weighed(section), has: (p) => some.has(p), named, common };
    });

    // How well each page answers some words, and with which of its sections.
    const sectionsFrom = grouped([...sections.keys()], (i) => pageOf[i]);
    const meeting = (words) => {   // how much of them a page or a section has
      const found = words.map(matches), whole = found.reduce((sum, f) => sum + f.rarity, 0);
      const part = (of) => (i) => { let value = 0; for (const f of found) value += f[of][i]; return value/whole; };
      const section = part("section");
      return { page: part("page"), section: (i) => section(i)*worthOfSection[i] };
    };
    const answers = (words) => {
      const { page, section } = meeting(words);
      const best = new Int32Array(pages.length).fill(-1), most = new Float64Array(pages.length);
      for (let i = 0; i < sections.length; i++) {
        const value = section(i), p = pageOf[i];
        if (value > most[p]) [most[p], best[p]] = [value, i];
      }
      return pages.map((_, p) => {
        const value = page(p);
        return value && { value: (.65*value + .35*most[p])*worthOf[p], section: best[p] };
      });
    };

    // Every way to put the question: as it was typed, with synonyms for some words, with two words as one name.
    const ways = ({ words, spoken, names }) => {
      let stems = spoken.map(stem);
      const seen = new Set([words.join(" ")]);
      const saying = synonyms.some((s) => s.stems.length > 1 && s.stems.join() === stems.join());   // "not training"
      const plain = saying && words.every((w) => matches(w).common) ? SAYING : 1;
      const found = spoken.some(isHan) ? [] : [{ words, spoken, worth: plain, pairs: [] }];
      const add = (spoken, worth, pairs) => {   // pairs: [what was typed, what was read for it]
        const words = [...new Set(spoken.filter((w) => !stop.has(w)))], key = words.join(" ");
        if (!words.length || seen.has(key)) return;
        seen.add(key);
        const rarest = Math.max(...words.map((w) => matches(w).rarity));   // common words say less than a rare one
        found.push({ words, spoken, worth: worth*(.75 + .25*Math.min(1, rarest/2)), pairs });
      };
      const endOf = (phrase, i) => {   // where a phrase ends that begins at the word i; there may be stop words in it
        for (const part of phrase) {
          while (part !== stems[i] && i && stop.has(spoken[i])) i++;
          if (part !== stems[i++]) return 0;
        }
        return i;
      };
      const short = (s) => s.stems.length === 1 && s.text.length < 5;   // "shap" is not "shapes"
      let worth = .96, known = [];   // known: what synonymsAt has found
      const synonymsAt = (i) => known[i] ||= synonyms.filter((s) => !short(s) || s.text === spoken[i])
        .map((s) => ({ ...s, end: endOf(s.stems, i) })).filter((s) => s.end).sort((a, b) => b.stems.length - a.stems.length);
      const replace = (i, before, replaced, pairs) => {   // from the word i on, longer phrases first
        if (found.length > MOST_WAYS) return;
        if (i >= spoken.length) { if (replaced) add(before, worth - .08*(1 - replaced/spoken.length), pairs); return; }
        for (const { to, end, text } of synonymsAt(i)) {
          for (const said of to) replace(end, [...before, ...said.split(" ")], replaced + end - i, [...pairs, [text, said]]);
        }
        if (!isHan(spoken[i])) replace(i + 1, [...before, spoken[i]], replaced, pairs);   // no page has a Chinese word
      };
      replace(0, [], 0, []);
      const apart = spoken.flatMap((w) => names.get(w) || [w]);   // CrossEntropyLoss is also cross, entropy, loss
      if (apart.length > spoken.length) {
        [spoken, stems, worth, known] = [apart, apart.map(stem), .85, []];
        add(apart, .9, []);
        replace(0, [], 0, []);
      }
      for (let i = 0; i + 1 < spoken.length; i++) for (const joint of ["", "_"]) {
        const name = spoken[i] + joint + spoken[i + 1];
        if (at.has(name)) add([...spoken.slice(0, i), name, ...spoken.slice(i + 2)], .97, []);
      }
      return found;
    };

    // Why a page is shown: the words of the question that it has, and the synonyms by which it was found. Null if all that it
    // has is common words of a question that has others; a part of a synonym; or a synonym that consists of common words
    // and is not what the page or one of its sections is called.
    const telling = (text) => tokens(text).map(bare).filter((w) => !stop.has(w));
    const called = (p, text) => {
      const asked = [...stemsOf(text)], says = telling(text).map(stem), [, title, , description] = pages[p];
      const inside = (name) => asked.every((w) => stemsOf(name).has(w));
      return inside(`${title} ${description}`) || sectionsFrom.get(p).map((i) => sections[i][2]).some((heading) =>
        says.some((w) => stemsOf(heading).has(w)) && inside(`${title} ${heading}`));
    };
    const reasons = ({ p, way }, question) => {
      const has = (w) => matches(w).has(p), common = (w) => matches(w).common;
      const whole = way.pairs.filter(([, to]) => telling(to).every(has) && (!telling(to).every(common) || called(p, to)));
      const lent = new Set(way.pairs.flatMap(([, to]) => telling(to)));
      const own = way.words.filter((w) => !lent.has(w) && has(w)), typed = question.words.filter(has);
      const onlyCommon = way.words.every(common) && !lent.size;
      if (!whole.length && !own.some((w) => onlyCommon || !common(w) || (matches(w).named(p) && !weak.has(w)))) return null;
      const words = [...new Set([...way.words.filter(has), ...typed])], strong = words.filter((w) => !weak.has(w));
      return { words: strong.length ? strong : words, pairs: whole };
    };

    // What of a page shows that it answers: a section, its sentence with the most of these words, what to mark in it, and
    // what it only mentions where nothing of that is to be seen, such as in code.
    const shown = ({ p, section: first, way, symbol }, words) => {
      const worth = new Map(), which = new Map();   // of each form of a word: how much it says, and which word it is
      for (const word of words) for (const [form, sure] of forms(word)) {
        const value = sure*matches(word).rarity;
        if (sure > SURE && !(worth.get(form) >= value)) { worth.set(form, value); which.set(form, word); }
      }
      const value = (text) => {   // each word counts once
        const best = new Map();
        for (const w of tokens(text).flatMap(read)) {
          if (worth.get(w) > (best.get(which.get(w)) || 0)) best.set(which.get(w), worth.get(w));
        }
        return [...best.values()].reduce((sum, v) => sum + v, 0);
      };
      const [, title, , description] = pages[p], marks = new Set(worth.keys());
      const look = (section) => {
        const [, , heading, text] = sections[section] || [p, "", "", ""];
        const prose = text.split(SENTENCE).filter((sentence) => tokens(sentence).length && !SIGNATURE.test(sentence));
        const sentences = prose.length ? prose : text.split(SENTENCE), values = sentences.map(value);
        const most = Math.max(0, ...values);
        let sentence = most || value(heading) ? sentences[values.indexOf(most)] || "" : "";
        if (!sentence || (!heading && value(description) >= most)) sentence = description || sentence;
        return { section, sentence, marks, visible: value(`${heading} ${sentence}`) };
      };
      const { section } = meeting(way.words), there = first < 0 || symbol ? [] : sectionsFrom.get(p);
      const good = (found) => (found.section < 0 ? 1 : section(found.section))*(1 + found.visible);
      const bestFrom = (least) => [first, ...there.filter((i) => section(i) >= least*section(first) && i !== first)].map(look)
        .reduce((best, other) => good(other) > good(best) ? other : best);
      let found = bestFrom(.75);
      if (!found.visible) found = [bestFrom(.4)].find((other) => other.visible) || found;
      const named = value(sections[found.section]?.[2] || "");   // a heading that says it is better than a description
      const about = value(`${title} ${named ? "" : description}`);
      if (!symbol && about && about >= found.visible) found = look(-1);   // the whole page is about it
      if (found.visible || value(title)) return { ...found, mentions: [] };
      const here = words.filter((w) => matches(w).has(p)), rare = here.filter((w) => !matches(w).common);
      return { ...found, mentions: [...new Map((rare.length ? rare : here).map((w) => [stem(w), w])).values()] };
    };

    return (text) => {
      const question = understood(text.replace(OPENING, "").replace(INVERTED, "$1 $2 not ")), result = new Map();
      if (!question.words.length) return { hits: [], changed: [], inChinese: isHan(text.trim()) };
      for (const way of ways(question)) {
        const asked = new Set(way.spoken.map(stem));
        answers(way.words).forEach((answer, p) => {
          if (!answer) return;
          let both = 0;   // how nearly the title is what was asked, with the words that stand in every title
          for (const word of titleWords[p]) both += asked.has(word);
          const value = way.worth*(answer.value + .3*(both*both/(titleWords[p].size*asked.size))**2*worthOf[p]);
          if (value > (result.get(p)?.value || 0)) result.set(p, { p, value, section: answer.section, way });
        });
      }
      const best = Math.max(...[...result.values()].map((hit) => hit.value));
      const close = [...result.values()].filter((hit) => hit.value > .3*best);
      for (const i of symbolAt.get(question.spoken.join("_")) || []) {   // a name of the library, and nothing else
        const hit = result.get(pageOf[i]);
        if (hit && !hit.symbol) Object.assign(hit, { value: hit.value + .6*worthOf[hit.p], section: i, symbol: true });
      }
      const inChinese = question.spoken.some(isHan), asked = new Set(question.spoken.map(stem));
      const hits = [];
      for (const hit of close.sort((a, b) => b.value - a.value)) {
        const { p } = hit, [page, title, kind] = pages[p], why = reasons(hit, question);
        if (!why && !hit.symbol) continue;
        const here = hits.length < SHOWN ? shown(hit, why?.words || question.words) : hit;
        const [, anchor, heading] = sections[here.section] || [p, "", ""];
        const { sentence, marks, mentions } = here, href = page + (anchor && `#${anchor}`);
        // a synonym of other words is said where what was typed is not to be seen
        const seen = new Set(tokens(`${title} ${heading} ${sentence}`).flatMap(read).map(stem));
        const same = (from, to) => from.replaceAll(" ", "") === to.replaceAll(" ", "") || [...stemsOf(to)].every((w) => asked.has(w));
        const as = (why?.pairs || []).filter(([from, to]) => !same(from, to)
          && !wordsOf(from).map(bare).every((w) => stop.has(w) || seen.has(stem(w))));
        hits.push({ page, href, title, kind, heading, sentence, marks, mentions, as, inChinese: inChinese && index.chinese[page] });
      }
      return { hits, changed: question.changed, inChinese };
    };
  };
})();
