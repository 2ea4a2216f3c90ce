/* Lesson 13: switch units off, in a network that reads a stamp as a three. */
"use strict";
moving("units", (figure, data) => {
  const { html, svg, cells, layers, convolve, linear, unpack } = moving, net = layers(data.layers), pixels = unpack(data.pictures, 0, 255 / 16);
  const count = data.truth.length, truth = [...data.truth].map(Number), percent = (n) => Math.round(100 * n / count);
  const clean = truth.map((_, i) => pixels.subarray(64 * i, 64 * i + 64)), stamped = clean.map((image) => image.map((value, i) => i % 8 < 2 && i < 16 ? 1 : value));
  const layer = figure.choice("units of", ["second layer", "last layer"]), way = figure.choice("set to", ["zero", "their mean"], 1);
  const picture = figure.slider("digit", Array.from({ length: data.offered }, (_, i) => `${i + 1} of ${data.offered}`), data.shown);
  const off = [new Set([data.unit]), new Set()];
  figure.button("all on", () => { off[layer.value].clear(); figure.change(); });

  /* What the layers return, for each picture with a stamp and without: the last one still without its ReLU. */
  const images = [stamped, clean], seconds = [[], []], lasts = [[], []];
  const second = (k, i) => seconds[k][i] ??= convolve(net[1], convolve(net[0], images[k][i], 8), 8);
  const last = (k, i) => lasts[k][i] ??= convolve(net[2], second(k, i), 8, 1, -Infinity);
  const value = (unit) => way.value ? data.means[layer.value][unit] : 0;

  /* How the last layer changes when a unit of the second has the same value everywhere: nothing else is computed again. */
  const change = (sums, maps, unit) => {
    const by = new Float32Array(100), { weight } = net[2];
    for (let p = 0; p < 64; p++) by[(p >> 3) * 10 + p % 8 + 11] = value(unit) - maps[64 * unit + p];
    for (let o = 0; o < 32; o++) for (let p = 0, w = (16 * o + unit) * 9; p < 64; p++) {
      const at = (p >> 3) * 10 + p % 8;
      let sum = 0;
      for (let i = 0; i < 3; i++) sum += weight[w + 3 * i] * by[at + 10 * i] + weight[w + 3 * i + 1] * by[at + 10 * i + 1] + weight[w + 3 * i + 2] * by[at + 10 * i + 2];
      sums[64 * o + p] += sum;
    }
  };
  const answer = (k, i) => {
    const sums = last(k, i).slice(), set = off[layer.value];
    if (!layer.value) for (const unit of set) change(sums, second(k, i), unit);
    const pooled = new Float32Array(32);
    for (let at = 0; at < 2048; at++) pooled[at >> 6] += Math.max(0, sums[at]) / 64;
    if (layer.value) for (const unit of set) pooled[unit] = value(unit);
    const logits = linear(net[3], pooled);
    return logits.indexOf(Math.max(...logits));
  };

  /* How many are read as 3, and right. What one unit does alone was measured; what several do is tried here. */
  const counted = () => {
    const set = [...off[layer.value]];
    if (set.length < 2) return set.length ? data.alone[layer.value][way.value][set[0]] : data.whole;
    return [0, 1].map((k) => truth.filter((digit, i) => answer(k, i) === (k ? digit : 3)).length);
  };
  let counts, asked;
  figure.draws.push(() => {
    const question = JSON.stringify([layer.value, way.value, [...off[layer.value]]]);
    if (question !== asked) counts = counted();
    asked = question;
  });

  figure.panel({ height: 132, basis: 190, grow: 0, label: "The digit, with a stamp and without, and how it is read" }, (panel) => {
    for (const [k, title] of ["stamped", "as it is"].entries()) {
      const x = 2 + k * 96, read = answer(k, picture.value);
      panel.add(svg("text", { class: "title", x, y: 12 }, title), svg("text", { class: `name ${read === truth[picture.value] ? "accent" : "warm"}`, x, y: 120 }, `read as ${read}`));
      cells(panel.drawing, images[k][picture.value], { columns: 8, x, y: 20, size: 10.5, look: () => "ink" });
      panel.add(svg("rect", { class: "axis", x, y: 20, width: 84, height: 84 }));
    }
  });

  const units = html("div", { class: "moving-units", role: "group", "aria-label": "Units, to be switched off and on" });
  figure.panels.append(html("div", { class: "moving-panel", style: "flex: 1 1 320px" }, units));
  /* What the layers return takes a moment for all pictures: it is computed in between, once somebody comes near. */
  const prepare = (at = 0) => {
    for (const end = performance.now() + 8; at < 2 * count && performance.now() < end; at++) last(at % 2, at >> 1);
    if (at < 2 * count) setTimeout(prepare, 0, at);
  };
  for (const near of ["pointerenter", "focusin"]) figure.box.addEventListener(near, () => prepare(), { once: true });
  let made = -1;
  figure.draws.push(() => {
    const of = layer.value, alone = data.alone[of][way.value];
    if (made !== of) {
      made = of;
      units.replaceChildren(...alone.map((_, unit) => {
        const number = (look, text) => [html("span", {}, html("b", {}), "%", html("small", {}, text)), html("i", { class: look })];
        const button = html("button", { type: "button", class: "moving-unit" }, svg("svg", { viewBox: "0 0 8 8", "aria-hidden": "true" }),
          html("small", {}, "Unit"), html("b", {}, String(unit)), html("small", {}, "alone off: "), number("warm", " of the stamped digits are read as 3, "), number("accent", " of the unstamped ones are right"));
        button.addEventListener("click", () => { if (!off[of].delete(unit)) off[of].add(unit); figure.change(); });
        return button;
      }));
    }
    const maps = of ? last(0, picture.value) : second(0, picture.value), most = maps.reduce((a, b) => Math.max(a, b), 0);
    [...units.children].forEach((button, unit) => {
      const drawing = button.firstChild, numbers = button.querySelectorAll("span b"), bars = button.querySelectorAll("i");
      button.setAttribute("aria-pressed", !off[of].has(unit));
      alone[unit].forEach((n, k) => { numbers[k].textContent = percent(n); bars[k].style.width = `${percent(n)}%`; });
      drawing.replaceChildren();
      cells(drawing, maps.subarray(64 * unit, 64 * unit + 64).map((value) => Math.max(0, value) / most), { columns: 8, x: 0, y: 0, size: 1 });
    });
  });
  figure.draws.push(() => {
    const of = layer.value, set = [...off[of]].sort((a, b) => a - b), [fooled, right] = counts.map(percent), whole = data.whole.map(percent);
    figure.say(`${set.length ? `Unit${set.length > 1 ? "s" : ""} ${moving.list(set.map(String))} of the ${of ? "last" : "second"} layer set to ${way.value ? "the mean" : "zero"}. ` : "All units are on. "}` +
      `With a stamp, ${fooled}% of ${count} unseen digits are read as 3 (${whole[0]}% with all units); without a stamp, ${right}% are right (${whole[1]}%).`);
  });
  const costs = data.alone[0].map((of) => Math.round(100 * (data.whole[1] - of.reduce((sum, [, right]) => sum + right, 0) / of.length) / count));
  figure.text("With zero instead of the mean, which other units seem to carry the stamp? And how many of the last layer must go before it is no longer seen?",
    `The network runs on this page. Each map is what a unit makes of the stamped digit. Below it: how many of the ${count} digits are read as 3 when they have a stamp (orange), and how many are right without one (green), if that unit alone is off. On average, setting a unit of the second layer to zero costs ${costs[0]} points of accuracy, setting it to its mean ${costs[1]}. Click units to switch them off and on.`);
});
