"use strict";
// Everything that is shown was computed before, for each beta of the grid; names are set as text.
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

// 0/0 = 1, as everywhere
const ratio = (top, bottom) => (bottom > 0 ? top / bottom : 1);

function labelRows() {
  const view = data.at[at];
  const square = data.betas[at] ** 2;
  return data.labels.map((name, j) => {
    const [hits, predicted, support] = [view.hits[j], view.predicted[j], data.support[j]];
    const f = support + predicted ? ((1 + square) * hits) / (square * support + predicted) : 1;
    return [name, support, predicted, ratio(hits, predicted), ratio(hits, support), f];
  });
}

function compare(one, other) {
  const [a, b] = [one[order.column], other[order.column]];
  const sign = typeof a === "string" ? a.localeCompare(b) : a - b;
  return (order.down ? -sign : sign) || one[0].localeCompare(other[0]);
}

function showLabels() {
  const rows = labelRows().sort(compare).map((cells) => {
    const row = element("tr");
    cells.forEach((cell, column) => {
      const text = column > 2 ? cell.toFixed(3) : String(cell);
      row.append(element("td", text, column ? "" : "name"));
    });
    return row;
  });
  get("by-label").querySelector("tbody").replaceChildren(...rows);
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
  const made = rows.map(([number, expected, actual, predicted]) => {
    const row = element("tr");
    const truth = data.truth[number];
    row.append(element("td", String(number + 1)), element("td", expected), element("td", actual));
    row.append(tags(truth, predicted, "missed"), tags(predicted, truth, "wrong"));
    return row;
  });
  get(id).querySelector("tbody").replaceChildren(...made);
}

function show() {
  const view = data.at[at];
  const slider = get("beta");
  slider.value = at;
  slider.setAttribute("aria-valuetext", "beta " + data.shown[at]);
  get("beta-value").textContent = data.shown[at];
  for (const [key, text] of Object.entries(view.numbers)) get("number-" + key).textContent = text;
  for (const line of document.querySelectorAll(".cursor")) {
    line.setAttribute("x1", data.cursor[at]);
    line.setAttribute("x2", data.cursor[at]);
  }
  document.querySelectorAll("[data-calibration]").forEach((chart) => {
    chart.hidden = Number(chart.dataset.calibration) !== at;
  });
  showLabels();
  if (view.surest.length) {
    showRows("surest", view.surest);
    showRows("unsurest", view.unsurest);
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
addEventListener("hashchange", follow);
follow();
