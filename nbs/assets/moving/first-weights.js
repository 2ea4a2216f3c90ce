/* Lesson 07: the network at step 0, for 25 sizes of its initial weights. */
"use strict";
moving("first-weights", (figure, data) => {
  const { svg, axes, pick, unpack } = moving, { stds, bins } = data, names = Object.keys(data.activations);
  const histograms = unpack(data.histograms, 0, 1), layers = data.outputs[0].length;
  const std = figure.slider("std of the weights", stds.map(String), 0);
  const act = figure.choice("activation", names), norm = figure.toggle("batch norm");
  const first = () => (norm.value * names.length + act.value) * stds.length, now = () => first() + std.value;

  const overview = figure.panel({ height: 112, basis: 640, label: "Accuracy after three epochs for each standard deviation of the weights" }, (panel) => {
    const right = stds.map((value, i) => [value, data.right[first() + i]]);
    const chart = overview.chart = axes(panel, { x: [stds[0], stds.at(-1)], xLog: true, y: [0, 100], title: "right on unseen digits after three epochs",
      xTicks: [[0.01], [0.03], [0.1], [0.3], [1]], yTicks: [[0, "0%"], [50, "50%"], [100, "100%"]], left: 46 });
    chart.line([[stds[0], 10], [stds.at(-1), 10]], "ink", "dashed");
    chart.line(right, "accent");
    chart.line([[stds[std.value], 0], [stds[std.value], 100]], "warm", "thin");
    chart.dots([right[std.value]], "warm", 5);
  });
  pick(overview, (x) => {
    const away = stds.map((value) => Math.abs(overview.chart.X(value) - x));
    std.value = away.indexOf(Math.min(...away));
  });

  const xTicks = Array.from({ length: layers }, (_, k) => [k + 1, k ? k + 1 : "layer 1"]), height = (width) => width < 400 ? 180 : 220;
  figure.panel({ height, label: "Histogram of each layer's output" }, (panel) => {
    const [low, high] = data.activations[names[act.value]];
    const chart = axes(panel, { x: [0.5, layers + 0.5], y: [low, high], title: `values of ${names[act.value]}, layer by layer`, xTicks,
      yTicks: [low, 0, high].map((v) => [v, String(v).replace("-", "−")]), left: 46 });
    const wide = chart.X(2) - chart.X(1), tall = (chart.Y(low) - chart.Y(high)) / bins;
    for (let k = 0; k < layers; k++) for (let bin = 0; bin < bins; bin++) {
      const much = histograms[(now() * layers + k) * bins + bin];
      if (much > 0.004) chart.inside.append(svg("rect", { class: "fill accent cell", x: chart.X(k + 0.5) + 1, y: chart.Y(low) - (bin + 1) * tall,
        width: wide - 2, height: tall, "fill-opacity": much.toFixed(3) }));
    }
  });
  figure.panel({ height, label: "Standard deviation of outputs and of gradients in each layer" }, (panel) => {
    const chart = axes(panel, { x: [0.5, layers + 0.3], y: [-13, 6], title: "standard deviation, layer by layer", xTicks,
      yTicks: [[-10, "10⁻¹⁰"], [-5, "10⁻⁵"], [0, "1"], [5, "10⁵"]], left: 46, right: 62 });
    for (const [key, name, look] of [["outputs", "output", "forward"], ["gradients", "gradient", "backward"]]) {
      const points = data[key][now()].map((power, k) => [k + 1, power / 100]);
      chart.line(points, look);
      chart.dots(points, look);
    }
    chart.names([["outputs", "output", "forward"], ["gradients", "gradient", "backward"]].map(([key, name, look]) => [data[key][now()].at(-1) / 100, name, look]));
  });

  const number = (power) => power < 4 ? (+(10 ** power).toPrecision(2)).toLocaleString("en") : `10${[...String(Math.round(power))].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
  const compared = (power) => Math.abs(power) < 0.1 ? "about as large as" : `${number(Math.abs(power))} times ${power < 0 ? "smaller" : "larger"} than`;
  figure.draws.push(() => {
    const outputs = data.outputs[now()], gradients = data.gradients[now()];
    figure.say(`Weights with std ${stds[std.value]} (gain ${+(10 * stds[std.value]).toPrecision(2)}): the output of layer ${layers} is ${compared((outputs.at(-1) - outputs[0]) / 100)} that of layer 1; ` +
      `the gradient at layer 1 is ${compared((gradients[0] - gradients.at(-1)) / 100)} that at layer ${layers}. After three epochs ${data.right[now()]}% are right.`);
  });
  figure.text("Which size keeps outputs and gradients alive with tanh, with ReLU, with GELU? And what is left to choose with batch norm?",
    "Lesson 07’s network of eight layers of 100 units at step 0, with 25 sizes of its initial weights. Gain is the std times √100. Below, on the left: how often each value occurs in each layer’s output; on the right, on a logarithmic axis: how large outputs and gradients are. Accuracy: the middle one of three seeds; dashed: guessing.");
});
