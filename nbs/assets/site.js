// What the pages do: the theme, ticks on lessons, the sidebar on a phone. Works from file://, and needs nothing but the site.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const make = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstChild; };

  // ---- theme: the reader's choice is kept; without one the page follows the system, also when that changes
  const stored = () => { try { return localStorage.getItem("hooklab-theme"); } catch { return null; } };
  const setTheme = (name) => { document.documentElement.dataset.bsTheme = name; };
  $(".theme-toggle").addEventListener("click", () => {
    const name = document.documentElement.dataset.bsTheme === "dark" ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("hooklab-theme", name); } catch { /* the choice holds for this page only */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => { if (!stored()) setTheme(e.matches ? "dark" : "light"); });

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
