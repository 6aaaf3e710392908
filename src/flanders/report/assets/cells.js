// The records of a run's clients. They are decoded when the run is first shown, into an object that is called c here.
// Every field of a record is a matrix with a row for each client and a column for each of T rounds. A cell of a matrix
// is one client in one round. k is the number of a cell, counted row by row.

const NO = 0, YES = 1; // any other number means: not known

function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}
function arrayKind(field) {
  if (field.kind === "number") return Float32Array;
  return field.kind === "answer" ? Uint8Array : { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[field.bytes];
}

function clientsOf(run) {
  const c = run.clients || { shown: 0, total: run.num_clients };
  if (c.shown && !c.decoded) {
    for (const field of Object.values(c.fields)) if (field && field.data) { field.values = unpack(field.data, arrayKind(field)); delete field.data; }
    prepare(run, c);
  }
  return c;
}
function prepare(run, c) {
  const { fate, malicious, reason, score } = c.fields;
  c.rounds = run.rounds.slice(0, fate.values.length / c.shown);
  c.T = c.rounds.length;
  c.cells = fate.values.length;
  c.fate = (k) => fate.words[fate.values[k]]; // empty if the client has no record in the round
  c.malicious = (k) => malicious.values[k] === YES;
  c.score = score ? score.values : null;
  c.scale = c.score ? scoreScale(c.score) : null;
  c.reason = (k) => {
    const text = reasonText(run, c, reason.words[reason.values[k]], k);
    return c.fate(k) === BANNED && text.startsWith("until ") ? `banned ${text}` : text;
  };
  c.truth = run.truth;
  c.spreadOnly = c.spread ? new Set(c.spread) : null;
  c.names = null;
  c.stats = null;
  c.decoded = true;
}

// The text of a reason. A reason that only repeats the score is stored as the word "score": the number is added here.
function reasonText(run, c, word, k) {
  if (word !== "score") return clean(word || "");
  const value = c.score ? c.score[k] : NaN, limit = run.threshold[k % c.T];
  if (!Number.isFinite(value)) return "its score";
  return known(limit) && value > limit ? `score ${figure(value)}, above ${figure(limit)}, the largest score of a kept client` : `score ${figure(value)}`;
}

// Statistics of each client over all rounds: how often it had each fate, and its reasons, the most frequent first.
// Reasons that differ only in their numbers count as the same reason.
function statsOf(run) {
  const c = clientsOf(run);
  if (c.stats) return c.stats;
  const { fate, reason, malicious } = c.fields, T = c.T;
  const kinds = new Map(), kindOf = reason.words.map((word) => {
    const kind = word.replace(/\d[\d.,e+-]*/g, "#");
    if (!kinds.has(kind)) kinds.set(kind, kinds.size);
    return kinds.get(kind);
  });
  const fateOf = fate.words.map((word) => FATES.indexOf(word));
  // What occurs in any cell, as 1. Entry 2f: the fate with the number f, of an honest client. Entry 2f + 1: the same fate,
  // of a malicious client. Entry 10: a client without a record. Entry 11: a client without a score.
  const mix = new Uint8Array(12);
  c.stats = c.ids.map((id, row) => {
    const fates = [0, 0, 0, 0, 0], why = new Map();
    let bad = 0, rounds = 0, last = -1;
    for (let k = row * T; k < (row + 1) * T; k += 1) {
      const f = fateOf[fate.values[k]];
      if (f < 0) { mix[10] = 1; continue; }
      rounds += 1;
      fates[f] += 1;
      if (malicious.values[k] === YES) { bad += 1; mix[2 * f + 1] = 1; } else mix[2 * f] = 1;
      if (f < 2 && c.score && Number.isNaN(c.score[k])) mix[11] = 1;
      if (f === 0) continue;
      last = k;
      if (!reason.values[k]) continue;
      const kind = kindOf[reason.values[k]], seen = why.get(kind);
      if (seen) { seen.count += 1; seen.k = k; } else why.set(kind, { count: 1, k, absent: f > 2 });
    }
    const reasons = [...why.values()].sort((a, b) => a.absent - b.absent || b.count - a.count || b.k - a.k); // reasons about what the client sent come before reasons about its absence
    return { row, id, rounds, fates, bad, notKept: rounds - fates[0], last, reasons };
  });
  c.seen = new Set(FATES.flatMap((name, f) => [0, 1].filter((b) => mix[2 * f + b]).map((b) => `${name} ${b}`)));
  if (mix[10]) c.seen.add("absent");
  if (mix[11]) c.seen.add("no score");
  return c.stats;
}

function highScore(c, row) {
  let most = -Infinity;
  if (c.score) for (let k = row * c.T; k < (row + 1) * c.T; k += 1) if (c.score[k] > most) most = c.score[k];
  return most;
}

// Short names for narrow places: the ends of long names, just long enough that all names differ.
function shortNames(c) {
  if (c.names) return c.names;
  const full = c.ids.map((id) => nameOf(id, 60));
  for (const length of [6, 9, 13, 20, 60]) {
    const short = full.map((name) => (name.length > length ? `…${name.slice(1 - length)}` : name));
    c.names = short;
    if (new Set(short).size === new Set(full).size) break;
  }
  return c.names;
}
// The name of a client. The text "7" gets quotation marks if another client has the number 7 as its id.
function fullName(c, row) {
  const name = nameOf(c.ids[row]);
  return typeof c.ids[row] === "string" && c.ids.some((id) => typeof id === "number" && String(id) === c.ids[row]) ? `“${name}”` : name;
}

// One field of a record as text. null if the field is empty.
function fieldText(run, c, name, k) {
  const field = c.fields[name];
  if (!field) return null;
  const value = field.values[k];
  if (name === "reason") return c.reason(k) || null;
  if (field.kind === "text") return clean(field.words[value]) || null;
  if (field.kind === "answer") return value === YES ? "yes" : value === NO ? "no" : null;
  if (!Number.isFinite(value)) return null;
  return name === "probability" ? percent(value) : figure(value);
}
const FIELD_NAMES = { probability: "probability of malice", malicious: "sent poison" };
function factsOf(run, c, k, row, t) {
  if (!c.fate(k)) return [["not selected", ""]];
  const facts = [];
  for (const key of Object.keys(c.fields)) {
    const text = fieldText(run, c, key, k);
    if (text) facts.push([FIELD_NAMES[key] || key.replaceAll("_", " "), text]);
  }
  const told = c.fields.reason.words[c.fields.reason.values[k]] === "score"; // such a reason already names the largest score
  if (!told && known(run.threshold[t]) && c.score && Number.isFinite(c.score[k])) facts.push(["largest score of a kept client", figure(run.threshold[t])]);
  return facts;
}

// Adds rounds that the live page got later. New rounds become columns at the right. New clients become rows at the end.
function extendClients(run, more) {
  const old = clientsOf(run);
  if (!old.shown || !more.since) { run.clients = more; return; }
  const news = clientsOf({ ...run, rounds: run.rounds.slice(more.since), threshold: run.threshold.slice(more.since), clients: more });
  const T = more.since + news.T;
  for (const name of Object.keys(more.fields)) news.fields[name] = joined(old, news, name, more.since, T);
  const c = { ...more, fields: news.fields, since: 0 };
  prepare(run, c);
  run.clients = c;
}
// One field of the old and the new rounds as one matrix.
function joined(old, news, name, since, T) {
  const a = old.fields[name], b = news.fields[name];
  if (!a && !b) return null;
  const kind = (a || b).kind, rows = news.shown;
  let words = null, codeOf = null;
  if (kind === "text") {
    words = [...a.words];
    const place = new Map(words.map((word, i) => [word, i]));
    codeOf = b.words.map((word) => { if (!place.has(word)) { place.set(word, words.length); words.push(word); } return place.get(word); });
  }
  const values = kind === "number" ? new Float32Array(rows * T).fill(NaN) : kind === "answer" ? new Uint8Array(rows * T).fill(2) : new Uint32Array(rows * T);
  for (let row = 0; row < rows; row += 1) {
    if (a && row < old.shown) values.set(a.values.subarray(row * old.T, row * old.T + since), row * T);
    if (!b) continue;
    const part = b.values.subarray(row * news.T, (row + 1) * news.T);
    values.set(codeOf ? part.map ? Uint32Array.from(part, (code) => codeOf[code]) : part : part, row * T + since);
  }
  return { kind, words, values };
}
