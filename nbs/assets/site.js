// What the pages do: the theme, search, ticks on lessons, the sidebar on a phone. Works from file://, and needs nothing but the site.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const top = new URL("../", document.currentScript.src);   // where the site begins, on a server or on the disk
  const make = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstChild; };
  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  // ---- theme: the reader's choice is kept; without one the page follows the system, also when that changes
  const stored = () => { try { return localStorage.getItem("hooklab-theme"); } catch { return null; } };
  const setTheme = (name) => { document.documentElement.dataset.bsTheme = name; };
  $(".theme-toggle").addEventListener("click", () => {
    const name = document.documentElement.dataset.bsTheme === "dark" ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("hooklab-theme", name); } catch { /* the choice holds for this page only */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => { if (!stored()) setTheme(e.matches ? "dark" : "light"); });

  // ---- search
  const dialog = make(`<dialog class="search" aria-label="Search">
    <input type="search" placeholder="Search the site" aria-label="Search the site" autocomplete="off" spellcheck="false">
    <p role="status"></p><ul></ul></dialog>`);
  document.body.append(dialog);
  const [input, status, list] = [$("input", dialog), $("p", dialog), $("ul", dialog)];

  // Where a word stands in a text decides how much the text is about it: all of it, a word's beginning, anywhere.
  const weight = (text, word) => {
    const at = text.toLowerCase().indexOf(word);
    if (at < 0) return 0;
    return text.length === word.length ? 4 : at === 0 || /\W/.test(text[at - 1]) ? 2 : 1;
  };
  const score = (entry, words) => {
    let sum = 0;
    for (const word of words) {
      const best = Math.max(3 * weight(entry.section || entry.title, word), weight(entry.text, word), weight(entry.title, word) / 2);
      if (!best) return 0;
      sum += best;
    }
    return sum;
  };
  const mark = (text, words) => {
    const found = new RegExp(words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "gi");
    return text.split(found).map((part, i, all) => escape(part) + (i < all.length - 1 ? `<mark>${escape(text.match(found)[i])}</mark>` : "")).join("");
  };
  const snippet = (text, words) => {
    const at = Math.max(0, text.toLowerCase().search(new RegExp(words[0].replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))));
    const from = at < 60 ? 0 : text.indexOf(" ", at - 60) + 1;
    return (from ? "… " : "") + mark(text.slice(from, from + 160), words);
  };
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = !words.length ? [] : (window.siteSections || []).map((entry) => ({ entry, score: score(entry, words) }))
      .filter((hit) => hit.score).sort((a, b) => b.score - a.score);
    status.textContent = !words.length ? "" : hits.length ? `${hits.length} found` : "Nothing found";
    list.replaceChildren(...hits.slice(0, 15).map(({ entry }) => make(`<li><a href="${new URL(entry.href, top)}">
      <strong>${mark(entry.section || entry.title, words)}</strong><span>${escape(entry.where)}</span>
      <small>${snippet(entry.text, words)}</small></a></li>`)));
  };
  const open = () => {
    if (!window.siteSections && !$("script[data-search]")) {   // loaded with the first search, not with each page
      const script = Object.assign(document.createElement("script"), { src: new URL("assets/search.js", top), onload: show });
      script.dataset.search = "";
      document.head.append(script);
    }
    if (!dialog.open) dialog.showModal();
    input.select();
  };
  $(".search-open").addEventListener("click", open);
  input.addEventListener("input", show);
  dialog.addEventListener("click", (e) => { if (e.target === dialog || e.target.closest("a")) dialog.close(); });
  dialog.addEventListener("keydown", (e) => {
    const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    if (e.key === "Enter" && document.activeElement === input) { e.preventDefault(); links[0]?.click(); }
    if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    e.preventDefault();
    (links[at + (e.key === "ArrowDown" ? 1 : -1)] || (e.key === "ArrowUp" ? input : links[at]))?.focus();
  });
  document.addEventListener("keydown", (e) => {
    const typing = e.target.closest?.("input, textarea, select, [contenteditable]");
    if ((e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) || (e.key === "k" && (e.ctrlKey || e.metaKey))) { e.preventDefault(); open(); }
  });

  // ---- progress: which lessons a reader has worked through is kept in the browser, and nowhere else
  const lesson = (address) => new URL(address).pathname.match(/\/lessons\/([\w-]+)\.html$/)?.[1];
  const worked = () => { try { return new Set(JSON.parse(localStorage.getItem("hooklab-lessons") || "[]")); } catch { return new Set(); } };
  const tick = () => {
    const names = worked();
    document.querySelectorAll("#quarto-sidebar a[href], main table a[href]").forEach((a) => a.classList.toggle("worked-through", names.has(lesson(a.href))));
  };
  const here = lesson(location.href);
  if (here) {
    const box = make(`<input type="checkbox">`), label = make(`<label class="tick-lesson"> I have worked through this lesson</label>`);
    box.checked = worked().has(here);
    box.addEventListener("change", () => {
      const names = worked();
      names[box.checked ? "add" : "delete"](here);
      try { localStorage.setItem("hooklab-lessons", JSON.stringify([...names])); } catch { /* not kept */ }
      tick();
    });
    label.prepend(box);
    $("main").append(label);
  }
  tick();

  // ---- the sidebar is long: it begins at the page that is open
  const sidebar = $("#quarto-sidebar"), current = $("#quarto-sidebar a.active");
  if (current) sidebar.scrollTop = current.getBoundingClientRect().top - sidebar.getBoundingClientRect().top - sidebar.clientHeight / 3;

  // ---- things that look like buttons answer to the keyboard like buttons
  document.addEventListener("keydown", (e) => {
    if ((e.key === "Enter" || e.key === " ") && e.target.matches?.("a[role=button]:not([href])")) { e.preventDefault(); e.target.click(); }
    if (e.key === "Escape" && $("#quarto-sidebar.show")) $(".quarto-btn-toggle").click();
  });
})();
