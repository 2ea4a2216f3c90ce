/* Lesson 14: activations of other pictures, put into the run of threes at one place and one depth. */
"use strict";
moving("patching", (figure, data) => {
  const { svg, axes, cells, pick, list } = moving, { sites, sources } = data, all = 17;
  const places = ["class token", ...Array.from({ length: 16 }, (_, i) => `row ${Math.floor(i / 4) + 1}, column ${i % 4 + 1}`), "all squares"];
  const strongest = data.recovered[0][0].indexOf(Math.max(...data.recovered[0][0].slice(0, all)));
  const site = figure.slider("patch after", sites, 0), place = figure.slider("at", places, strongest);
  const source = figure.choice("from", sources);
  const map = () => data.recovered[source.value][site.value], look = (value) => value > 0 ? "warm" : "c1";
  const seen = (back) => back / 500;  // full colour at 0.5: no square recovers more

  const size = 34, left = 2, top = 24;
  const grid = figure.panel({ height: top + 5 * size + 36, basis: 150, grow: 0, label: "Recovered, for each place of the patch" }, (panel) => {
    panel.add(svg("text", { class: "title", x: 0, y: 12 }, "recovered"));
    cells(panel.drawing, data.three.map((dark) => dark / 5000), { columns: 8, x: left, y: top, size: size / 2, look: () => "ink" });
    cells(panel.drawing, map().slice(1, all).map(seen), { columns: 4, x: left, y: top, size, look });
    for (let k = 0; k < 5; k++) panel.add(svg("path", { class: "axis", d: `M${left} ${top + k * size}h${4 * size}M${left + k * size} ${top}v${4 * size}` }));
    const token = { x: left, y: top + 4 * size + 10, width: 4 * size, height: size * 0.7 };
    panel.add(svg("rect", { ...token, class: `fill cell ${look(map()[0])}`, "fill-opacity": Math.min(1, Math.abs(seen(map()[0]))) }), svg("rect", { ...token, class: "axis" }),
              svg("text", { x: left, y: token.y + token.height + 15 }, "class token"));
    const chosen = place.value === 0 ? token : place.value === all ? { x: left, y: top, width: 4 * size, height: 4 * size }
      : { x: left + (place.value - 1) % 4 * size, y: top + Math.floor((place.value - 1) / 4) * size, width: size, height: size };
    panel.add(svg("rect", { ...chosen, class: "chosen" }));
  });
  pick(grid, (x, y) => {
    const column = Math.floor((x - left) / size), row = Math.floor((y - top) / size);
    if (y > top + 4 * size) place.value = 0;
    else if (column >= 0 && column < 4 && row >= 0) place.value = 1 + 4 * row + column;
  });

  figure.panel({ height: (width) => width > 300 ? 165 : top + 5 * size + 36, basis: 210, label: "Recovered after each block, for this place" }, (panel) => {
    const chart = axes(panel, { x: [-0.2, 3.3], y: [-0.1, 1.05], title: `patch at ${places[place.value]}`, xTicks: sites.map((name, i) => [i, name.replace("blocks.", "block ")]), yTicks: [[0], [0.5], [1]], left: 32 });
    const points = sites.map((_, i) => [i, data.recovered[source.value][i][place.value] / 1000]);
    chart.line(points, "accent");
    chart.dots(points, "accent");
    chart.dots([points[site.value]], "warm", 5);
  });
  const digits = () => data.probabilities[source.value][site.value][place.value], most = () => digits().indexOf(Math.max(...digits()));
  figure.panel({ height: (width) => width > 300 ? 165 : top + 5 * size + 36, basis: 210, label: "Mean probability of each digit, with the patch and without" }, (panel) => {
    const chart = axes(panel, { x: [-0.6, 9.6], y: [0, 1.1], title: "probability of each digit", xTicks: Array.from({ length: 10 }, (_, d) => [d]), yTicks: [[0], [0.5], [1]], left: 32 });
    const wide = (chart.X(1) - chart.X(0)) * 0.7;
    digits().forEach((p, d) => {
      chart.inside.append(svg("rect", { class: `fill ${d === 8 ? "warm" : d === 3 ? "c2" : "ink"}`, x: chart.X(d) - wide / 2, y: chart.Y(p / 1000), width: wide, height: chart.Y(0) - chart.Y(p / 1000) }),
        svg("path", { class: "line ink thin", d: `M${chart.X(d) - wide * 0.7} ${chart.Y(data.unpatched[d] / 1000)}h${wide * 1.4}` }));
    });
    panel.add(svg("text", { class: "title", x: chart.X(most()), y: chart.Y(digits()[most()] / 1000) - 5, "text-anchor": "middle" }, `a ${most()}`.replace("a 8", "an 8")));
  });
  figure.panel({ height: 118, basis: 640, label: "How much the class token takes from each square, in each head of the next block" }, (panel) => {
    const heads = data.looks[site.value], side = Math.min(19, (panel.width - 30) / 16);
    panel.add(svg("text", { class: "title", x: 0, y: 12 }, heads ? `where the class token looks next, in block ${site.value}` : "no block follows: only the class token is read"));
    (heads ?? []).forEach((weights, h) => {
      const x = 2 + h * (4 * side + 9);
      cells(panel.drawing, weights.map((weight) => weight / 250), { columns: 4, x, y: top, size: side });
      panel.add(svg("rect", { class: "axis", x, y: top, width: 4 * side, height: 4 * side }), svg("text", { x, y: top + 4 * side + 14 }, `head ${h}`));
      if (place.value > 0 && place.value < all) panel.add(svg("rect", { class: "chosen", x: x + (place.value - 1) % 4 * side, y: top + Math.floor((place.value - 1) / 4) * side, width: side, height: side }));
    });
  });

  const percent = (p) => `${(p / 10).toFixed(p < 100 ? 1 : 0)}%`, named = (digit) => `${digit === 8 ? "an" : "a"} ${digit}`;
  figure.draws.push(() => {
    const now = digits(), chance = (digit) => `${named(digit)} has ${percent(now[digit])} (unpatched ${percent(data.unpatched[digit])})`;
    figure.say(`Threes with activations of ${sources[source.value].replace("themselves", "their own run")}, patched after ${sites[site.value]} at ${places[place.value]}: recovered ${(map()[place.value] / 1000).toFixed(2).replace("-", "−")}. ` +
      `Most probable is ${named(most())}: ${list([...new Set([most(), 8, 3])].map(chance))}.`);
  });
  figure.text("After which block does the square no longer matter, and the class token does? Which patch must change nothing, and does it?",
    "Means over thirty threes. Recovered: 0 is a three as it is, 1 an eight; orange up, violet down, full colour at 0.5 (in the figure above already at 0.2). Thin lines: the probabilities without a patch. Below: the attention weights of the class token, averaged over eights. Click a square, or use the slider.");
});
