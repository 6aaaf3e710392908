// The table of all runs. It can be sorted by any column and searched by any words.

const table = { key: null, down: false, words: [], most: few() };
const FORMATS = { percent, number: figure, text: (x) => (x === null || x === undefined ? "–" : String(x)) };

function cellText(run, column) {
  const value = run.cells[column.key];
  if (column.kind === "text") return clean(FORMATS.text(value));
  return FORMATS[column.kind](value) + (column.key === "final" && known(value) && unfinished(run) ? " so far" : "");
}

function drawHead() {
  const sortable = (key, title, kind) => el("th", {
    scope: "col", class: kind === "text" ? null : "figure", "data-key": key,
    "aria-sort": table.key === key ? (table.down ? "descending" : "ascending") : null,
  }, el("button", { type: "button", text: title, onclick: () => sortBy(key, kind) }));
  document.querySelector("#runs thead").replaceChildren(el("tr", {},
    el("th", { scope: "col" }, el("span", { class: "visually-hidden", text: "Compare" })),
    sortable("label", "Run", "text"),
    ...report.columns.map((c) => sortable(c.key, c.title, c.kind))));
}

function sortBy(key, kind) {
  if (table.key === key) table.down = !table.down;
  else { table.key = key; table.down = kind !== "text"; }
  for (const th of document.querySelectorAll("#runs th[data-key]")) {
    if (th.dataset.key === key) th.setAttribute("aria-sort", table.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  drawBody();
}

function sortedRuns() {
  const order = report.runs.map((_, i) => i);
  if (table.key === null) return order;
  const value = (i) => (table.key === "label" ? report.runs[i].label : report.runs[i].cells[table.key]);
  const gone = (x) => x === null || x === undefined;
  return order.sort((i, j) => {
    const a = value(i), b = value(j);
    if (gone(a) || gone(b)) return gone(a) - gone(b) || i - j; // runs without a value come last in both directions
    const apart = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return (table.down ? -apart : apart) || i - j;
  });
}

function drawBody() {
  const text = (run) => [run.id, run.label, ...report.columns.map((c) => cellText(run, c))].join(" ").toLowerCase();
  const shown = sortedRuns().filter((i) => table.words.every((word) => text(report.runs[i]).includes(word)));
  $("matches").textContent = shown.length === report.runs.length ? plural(report.runs.length, "run") : `${shown.length.toLocaleString("en")} of ${plural(report.runs.length, "run")}`;
  const most = shown.length <= table.most + 5 ? shown.length : table.most;
  $("runs-more").hidden = most === shown.length;
  $("runs-more").textContent = `Show all ${plural(shown.length, "run")}`;
  const rows = shown.slice(0, most).map((i) => el("tr", { class: state.view === "run" && i === state.run ? "chosen" : null, "data-run": i },
    el("td", { class: "tick" }, el("input", {
      type: "checkbox", "aria-label": `Compare ${report.runs[i].label}`, checked: state.compare.includes(i),
      onchange: (event) => compareRun(i, event.target.checked),
    })),
    el("td", { class: "name" }, el("a", { href: routeOf(report.runs[i]), text: clean(report.runs[i].label) })),
    ...report.columns.map((c) => el("td", { class: c.kind === "text" ? null : "figure" },
      c.key === "status" ? el("span", { class: `state ${report.runs[i].status}`, text: report.runs[i].status, title: clean(report.runs[i].message) || null }) : cellText(report.runs[i], c)))));
  const none = el("tr", {}, el("td", { colspan: report.columns.length + 2 }, empty("No run matches these words.")));
  document.querySelector("#runs tbody").replaceChildren(...(rows.length ? rows : [none]));
}
