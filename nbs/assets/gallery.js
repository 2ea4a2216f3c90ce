// The gallery: a sticky bar with a word filter and a list of symptoms to jump to. Without it, all figures are shown.
(() => {
  const make = (tag, attributes = {}, ...children) => { const made = Object.assign(document.createElement(tag), attributes); made.append(...children); return made; };
  const rows = [...document.querySelectorAll(".gallery-row")], figures = [...document.querySelectorAll(".gallery-row > a")];
  const above = (row) => row.previousElementSibling?.matches("h3") ? row.previousElementSibling : row.closest("section")?.querySelector("h2");
  const words = new Map(figures.map((a) => [a, `${a.textContent} ${a.querySelector("img").alt} ${above(a.parentElement)?.textContent}`.toLowerCase()]));
  const sections = [...document.querySelectorAll("main section[id]:has(.gallery-row)")];

  const field = make("input", { type: "search", placeholder: "NaN, attention, learning rate …", autocomplete: "off" });
  const said = make("output"), jump = make("select", {}, make("option", { value: "", textContent: "Jump to …" }));
  field.setAttribute("aria-label", "Show only figures with these words");
  jump.setAttribute("aria-label", "Jump to a symptom");
  const show = () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [a, text] of words) a.hidden = !wanted.every((word) => text.includes(word));
    for (const part of [...rows, ...sections]) {
      part.hidden = !part.querySelector("a:not([hidden]) > img");
      if (part.previousElementSibling?.matches("h3")) part.previousElementSibling.hidden = part.hidden;
    }
    const left = figures.filter((a) => !a.hidden).length;
    said.textContent = left === figures.length ? `${left} figures` : `${left} of ${figures.length} figures`;
    jump.replaceChildren(jump.options[0], ...sections.filter((part) => !part.hidden).map((part) => make("option", { value: part.id, textContent: part.querySelector("h2").textContent.trim() })));
  };
  field.addEventListener("input", show);
  jump.addEventListener("change", () => { location.hash = jump.value; jump.selectedIndex = 0; });
  const form = make("form", { className: "gallery-bar" }, field, jump, said);
  form.setAttribute("role", "search");
  form.addEventListener("submit", (e) => e.preventDefault());
  document.querySelector("main > header").after(form);
  show();
})();
