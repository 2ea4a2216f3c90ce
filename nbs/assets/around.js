// Shows a word's meaning next to it, on hover and focus; and copies a page as Markdown.
(() => {
  const make = (html) => { const t = document.createElement("template"); t.innerHTML = html.trim(); return t.content.firstChild; };
  const SAID = { en: { copy: "Copy this page as Markdown", copied: "Copied" } };   // by page language
  const say = SAID[document.documentElement.lang] || SAID.en;

  // ---- glossary words: the meaning stays while the pointer is on it, and Escape closes it
  const tip = make(`<div class="meaning" role="tooltip" id="meaning" hidden></div>`);
  let word, timer;
  const hide = () => { clearTimeout(timer); tip.hidden = true; word?.removeAttribute("aria-describedby"); word = null; };
  const show = (link) => {
    clearTimeout(timer);
    if (link === word) return;
    hide();
    word = link;
    tip.textContent = link.dataset.meaning;
    link.setAttribute("aria-describedby", "meaning");
    if (!tip.isConnected) document.body.append(tip);
    tip.hidden = false;
    const place = link.getClientRects()[0], width = document.documentElement.clientWidth;
    tip.style.left = `${scrollX + Math.max(8, Math.min(place.left, width - tip.offsetWidth - 8))}px`;
    const below = place.bottom + tip.offsetHeight + 12 < innerHeight;
    tip.style.top = `${scrollY + (below ? place.bottom + 6 : place.top - tip.offsetHeight - 6)}px`;
  };
  const term = (e) => e.target.closest?.("a.term");
  const soon = (f) => { clearTimeout(timer); timer = setTimeout(f, 150); };
  document.addEventListener("pointerover", (e) => {
    if (e.pointerType === "touch") return;
    const link = term(e);
    if (link) soon(() => show(link));
    else if (tip.contains(e.target)) clearTimeout(timer);
    else if (word !== document.activeElement) soon(hide);
  });
  document.addEventListener("focusin", (e) => term(e) ? show(term(e)) : hide());
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });
  // touch has no hover: the first tap shows the meaning, the second follows the link
  let shown;
  document.addEventListener("pointerdown", (e) => { shown = e.pointerType === "touch" ? word : term(e); if (e.pointerType === "touch" && !term(e)) hide(); });
  document.addEventListener("click", (e) => { const link = term(e); if (link && e.detail && link !== shown) { e.preventDefault(); show(link); } });

  // ---- the page as Markdown, made from the visible page: a page opened from disk can't fetch the file next to it
  const skipped = ".toc-short, .offer, nav, button, script, style, .anchorjs-link, label.tick-lesson, .source-link, .read-only";
  const inline = (node) => [...node.childNodes].map((n) => {
    if (n.nodeType === 3) return n.textContent.replace(/\s+/g, " ");
    if (n.nodeType !== 1 || n.matches(skipped)) return "";
    const inner = inline(n);
    if (n.matches("code, kbd")) return "`" + n.textContent + "`";
    if (n.matches("strong, b")) return `**${inner}**`;
    if (n.matches("em, i")) return `*${inner}*`;
    if (n.matches("br")) return "\n";
    if (n.matches("a.term") || (n.matches("a") && !n.textContent.trim())) return inner;
    if (n.matches("a[href]")) return `[${inner}](${n.href.startsWith("file:") ? n.getAttribute("href") : n.href})`;
    if (n.matches("img")) return `![${n.alt}](${n.getAttribute("src")})`;
    if (n.matches("math")) return n.querySelector("annotation")?.textContent || n.textContent;
    if (n.matches("svg")) return n.getAttribute("aria-label") || "";
    return inner;
  }).join("");
  const line = (node) => inline(node).replace(/ *\n */g, "\n").trim();
  const code = (node) => {
    const text = node.textContent.replace(/\s+$/, "");
    const fence = "`".repeat(Math.max(3, ...(text.match(/`+/g) || []).map((ticks) => ticks.length + 1)));
    return `${fence}${node.matches(".python") ? "python" : ""}\n${text}\n${fence}`;
  };
  const table = (node) => {
    const rows = [...node.rows].map((row) => [...row.cells].map((cell) => line(cell).replace(/\|/g, "\\|").replace(/\n/g, " ")));
    const text = rows.map((row) => `| ${row.join(" | ")} |`);
    return [text[0], `|${rows[0].map(() => "---").join("|")}|`, ...text.slice(1)].join("\n");
  };
  const list = (node, depth) => [...node.children].map((item, i) => {
    const own = item.cloneNode(true), deeper = [...item.children].filter((c) => c.matches("ul, ol"));
    const codes = [...own.querySelectorAll("pre")].map(code);
    own.querySelectorAll("ul, ol, pre").forEach((c) => c.remove());
    const first = (node.matches("ol") ? `${i + 1}. ` : "- ") + line(own).replace(/\s*\n\s*/g, " ");
    const more = codes.map((text) => `\n${text.replace(/^/gm, "   ")}\n`);
    return [first, ...more].map((text) => text.replace(/^(?=.)/gm, "  ".repeat(depth))).concat(deeper.map((d) => list(d, depth + 1))).join("\n");
  }).join("\n");
  const blocks = (node) => [...node.children].flatMap((n) => {
    if (n.matches(skipped)) return [];
    if (n.matches("h1, h2, h3, h4, h5, h6")) return [`${"#".repeat(+n.tagName[1])} ${line(n)}`];
    if (n.matches("pre")) return [code(n)];
    if (n.matches("ul, ol")) return [list(n, 0)];
    if (n.matches("table")) return n.rows.length ? [table(n)] : [];
    if (n.matches("blockquote")) return [blocks(n).join("\n\n").replace(/^/gm, "> ")];
    if (n.matches("p, summary, figcaption, dt, dd, .description, .math, img, svg")) return [line(n)];
    if (n.matches("hr")) return ["---"];
    return n.children.length && [...n.children].some((c) => !c.matches("span, a, code, em, strong, img, svg, b, i")) ? blocks(n) : [line(n)];
  }).filter(Boolean);
  window.pageAsMarkdown = () => blocks(document.querySelector("main")).join("\n\n") + "\n";

  const footer = document.querySelector(".site-footer");
  if (!footer || location.pathname.includes("/source/")) return;
  const button = make(`<button type="button" class="copy-page">${say.copy}</button>`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(window.pageAsMarkdown());
    button.textContent = say.copied;
    setTimeout(() => { button.textContent = say.copy; }, 2000);
  });
  footer.append(" · ", button);
})();
