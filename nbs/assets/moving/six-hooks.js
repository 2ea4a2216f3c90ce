/* Lesson 02: one training step as events, for six versions of the network. */
"use strict";
moving("six-hooks", (figure, data) => {
  const { svg, scale, pick, list } = moving, names = Object.keys(data.cases);
  const longest = Math.max(...names.map((name) => data.cases[name].events.length));
  const which = figure.choice("network", names), time = figure.slider("event", ["1"], 0);
  const now = () => data.cases[names[which.value]];
  let shown;
  figure.draws.push(() => {  // another network starts at its end, where all is seen
    if (shown === which.value) return;
    shown = which.value;
    const count = now().events.length;
    time.relabel(Array.from({ length: count }, (_, i) => `${i + 1} of ${count}`), count - 1);
  });

  const row = 34, top = 26, left = 50;
  const lanes = figure.panel({ height: top + row * data.layers.length + 8, basis: 640, label: "Events of one training step: a lane for each layer, time to the right" }, (panel) => {
    const { events } = now(), order = ["conv1", "act", "conv2", "head"], at = time.value;
    const X = lanes.X = scale([0, longest - 1], [left + 10, panel.width - 10]), Y = (name) => top + row * (order.indexOf(name.split(".")[0]) + 0.5);
    panel.add(svg("text", { class: "name", x: 0, y: 12 }, [["forward", "forward"], ["backward", "backward"], ["◆ accumulated", "ink"], ["○ always_call", "warm"]]
      .map(([text, look], i) => svg("tspan", { class: look, dx: i && (panel.width < 340 ? 4 : 10) }, text))));
    for (const name of order) {
      panel.add(svg("path", { class: "grid", d: `M${left} ${Y(name)}H${panel.width}` }),
                svg("text", { x: left - 8, y: Y(name), dy: ".35em", "text-anchor": "end", class: events[at][1].split(".")[0] === name ? "title" : "" }, name));
    }
    const begun = {}, bars = [], marks = [], later = (i) => i > at ? "later" : "done";
    events.forEach(([kind, name], i) => {
      const key = kind.replace(" pre", "") + name;
      if (kind.includes(" pre")) begun[key] = i;
      else if (kind === "accumulated") marks.push(svg("path", { class: `fill ink ${later(i)}`, d: `M${X(i)} ${Y(name) - 8}l6 8l-6 8l-6 -8z` }));
      else if (kind.includes("always_call")) marks.push(svg("circle", { class: `ring ${later(i)}`, cx: X(i), cy: Y(name), r: 6 }));
      else { bars.push([kind, name, begun[key], i]); delete begun[key]; }
    });
    bars.sort((a, b) => (b[3] - b[2]) - (a[3] - a[2]));  // a call within a long one lies on top
    for (const [kind, name, start, end] of bars) {
      const again = kind.includes("again"), half = again ? 6 : 9;
      for (const [to, look] of [[end, "later"], [Math.min(end, at), "done"]]) {
        if (to > start) panel.add(svg("rect", { class: `fill ${kind.replace(" again", "")} ${again ? "again" : ""} ${look}`, x: X(start), y: Y(name) - half, width: X(to) - X(start), height: 2 * half, rx: 3 }));
      }
    }
    for (const [key, i] of Object.entries(begun)) {  // a call that did not end
      marks.push(svg("path", { class: `line forward ${later(i)}`, d: `M${X(i)} ${Y(events[i][1]) - 9}v18` }));
    }
    panel.add(...marks);
    const back = new Set(events.filter(([kind]) => kind === "backward").map(([, name]) => name));
    if (at === events.length - 1) for (const name of order.filter((name) => !back.has(name))) {
      panel.add(svg("text", { x: panel.width - 4, y: Y(name), dy: "-.4em", "text-anchor": "end" }, "no gradient"));
    }
    panel.add(svg("path", { class: "line warm thin", d: `M${X(at)} ${top - 4}V${panel.height}` }));
  });
  pick(lanes, (x) => { time.value = Math.round(lanes.X.share(x) * (longest - 1)); });

  const given = {
    "forward pre": (name, shape) => `${name} is about to run. f(m, inputs) gets inputs of ${shape}.`,
    "forward": (name, shape) => `${name} has run. f(m, inputs, output) gets an output of ${shape}.`,
    "backward pre": (name, shape) => `the gradient of ${name}’s output is there. f(m, grad_output) gets ${shape}.`,
    "backward": (name, shape) => `the gradient of ${name}’s input is ${shape === "no tensor" ? "not needed: grad_input holds no tensor" : `there. f(m, grad_input, grad_output) gets ${shape}`}.`,
    "accumulated": (name, shape) => `${name}.grad is written. f(parameter) gets ${shape}.`,
    "forward, always_call": (name) => `a forward hook with always_call=True gets None as the output of ${name}.`,
  };
  const ending = () => {
    const { events, learning, error, negative } = now(), with_ = (kind) => new Set(events.filter((event) => event[0] === kind).map((event) => event[1]));
    if (error) return `${events.at(-1)[1]} raised (“${error}”): no other forward hook of it fires, and there is no backward pass.`;
    if (negative[0] !== negative[1]) return `What the forward hook of conv1 was given was ${negative[0]}% negative and is now ${negative[1]} %: act has overwritten it.`;
    const backward = with_("backward"), silent = [...with_("forward")].filter((name) => !backward.has(name)), got = with_("accumulated");
    const still = ["conv1", "conv2", "head"].filter((name) => ![...got].some((parameter) => parameter.startsWith(`${name}.`)));
    if (silent.length) return `Then silence: no gradient reaches ${list(silent)}, so ${list(still)} never learn.`;
    if (still.length) return `${list(still)} passed the gradient on and does not learn itself.`;
    return `All ${got.size} parameters have a gradient${events.some(([kind]) => kind.includes("again")) ? ": the checkpointed layers ran again, until all that is needed was there, so the last call of act was stopped" : ""}.`;
  };
  figure.draws.push(() => {
    const { events } = now(), [kind, name, shape] = events[time.value], again = kind.includes("again");
    const last = time.value === events.length - 1;
    figure.say(`${kind}: ${given[kind.replace(" again", "")](name, shape)} ${again ? "This is the second run, which the backward pass asked for." : ""} ${last ? ending() : ""}`.replace(/\s+/g, " ").trim());
  });
  figure.text("Which bars will be missing when conv2 is frozen, or when it raises? Guess first, then choose, and drag back through the events.",
    "One training step, recorded by hl.Timeline: a bar reaches from a pre hook to its partner, a diamond marks a parameter whose gradient has been written. act runs twice. Checkpointing runs layers again in the backward pass (pale bars).");
});
