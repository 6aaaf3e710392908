// The heat map: a row for each client, a column for each round. The colour of a cell is the score. A dot marks a
// malicious client, and a line through the cell marks a dropped client. If no reply came or it could not be used, there
// is no score, and the colour shows what happened instead.

const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"]
  .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
const MISSED = "#ff5a36", WRONGED = "#ff9de1";
const UNUSED = [REFUSED, BANNED, SILENT];
const MOST_DRAWN = 60000; // more cells than this are drawn as an image, without marks in the cells
const heat = { order: "dropped", marks: "all", cursor: null, dark: false, fills: {} };

function viridis(t) {
  const at = Math.min(0.99999, Math.max(0, t)) * (VIRIDIS.length - 1), i = Math.floor(at), part = at - i;
  return VIRIDIS[i].map((a, k) => Math.round(a + part * (VIRIDIS[i + 1][k] - a)));
}
const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function rowsInOrder(run) {
  const c = clientsOf(run), stats = statsOf(run), rows = stats.filter((s) => s.rounds).map((s) => s.row);
  const median = (row) => {
    const scores = c.score ? [...c.score.subarray(row * c.T, (row + 1) * c.T)].filter(Number.isFinite).sort((a, b) => a - b) : [];
    return scores.length ? scores[scores.length >> 1] : -Infinity;
  };
  const key = stats.map((s) => (heat.order === "malicious" ? s.bad : heat.order === "dropped" ? s.notKept : heat.order === "score" ? median(s.row) : 0));
  return rows.sort((a, b) => key[b] - key[a] || byId(c.ids[a], c.ids[b]));
}

function drawHeat() {
  const run = report.runs[state.run], box = $("heat"), c = clientsOf(run), T = c.T;
  $("heat-card").hidden = !run.rounds.length || !c.total || !c.shown;
  if ($("heat-card").hidden) return;
  $("heat-order").querySelector("option[value=malicious]").hidden = !run.truth;
  $("heat-marks").querySelector("option[value=mistakes]").hidden = !run.truth;
  $("heat-lede").textContent = (run.judged ? "The colour is the anomaly score: brighter is more abnormal." : "No filter judged the clients of this run.")
    + (c.shown < c.total ? ` The map shows ${count(c.shown)} of ${count(c.total)} clients${c.spread ? ". Half of them stand at equal distances in the list of all clients. The others were most often not kept." : ": those that came first."}` : "");
  heat.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  heat.fills = Object.fromEntries(["none", ...UNUSED].map((name) => [name, css(`--${name}`)]));
  const rows = rowsInOrder(run), scored = run.judged && c.scale, names = shortNames(c), font = "11px system-ui, sans-serif";
  const probe = document.createElement("canvas").getContext("2d");
  probe.font = font;
  const longest = rows.reduce((most, row) => (names[row].length > most.length ? names[row] : most), "");
  const left = Math.max(44, Math.min(box.clientWidth * 0.42, Math.ceil(probe.measureText(longest).width) + 12)), right = 4, head = 24;
  const many = c.cells > MOST_DRAWN;
  const cw = Math.max(many ? 2 : 4, Math.min(48, (box.clientWidth - left - right) / T));
  const ch = Math.max(many ? 2 : 4, Math.min(24, Math.floor(800 / rows.length)));
  const width = Math.floor(left + T * cw + right), height = rows.length * ch + 6;
  const ratio = width * height * devicePixelRatio ** 2 > 16e6 ? 1 : devicePixelRatio;
  const axis = canvas(width, head, ratio, { class: "rounds", "aria-hidden": "true" });
  const cells = canvas(width, height, ratio, { class: "cells", tabindex: "0", role: "img", "aria-describedby": "heat-readout",
    "aria-label": `Anomaly scores of ${plural(rows.length, "client")} in ${plural(T, "round")}. Arrow keys move from cell to cell, Enter opens the client.` });
  const pen = cells.getContext("2d");
  pen.scale(ratio, ratio);
  const ink = css("--soft"), gaps = [cw >= 6 ? 1 : 0, ch >= 12 ? 1 : 0];
  if (many) drawPixels(pen, c, rows, scored, left, cw, ch);
  pen.font = font;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(16 / ch));
  rows.forEach((row, i) => {
    pen.fillStyle = ink;
    if (i % (every > 1 && every <= 5 ? 5 : every) === 0) pen.fillText(names[row], left - 7, Math.max(6, i * ch + ch / 2 + 1), left - 8);
    for (let t = 0; t < T && !many; t += 1) {
      const x = Math.round(left + t * cw), w = Math.round(left + (t + 1) * cw) - x;
      drawCell(pen, c, row * T + t, x, i * ch, w - gaps[0], ch - gaps[1], scored);
    }
  });
  const top = axis.getContext("2d");
  top.scale(ratio, ratio);
  top.font = font;
  top.fillStyle = ink;
  top.textBaseline = "middle";
  top.textAlign = "left";
  top.fillText("round", 0, head / 2);
  top.textAlign = "center";
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => s * cw >= 26) || 1000;
  c.rounds.forEach((round, t) => { if (round % step === 0 || (t === 0 && step < 5)) top.fillText(round, left + (t + 0.5) * cw, head / 2); });
  const map = el("div", { class: "map" }, axis, cells);
  const begin = run.start === null ? -1 : c.rounds.findIndex((round) => round >= run.start);
  if (begin > 0) {
    const line = el("div", { class: "begin", "aria-hidden": "true", title: `attack from round ${run.start}` });
    Object.assign(line.style, { left: `${Math.round(left + begin * cw) - 1}px`, height: `${head + height}px` });
    map.append(line);
  }
  const mark = el("div", { class: "mark", "aria-hidden": "true", hidden: true });
  map.append(mark);
  const point = (i, t) => {
    mark.hidden = false;
    Object.assign(mark.style, { left: `${left + t * cw - 1}px`, top: `${head + i * ch - 1}px`, width: `${cw + 1}px`, height: `${ch + 1}px` });
    heat.cursor = [i, t];
    return { title: `Client ${fullName(c, rows[i])}, round ${c.rounds[t]}`, facts: factsOf(run, c, rows[i] * T + t, rows[i], t) };
  };
  const find = (event) => {
    const place = cells.getBoundingClientRect();
    const t = Math.floor((event.clientX - place.left - left) / cw), i = Math.floor((event.clientY - place.top) / ch);
    return t >= 0 && t < T && i >= 0 && i < rows.length ? [i, t] : null;
  };
  const readOut = ({ title, facts }) => $("heat-readout").replaceChildren(el("b", { text: title }), `: ${facts.map(([name, value]) => `${name} ${value}`.trim()).join(", ")}. `,
    el("a", { href: routeOf(run, c.ids[rows[heat.cursor[0]]]), text: "Its history" }));
  pointing(cells, (event) => {
    const at = find(event);
    if (!at) { mark.hidden = true; return tip(null); }
    const { title, facts } = point(...at);
    return tip(event, el("b", { text: title }), ...facts.map(([name, value]) => el("div", {}, el("span", { text: name }), el("span", { text: value }))));
  }, () => { tip(null); });
  cells.addEventListener("click", (event) => {
    const at = find(event);
    if (!at) return;
    readOut(point(...at));
    if (scored) chooseRound(at[1]);
  });
  cells.addEventListener("keydown", (event) => {
    const [i, t] = heat.cursor || [0, -1];
    if (event.key === "Enter" && heat.cursor) location.hash = routeOf(run, c.ids[rows[i]]);
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    readOut(point(Math.min(rows.length - 1, Math.max(0, i + move[0])), Math.min(T - 1, Math.max(0, t + move[1]))));
    mark.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  heat.cursor = null;
  $("heat-readout").textContent = "Point at a cell to read it. Choose a cell to keep its text here, and to see the scores of its round below.";
  box.replaceChildren(map);
  drawHeatLegend(run, c, scored, many);
}

function canvas(width, height, ratio, attributes) {
  const made = el("canvas", { ...attributes, width: Math.round(width * ratio), height: Math.round(height * ratio) });
  made.style.width = `${width}px`;
  made.style.height = `${height}px`;
  return made;
}

// Draws very many cells: as an image with one pixel for each cell, which is then enlarged.
function drawPixels(pen, c, rows, scored, left, cw, ch) {
  const T = c.T, image = new ImageData(T, rows.length), pixels = new Uint32Array(image.data.buffer);
  const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // the order of bytes in an image
  const shades = Array.from({ length: 256 }, (_, i) => packed(viridis(i / 255)));
  const fate = c.fields.fate.values, bad = c.fields.malicious.values, words = c.fields.fate.words;
  const plain = words.map((word) => packed(rgbOf(heat.fills[word] || heat.fills.none)));
  const mark = heat.marks !== "none" && c.truth && scored, kept = words.indexOf(KEPT), dropped = words.indexOf(DROPPED);
  const missed = packed(rgbOf(MISSED)), wronged = packed(rgbOf(WRONGED));
  rows.forEach((row, i) => {
    for (let t = 0, k = row * T, at = i * T; t < T; t += 1, k += 1, at += 1) {
      const code = fate[k];
      if (!code) continue;
      if (mark && bad[k] === YES && code === kept) pixels[at] = missed;
      else if (mark && bad[k] !== YES && code === dropped) pixels[at] = wronged;
      else {
        const score = scored ? c.score[k] : NaN;
        pixels[at] = Number.isNaN(score) ? plain[code] : shades[Math.round(255 * Math.min(1, Math.max(0, c.scale(score))))];
      }
    }
  });
  const small = document.createElement("canvas");
  small.width = T;
  small.height = rows.length;
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, left, 0, T * cw, rows.length * ch);
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

function drawHeatLegend(run, c, scored, many) {
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
    const one = { fate: () => fate, malicious: () => malicious, score: [score], scale: (x) => x, truth: run.truth };
    if (many && !Number.isNaN(score) && run.truth && malicious === (fate === KEPT)) { pen.fillStyle = malicious ? MISSED : WRONGED; pen.fillRect(0, 0, 22, 14); } else drawCell(pen, one, 0, 0, 0, 22, 14, scored);
    heat.marks = marks;
    items.push(el("span", { class: "item" }, cell, el("span", { text })));
  };
  const seen = c.seen, any = (fate, bad) => (bad === undefined ? seen.has(`${fate} 0`) || seen.has(`${fate} 1`) : seen.has(`${fate} ${Number(bad)}`));
  const fill = (score) => (scored ? score : NaN);
  if (run.truth) {
    if (!many) example(KEPT, false, fill(0.25), "honest, kept");
    if (!many && any(DROPPED, true)) example(DROPPED, true, fill(0.85), "malicious, dropped");
    if (any(KEPT, true)) example(KEPT, true, fill(0.45), "malicious, kept (missed)");
    if (any(DROPPED, false)) example(DROPPED, false, fill(0.55), "honest, dropped (wronged)");
  } else if (!many) {
    example(KEPT, false, fill(0.25), "kept");
    if (any(DROPPED)) example(DROPPED, false, fill(0.85), "dropped");
  }
  if (any(REFUSED)) example(REFUSED, false, NaN, "refused: the reply could not be used");
  if (any(BANNED)) example(BANNED, false, NaN, "banned: the server did not ask it");
  if (any(SILENT)) example(SILENT, false, NaN, "silent: it was asked and did not reply");
  if (scored && seen.has("no score")) example(KEPT, false, NaN, "no score");
  if (run.start !== null && c.rounds.indexOf(run.start) > 0) items.push(el("span", { class: "item" }, el("span", { class: "begin-key" }), el("span", { text: `attack from round ${run.start}` })));
  if (seen.has("absent")) items.push(el("span", { text: "blank: not selected" }));
  $("heat-legend").replaceChildren(...items);
}
