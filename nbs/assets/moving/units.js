/* Lesson 13: switch units off, in a network that reads a stamp as a three. */
"use strict";
moving("units", (figure, data) => {
  const { html, svg, cells, layers, convolve, linear } = moving, net = layers(data.layers), count = data.pictures.length, clean = data.pictures.map((dark) => Float32Array.from(dark, (d) => d / 16));
  const stamped = clean.map((image) => image.map((value, i) => i % 8 < 2 && i < 16 ? 1 : value));
  const layer = figure.choice("units of", ["the second layer", "the last layer"]), way = figure.choice("set to", ["zero", "their mean"], 1);
  const picture = figure.slider("digit", Array.from({ length: count }, (_, i) => `${i + 1} of ${count}`), data.shown);
  const off = [new Set([data.unit]), new Set()];
  figure.button("all on", () => { off[layer.value].clear(); figure.change(); });

  const switched = (maps, of) => {
    if (of !== layer.value || !off[of].size) return maps;
    const changed = maps.slice();
    for (const unit of off[of]) changed.fill(way.value ? data.means[of][unit] : 0, unit * 64, unit * 64 + 64);
    return changed;
  };
  const images = [stamped, clean], ready = [[], []];
  const second = (k, i) => ready[k][i] ??= convolve(net[1], convolve(net[0], images[k][i], 8), 8);
  const answer = (maps) => {  // from the second layer on
    const third = switched(convolve(net[2], switched(maps, 0), 8), 1);
    const logits = linear(net[3], Float32Array.from({ length: 32 }, (_, k) => third.subarray(64 * k, 64 * k + 64).reduce((a, b) => a + b) / 64));
    return logits.indexOf(Math.max(...logits));
  };
  /* How many are read as 3, and right. What one unit does alone was measured; what several do is tried here. */
  const counted = () => {
    const set = [...off[layer.value]];
    if (set.length < 2) return set.length ? data.alone[layer.value][way.value][set[0]] : data.whole;
    const answers = [0, 1].map((k) => data.truth.map((_, i) => answer(second(k, i))));
    return [answers[0].filter((digit) => digit === 3).length, answers[1].filter((digit, i) => digit === data.truth[i]).length];
  };
  let counts, asked;
  figure.draws.push(() => {
    const question = JSON.stringify([layer.value, way.value, [...off[layer.value]]]);
    if (question !== asked) counts = counted();
    asked = question;
  });

  figure.panel({ height: 132, basis: 190, grow: 0, label: "The digit, with a stamp and without, and how it is read" }, (panel) => {
    for (const [k, title] of ["stamped", "as it is"].entries()) {
      const x = 2 + k * 96, read = answer(second(k, picture.value));
      panel.add(svg("text", { class: "title", x, y: 12 }, title), svg("text", { class: `name ${read === data.truth[picture.value] ? "accent" : "warm"}`, x, y: 120 }, `read as ${read}`));
      cells(panel.drawing, images[k][picture.value], { columns: 8, x, y: 20, size: 10.5, look: () => "ink" });
      panel.add(svg("rect", { class: "axis", x, y: 20, width: 84, height: 84 }));
    }
  });

  const units = html("div", { class: "moving-units", role: "group", "aria-label": "Units, to be switched off and on" });
  figure.panels.append(html("div", { class: "moving-panel", style: "flex: 1 1 320px" }, units));
  let made = -1;
  figure.draws.push(() => {
    const of = layer.value, alone = data.alone[of][way.value];
    if (made !== of) {
      made = of;
      units.replaceChildren(...alone.map((_, unit) => {
        const button = html("button", { type: "button", class: "moving-unit" }, svg("svg", { viewBox: "0 0 8 8", "aria-hidden": "true" }), html("span", {}, html("b", {}, String(unit)), html("span", {})), html("i", {}));
        button.addEventListener("click", () => { if (!off[of].delete(unit)) off[of].add(unit); figure.change(); });
        return button;
      }));
    }
    const maps = of ? convolve(net[2], second(0, picture.value), 8) : second(0, picture.value), most = maps.reduce((a, b) => Math.max(a, b), 0);
    [...units.children].forEach((button, unit) => {
      const [drawing, text, bar] = button.children, is = off[of].has(unit);
      button.setAttribute("aria-pressed", !is);
      button.setAttribute("aria-label", `Unit ${unit}: ${is ? "off" : "on"}. Without it alone, ${alone[unit][0]} stamped digits are read as 3`);
      text.lastChild.textContent = alone[unit][0];
      bar.style.width = `${100 * alone[unit][0] / count}%`;
      drawing.replaceChildren();
      cells(drawing, maps.subarray(64 * unit, 64 * unit + 64).map((value) => value / most), { columns: 8, x: 0, y: 0, size: 1 });
    });
  });
  figure.draws.push(() => {
    const of = layer.value, set = [...off[of]].sort((a, b) => a - b), [fooled, right] = counts;
    figure.say(`${set.length ? `Unit${set.length > 1 ? "s" : ""} ${moving.list(set.map(String))} of the ${of ? "last" : "second"} layer set to ${way.value ? "the mean" : "zero"}. ` : "All units are on. "}` +
      `Of ${count} stamped digits ${fooled} are read as 3 (${data.whole[0]} with all units); without a stamp ${right} are right (${data.whole[1]}).`);
  });
  figure.text("with zero instead of the mean, which other units seem to carry the stamp? And how many of the last layer must go before it is no longer seen?",
    `The network runs on this page. Each map is what a unit makes of the stamped digit; below it, beside the unit’s number and as a bar, how many of the ${count} stamped digits are read as 3 without that unit alone. Click units to switch them off and on.`);
});
