// The search dialog: opened by its button, by /, and by Ctrl K, and filled by search-engine.js, which is loaded on first
// use. <button data-search="words"> opens it with these words; so does the event "site-search" with the words as its detail.
(() => {
  const top = new URL("../", document.currentScript.src);   // the root of the site, on a server or on disk
  const make = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstChild; };
  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const MOST = 15, SNIPPET = 190;
  const SAID = {   // texts, by the language of the page or of the query
    en: {
      lang: "",
      label: "Search the site", close: "Close the search", keys: { "↑ ↓": "choose", Enter: "open", Esc: "close" }, nothing: "Nothing found",
      pages: (n) => n === 1 ? "1 page found" : n > MOST ? `The best ${MOST} of ${n} pages` : `${n} pages found`, mended: (typed, read) => `, for “${read}” (“${typed}” isn't on any page)`,
      kinds: { lesson: "Lesson", howto: "How-to", reference: "Reference", explain: "Explanation", home: "Home", gallery: "Gallery", list: "Overview", inside: "For contributors" },
      as: (read) => `Found as “${read}”`, mentions: (words) => `Mentions ${words}`,
      instead: { "explain/which-hook.html": "Which hook do I need?", "lib/all.html": "Every public name", "explain/glossary.html": "Glossary of these pages", "gallery.html": "Every figure" },
    },
  };
  SAID.zh = { ...SAID.en, lang: ' lang="zh-Hans"', nothing: "没有找到", pages: (n) => n > MOST ? `共 ${n} 个页面，列出最相关的 ${MOST} 个（内容为英文）` : `找到 ${n} 个页面（内容为英文）`,
    mended: (typed, read) => `，按“${read}”检索（没有页面含有“${typed}”）`, as: (read) => `按“${read}”找到`, mentions: (words) => `文中提到 ${words}`,
    kinds: { lesson: "课程", howto: "指南", reference: "参考", explain: "说明", home: "首页", gallery: "图库", list: "目录", inside: "面向贡献者" } };
  const say = SAID[document.documentElement.lang] || SAID.en;

  const dialog = make(`<dialog class="search" aria-label="${say.label}">
    <div class="search-head"><input type="search" placeholder="${say.label}" aria-label="${say.label}" autocomplete="off" spellcheck="false" enterkeyhint="go">
    <button type="button" class="search-close" aria-label="${say.close}"><svg viewBox="0 0 16 16" aria-hidden="true"><path d="m4 4 8 8m0-8-8 8"/></svg></button></div>
    <p role="status"></p><ul></ul>
    <footer aria-hidden="true">${Object.entries(say.keys).map(([key, does]) => `<span><kbd>${key}</kbd> ${does}</span>`).join("")}</footer></dialog>`);
  document.body.append(dialog);
  const [input, status, list] = ["input", "p", "ul"].map((name) => dialog.querySelector(name));

  // A text as HTML, with the found words marked.
  const mark = (text, marks) => text.split(/([\p{L}\p{N}_]+)/u).map((part, i) => i % 2 && isMarked(part, marks) ? `<mark>${part}</mark>` : escape(part)).join("");
  const isMarked = (word, marks) => marks.has(word.replace(/^_+|_+$/g, "").toLowerCase()) || (word.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g) || []).some((part) => marks.has(part.toLowerCase()));

  // A sentence, or the part of a long one that has most of the words.
  const snippet = (text, marks) => {
    const places = [...text.matchAll(/[\p{L}\p{N}_]+/gu)].filter(([word]) => isMarked(word, marks)).map((found) => [found.index, found[0].toLowerCase()]);
    const within = (from) => new Set(places.filter(([at]) => at >= from && at < from + SNIPPET - 30).map(([, word]) => word)).size;
    const [best] = places.reduce(([at, most], [here]) => within(here) > most ? [here, within(here)] : [at, most], [0, 0]);
    const from = best < 50 || text.length <= SNIPPET ? 0 : text.indexOf(" ", best - 40) + 1;
    const end = from + SNIPPET >= text.length ? text.length : text.lastIndexOf(" ", from + SNIPPET);
    return (from ? "… " : "") + mark(text.slice(from, end), marks) + (end < text.length ? " …" : "");
  };
  // A link whose accessible name is its title and kind; the text below describes it.
  const item = (n, href, title, kind, below = "", lang = "") => make(`<li><a href="${new URL(href, top)}" aria-labelledby="hit-${n} hit-${n}-kind"${below && ` aria-describedby="hit-${n}-why"`}>
    <span class="hit"><strong id="hit-${n}">${title}</strong> <span class="kind" id="hit-${n}-kind"${lang}>${kind}</span></span>${below && `<span class="why" id="hit-${n}-why">${below}</span>`}</a></li>`);
  const found = (hit, n, say) => {
    const { page, heading, sentence, marks, mentions, as, inChinese } = hit, lines = [], marked = (text) => mark(text, marks);
    if (inChinese) lines.push(`<span class="chinese" lang="zh-Hans">${escape(inChinese)}</span>`);
    if (heading || sentence) lines.push(`${heading && `<b>${marked(heading)}</b> `}${snippet(sentence, marks)}`);
    const notes = [...as.map(([, read]) => say.as(escape(read))), ...(mentions.length ? [say.mentions(mentions.map((word) => `<mark>${escape(word)}</mark>`).join(", "))] : [])];
    if (notes.length) lines.push(`<em${say.lang}>${notes.join(" · ")}</em>`);
    const number = hit.kind === "lesson" ? page.match(/\/(\d\d)-/)?.[1] : "";
    return item(n, hit.href, marked(hit.title), `${say.kinds[hit.kind] || ""} ${number || ""}`.trim(), lines.map((line) => `<small>${line}</small>`).join(" "), say.lang);
  };

  let engine;
  const show = () => {
    if (!engine && !(engine = window.siteIndex && window.searchEngine?.(window.siteIndex))) return;
    const { hits, changed, inChinese } = engine(input.value), asked = input.value.trim(), speak = inChinese ? SAID.zh : say;
    status.lang = inChinese ? "zh-Hans" : "";
    status.textContent = !asked ? "" : hits.length ? speak.pages(hits.length) + changed.map((pair) => speak.mended(...pair)).join("") : speak.nothing;
    if (!hits.length) return list.replaceChildren(...(asked ? Object.entries(say.instead) : []).map(([href, title], n) => item(n, href, title, "")));
    list.replaceChildren(...hits.slice(0, MOST).map((hit, n) => found(hit, n, speak)));
    list.scrollTop = 0;
  };

  const parts = ["assets/search-engine.js", "assets/search-index.js"];
  const load = () => parts.splice(0).forEach((src) => {   // once, in this order
    document.head.append(Object.assign(document.createElement("script"), { src: new URL(src, top), async: false, onload: show }));
  });
  const open = (text) => {
    load();
    if (typeof text === "string") input.value = text;
    if (!dialog.open) dialog.showModal();
    input.focus();
    input.select();
    show();
  };
  window.siteSearch = open;
  input.addEventListener("input", show);
  dialog.addEventListener("click", (e) => { if (e.target === dialog || e.target.closest("a, .search-close")) dialog.close(); });
  dialog.addEventListener("keydown", (e) => {
    const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    if (at >= 0 && e.key.length === 1 && e.key !== " " && !e.ctrlKey && !e.metaKey && !e.altKey) input.focus();   // typing continues in the field
    if (e.key === "Enter" && document.activeElement === input) { e.preventDefault(); links[0]?.click(); }
    if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    e.preventDefault();
    (links[at + (e.key === "ArrowDown" ? 1 : -1)] || (e.key === "ArrowUp" ? input : links[at]))?.focus();
  });
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.(".search-open, [data-search]");
    if (button) open(button.dataset.search);
  });
  document.addEventListener("site-search", (e) => open(e.detail));   // the 404 page sends this
  document.addEventListener("keydown", (e) => {
    const typing = e.target.closest?.("input, textarea, select, [contenteditable]");
    if ((e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) || (e.key === "k" && (e.ctrlKey || e.metaKey))) { e.preventDefault(); open(); }
  });
})();
