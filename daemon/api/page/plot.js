/* plot.js - what was measured over the last minutes, as lines. Each plot says
 * in its caption what it shows, for those who do not see it. */

const PLOT_MS = 5 * 60000;
const GAP_MS = 5000; // nothing was measured for longer: the line is broken
const POINTS_MAX = 600;

const WIDE = 320, HIGH = 130, LEFT = 34, BOTTOM = 18, TOP = 8;

/* {at: ms of performance.now(), output: tokens a second, step: ms or null} */
const points = [];

function svg(name, attributes, ...inside) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, String(v));
  e.append(...inside);
  return e;
}

/* The least of 1, 2, 5, 10, 20, ... that is not below x. */
function roundUp(x) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(x, 1)));
  return [1, 2, 5, 10].map((f) => f * ten).find((v) => v >= x);
}

/* A number of the axis, which has little room: 0.5, 200, 10k. */
const short = (x) => (x < 1000 ? String(x) : `${x / 1000}k`);

const PLOTS = [
  { name: "Tokens a second", unit: "", get: (p) => p.output },
  { name: "Step", unit: " ms", get: (p) => p.step },
];

const figure = (x, unit) => `${x < 10 ? x.toFixed(1) : Math.round(x)}${unit}`;

/* Pieces of the line that have no gap: lists of [x, y]. */
function pieces(get, now, top) {
  const found = [];
  let last = -Infinity;
  for (const p of points) {
    const v = get(p);
    if (v === null) continue;
    const x = WIDE - ((now - p.at) / PLOT_MS) * (WIDE - LEFT);
    const y = HIGH - BOTTOM - (v / top) * (HIGH - BOTTOM - TOP);
    if (p.at - last > GAP_MS) found.push([]);
    found[found.length - 1].push([x, y]);
    last = p.at;
  }
  return found;
}

const path = (list) => list.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawPlot(plot, now) {
  const values = points.map(plot.get).filter((v) => v !== null);
  const top = roundUp(Math.max(...values, 1));
  const base = HIGH - BOTTOM;
  const parts = [];
  for (const f of [0, 0.5, 1]) {
    const y = base - f * (base - TOP);
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: WIDE, y1: y, y2: y }),
      svg("text", { class: "tick", x: LEFT - 5, y: y + 4, "text-anchor": "end" }, short(f * top)));
  }
  for (const [text, x, anchor] of [["5 min ago", LEFT, "start"], ["now", WIDE, "end"]]) {
    parts.push(svg("text", { class: "tick", x, y: HIGH - 4, "text-anchor": anchor }, text));
  }
  for (const list of pieces(plot.get, now, top)) {
    const d = path(list);
    parts.push(svg("path", { class: "area", d: `${d}L${list[list.length - 1][0].toFixed(1)} ${base}L${list[0][0].toFixed(1)} ${base}Z` }),
      svg("path", { class: "line", d }));
  }
  plot.svg.replaceChildren(...parts);
  put(plot.caption, values.length === 0 ? `${plot.name}: nothing measured yet`
    : `${plot.name}: last ${figure(values[values.length - 1], plot.unit)}, lowest ${figure(Math.min(...values), plot.unit)}, ` +
      `highest ${figure(Math.max(...values), plot.unit)}`);
}

function makePlots() {
  for (const plot of PLOTS) {
    const id = `plot-${PLOTS.indexOf(plot)}`;
    plot.caption = element("figcaption", { id });
    plot.svg = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-labelledby": id });
    $("plots").append(element("figure", {}, plot.caption, plot.svg));
    drawPlot(plot, performance.now());
  }
}

const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);

/* Means of each minute, newest first. */
function drawMinutes(now) {
  const rows = [0, 1, 2, 3, 4].map((m) => ({ m, list: points.filter((p) => Math.floor((now - p.at) / 60000) === m) }))
    .filter((x) => x.list.length > 0);
  table($("minutes"), rows, (x) => String(x.m), 3, (td, x) => {
    const step = mean(x.list.map((p) => p.step).filter((v) => v !== null));
    put(td[0], x.m === 0 ? "this one" : `${x.m} ago`);
    put(td[1], rate(mean(x.list.map((p) => p.output))));
    put(td[2], step === null ? "–" : figure(step, " ms"));
  });
}

function addPoint(r) {
  const now = performance.now();
  points.push({ at: now, output: r.output, step: r.step });
  while (points.length > POINTS_MAX || now - points[0].at > PLOT_MS) points.shift();
  for (const plot of PLOTS) drawPlot(plot, now);
  drawMinutes(now);
}
