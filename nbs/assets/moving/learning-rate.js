/* Lesson 05: one run at 25 learning rates. Above, all of them at a glance; below, the chosen one step by step. */
"use strict";
moving("learning-rate", (figure, data) => {
  const { axes, pick, unpack, list } = moving, { rates, steps, layers } = data;
  const loss = unpack(data.loss, 0, data.highest), nearZero = unpack(data.near_zero, 0, 1);
  const rate = figure.slider("learning rate", rates.map(String), rates.indexOf(0.003));
  const norm = figure.toggle("batch norm"), leak = figure.toggle("leaky ReLU");
  const variant = () => 2 * leak.value + norm.value, run = () => variant() * rates.length + rate.value;
  const layer = (k, step) => nearZero[(run() * layers + k) * steps + step];

  const overview = figure.panel({ height: 112, basis: 640, label: "Accuracy after three epochs for each learning rate" }, (panel) => {
    const right = rates.map((value, i) => [value, data.right[variant() * rates.length + i]]);
    const chart = axes(panel, { x: [rates[0], rates.at(-1)], xLog: true, y: [0, 100], title: "right on unseen digits",
      xTicks: [[0.0001], [0.001], [0.01], [0.1], [1]], yTicks: [[0, "0%"], [50, "50%"], [100, "100%"]], left: 46 });
    overview.chart = chart;
    chart.line([[rates[0], 10], [rates.at(-1), 10]], "ink", "dashed");
    chart.line(right, "accent");
    chart.line([[right[rate.value][0], 0], [right[rate.value][0], 100]], "warm", "thin");
    chart.dots([right[rate.value]], "warm", 5);
  });
  pick(overview, (x) => {
    const away = rates.map((value) => Math.abs(overview.chart.X(value) - x));
    rate.value = away.indexOf(Math.min(...away));
  });

  const xTicks = [[0, "step 0"], [20], [40], [60]], height = (width) => width < 400 ? 170 : 210;
  figure.panel({ height, label: "The loss in each step" }, (panel) => {
    const chart = axes(panel, { x: [0, steps - 1], y: [0, 4], title: "loss, step by step", xTicks, yTicks: [0, 1, 2, 3, 4].map((v) => [v]), left: 46 });
    chart.line([[0, Math.log(10)], [steps - 1, Math.log(10)]], "ink", "dashed");
    chart.line(Array.from({ length: steps }, (_, step) => [step, loss[run() * steps + step]]), "accent");
  });
  figure.panel({ height, label: "The dead chart: the fraction of each layer's output near zero, in each step" }, (panel) => {
    const chart = axes(panel, { x: [0, steps - 1], y: [0, 1], title: "near zero, step by step", xTicks,
      yTicks: [0, 0.5, 1].map((v) => [v, `${100 * v}%`]), left: 46, right: 44 });
    for (let k = 0; k < layers; k++) chart.line(Array.from({ length: steps }, (_, step) => [step, layer(k, step)]), `c${k + 1}`);
    chart.names(Array.from({ length: layers }, (_, k) => [layer(k, steps - 1), `act${k + 1}`, `c${k + 1}`]));
  });

  figure.draws.push(() => {
    const last = Array.from({ length: layers }, (_, k) => `${Math.round(100 * layer(k, steps - 1))}% of act${k + 1}`);
    figure.say(`Learning rate ${rates[rate.value]}: ${data.right[run()]}% of the unseen digits are right. Near zero in the last step: ${list(last)}.`);
  });
  figure.text("At which learning rate does act2 fall silent? Do batch norm and the leak prevent it, or only move the cliff?",
    "The run of this lesson, three epochs with one seed, at 25 learning rates. Above: the accuracy in the end, for all of them. Below: the loss of the chosen run and its dead chart, which shows the fraction of each layer’s output that is at most 0.05. Dashed: guessing.");
});
