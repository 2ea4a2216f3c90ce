/* Figures that move: what they share. A page loads this, then for each figure its data (moving/NAME-data.js) and its program
   (moving/NAME.js), which calls moving("NAME", build). Where anything fails, there is the static figure alone. */
"use strict";
(() => {
const maker = (space) => (tag, attributes = {}, ...children) => {
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null && value !== false) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child != null));
  return made;
};
const html = maker("http://www.w3.org/1999/xhtml"), svg = maker("http://www.w3.org/2000/svg");
let ids = 0;

/* From a range of numbers to a range of pixels, with `log` along powers. */
const scale = ([low, high], [from, to], log) => {
  const along = log ? Math.log : Number;
  const place = (value) => from + (along(value) - along(low)) / (along(high) - along(low)) * (to - from);
  place.share = (pixel) => Math.min(1, Math.max(0, (pixel - from) / (to - from)));
  return place;
};

class Figure {
  constructor(place, name) {
    this.draws = [];
    this.id = `moving-${name}-${++ids}`;
    this.controls = html("div", { class: "moving-controls" });
    this.said = html("output", { id: `${this.id}-state`, class: "moving-state", "aria-live": "polite" });
    this.panels = html("div", { class: "moving-panels" });
    this.caption = html("figcaption");
    this.try = html("p", { id: `${this.id}-try`, class: "moving-try" });
    this.box = html("figure", { class: "moving-live", "data-name": name, "aria-labelledby": this.try.id }, this.try, this.controls, this.said, this.panels, this.caption);
    place.prepend(this.box);
  }

  /* The question that the figure answers, and what it shows. */
  text(question, caption) {
    this.try.append(html("b", {}, "Try it yourself"), ` ${question}`);
    this.caption.append(caption);
  }

  /* What one sees, in words. */
  say(text) {
    if (this.said.textContent === text) return;
    this.said.textContent = text;
    this.said.style.minHeight = `${this.said.offsetHeight}px`;  // so that a shorter text doesn't shift the content below
  }

  change() { for (const draw of this.draws) draw(); }

  /* One of many texts, in an order. */
  slider(label, texts, start) {
    const id = `${this.id}-${++ids}`, shown = html("b");
    const input = html("input", { id, type: "range", min: 0, max: texts.length - 1, step: 1, autocomplete: "off" });
    const tell = () => { shown.textContent = texts[input.value]; input.setAttribute("aria-valuetext", texts[input.value]); };
    const control = { input, get value() { return +input.value; },
                      set value(i) { if (i !== +input.value) { input.value = i; tell(); figure.change(); } },
                      relabel(now, at) { texts = now; input.max = now.length - 1; input.value = at; tell(); } };
    const figure = this;
    input.value = start;
    shown.style.minWidth = `${Math.max(...texts.map((text) => text.length))}ch`;
    tell();
    input.addEventListener("input", () => { tell(); this.change(); });
    this.controls.append(html("span", { class: "moving-slider" }, html("label", { for: id }, label), input, shown));
    return control;
  }

  /* On or off. */
  toggle(label, on = false) {
    const input = html("input", { type: "checkbox", autocomplete: "off" });
    input.checked = on;
    input.addEventListener("change", () => this.change());
    this.controls.append(html("label", { class: "moving-toggle" }, input, label));
    return { input, get value() { return +input.checked; } };
  }

  /* One of a few texts. */
  choice(label, texts, start = 0) {
    const name = `${this.id}-${++ids}`;
    const inputs = texts.map((_, i) => html("input", { type: "radio", name, value: i, autocomplete: "off" }));
    inputs[start].checked = true;
    for (const input of inputs) input.addEventListener("change", () => this.change());
    this.controls.append(html("fieldset", { class: "moving-choice" }, html("legend", {}, label),
                              inputs.map((input, i) => html("label", {}, input, html("span", {}, texts[i])))));
    return { inputs, get value() { return inputs.findIndex((input) => input.checked); } };
  }

  /* Does something once. */
  button(label, act) {
    const made = html("button", { type: "button" }, label);
    made.addEventListener("click", act);
    this.controls.append(made);
    return made;
  }

  /* A drawing that `draw(panel)` fills again at each change and for each width. Its coordinates are pixels, so text keeps its size. */
  panel({ height, basis = 260, grow = 1, label }, draw) {
    const drawing = svg("svg", { role: "img", "aria-label": label, "aria-describedby": this.said.id });
    const panel = { drawing, height, get width() { return this.now; }, add: (...parts) => drawing.append(...parts) };
    const again = () => {
      panel.now = Math.max(120, Math.floor(box.clientWidth));
      panel.height = typeof height === "function" ? height(panel.now) : height;
      drawing.setAttribute("viewBox", `0 0 ${panel.now} ${panel.height}`);
      drawing.style.height = `${panel.height}px`;
      drawing.replaceChildren();
      draw(panel);
    };
    const box = html("div", { class: "moving-panel", style: `flex: ${grow} 1 ${basis}px` }, drawing);
    this.panels.append(box);
    this.draws.push(again);
    new ResizeObserver(() => { if (Math.floor(box.clientWidth) !== panel.now) { this.said.style.minHeight = ""; again(); } }).observe(box);
    return panel;
  }
}

/* Axes in a panel, and what is drawn on them; what lies outside the range is cut off. */
const axes = (panel, { x, y, xLog, yLog, xTicks = [], yTicks = [], title, left = 40, right = 12, top = 24, bottom = 24 }) => {
  const [l, r, t, b] = [left, panel.width - right, top, panel.height - bottom];
  const X = scale(x, [l, r], xLog), Y = scale(y, [b, t], yLog), tick = ([value, text]) => [value, text ?? String(value)];
  panel.add(svg("path", { class: "axis", d: `M${l} ${t}V${b}H${r}` }));
  if (title) panel.add(svg("text", { class: "title", x: l, y: 12 }, title));
  for (const [value, text] of xTicks.map(tick)) {
    const end = X(value) > r - 20 && text.length > 3 && !/^[\d.]+$/.test(text);
    panel.add(svg("path", { class: "axis", d: `M${X(value)} ${b}v4` }),
              svg("text", { class: "x", x: end ? r + right : X(value), y: b + 17, "text-anchor": end ? "end" : "middle" }, text));
  }
  for (const [value, text] of yTicks.map(tick)) {
    panel.add(svg("path", { class: "grid", d: `M${l} ${Y(value)}H${r}` }),
              svg("text", { class: "y", x: l - 6, y: Y(value), dy: ".35em", "text-anchor": "end" }, text));
  }
  const inside = svg("svg", { x: l, y: t - 2, width: Math.max(0, r - l), height: b - t + 4, viewBox: `${l} ${t - 2} ${r - l} ${b - t + 4}` });
  panel.add(inside);
  const path = (points) => points.map(([a, v], i) => `${i ? "L" : "M"}${X(a).toFixed(1)} ${Y(v).toFixed(1)}`).join("");
  return {
    X, Y, inside,
    line: (points, color, extra = "") => inside.append(svg("path", { class: `line ${color} ${extra}`, d: path(points) })),
    dots: (points, color, radius = 3) => inside.append(...points.map(([a, v]) => svg("circle", { class: `dot ${color}`, cx: X(a), cy: Y(v), r: radius }))),
    /* Names at the right end of lines, moved apart where they would cover each other. */
    names(ends, gap = 14) {
      const sorted = ends.map(([value, text, color]) => ({ at: Math.min(b, Math.max(t, Y(value))), text, color })).sort((p, q) => p.at - q.at);
      sorted.forEach((name, i) => { if (i) name.at = Math.max(name.at, sorted[i - 1].at + gap); });
      let room = b + 4;
      for (const name of sorted.reverse()) { name.at = Math.min(name.at, room); room = name.at - gap; }
      panel.add(...sorted.map(({ at, text, color }) => svg("text", { class: `name ${color}`, x: r + 5, y: at, dy: ".35em" }, text)));
    },
  };
};

/* A grid of squares as deep in color as their values, from 0 to 1. */
const cells = (parent, values, { columns, x, y, size, look = () => "accent" }) => parent.append(...Array.from(values, (value, i) => svg("rect", {
  class: `fill cell ${look(value)}`, x: x + i % columns * size, y: y + Math.floor(i / columns) * size, width: size, height: size, "fill-opacity": Math.min(1, Math.abs(value)).toFixed(3) })));

/* Takes a finger or the mouse on a panel: `take` gets the place in pixels. Sideways only, so that the page scrolls. */
const pick = (panel, take) => {
  const at = (event) => { const box = panel.drawing.getBoundingClientRect(); take(event.clientX - box.left, event.clientY - box.top); };
  panel.drawing.classList.add("moving-pick");
  panel.drawing.addEventListener("pointerdown", (event) => { panel.drawing.setPointerCapture(event.pointerId); at(event); });
  panel.drawing.addEventListener("pointermove", (event) => { if (event.buttons) at(event); });
};

/* Bytes that were kept as base64, between two bounds. */
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unpack = (text, low, high) => Float32Array.from(bytes(text), (byte) => low + byte / 255 * (high - low));
const list = (words) => words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

/* Layers of a small network, whose weights are whole numbers of eight or sixteen bits. */
const whole = ({ weight, bits }) => new (bits === 16 ? Int16Array : Int8Array)(bytes(weight).buffer);
const layers = (data) => data.map((layer) => ({ ...layer, weight: Float32Array.from(whole(layer), (number) => number * layer.worth) }));

/* A convolution of 3×3 pixels, and a ReLU, below which nothing passes. `scale` multiplies all its parameters. */
const convolve = ({ weight, bias, out, stride }, input, side, scale = 1, least = 0) => {
  const wide = side + 2, count = input.length / side ** 2, end = Math.ceil(side / stride), result = new Float32Array(out * end ** 2);
  const padded = new Float32Array(count * wide ** 2);
  for (let c = 0; c < count; c++) for (let y = 0; y < side; y++) padded.set(input.subarray((c * side + y) * side, (c * side + y + 1) * side), (c * wide + y + 1) * wide + 1);
  for (let o = 0, at = 0; o < out; o++) for (let y = 0; y < end; y++) for (let x = 0; x < end; x++) {
    let sum = bias[o];
    for (let c = 0, w = o * count * 9; c < count; c++) for (let i = 0; i < 3; i++) {
      const p = (c * wide + y * stride + i) * wide + x * stride;
      sum += weight[w++] * padded[p] + weight[w++] * padded[p + 1] + weight[w++] * padded[p + 2];
    }
    result[at++] = Math.max(least, sum * scale);
  }
  return result;
};
const linear = ({ weight, bias, out }, input, scale = 1) => Float32Array.from({ length: out }, (_, o) => scale * input.reduce((sum, value, i) => sum + weight[o * input.length + i] * value, bias[o]));
const softmax = (logits) => { const powers = logits.map((logit) => Math.exp(logit - Math.max(...logits))), sum = powers.reduce((a, b) => a + b); return powers.map((power) => power / sum); };

window.moving = Object.assign((name, build) => {
  for (const place of document.querySelectorAll(`.moving[data-figure="${name}"]:not(.moving-on)`)) {
    const figure = new Figure(place, name);
    try {
      build(figure, window.movingData[name]);
      figure.change();
      place.classList.add("moving-on");
    } catch (error) {
      figure.box.remove();
      console.warn(`The static figure stays, because "${name}" cannot be animated:`, error);
    }
  }
}, { html, svg, scale, axes, cells, pick, unpack, list, layers, convolve, linear, softmax });
})();
