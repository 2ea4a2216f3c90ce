/* The home page: a digit that the reader draws, and what each block of a small network makes of it. */
"use strict";
moving("digit", (figure, data) => {
  const { svg, axes, cells, layers, convolve, linear, softmax } = moving, net = layers(data.layers);
  const scales = ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"];
  const example = figure.choice("a digit", [..."0123456789"], 3), scale = figure.slider("weights ×", scales, scales.indexOf("0.7"));
  let strokes = [], drawn = false, pen = [4, 4], down = false;
  const own = () => { strokes = []; drawn = true; for (const input of example.inputs) input.checked = false; };
  const clear = () => { own(); down = false; figure.change(); };
  figure.button("draw your own", () => { clear(); pad.drawing.focus(); });
  for (const input of example.inputs) for (const event of ["change", "click"]) input.addEventListener(event, () => { drawn = false; figure.change(); });

  /* Strokes as the data have them: fitted into 32×32 pixels, thick, then the mean of each 4×4. */
  const raster = () => {
    const points = strokes.flat(), image = new Float32Array(64);
    if (!points.length) return image;
    const low = [0, 1].map((k) => Math.min(...points.map((p) => p[k]))), high = [0, 1].map((k) => Math.max(...points.map((p) => p[k])));
    const thick = 2.1, times = (31 - 2 * thick) / Math.max(high[0] - low[0], high[1] - low[1], 2);
    const place = (p) => [0, 1].map((k) => 16 + (p[k] - (low[k] + high[k]) / 2) * times);
    for (let y = 0; y < 32; y++) for (let x = 0; x < 32; x++) {
      const near = strokes.some((stroke) => stroke.some((p, i) => {
        const [a, b] = [place(stroke[Math.max(0, i - 1)]), place(p)], along = [b[0] - a[0], b[1] - a[1]], square = along[0] ** 2 + along[1] ** 2;
        const t = square ? Math.min(1, Math.max(0, ((x + 0.5 - a[0]) * along[0] + (y + 0.5 - a[1]) * along[1]) / square)) : 0;
        return Math.hypot(x + 0.5 - a[0] - t * along[0], y + 0.5 - a[1] - t * along[1]) < thick;
      }));
      if (near) image[(y >> 2) * 8 + (x >> 2)] += 1 / 16;
    }
    return image;
  };
  const image = () => drawn ? raster() : Float32Array.from(data.examples[example.value], (dark) => dark / 16);
  const run = (input, times) => {
    const outputs = [];
    for (const [i, side] of [8, 8, 4, 2].entries()) outputs.push(convolve(net[i], outputs.at(-1) ?? input, side, times));
    return [...outputs, softmax(linear(net[4], outputs.at(-1), times))];
  };
  let seen, outputs, full;
  const largest = (maps) => maps.reduce((a, b) => Math.max(a, b), 0);
  figure.draws.push(() => { seen = image(); outputs = run(seen, +scales[scale.value]); full = run(seen, 1); });

  let side;
  const pad = figure.panel({ height: (width) => (side = Math.min(width, 196)) + 22, label: "Drawing area: arrow keys move the pen, space puts it down or lifts it, Delete clears" }, (panel) => {
    panel.add(svg("text", { class: "title", x: 2, y: 12 }, "draw here"));
    panel.add(svg("rect", { class: "sheet", x: 2, y: 20, width: side - 2, height: side - 2 }));
    if (!drawn) cells(panel.drawing, seen, { columns: 8, x: 2, y: 20, size: (side - 2) / 8, look: () => "ink" });
    const at = ([x, y]) => `${(2 + x / 8 * (side - 2)).toFixed(1)} ${(20 + y / 8 * (side - 2)).toFixed(1)}`;
    for (const stroke of drawn ? strokes : []) panel.add(svg("path", { class: "stroke", d: `M${at(stroke[0])}${stroke.map((p) => `L${at(p)}`).join("")}` }));
    const [x, y] = at(pen).split(" ");
    panel.add(svg("circle", { class: `pen ${down ? "fill warm" : ""}`, cx: x, cy: y, r: 5 }));
  });
  pad.drawing.classList.add("moving-pad");
  for (const [name, value] of [["tabindex", 0], ["role", "application"]]) pad.drawing.setAttribute(name, value);
  const start = (point) => { if (!drawn) own(); strokes.push([point]); };
  const move = (point) => { pen = point.map((v) => Math.min(8, Math.max(0, v))); if (down) strokes.at(-1).push(pen); figure.change(); };
  const under = (event) => { const box = pad.drawing.getBoundingClientRect(); return [(event.clientX - box.left - 2) / (side - 2) * 8, (event.clientY - box.top - 20) / (side - 2) * 8]; };
  pad.drawing.addEventListener("pointerdown", (event) => { pad.drawing.setPointerCapture(event.pointerId); start(under(event)); down = true; move(under(event)); });
  pad.drawing.addEventListener("pointermove", (event) => { if (down && event.buttons) move(under(event)); });
  pad.drawing.addEventListener("pointerup", () => { down = false; figure.change(); });
  pad.drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) move([pen[0] + step[0], pen[1] + step[1]]);
    else if (event.key === " ") { down = !down; if (down) start(pen); figure.change(); }
    else if (event.key === "Delete" || event.key === "Backspace") clear();
    else return;
    event.preventDefault();
  });

  figure.panel({ height: 132, label: "The answer: the probability of each digit" }, (panel) => {
    const chart = axes(panel, { x: [-0.6, 9.6], y: [0, 1], title: "the answer", xTicks: Array.from({ length: 10 }, (_, d) => [d]), yTicks: [[0, "0"], [1, "1"]], left: 16, right: 4 });
    const wide = (chart.X(1) - chart.X(0)) * 0.7, best = outputs[4].indexOf(Math.max(...outputs[4]));
    outputs[4].forEach((p, d) => chart.inside.append(svg("rect", { class: `fill ${d === best ? "warm" : "ink"}`, x: chart.X(d) - wide / 2, y: chart.Y(p), width: wide, height: chart.Y(0) - chart.Y(p) })));
  });

  const groups = [[0, "block 1: 8 maps", 4, 8], [1, "block 2: 16", 4, 4], [2, "block 3: 32", 8, 2], [3, "block 4: 64", 8, 1]], tall = (width) => Math.min(140, (width - 20) / 3);
  figure.panel({ height: (width) => 2 * (tall(width) + 42), label: "The maps of each block" }, (panel) => {
    let x = 2, y = 20;
    const high = tall(panel.width);
    for (const [block, title, columns, edge] of groups) {
      const values = outputs[block], most = largest(full[block]) || 1, rows = values.length / edge ** 2 / columns, size = (high - (rows - 1) * 2) / (rows * edge);
      const wide = columns * edge * size + (columns - 1) * 2;
      if (block === 2) { x = 2; y += high + 42; }
      panel.add(svg("text", { class: "title", x, y: y - 8 }, title), svg("text", { x, y: y + high + 15 }, `up to ${largest(values).toPrecision(2)}`));
      for (let map = 0; map < values.length / edge ** 2; map++) {
        cells(panel.drawing, values.subarray(map * edge ** 2, (map + 1) * edge ** 2).map((value) => value / most),
          { columns: edge, x: x + map % columns * (edge * size + 2), y: y + Math.floor(map / columns) * (edge * size + 2), size });
      }
      panel.add(svg("rect", { class: "axis", x: x - 1, y: y - 1, width: wide + 2, height: high + 2 }));
      x += wide + 14;
    }
  });
  figure.draws.push(() => {
    const answer = outputs[4], best = answer.indexOf(Math.max(...answer)), [now, before] = [largest(outputs[3]), largest(full[3])];
    const faded = scale.value < scales.length - 1 && now ? `Block 4 is ${(before / now).toPrecision(2)} times smaller.` : "Hooks read every map.";
    figure.say(drawn && !strokes.length ? "An empty sheet: draw a digit." : `It reads ${best === 8 ? "an" : "a"} ${best}, with probability ${(100 * answer[best]).toFixed(1)}%. ${faded}`);
  });
  figure.text("what fades first when all weights shrink, and which maps respond to the slope of a stroke that you draw?",
    `A network of 25,034 weights runs on this page; it reads ${data.right}% of unseen digits. Each map is one channel's view of the picture. Draw with the mouse, a finger or the keyboard (arrows move the pen, space puts it down).`);
});
