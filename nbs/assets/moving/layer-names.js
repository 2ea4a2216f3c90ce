/* Lesson 04: which of resnet18's layers a pattern picks. */
"use strict";
moving("layer-names", (figure, data) => {
  const { html, list } = moving, groups = {};
  for (const layer of data.layers) (groups[layer[0].match(/^layer\d/)?.[0] ?? "around"] ??= []).push(layer);

  /* As Python's fnmatchcase: * is anything, dots included, ? one character, [12] one of these, [!1] none of these. */
  const fits = (pattern) => {
    let text = "";
    for (let i = 0; i < pattern.length; i++) {
      const end = pattern[i] === "[" ? pattern.indexOf("]", i + (pattern[i + 1] === "!" ? 3 : 2)) : -1;
      if (end > 0) {
        const inner = pattern.slice(i + 1, end).replace(/[\\\]^[]/g, "\\$&");
        text += inner[0] === "!" ? `[^${inner.slice(1)}]` : `[${inner}]`;
        i = end;
      } else text += { "*": ".*", "?": "." }[pattern[i]] ?? pattern[i].replace(/[.+^${}()|[\]\\]/g, "\\$&");
    }
    try { return new RegExp(`^${text}$`, "s"); } catch { return /^$(?!)/; }
  };

  const id = `${figure.id}-pattern`;
  const input = html("input", { id, type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", autocorrect: "off" });
  input.value = Object.keys(data.picked)[0];
  input.addEventListener("input", () => figure.change());
  figure.controls.append(html("span", { class: "moving-slider" }, html("label", { for: id }, "pattern"), input));
  figure.controls.append(html("span", { class: "moving-choice" }, Object.keys(data.picked).slice(0, 7).map((pattern) => {
    const button = html("button", { type: "button", "aria-label": `Try the pattern ${pattern}` }, html("code", {}, pattern));
    button.addEventListener("click", () => { input.value = pattern; figure.change(); });
    return button;
  })));

  const chips = new Map();
  for (const [name, layers] of Object.entries(groups)) {
    figure.panels.append(html("div", { class: "moving-names" }, html("b", {}, name === "around" ? "begin, end" : name), html("ul", {}, layers.map(([full, type, shape]) => {
      const chip = html("li", { title: `${full}: ${type}, ${shape}` }, full === name ? name : full.replace(`${name}.`, ""));
      chips.set(full, chip);
      return chip;
    }))));
  }
  figure.draws.push(() => {
    const fit = fits(input.value), picked = data.layers.filter(([name]) => fit.test(name));
    for (const [name, chip] of chips) {
      const is = fit.test(name);
      chip.classList.toggle("picked", is);
      if (is) chip.setAttribute("aria-label", `${name}, picked`); else chip.removeAttribute("aria-label");
    }
    const types = [...new Set(picked.map(([, type]) => type))], shown = picked.slice(0, 3).map(([name]) => name);
    figure.say(picked.length ? `“${input.value}” picks ${picked.length} of ${data.layers.length} layers (${list(types)}): ${picked.length > 3 ? `${shown.join(", ")} and ${picked.length - 3} more` : list(shown)}.`
      : `“${input.value}” picks no layer: hl.layers raises a LookupError that suggests names.`);
  });
  figure.text("Which pattern picks the last batch norm of each block, and nothing else?",
    "All layers of resnet18 by name; * stands for anything, dots included, ? for one character, [12] for one of these, [!1] for any other. What fits is what hl.layers(model, pattern) returns, and what every function of hooklab takes as names.");
});
