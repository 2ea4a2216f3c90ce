// Page behavior: theme, phone menu, copying, check marks on lessons. Works from file:// and needs nothing but the site.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const top = new URL("../", document.currentScript.src);   // the root of the site, on a server or on disk
  const make = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstChild; };
  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  // ---- theme: the reader's choice is kept; without one, the page follows the system setting, even if it changes
  const stored = () => { try { return localStorage.getItem("hooklab-theme"); } catch { return null; } };
  const setTheme = (name) => { document.documentElement.dataset.bsTheme = name; };
  $(".theme-toggle").addEventListener("click", () => {
    const name = document.documentElement.dataset.bsTheme === "dark" ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("hooklab-theme", name); } catch { /* the choice holds for this page only */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => { if (!stored()) setTheme(e.matches ? "dark" : "light"); });

  // ---- progress: the finished lessons are stored in the browser and nowhere else
  const lesson = (address) => new URL(address).pathname.match(/\/lessons\/([\w-]+)\.html$/)?.[1];
  const worked = () => { try { return new Set(JSON.parse(localStorage.getItem("hooklab-lessons") || "[]")); } catch { return new Set(); } };
  const tick = () => {
    const names = worked();
    document.querySelectorAll("#quarto-sidebar a[href], main table a[href], .page-list a[href]").forEach((a) => a.classList.toggle("worked-through", names.has(lesson(a.href))));
    const listed = new Set([...document.querySelectorAll("main table a[href*='lessons/']")].map((a) => lesson(a.href)).filter((name) => /^\d\d-/.test(name)));
    const done = [...listed].filter((name) => names.has(name)).length, table = $("main table:has(a[href*='lessons/'])");
    if (done && listed.size > 9 && !$(".progress")) (table.closest(".table-scroll") || table).before(make(`<p class="progress">You have completed ${done} of ${listed.size} lessons.</p>`));
  };
  const here = document.body.dataset.kind === "lesson" && lesson(location.href);
  if (here) {
    const box = make(`<input type="checkbox">`), label = make(`<label class="tick-lesson"> I have completed this lesson</label>`);
    box.checked = worked().has(here);
    box.addEventListener("change", () => {
      const names = worked();
      names[box.checked ? "add" : "delete"](here);
      try { localStorage.setItem("hooklab-lessons", JSON.stringify([...names])); } catch { /* not kept */ }
      tick();
    });
    label.prepend(box);
    const end = $(".page-navigation");
    if (end) end.before(label); else $("main").append(label);
  }
  tick();

  // ---- the menu: the browser opens and closes it; this informs screen readers
  const sidebar = $("#quarto-sidebar"), menu = $(".menu-toggle"), wide = matchMedia("(min-width: 992px)");
  const current = $("#quarto-sidebar [aria-current]:not(.sidebar-title)");
  const showCurrent = () => { if (current) sidebar.scrollTop = current.getBoundingClientRect().top - sidebar.getBoundingClientRect().top - sidebar.clientHeight / 3; };
  if (sidebar) {
    sidebar.addEventListener("toggle", (e) => {
      menu.setAttribute("aria-expanded", String(e.newState === "open"));
      if (e.newState === "open") showCurrent();
    });
    wide.addEventListener("change", () => { if (wide.matches && sidebar.matches(":popover-open")) sidebar.hidePopover(); });
    showCurrent();
  }

  // ---- copying, and a link to each heading
  document.addEventListener("click", async (e) => {
    const button = e.target.closest?.(".code-copy-button"), code = button?.parentElement.querySelector("code") || button?.closest("pre")?.querySelector("code");
    if (!code) return;
    try { await navigator.clipboard.writeText(code.textContent); } catch { return; }
    button.classList.add("copied");
    button.title = "Copied";
    setTimeout(() => { button.classList.remove("copied"); button.title = "Copy"; }, 1500);
  });
  document.querySelectorAll(".code-copy-button").forEach((button) => { button.type = "button"; button.title = "Copy"; button.setAttribute("aria-label", "Copy this code"); });
  document.querySelectorAll("main .anchored[data-anchor-id]").forEach((h) => {
    h.append(make(`<a class="anchorjs-link" href="#${h.dataset.anchorId}" aria-label="Link to this section"></a>`));
  });

  // ---- on paper, answers are open; the stylesheet does this if the browser supports it
  if (!CSS.supports("selector(::details-content)")) {
    const closed = () => [...document.querySelectorAll("main details:not([open])")].filter((d) => !d.matches(".code-fold, .toc-short, .hl-layers details") || d.closest("section[id^='exercise-']"));
    let opened = [];
    addEventListener("beforeprint", () => { opened = closed(); opened.forEach((d) => { d.open = true; }); });
    addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); opened = []; });
  }

  // ---- the table of contents follows the reader
  const entries = [...document.querySelectorAll("#TOC a")];
  const places = entries.map((a) => document.getElementById(decodeURIComponent(a.hash.slice(1))));
  const follow = () => {
    let at = 0;
    places.forEach((place, i) => { if (place && place.getBoundingClientRect().top < 90) at = i; });
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) at = entries.length - 1;
    entries.forEach((a, i) => { a.classList.toggle("active", i === at); });
  };
  if (entries.length) { addEventListener("scroll", follow, { passive: true }); follow(); }

  // ---- on a phone, it is one line that stays visible and opens over the text until a section is chosen
  const short = $(".toc-short");
  short?.addEventListener("click", (e) => { if (e.target.closest("a")) short.open = false; });

  // ---- boxes that scroll sideways are reachable by keyboard, have a name, and show that there is more
  const boxes = [...document.querySelectorAll("main :is(.table-scroll, .cell-output-display, .hl-layers, pre, .math.display, .scrolls)")];
  const named = (box) => {
    const heading = [...document.querySelectorAll("main :is(h1, h2, h3, h4)")].filter((h) => h.compareDocumentPosition(box) & 4).pop();
    const what = box.matches("pre") ? "Code or output" : box.matches(".math") ? "Formula" : "Table";
    return `${what} ${boxes.indexOf(box) + 1}, below “${heading ? heading.textContent.trim() : document.title}”`;
  };
  const look = (box) => {
    const scrolls = box.scrollWidth > box.clientWidth + 1;
    if (scrolls === box.classList.contains("scrolls-now")) return;
    box.classList.toggle("scrolls-now", scrolls);
    const facts = { tabindex: "0", role: "region", "aria-label": scrolls && named(box) };
    box.onscroll = scrolls ? () => { box.classList.toggle("at-end", box.scrollLeft + box.clientWidth >= box.scrollWidth - 4); } : null;
    for (const [name, value] of Object.entries(facts)) { if (scrolls) box.setAttribute(name, value); else box.removeAttribute(name); }
  };
  const sizes = new ResizeObserver((seen) => seen.forEach((entry) => look(entry.target)));
  boxes.forEach((box) => sizes.observe(box));
  document.fonts?.addEventListener("loadingdone", () => boxes.forEach(look));  // new fonts change the widths

  // ---- 404 page: search for the words of the address, and list pages with similar names
  const lost = $("#not-found");
  if (lost) {
    const [known, moved] = ["#all-pages", "#moved-pages"].map((id) => JSON.parse($(id).textContent));
    const asked = decodeURIComponent(location.pathname);
    for (const [old, now] of moved) if (asked.endsWith(`/${old}`)) return location.replace(new URL(now, top) + location.hash);
    const cut = (text) => text.toLowerCase().split(/[^a-z0-9]+/).filter((w) => w.length > 1 && w !== "html");
    const words = cut(asked.split("/").slice(-2).join(" "));
    const near = (a, b) => {   // the edit distance
      let row = [...Array(b.length + 1).keys()];
      for (let i = 1; i <= a.length; i++) {
        const next = [i];
        for (let j = 1; j <= b.length; j++) next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
        row = next;
      }
      return row[b.length];
    };
    const value = (word, others) => Math.max(0, ...others.map((o) => o === word ? 3 : Math.min(o.length, word.length) > 2 && (o.startsWith(word) || word.startsWith(o)) ? 2 : o.length > 2 && near(o, word) <= word.length / 3 ? 1.5 : 0));
    const best = known.map(([href, title]) => ({ href, title, score: words.reduce((sum, word) => sum + value(word, cut(`${href} ${title}`)), 0) }))
      .filter((page) => page.score >= 1.5).sort((a, b) => b.score - a.score).slice(0, 5);
    lost.append(make(`<form role="search" class="search-here"><input type="search" aria-label="Search the site" value="${escape(words.join(" "))}"><button>Search</button></form>`));
    if (best.length) lost.append(make("<p>Did you mean one of these?</p>"), make(`<ul>${best.map(({ href, title }) => `<li><a href="${new URL(href, top)}">${escape(title)}</a></li>`).join("")}</ul>`));
    $("form", lost).addEventListener("submit", (e) => { e.preventDefault(); document.dispatchEvent(new CustomEvent("site-search", { detail: $("input", lost).value })); });
  }

  // ---- on a source page, a click on a line number puts it into the address
  $("#L code")?.addEventListener("click", (e) => {
    const line = e.target.closest("#L code > span");
    if (line && e.clientX - line.getBoundingClientRect().left < 3.25 * 16 && !String(getSelection())) location.hash = line.id;
  });
})();
