// Charts of how it was. The server keeps the points; new ones are asked for when the table of the last ones changes.

import uPlot from "./uplot/uPlot.esm.js";

const percent = (value) => (value === null ? null : 100 * value);
const of = (name, change = (value) => value) => (samples) => samples.map((sample) => change(sample[name] ?? null));
// In a gap nothing is known of any cause.
const ofCause = (cause) => of("evictedFor", (counts) => counts && (counts[cause] ?? 0));

const CHARTS = {
  utilisation: {
    unit: "%",
    series: [
      ["Compute granted", "--c0", of("computeGranted", percent)],
      ["Compute used", "--c1", of("computeUsed", percent)],
      ["Memory granted", "--c2", of("memoryGranted", percent)],
      ["Memory used", "--c3", of("memoryUsed", percent)],
    ],
    range: [0, 100],
  },
  waits: {
    unit: "",
    series: [
      ["Pods that wait", "--c4", of("waiting")],
      ["Mean wait, s", "--c5", of("wait")],
    ],
  },
  evictions: {
    unit: "",
    // Beside all of them those of each cause, where there are several.
    get series() {
      const causes = [...new Set(samples.flatMap((sample) => Object.keys(sample.evictedFor ?? {})))].sort();
      const each = causes.map((cause, i) => [cause, `--c${(7 + i) % 12}`, ofCause(cause)]);
      return [["Evictions", "--c6", of("evicted")], ...(causes.length > 1 ? each : [])];
    },
  },
};

let samples = [];
const drawn = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Nobody knows how it was while nobody looked: a line through that time would tell of what never was.
function withGaps(samples) {
  const steps = samples.slice(1).map((sample, i) => sample.at - samples[i].at);
  const usual = [...steps].sort((one, other) => one - other)[Math.floor(steps.length / 2)];
  return samples.flatMap((sample, i) => (steps[i] > 3 * usual ? [sample, { at: sample.at + usual }] : [sample]));
}

function data(chart) {
  const shown = withGaps(samples);
  return [shown.map((sample) => sample.at), ...chart.series.map(([, , values]) => values(shown))];
}

const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const clock = (at) => CLOCK.format(new Date(1000 * at));

function draw(name, chart) {
  const box = document.getElementById(`chart-${name}`);
  drawn.get(name)?.destroy();
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 } };
  const options = {
    width: box.clientWidth,
    height: 220,
    series: [
      { value: (_, at) => (at === null ? "-" : clock(at)) },
      ...chart.series.map(([label, stroke]) => ({
        label,
        stroke: colour(stroke),
        width: 2,
        points: { show: samples.length < 3 },
        value: (_, value) => (value === null ? "-" : `${Math.round(value * 10) / 10} ${chart.unit}`),
      })),
    ],
    axes: [{ ...axis, space: 90, values: (_, instants) => instants.map(clock) }, axis],
    scales: { y: { range: chart.range ?? ((_, __, most) => [0, Math.max(1, most * 1.1)]) } },
  };
  const plot = new uPlot(options, data(chart), box);
  // Whoever listens has the caption, and the table below.
  plot.root.setAttribute("aria-hidden", "true");
  drawn.set(name, plot);
}

function drawAll() {
  for (const [name, chart] of Object.entries(CHARTS)) draw(name, chart);
}

async function more() {
  const since = samples.at(-1)?.at ?? 0;
  const answer = await fetch(`/page/history.json?since=${since}`);
  if (!answer.ok) return;
  const found = await answer.json();
  if (!found.length) return;
  samples = [...samples, ...found].slice(-5000);
  for (const [name, chart] of Object.entries(CHARTS)) {
    const plot = drawn.get(name);
    // Beside its instants it has as many lines as when it was drawn, or it is drawn anew.
    if (plot && plot.series.length - 1 !== chart.series.length) draw(name, chart);
    else plot?.setData(data(chart));
  }
}

await more();
drawAll();
new MutationObserver(more).observe(document.getElementById("samples"), { childList: true });
document.addEventListener("theme", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
addEventListener("resize", drawAll);
