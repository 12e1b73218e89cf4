"use strict";
// All numbers were computed before, for each beta of the grid. Names from files are set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const order = { column: 1, down: true };
let at = data.start;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// ---- charts -------------------------------------------------------------------------------------

function drawn(parent, tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const colour = (series) => (series.colour === null ? "var(--soft)" : `var(--c${series.colour})`);

// the range of values with a little room, on a linear or a logarithmic axis
function makeRange(values, log) {
  const ends = log ? values.map(Math.log10) : values;
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  const room = 0.04 * (high - low) || 0.05 * Math.abs(high) || 0.05;
  [low, high] = [low - room, high + room];
  return { low, high, log, share: (v) => ((log ? Math.log10(v) : v) - low) / (high - low) };
}

// round values, about five of them; powers of two on a short logarithmic axis
function ticks(range) {
  const width = range.high - range.low;
  const unit = range.log && width < 4 ? Math.log10(2) : 1;
  const size = range.log ? Math.max(1, Math.ceil(width / unit / 8)) : 0;
  if (range.log) {
    const step = size * unit;
    const first = Math.ceil(range.low / step);
    const count = Math.floor(range.high / step) - first + 1;
    return Array.from({ length: count }, (_, i) => 10 ** ((first + i) * step));
  }
  const base = 10 ** Math.floor(Math.log10(width / 4));
  const step = base * [1, 2, 5, 10].find((m) => width / (m * base) <= 6);
  const first = Math.ceil(range.low / step);
  const count = Math.floor(range.high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => (first + i) * step);
}

const written = (value) => String(Number(value.toPrecision(3)));

// draw a chart into a figure, and return where a value of x is across it
function drawChart(figure, chart) {
  const width = Math.max(figure.clientWidth, 240);
  const height = chart.equal ? width : Math.min(360, Math.max(240, 0.5 * width));
  const [left, right, top, bottom] = [48, width - 10, 8, height - 40];
  const points = chart.series.flatMap((series) => series.points);
  const xs = points.map((p) => p[0]);
  const ys = points.map((p) => p[1]);
  const both = makeRange([...xs, ...ys], false);
  const xRange = chart.equal ? both : makeRange(xs, chart.x_log);
  const yRange = chart.equal ? both : makeRange(ys, chart.y_log);
  // equal axes have equal units
  const side = chart.equal ? Math.min(right - left, bottom - top) : 0;
  const xEnd = chart.equal ? left + side : right;
  const yEnd = chart.equal ? bottom - side : top;
  const x = (value) => left + xRange.share(value) * (xEnd - left);
  const y = (value) => bottom + yRange.share(value) * (yEnd - bottom);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${chart.y_label} against ${chart.x_label}`);
  for (const tick of ticks(xRange)) {
    drawn(svg, "line", { class: "grid", x1: x(tick), x2: x(tick), y1: yEnd, y2: bottom });
    drawn(svg, "text", { x: x(tick), y: bottom + 15, "text-anchor": "middle" }, written(tick));
  }
  for (const tick of ticks(yRange)) {
    drawn(svg, "line", { class: "grid", x1: left, x2: xEnd, y1: y(tick), y2: y(tick) });
    drawn(svg, "text", { x: left - 5, y: y(tick) + 4, "text-anchor": "end" }, written(tick));
  }
  const middle = { "text-anchor": "middle", class: "axis-label" };
  drawn(svg, "text", { ...middle, x: (left + xEnd) / 2, y: height - 6 }, chart.x_label);
  const turned = `translate(12 ${(yEnd + bottom) / 2}) rotate(-90)`;
  drawn(svg, "text", { ...middle, transform: turned }, chart.y_label);
  for (const series of chart.series) drawSeries(svg, series, x, y);
  const legend = element("p", undefined, "legend");
  for (const series of chart.series.filter((s) => s.name)) {
    const key = element("span");
    const line = element("i");
    line.style.borderColor = colour(series);
    if (series.colour === null) line.style.borderTopStyle = series.dotted ? "dotted" : "dashed";
    key.append(line, series.name);
    legend.append(key);
  }
  figure.replaceChildren(svg, legend);
  return { svg, x, y, top: yEnd, bottom };
}

function drawSeries(svg, series, x, y) {
  const line = series.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
  const dash = series.colour === null ? (series.dotted ? "2 3" : "6 4") : "none";
  if (!series.loose) {
    drawn(svg, "polyline", { points: line, "stroke-dasharray": dash }).style.stroke = colour(series);
  }
  series.points.forEach(([a, b], i) => {
    if (series.errors[i]) {
      const [low, high] = [y(b - series.errors[i]), y(b + series.errors[i])];
      const bar = drawn(svg, "line", { class: "error", x1: x(a), x2: x(a), y1: low, y2: high });
      bar.style.stroke = colour(series);
      bar.style.opacity = 0.5;
    }
    if (series.colour === null) return;
    const dot = drawn(svg, "circle", { cx: x(a), cy: y(b), r: series.large ? 6 : 2.5 });
    dot.style.fill = colour(series);
    drawn(dot, "title", {}, `${series.name}: ${written(a)}, ${b.toFixed(4)}`);
  });
}

// ---- tables -------------------------------------------------------------------------------------

// 0/0 = 1, as everywhere
const ratio = (top, bottom) => (bottom > 0 ? top / bottom : 1);

function labelRows() {
  const view = data.at[at];
  // the weight of precision; 0 and 1 at the extremes of beta, where squares leave the numbers
  const share = 1 / (1 + data.betas[at] ** 2);
  return data.labels.map((name, j) => {
    const [hits, predicted, support] = [view.hits[j], view.predicted[j], data.support[j]];
    const below = share * predicted + (1 - share) * support;
    const f = support + predicted === 0 ? 1 : below > 0 ? hits / below : 0;
    return [name, support, predicted, ratio(hits, predicted), ratio(hits, support), f];
  });
}

function compare(one, other) {
  const [a, b] = [one[order.column], other[order.column]];
  const sign = typeof a === "string" ? a.localeCompare(b) : a - b;
  return (order.down ? -sign : sign) || one[0].localeCompare(other[0]);
}

function fill(id, rows) {
  get(id).querySelector("tbody").replaceChildren(...rows);
}

function shownLabels() {
  const wanted = get("search").value.trim().toLowerCase();
  return labelRows().filter((cells) => cells[0].toLowerCase().includes(wanted)).sort(compare);
}

const labelText = (cell, column) => (column > 2 ? cell.toFixed(3) : String(cell));

function showLabels() {
  fill("by-label", shownLabels().map((cells) => {
    const row = element("tr");
    cells.forEach((cell, column) => {
      row.append(element("td", labelText(cell, column), column ? "" : "name"));
    });
    return row;
  }));
  get("by-label").querySelectorAll("th").forEach((head, column) => {
    const sorted = column === order.column;
    head.setAttribute("aria-sort", !sorted ? "none" : order.down ? "descending" : "ascending");
  });
}

function tags(own, others, className) {
  const cell = element("td", undefined, "tags");
  const known = new Set(others);
  for (const j of own) {
    cell.append(element("span", data.labels[j], "tag " + (known.has(j) ? "both" : className)));
  }
  if (!own.length) cell.append(element("small", "none"));
  return cell;
}

function showRows(id, rows) {
  fill(id, rows.map(([number, expected, actual, predicted]) => {
    const row = element("tr");
    const known = data.rows[number];
    row.append(element("td", String(number + 1)));
    for (const cell of known.cells) row.append(element("td", cell, cell.length > 24 ? "cell" : "id"));
    row.append(element("td", expected), element("td", actual));
    row.append(tags(known.true, predicted, "missed"), tags(predicted, known.true, "wrong"));
    return row;
  }));
}

function showConfusions() {
  const pairs = data.at[at].confusions;
  get("confusions").hidden = !pairs.length;
  get("no-confusions").hidden = pairs.length > 0;
  fill("confusions", pairs.map(([missed, wrong, count]) => {
    const row = element("tr");
    for (const [j, kind] of [[missed, "missed"], [wrong, "wrong"]]) {
      const cell = element("td", undefined, "name");
      cell.append(element("span", data.labels[j], "tag " + kind));
      row.append(cell);
    }
    row.append(element("td", String(count)));
    return row;
  }));
}

// ---- one label ----------------------------------------------------------------------------------

function showLabel() {
  if (!data.curves) return;
  const j = Number(get("label").value);
  const cells = labelRows()[j];
  const now = { name: "now", points: [[cells[4], cells[3]]], colour: 1, errors: [], large: true };
  const curve = { name: data.labels[j], points: data.curves[j] ?? [], colour: 0, errors: [] };
  const corners = { name: "", points: [[0, 0], [1, 1]], colour: null, errors: [], loose: true };
  const chart = { x_label: "recall", y_label: "precision", equal: true };
  drawChart(get("curve"), { ...chart, series: [corners, curve, now] });
  const found = data.features[j] ?? [];
  get("features").hidden = !found.length;
  get("features").querySelector(".tag-list").replaceChildren(
    ...found.map(([name, strength]) => {
      const tag = element("span", `${name} `, "tag");
      tag.append(element("small", strength.toFixed(2)));
      return tag;
    })
  );
}

// ---- downloads ----------------------------------------------------------------------------------

// an apostrophe before texts that a spreadsheet would run as a formula
function csvCell(cell) {
  const text = typeof cell === "string" ? cell.replace(/^( *[=+\-@\t\r])/, "'$1") : String(cell);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const names = (labels) => labels.map((j) => data.labels[j]).join("; ");

function csvRows(name) {
  if (name === "labels") {
    const heads = [...get("by-label").querySelectorAll("th button")].map((b) => b.textContent);
    return [heads, ...shownLabels()];
  }
  const heads = ["group", "row", ...data.columns, "expected F", "actual F", "true", "predicted"];
  const rows = Object.entries(data.at[at].groups).flatMap(([group, found]) =>
    found.map(([number, expected, actual, predicted]) => {
      const { cells, true: truth } = data.rows[number];
      const scores = [Number(expected), Number(actual)];
      return [group, number + 1, ...cells, ...scores, names(truth), names(predicted)];
    })
  );
  return [heads, ...rows];
}

function download(name) {
  const text = csvRows(name).map((row) => row.map(csvCell).join(",") + "\n").join("");
  const link = element("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff" + text], { type: "text/csv" }));
  link.download = `${name}-beta-${data.shown[at]}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// ---- the slider ---------------------------------------------------------------------------------

let cursor = () => {};

function drawFixedCharts() {
  data.chart.series.filter((s) => s.colour === null).slice(1).forEach((s) => (s.dotted = true));
  if (data.alphas) drawChart(get("alphas"), data.alphas);
  const { svg, x, top, bottom } = drawChart(get("beta-chart"), data.chart);
  const line = drawn(svg, "line", { class: "cursor", y1: top, y2: bottom });
  cursor = () => {
    line.setAttribute("x1", x(data.betas[at]));
    line.setAttribute("x2", x(data.betas[at]));
  };
}

function show() {
  const view = data.at[at];
  const slider = get("beta");
  slider.value = at;
  slider.setAttribute("aria-valuetext", "beta " + data.shown[at]);
  get("beta-value").textContent = data.shown[at];
  for (const [key, text] of Object.entries(view.numbers)) get("number-" + key).textContent = text;
  get("error-fbeta").textContent = "\u00b1 " + view.error;
  cursor();
  showLabels();
  showConfusions();
  showLabel();
  if (view.calibration) {
    drawChart(get("calibration"), view.calibration);
    for (const [id, rows] of Object.entries(view.groups)) showRows(id, rows);
  }
}

// a link such as page.html#beta=2 opens at the nearest beta of the grid
function follow() {
  const asked = Number(new URLSearchParams(location.hash.slice(1)).get("beta"));
  if (asked > 0 && Number.isFinite(asked)) {
    const away = data.betas.map((beta) => Math.abs(Math.log(beta / asked)));
    at = away.indexOf(Math.min(...away));
  }
  show();
}

get("beta").addEventListener("input", (event) => {
  at = Number(event.target.value);
  show();
});
// once the slider rests: browsers bound how often an address may change
get("beta").addEventListener("change", () => {
  history.replaceState(null, "", "#beta=" + data.betas[at]);
});
get("by-label").querySelectorAll("th button").forEach((button, column) => {
  button.addEventListener("click", () => {
    order.down = order.column === column ? !order.down : column > 0;
    order.column = column;
    showLabels();
  });
});
get("search").addEventListener("input", showLabels);
get("label").addEventListener("change", showLabel);
document.querySelectorAll("[data-download]").forEach((button) => {
  button.addEventListener("click", () => download(button.dataset.download));
});
addEventListener("hashchange", follow);
addEventListener("resize", () => {
  drawFixedCharts();
  show();
});
get("label").value = data.support.indexOf(Math.max(...data.support));
drawFixedCharts();
follow();
