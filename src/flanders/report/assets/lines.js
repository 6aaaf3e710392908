// Accuracy, loss or attack success over rounds: a line for each compared run, and a dotted line for the twin.
// The twin of a run is the most similar run without an attack.

const METRICS = {
  accuracy: { title: "Accuracy over rounds", name: "Accuracy", format: percent },
  loss: { title: "Loss over rounds", name: "Loss", format: figure },
  attack_success: { title: "Attack success over rounds", name: "Attack success", format: percent },
};

function drawChoice() {
  const has = Object.keys(METRICS).filter((m) => report.runs.some((run) => run[m].some(known)));
  if (!has.includes(state.metric)) state.metric = "accuracy";
  $("lines-choice").hidden = has.length < 2;
  $("lines-choice").replaceChildren(...has.map((m) => el("button", {
    type: "button", text: METRICS[m].name, "aria-pressed": String(m === state.metric),
    onclick: () => { state.metric = m; drawChoice(); drawLines(); },
  })));
}

// The lines to draw: the compared runs, and the twin if it is not one of the compared runs.
function linesToDraw() {
  const lines = state.compare.map((i, n) => ({ run: report.runs[i], i, stroke: color(n), dash: DASHES[n % 8], chosen: i === state.run }));
  const twin = report.runs[state.run].twin;
  if (twin !== null && !state.compare.includes(twin)) lines.push({ run: report.runs[twin], i: twin, stroke: "var(--free)", dash: "1 5", free: true });
  return lines.map((line) => ({ ...line, values: line.run[state.metric] }));
}

function drawLines() {
  const metric = METRICS[state.metric], box = $("lines"), lines = linesToDraw();
  const run = report.runs[state.run];
  $("lines-title").textContent = metric.title;
  $("lines-lede").textContent = [comparedWords(run), twinWords(run)].filter(Boolean).join(" ");
  const drawn = lines.filter((line) => line.values.some(known));
  if (!drawn.length) {
    box.replaceChildren(empty(run.live ? "No accuracy was measured. The server measures one if it has test data." : `No finished round has a ${metric.name.toLowerCase()} yet.`));
    $("lines-legend").replaceChildren();
    return;
  }
  const width = Math.max(280, box.clientWidth), height = width < 520 ? 260 : 340;
  const left = 46, right = 12, top = 24, bottom = 36;
  const values = drawn.flatMap((line) => line.values.filter(known));
  const rounds = drawn.flatMap((line) => line.run.rounds);
  const first = Math.min(...bounds(rounds)), last = Math.max(...bounds(rounds));
  const [least, most] = bounds(values);
  const log = state.metric === "loss" && least > 0 && most / least > 30;
  const y = state.metric === "loss" ? scale(log ? least : Math.min(0, least), most, log) : scale(0, 1, false);
  const x = (round) => left + (last === first ? 0.5 : (round - first) / (last - first)) * (width - left - right);
  const py = (value) => top + (1 - y(value)) * (height - top - bottom);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: "0", role: "img", "aria-label": describe(drawn, metric) });
  for (const t of y.ticks(5)) {
    chart.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: py(t), y2: py(t) }),
      svg("text", { x: left - 8, y: py(t) + 4, "text-anchor": "end", text: metric.format(t) }));
  }
  for (const t of wholeTicks(first, last, width < 520 ? 5 : 10)) {
    chart.append(svg("text", { x: x(t), y: height - bottom + 18, "text-anchor": "middle", text: t }));
  }
  chart.append(svg("text", { x: width - right, y: height - 2, "text-anchor": "end", text: "round" }));
  markStart(chart, run, x, top, height - bottom, first, last, width - right);
  const order = [...drawn].sort((a, b) => (a.chosen ? 1 : 0) - (b.chosen ? 1 : 0));
  for (const line of order) {
    let path = "", pen = "M";
    line.values.forEach((value, k) => {
      if (known(value)) { path += `${pen}${x(line.run.rounds[k]).toFixed(1)},${py(value).toFixed(1)}`; pen = "L"; } else pen = "M";
    });
    chart.append(svg("path", {
      class: line.free ? "free" : `series${line.chosen ? " chosen" : ""}`, d: path, stroke: line.stroke,
      "stroke-dasharray": line.free || line.chosen ? null : line.dash,
    }));
    if (line.values.filter(known).length === 1) {
      const k = line.values.findIndex(known);
      chart.append(svg("circle", { cx: x(line.run.rounds[k]), cy: py(line.values[k]), r: 4, fill: line.stroke }));
    }
  }
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  chart.append(cursor);
  const show = (round, event) => {
    cursor.setAttribute("x1", x(round)); cursor.setAttribute("x2", x(round)); cursor.setAttribute("visibility", "visible");
    tip(event, el("b", { text: `Round ${round}` }), ...drawn.map((line) => {
      return el("div", {}, swatch(line.stroke), el("span", { text: line.free ? "attack-free" : lineName(line) }),
        el("span", { text: metric.format(line.values[line.run.rounds.indexOf(round)]) }));
    }));
  };
  const hide = () => { cursor.setAttribute("visibility", "hidden"); tip(null); };
  const nearest = (event) => {
    const at = (event.clientX - chart.getBoundingClientRect().left - left) / (width - left - right);
    return Math.round(first + Math.min(1, Math.max(0, at)) * (last - first));
  };
  let keyed = last;
  pointing(chart, (event) => show(nearest(event), event), hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    keyed = Math.min(last, Math.max(first, keyed + step));
    const place = chart.getBoundingClientRect();
    show(keyed, { clientX: place.left + x(keyed), clientY: place.top + 20 });
  });
  box.replaceChildren(chart);
  $("lines-legend").replaceChildren(...drawn.map((line) => el("li", { class: "item" },
    svg("svg", { width: 30, height: 10, "aria-hidden": "true" }, svg("line", {
      x1: 2, x2: 28, y1: 5, y2: 5, stroke: line.stroke, "stroke-width": line.chosen ? 3.5 : 2, "stroke-linecap": "round",
      "stroke-dasharray": line.free ? "1 5" : line.chosen ? null : line.dash,
    })),
    el(line.chosen ? "b" : "span", { text: line.free ? `attack-free: ${clean(line.run.label)}` : lineName(line) }))));
}

// The name of a line: the defence of its run if the compared runs differ only in their defence, otherwise the full label.
function lineName(line) {
  const run = report.runs[state.run], alike = state.compare.every((i) => run.siblings.includes(i));
  return clean(alike ? line.run.defence : line.run.label);
}
function comparedWords(run) {
  const missing = run.siblings.filter((i) => !state.compare.includes(i)).length;
  if (run.siblings.length < 2) return "";
  return missing ? `${count(run.siblings.length - missing)} of the ${count(run.siblings.length)} defences of this setting are drawn. Tick others in the table of all runs below.`
    : `All ${count(run.siblings.length)} defences of this setting are drawn.`;
}
function twinWords(run) {
  if (run.live) return "";
  if (run.twin === null) return "No attack-free run of this data and model is in these results.";
  if (report.runs[run.twin] === run) return "This run is attack-free.";
  return state.compare.includes(run.twin) ? `The attack-free run is ${clean(report.runs[run.twin].label)}.` : "The dotted line is the most similar run without an attack.";
}
// Draws a vertical line before the first round with an attack.
function markStart(chart, run, x, top, bottom, first, last, right) {
  if (run.start === null || run.start > last || run.start < first) return;
  const at = run.start === first ? x(first) : (x(run.start - 1) + x(run.start)) / 2, flip = at > right - 110;
  chart.append(svg("line", { class: "start", x1: at, x2: at, y1: top - 14, y2: bottom }),
    svg("text", { class: "start-name halo", x: at + (flip ? -5 : 5), y: top - 5, "text-anchor": flip ? "end" : "start", text: `attack from round ${run.start}` }));
}
const describe = (lines, metric) => `${metric.title}. ` + lines.map((line) => {
  const seen = line.values.filter(known);
  return `${clean(line.run.label)}: from ${metric.format(seen[0])} to ${metric.format(seen[seen.length - 1])}`;
}).join("; ");
