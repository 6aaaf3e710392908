// The heat map: a row per client, a column per round. The colour is the score. A dot marks a malicious client, a line
// through the cell a dropped one. A client whose reply was not used has no score: its colour shows its fate.

const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"]
  .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
const MISSED = "#ff5a36", WRONGED = "#ff9de1";
const UNUSED = [REFUSED, BANNED, SILENT];
const FIELD_NAMES = { probability: "probability of malice" };
const heat = { order: "id", marks: "all", cursor: null, dark: false, fills: {} };

function viridis(t) {
  const at = Math.min(0.99999, Math.max(0, t)) * (VIRIDIS.length - 1), i = Math.floor(at), part = at - i;
  return VIRIDIS[i].map((a, k) => Math.round(a + part * (VIRIDIS[i + 1][k] - a)));
}

// Long names of clients often begin alike, so that their ends tell more.
function shortName(id) {
  const name = String(id);
  return name.length > 6 ? `…${name.slice(-5)}` : name;
}

function rowsInOrder(run) {
  const c = clientsOf(run), T = run.rounds.length;
  const rows = Array.from({ length: c.shown }, (_, i) => i);
  if (heat.order === "id") return rows;
  const key = rows.map((row) => {
    const own = Array.from({ length: T }, (_, t) => row * T + t).filter((k) => c.fate(k));
    if (heat.order === "malicious") return own.filter((k) => c.malicious(k)).length;
    if (heat.order === "dropped") return own.filter((k) => c.fate(k) === DROPPED).length;
    const scores = c.score ? own.map((k) => c.score[k]).filter(Number.isFinite).sort((a, b) => a - b) : [];
    return scores.length ? scores[scores.length >> 1] : -Infinity;
  });
  return rows.sort((a, b) => key[b] - key[a] || a - b);
}

function drawHeat() {
  const run = runs[state.run], box = $("heat"), c = clientsOf(run), T = run.rounds.length;
  const say = (text) => { box.replaceChildren(empty(text)); $("heat-legend").replaceChildren(); $("heat-lede").textContent = ""; $("heat-readout").textContent = ""; };
  if (!T) return say("This run has no finished round yet.");
  if (!c.total) return say("No client took part in a finished round.");
  if (!c.shown) return say(`The ${c.total.toLocaleString("en")} clients of this run were left out to keep the page small. The results file has them.`);
  $("heat-lede").textContent = (run.judged ? "Brighter is more abnormal." : "No filter judged the clients of this run.")
    + (c.shown < c.total ? ` ${c.shown.toLocaleString("en")} of ${c.total.toLocaleString("en")} clients, evenly spread.` : "");
  heat.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  heat.fills = Object.fromEntries(["none", ...UNUSED].map((name) => [name, css(`--${name}`)]));
  const rows = rowsInOrder(run), scored = run.judged && c.scale;
  const left = 44, right = 4, head = 24;
  const cw = Math.max(4, Math.min(48, (box.clientWidth - left - right) / T));
  const ch = Math.max(4, Math.min(24, Math.floor(800 / c.shown)));
  const width = Math.floor(left + T * cw + right), height = c.shown * ch + 6;
  const ratio = width * height * devicePixelRatio ** 2 > 16e6 ? 1 : devicePixelRatio;
  const axis = canvas(width, head, ratio, { class: "rounds", "aria-hidden": "true" });
  const cells = canvas(width, height, ratio, { class: "cells", tabindex: "0", role: "img", "aria-describedby": "heat-readout",
    "aria-label": `Anomaly scores of ${plural(c.shown, "client")} in ${plural(T, "round")}. Arrow keys move from cell to cell.` });
  const pen = cells.getContext("2d");
  pen.scale(ratio, ratio);
  const ink = css("--soft"), gaps = [cw >= 6 ? 1 : 0, ch >= 12 ? 1 : 0];
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(16 / ch));
  rows.forEach((row, i) => {
    pen.fillStyle = ink;
    if (i % (every > 1 && every <= 5 ? 5 : every) === 0) pen.fillText(shortName(c.ids[row]), left - 7, i * ch + ch / 2 + 1);
    for (let t = 0; t < T; t += 1) {
      const x = Math.round(left + t * cw), w = Math.round(left + (t + 1) * cw) - x;
      drawCell(pen, c, row * T + t, x, i * ch, w - gaps[0], ch - gaps[1], scored);
    }
  });
  const top = axis.getContext("2d");
  top.scale(ratio, ratio);
  top.font = pen.font;
  top.fillStyle = ink;
  top.textBaseline = "middle";
  top.textAlign = "left";
  top.fillText("round", 0, head / 2);
  top.textAlign = "center";
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => s * cw >= 26) || 1000;
  run.rounds.forEach((round, t) => { if (round % step === 0 || (t === 0 && step < 5)) top.fillText(round, left + (t + 0.5) * cw, head / 2); });
  const mark = el("div", { "aria-hidden": "true", hidden: true });
  Object.assign(mark.style, { position: "absolute", pointerEvents: "none", outline: "2px solid var(--ink)", outlineOffset: "0px", borderRadius: "1px" });
  const point = (i, t) => {
    mark.hidden = false;
    Object.assign(mark.style, { left: `${left + t * cw - 1}px`, top: `${head + i * ch - 1}px`, width: `${cw + 1}px`, height: `${ch + 1}px` });
    heat.cursor = [i, t];
    return cellFacts(run, c, rows[i] * T + t, rows[i], t);
  };
  const find = (event) => {
    const place = cells.getBoundingClientRect();
    const t = Math.floor((event.clientX - place.left - left) / cw), i = Math.floor((event.clientY - place.top) / ch);
    return t >= 0 && t < T && i >= 0 && i < rows.length ? [i, t] : null;
  };
  cells.addEventListener("pointermove", (event) => {
    const at = find(event);
    if (!at) { mark.hidden = true; return tip(null); }
    const facts = point(...at);
    return tip(event, el("b", { text: facts[0] }), ...facts.slice(1).map(([name, value]) => el("div", {}, el("span", { text: name }), el("span", { text: value }))));
  });
  cells.addEventListener("pointerleave", () => { mark.hidden = true; tip(null); });
  cells.addEventListener("click", (event) => { const at = find(event); if (at && scored) chooseRound(at[1]); });
  cells.addEventListener("blur", () => { mark.hidden = true; });
  cells.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const [i, t] = heat.cursor || [0, -1];
    const facts = point(Math.min(rows.length - 1, Math.max(0, i + move[0])), Math.min(T - 1, Math.max(0, t + move[1])));
    $("heat-readout").textContent = [facts[0], ...facts.slice(1).map(([name, value]) => `${name} ${value}`)].join(", ");
    mark.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  heat.cursor = null;
  $("heat-readout").textContent = scored ? "Point at a cell to read it, choose one to see its round below; arrow keys move from cell to cell." : "";
  box.replaceChildren(el("div", { class: "map" }, axis, cells, mark));
  drawHeatLegend(run, c, scored);
}

function canvas(width, height, ratio, attributes) {
  const made = el("canvas", { ...attributes, width: Math.round(width * ratio), height: Math.round(height * ratio) });
  made.style.width = `${width}px`;
  made.style.height = `${height}px`;
  return made;
}

function drawCell(pen, c, k, x, y, w, h, scored) {
  const fate = c.fate(k);
  if (!fate) return;
  const score = scored ? c.score[k] : NaN;
  const rgb = Number.isNaN(score) ? null : viridis(c.scale(score));
  pen.fillStyle = rgb ? `rgb(${rgb})` : heat.fills[fate] || heat.fills.none;
  pen.fillRect(x, y, w, h);
  if (fate === SILENT && !rgb && w > 4 && h > 4) pen.clearRect(x + 1, y + 1, w - 2, h - 2); // an empty frame
  const bad = c.malicious(k), dropped = fate === DROPPED, mistake = c.truth && (bad ? fate === KEPT : dropped);
  if (heat.marks === "none" || (heat.marks === "mistakes" && !mistake)) return;
  const light = rgb ? rgb[0] * 0.3 + rgb[1] * 0.59 + rgb[2] * 0.11 > 80 : !heat.dark;
  const shade = light ? "0,0,0" : "255,255,255";
  if (dropped) {
    pen.fillStyle = `rgba(${shade},.5)`;
    pen.fillRect(x, y + Math.floor(h / 2), w, 1);
  }
  if (bad) {
    pen.fillStyle = `rgba(${shade},.85)`;
    const r = Math.max(1, Math.min(3, Math.min(w, h) * 0.24));
    pen.beginPath();
    pen.arc(x + w / 2, y + Math.floor(h / 2) + 0.5, r, 0, 2 * Math.PI);
    pen.fill();
  }
  if (mistake && rgb) {
    pen.strokeStyle = bad ? MISSED : WRONGED;
    pen.lineWidth = Math.min(2, h / 4);
    const inset = pen.lineWidth / 2;
    pen.strokeRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset);
  }
}

function cellFacts(run, c, k, row, t) {
  const name = `Client ${c.ids[row]}, round ${run.rounds[t]}`;
  if (!c.fate(k)) return [name, ["not selected", ""]];
  const facts = [name];
  for (const [key, field] of Object.entries(c.fields)) {
    const text = field && fieldText(key, field, k);
    if (text) facts.push([FIELD_NAMES[key] || key.replaceAll("_", " "), text]);
  }
  if (known(run.threshold[t])) facts.push(["threshold", figure(run.threshold[t])]);
  return facts;
}

function drawHeatLegend(run, c, scored) {
  const items = [];
  if (scored) {
    const strip = canvas(140, 12, devicePixelRatio, { role: "img", "aria-label": "Colour scale, dark is normal and bright is abnormal" });
    const pen = strip.getContext("2d");
    for (let i = 0; i < strip.width; i += 1) { pen.fillStyle = `rgb(${viridis(i / (strip.width - 1))})`; pen.fillRect(i, 0, 1, strip.height); }
    items.push(el("span", { class: "scale" }, el("span", { text: figure(c.scale.low) }), strip, el("span", { text: `${figure(c.scale.high)}${c.scale.log ? ", logarithmic" : ""}` })));
  }
  const example = (fate, malicious, score, text) => {
    const cell = canvas(22, 14, devicePixelRatio, { "aria-hidden": "true" }), pen = cell.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    const marks = heat.marks;
    heat.marks = "all";
    drawCell(pen, { fate: () => fate, malicious: () => malicious, score: [score], scale: (x) => x, truth: run.truth }, 0, 0, 0, 22, 14, scored);
    heat.marks = marks;
    items.push(el("span", { class: "item" }, cell, el("span", { text })));
  };
  const any = (test) => { for (let k = 0; k < c.cells; k += 1) if (c.fate(k) && test(k)) return true; return false; };
  const fill = (score) => (scored ? score : NaN);
  if (run.truth) {
    example(KEPT, false, fill(0.25), "honest, kept");
    if (any((k) => c.malicious(k) && c.fate(k) === DROPPED)) example(DROPPED, true, fill(0.85), "malicious, dropped");
    if (any((k) => c.malicious(k) && c.fate(k) === KEPT)) example(KEPT, true, fill(0.45), "malicious, kept (missed)");
    if (any((k) => !c.malicious(k) && c.fate(k) === DROPPED)) example(DROPPED, false, fill(0.55), "honest, dropped (wronged)");
  } else {
    example(KEPT, false, fill(0.25), "kept");
    if (any((k) => c.fate(k) === DROPPED)) example(DROPPED, false, fill(0.85), "dropped");
  }
  if (any((k) => c.fate(k) === REFUSED)) example(REFUSED, false, NaN, "refused: the reply could not be used");
  if (any((k) => c.fate(k) === BANNED)) example(BANNED, false, NaN, "banned: no longer asked");
  if (any((k) => c.fate(k) === SILENT)) example(SILENT, false, NaN, "silent: asked, no reply");
  if (scored && any((k) => Number.isNaN(c.score[k]) && !UNUSED.includes(c.fate(k)))) example(KEPT, false, NaN, "no score");
  if (c.fields.fate.values.includes(0)) items.push(el("span", { text: "blank: not selected" }));
  $("heat-legend").replaceChildren(...items);
}
