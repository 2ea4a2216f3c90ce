/* Lesson 12: paint pixels over, and see what both networks read, and what the map of class 3 makes of it. */
"use strict";
moving("cover", (figure, data) => {
  const { svg, axes, cells, layers, convolve, linear, softmax, unpack } = moving, nets = data.networks.map(layers);
  const pixels = unpack(data.pictures, 0, 255 / 16), count = data.truth.length, images = data.truth.map((_, i) => pixels.subarray(64 * i, 64 * i + 64));
  const named = (digit) => `${digit === 8 ? "an" : "a"} ${digit}`;
  const picture = figure.slider("picture", data.truth.map((_, i) => `${i + 1} of ${count}`), data.truth.findIndex((digit) => digit !== 3));
  const net = figure.choice("network", ["first", "fixed"]), ink = figure.choice("paint", ["white", "black"]);
  const painted = new Map();
  let pen = 0, drawing = false;
  figure.button("as it was", () => { painted.clear(); figure.change(); });

  const run = (image) => {
    const [first, second, third, head] = nets[net.value], maps = convolve(third, convolve(second, convolve(first, image, 8), 8), 8);
    const pooled = Float32Array.from({ length: 32 }, (_, k) => maps.subarray(64 * k, 64 * k + 64).reduce((a, b) => a + b) / 64), logits = linear(head, pooled);
    /* The class activation map of 3: its mean and the bias of the head are the logit. */
    const map = Float32Array.from({ length: 64 }, (_, p) => pooled.reduce((sum, _, k) => sum + head.weight[32 * 3 + k] * maps[64 * k + p], 0));
    return { logits, map, chances: softmax(logits), read: logits.indexOf(Math.max(...logits)) };
  };
  let image, before, now;
  figure.draws.push(() => {
    image = images[picture.value].slice();
    for (const [place, value] of painted) image[place] = value;
    [before, now] = [run(images[picture.value]), run(image)];
  });

  const top = 22, side = (panel) => Math.min(22, (panel.width - 4) / 8), height = (width) => Math.min(22, (width - 4) / 8) * 8 + top + 4;
  const frame = (panel) => svg("rect", { class: "axis", x: 2, y: top, width: 8 * side(panel), height: 8 * side(panel) });
  const spot = (panel, place, extra) => svg("rect", { ...extra, x: 2 + place % 8 * side(panel), y: top + Math.floor(place / 8) * side(panel), width: side(panel), height: side(panel) });
  const pad = figure.panel({ height, basis: 176, grow: 0, label: "The picture: arrow keys move the pen, space paints a pixel or takes the paint away, Delete takes all away" }, (panel) => {
    panel.add(svg("text", { class: "title", x: 2, y: 12 }, "paint here"));
    cells(panel.drawing, image, { columns: 8, x: 2, y: top, size: side(panel), look: () => "ink" });
    panel.add(frame(panel), ...[...painted.keys()].map((place) => spot(panel, place, { class: "painted" })), spot(panel, pen, { class: "pen" }));
  });
  pad.drawing.classList.add("moving-pad");
  for (const [name, value] of [["tabindex", 0], ["role", "application"]]) pad.drawing.setAttribute(name, value);
  const at = (event) => {
    const box = pad.drawing.getBoundingClientRect(), [x, y] = [event.clientX - box.left - 2, event.clientY - box.top - top].map((v) => Math.floor(v / side(pad)));
    return x >= 0 && x < 8 && y >= 0 && y < 8 ? 8 * y + x : null;
  };
  const put = (place) => { if (place == null) return; pen = place; painted.set(place, ink.value); figure.change(); };
  pad.drawing.addEventListener("pointerdown", (event) => { pad.drawing.setPointerCapture(event.pointerId); drawing = true; put(at(event)); });
  pad.drawing.addEventListener("pointermove", (event) => { if (drawing && event.buttons && at(event) !== pen) put(at(event)); });
  pad.drawing.addEventListener("pointerup", () => { drawing = false; });
  pad.drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) pen = Math.min(7, Math.max(0, pen % 8 + step[0])) + 8 * Math.min(7, Math.max(0, (pen >> 3) + step[1]));
    else if (event.key === " ") { if (painted.get(pen) === ink.value) painted.delete(pen); else painted.set(pen, ink.value); }
    else if (event.key === "Delete" || event.key === "Backspace") painted.clear();
    else return;
    event.preventDefault();
    figure.change();
  });

  figure.panel({ height, basis: 176, grow: 0, label: "The class activation map of 3: orange speaks for a three, violet against it" }, (panel) => {
    const most = before.map.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    panel.add(svg("text", { class: "title", x: 2, y: 12 }, "what speaks for a 3"));
    cells(panel.drawing, now.map.map((value) => value / most), { columns: 8, x: 2, y: top, size: side(panel), look: (value) => value > 0 ? "warm" : "c1" });
    panel.add(frame(panel));
  });
  figure.panel({ height: top + 180, basis: 260, label: "The probability of each digit, and as it was without paint" }, (panel) => {
    const chart = axes(panel, { x: [-0.6, 9.6], y: [0, 1.1], title: "probability of each digit", xTicks: Array.from({ length: 10 }, (_, d) => [d]), yTicks: [[0], [0.5], [1]], left: 32 });
    const wide = (chart.X(1) - chart.X(0)) * 0.7;
    now.chances.forEach((p, d) => chart.inside.append(
      svg("rect", { class: `fill ${d === 3 ? "warm" : d === data.truth[picture.value] ? "accent" : "ink"}`, x: chart.X(d) - wide / 2, y: chart.Y(p), width: wide, height: chart.Y(0) - chart.Y(p) }),
      svg("path", { class: "line ink thin", d: `M${chart.X(d) - wide * 0.7} ${chart.Y(before.chances[d])}h${wide * 1.4}` })));
  });

  figure.draws.push(() => {
    const truth = data.truth[picture.value], paint = painted.size ? `With ${painted.size} pixel${painted.size > 1 ? "s" : ""} painted, the` : "The";
    figure.say(`${paint} ${net.value ? "fixed" : "first"} network reads this stamped ${truth} as ${named(now.read)}, with probability ${(100 * now.chances[now.read]).toFixed(1)}%. ` +
      `The logit of 3 is ${now.logits[3].toFixed(1).replace("-", "−")}${painted.size ? ` (${before.logits[3].toFixed(1).replace("-", "−")} without paint)` : ""}.`);
  });
  figure.text("How many pixels of the stamp must turn white before the digit is read? Does black paint, somewhere else, do the same? And the fixed network: what fools it?",
    "Both networks of this lesson run on this page. The pictures are those of the figures above: six stamped threes, and six other digits with a stamp. Orange: what speaks for a three, violet: what speaks against it. Thin lines: the probabilities without paint. Paint with the mouse or a finger; with the keyboard, arrows move the pen and space paints.");
});
