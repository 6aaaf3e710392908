// What every part of the page uses: the data, elements, numbers as text, scales, the tooltip.

const report = JSON.parse(document.getElementById("data").textContent);
const runs = report.runs;
const state = { run: report.start, compare: [], touched: false, metric: "accuracy", round: null };
const KEPT = "kept", DROPPED = "dropped", REFUSED = "refused", BANNED = "banned", SILENT = "silent";
const NO = 0, YES = 1; // an answer that is neither is not known

const $ = (id) => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const empty = (text) => el("p", { class: "empty", text });

const known = (x) => typeof x === "number" && Number.isFinite(x);

function percent(x, digits = 1) {
  if (!known(x)) return "–";
  const text = (100 * x).toFixed(digits);
  if (digits && Number(text) === 100 && x < 1) return `>${(100 - 10 ** -digits).toFixed(digits)}%`;
  return `${text.replace(/\.0+$/, "")}%`;
}
function figure(x) {
  if (!known(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(x.toPrecision(4)));
}
function seconds(x) {
  if (!known(x)) return "–";
  if (x < 0.001) return `${Math.max(1, Math.round(x * 1e6))} µs`;
  if (x < 1) return `${Number((x * 1000).toPrecision(3))} ms`;
  if (x < 120) return `${Number(x.toPrecision(3))} s`;
  return x < 7200 ? `${(x / 60).toFixed(1)} min` : `${(x / 3600).toFixed(1)} h`;
}
const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function unpack(text, Kind) {
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}
// The records of a run's clients, decoded once. Every field of a record is a matrix, row = client, column = round,
// and k counts its cells row by row.
function clientsOf(run) {
  const c = run.clients;
  if (c.shown && !c.decoded) {
    for (const field of Object.values(c.fields)) if (field) field.values = unpack(field.data, arrayKind(field));
    const fate = c.fields.fate, malicious = c.fields.malicious.values;
    c.cells = fate.values.length;
    c.fate = (k) => fate.words[fate.values[k]]; // empty: the client took no part in the round
    c.malicious = (k) => malicious[k] === YES;
    c.score = c.fields.score ? c.fields.score.values : null;
    c.scale = c.score ? scoreScale(c.score) : null;
    c.truth = run.truth;
    c.decoded = true;
  }
  return c;
}
function arrayKind(field) {
  if (field.kind === "number") return Float32Array;
  return field.kind === "answer" ? Uint8Array : { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[field.bytes];
}
// One field of a record in words; null if there is nothing to say.
function fieldText(name, field, k) {
  const value = field.values[k];
  if (field.kind === "text") return field.words[value] || null;
  if (field.kind === "answer") return value === YES ? "yes" : value === NO ? "no" : "not known";
  if (!Number.isFinite(value)) return null;
  return name === "probability" ? percent(value) : figure(value);
}

// A scale from values to 0..1. Scores get a logarithmic scale if they are positive and vary widely.
function scale(low, high, log) {
  if (!(high > low)) { low = log ? low / 2 : low - 0.5; high = log ? high * 2 : high + 0.5; }
  const a = log ? Math.log(low) : low, b = log ? Math.log(high) : high;
  const f = (x) => ((log ? Math.log(Math.max(x, low)) : x) - a) / (b - a);
  return Object.assign(f, { low, high, log, at: (t) => (log ? Math.exp(a + t * (b - a)) : a + t * (b - a)), ticks: (n) => ticks(low, high, log, n) });
}
function scoreScale(values) {
  let low = Infinity, high = -Infinity, least = Infinity, positive = 0, finite = 0;
  for (const x of values) {
    if (!Number.isFinite(x)) continue;
    finite += 1;
    if (x > high) high = x;
    if (x < low) low = x;
    if (x > 0) { positive += 1; if (x < least) least = x; }
  }
  const log = positive > 0.9 * finite && low >= 0 && high / least > 20;
  return scale(log ? least : low, high, log);
}
function ticks(low, high, log, n) {
  const found = [];
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const step = Math.max(1, Math.ceil((last - first) / n));
    const parts = last - first <= 2 ? [1, 2, 5] : [1];
    for (let e = first; e <= last; e += step) for (const p of parts) found.push(p * 10 ** e);
  } else {
    const raw = (high - low) / n, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5, 10].find((m) => m * power >= raw * 0.999) || 10);
    for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step / 1e6 ? 0 : x);
  }
  return found.filter((x) => x >= low * (1 - 1e-9) - (log ? 0 : 1e-12) && x <= high * (1 + 1e-9) + (log ? 0 : 1e-12));
}
const wholeTicks = (low, high, n) => [...new Set(ticks(low, high, false, n).map(Math.round))].filter((x) => x >= low && x <= high);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const DASHES = ["", "9 4", "3 4", "12 4 3 4", "6 3", "1 4", "14 5", "2 2"];
const color = (i) => `var(--s${i % 8})`;

function tip(event, ...content) {
  const box = $("tip");
  if (!event) { box.hidden = true; return; }
  box.replaceChildren(...content);
  box.hidden = false;
  const { innerWidth: w, innerHeight: h } = window, { offsetWidth: bw, offsetHeight: bh } = box;
  const x = event.clientX + 16 + bw > w ? event.clientX - bw - 16 : event.clientX + 16;
  const y = event.clientY + 16 + bh > h ? event.clientY - bh - 12 : event.clientY + 16;
  box.style.transform = `translate(${Math.max(8, Math.min(x, w - bw - 8))}px, ${Math.max(8, y)}px)`;
}
