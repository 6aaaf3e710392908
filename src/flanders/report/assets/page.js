// What all parts of the page use: the data, and functions for elements, for numbers as text, for scales and for the tooltip.

const report = JSON.parse(document.getElementById("data").textContent);
const state = { view: "overview", run: 0, client: null, compare: [], touched: false, metric: "accuracy", round: null };
const KEPT = "kept", DROPPED = "dropped", REFUSED = "refused", BANNED = "banned", SILENT = "silent";
// The fate of a client is what happened to it in a round.
const FATES = [KEPT, DROPPED, REFUSED, BANNED, SILENT];
const FATE_WORDS = {
  [KEPT]: "its model was aggregated", [DROPPED]: "the filter left its model out", [REFUSED]: "its reply could not be used",
  [BANNED]: "the server did not ask it", [SILENT]: "it was asked and did not reply",
};

const $ = (id) => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const empty = (text) => el("p", { class: "empty", text });
const known = (x) => typeof x === "number" && Number.isFinite(x);

// Clients choose their ids and texts. Characters that are invisible or change the direction of text are replaced, so
// that two names do not differ in something that nobody can see.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]/g;
const clean = (text) => String(text).replace(HIDDEN, "\ufffd");
function nameOf(id, most = 80) {
  const name = clean(id);
  return name.length > most ? `${name.slice(0, most - 20)}…${name.slice(-19)}` : name;
}
const byId = (a, b) => (typeof a === typeof b ? (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true })) : typeof a === "number" ? -1 : 1);

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
const count = (n) => n.toLocaleString("en");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const few = () => (innerWidth < 560 ? 8 : 20); // how many rows a table shows at first; a button shows more
const unfinished = (run) => run.status !== "done";
// Numbers of rounds as text, e.g. "rounds 3–7, 9".
function spans(numbers) {
  const parts = [];
  for (const n of numbers) {
    const last = parts[parts.length - 1];
    if (last && n === last[1] + 1) last[1] = n; else parts.push([n, n]);
  }
  const words = parts.slice(0, 6).map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`));
  return `${numbers.length === 1 ? "round" : "rounds"} ${words.join(", ")}${parts.length > 6 ? " and more" : ""}`;
}

// Returns a function that maps the values from low to high to the numbers from 0 to 1.
function scale(low, high, log) {
  if (!(high > low)) { low = log ? low / 2 : low - 0.5; high = log ? high * 2 : high + 0.5; }
  const a = log ? Math.log(low) : low, b = log ? Math.log(high) : high;
  const f = (x) => ((log ? Math.log(Math.max(x, low)) : x) - a) / (b - a);
  return Object.assign(f, { low, high, log, at: (t) => (log ? Math.exp(a + t * (b - a)) : a + t * (b - a)), ticks: (n) => ticks(low, high, log, n) });
}
// The scale for scores. It is logarithmic if no score is negative and the scores vary widely.
function scoreScale(values) {
  let low = Infinity, high = -Infinity, least = Infinity, positive = 0, finite = 0;
  for (const x of values) {
    if (!Number.isFinite(x)) continue;
    finite += 1;
    if (x > high) high = x;
    if (x < low) low = x;
    if (x > 0) { positive += 1; if (x < least) least = x; }
  }
  if (!finite) return null;
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
function bounds(values) {
  let low = Infinity, high = -Infinity;
  for (const x of values) { if (x < low) low = x; if (x > high) high = x; }
  return [low, high];
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const DASHES = ["", "9 4", "3 4", "12 4 3 4", "6 3", "1 4", "14 5", "2 2"];
const color = (i) => `var(--s${i % 8})`;
function swatch(shade) {
  const made = el("span", { class: "swatch" });
  made.style.background = shade;
  return made;
}

function tip(event, ...content) {
  const box = $("tip");
  if (!event) { box.hidden = true; return; }
  box.replaceChildren(...content);
  box.hidden = false;
  tip.at = scrollY;
  const { innerWidth: w, innerHeight: h } = window, { offsetWidth: bw, offsetHeight: bh } = box;
  const x = event.clientX + 16 + bw > w ? event.clientX - bw - 16 : event.clientX + 16;
  const y = event.clientY + 16 + bh > h ? event.clientY - bh - 12 : event.clientY + 16;
  box.style.transform = `translate(${Math.max(8, Math.min(x, w - bw - 8))}px, ${Math.max(8, y)}px)`;
}
// Calls `show` when the mouse points at a node, and `hide` when it leaves. On a touch screen, a tap on the node shows,
// and a tap elsewhere hides.
function pointing(node, show, hide) {
  node.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") show(event); });
  node.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
  node.addEventListener("click", (event) => {
    show(event);
    if (event.pointerType !== "touch") return;
    const away = (other) => {
      if (node.contains(other.target)) return;
      document.removeEventListener("pointerdown", away);
      hide();
    };
    document.addEventListener("pointerdown", away);
  });
}
addEventListener("scroll", () => { if (Math.abs(scrollY - tip.at) > 40) tip(null); }, { passive: true });
