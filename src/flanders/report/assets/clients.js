// The table of clients: how often each was not kept, and why. A click on a client opens its history.

const clientTable = { words: [], order: "notKept", most: few() };
const FATE_SHADES = { [KEPT]: "var(--kept)", [DROPPED]: "var(--malicious)", [REFUSED]: "var(--refused)", [BANNED]: "var(--banned)", [SILENT]: "var(--silent)" };

function sortedClients(run) {
  const c = clientsOf(run), stats = statsOf(run).filter((s) => s.rounds); // without clients that have not taken part yet
  const text = (s) => `${clean(s.id)} ${s.reasons.map((r) => c.reason(r.k)).join(" ")} ${FATES.filter((_, i) => s.fates[i]).join(" ")}`.toLowerCase();
  const found = clientTable.words.length ? stats.filter((s) => clientTable.words.every((word) => text(s).includes(word))) : [...stats];
  const score = clientTable.order === "score" ? new Map(found.map((s) => [s.row, highScore(c, s.row)])) : null;
  return found.sort((a, b) => (clientTable.order === "id" ? 0
    : clientTable.order === "score" ? score.get(b.row) - score.get(a.row)
    : clientTable.order === "malicious" ? b.bad - a.bad
    : b.notKept - a.notKept) || byId(a.id, b.id));
}

function drawClients() {
  const run = report.runs[state.run], c = clientsOf(run);
  $("clients-card").hidden = !run.rounds.length || !c.total;
  if ($("clients-card").hidden) return;
  if (!c.shown) { $("clients-lede").textContent = ""; $("clients-more").hidden = true; $("clients").replaceChildren(empty(c.loading ? "Loading." : `The ${count(c.total)} clients of this run were left out to keep the page small. The results file has them.`)); return; }
  const found = sortedClients(run), shown = found.slice(0, clientTable.most), stats = statsOf(run).filter((s) => s.rounds);
  const ever = stats.filter((s) => s.notKept).length;
  const left = !ever ? "Every client was kept in every round." : ever === stats.length && ever > 1 ? "Every client was left out in at least one round."
    : `${count(ever)} of ${plural(stats.length, "client")} ${ever === 1 ? "was" : "were"} left out in at least one round.`;
  $("clients-lede").textContent = `${left} Choose one to see its history.`
    + (c.shown < c.total ? ` ${count(c.total - c.shown)} more clients are not listed here. The list includes the clients that were most often not kept.` : "");
  const head = ["Client", "What happened", run.truth ? "Sent poison" : null, c.score && run.judged ? "Score over rounds" : null, "Why, most often"].filter(Boolean);
  $("clients").replaceChildren(el("table", { class: "clients" },
    el("thead", {}, el("tr", {}, ...head.map((title) => el("th", { scope: "col", text: title })))),
    el("tbody", {}, shown.length ? shown.map((s) => clientRow(run, c, s)) : el("tr", {}, el("td", { colspan: head.length }, empty("No client matches these words."))))));
  $("clients-more").hidden = found.length <= clientTable.most;
  $("clients-more").textContent = `Show ${count(Math.min(200, found.length - clientTable.most))} more of ${count(found.length)}`;
}

function fateBar(s) {
  const bar = el("span", { class: "fates", "aria-hidden": "true" });
  FATES.forEach((fate, i) => {
    if (!s.fates[i]) return;
    const part = el("i", {});
    part.style.flexGrow = s.fates[i];
    part.style.background = FATE_SHADES[fate];
    bar.append(part);
  });
  return bar;
}
function fateWords(s) {
  const ways = FATES.slice(1).filter((_, i) => s.fates[i + 1]), word = ways.length > 1 ? "not kept" : ways[0];
  return ways.length ? `${word} in ${count(s.notKept)} of ${plural(s.rounds, "round")}` : `kept in ${s.rounds === 1 ? "its only round" : `all ${plural(s.rounds, "round")}`}`;
}
const fateCounts = (s) => FATES.slice(1).filter((_, i) => s.fates[i + 1]).map((fate) => `${fate} ${count(s.fates[FATES.indexOf(fate)])}`).join(", ");

function clientRow(run, c, s) {
  const why = s.reasons[0];
  return el("tr", {},
    el("th", { scope: "row", class: String(s.id).length > 24 ? "long" : null }, el("a", { href: routeOf(run, s.id), text: fullName(c, s.row) })),
    el("td", { class: "share", "data-title": "What happened" }, fateBar(s),
      el("span", { class: "beside", text: fateWords(s) }),
      FATES.slice(1).filter((_, i) => s.fates[i + 1]).length > 1 ? el("span", { class: "soft", text: fateCounts(s) }) : null),
    run.truth ? el("td", { "data-title": "Sent poison", text: s.bad ? `in ${plural(s.bad, "round")}` : "no" }) : null,
    c.score && run.judged ? el("td", { class: "spark" }, sparkline(run, c, s.row)) : null,
    el("td", { class: `why${why ? "" : " nothing"}`, "data-title": "Why, most often" }, why ? c.reason(why.k) : s.notKept ? "no reason was given" : "–",
      s.reasons.length > 1 ? el("span", { class: "soft", text: `and ${plural(s.reasons.length - 1, "other reason")}` }) : null));
}

function sparkline(run, c, row) {
  const width = 130, height = 26, T = c.T;
  const x = (t) => 3 + (T === 1 ? 0.5 : t / (T - 1)) * (width - 6), y = (v) => height - 4 - c.scale(v) * (height - 8);
  const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  let path = "", pen = "M";
  const out = [];
  for (let t = 0; t < T; t += 1) {
    const k = row * T + t, v = c.score[k];
    if (!Number.isFinite(v)) { pen = "M"; continue; }
    path += `${pen}${x(t).toFixed(1)},${y(v).toFixed(1)}`;
    pen = "L";
    if (c.fate(k) === DROPPED) out.push([x(t), y(v)]);
  }
  drawn.append(svg("path", { d: path, class: "spark-line" }));
  for (const [cx, cy] of out.slice(-60)) drawn.append(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 1.8, class: "spark-out" }));
  return drawn;
}

// The view of one client: all its rounds, its score beside the largest score of a kept client, and why it was not kept.
const historyTable = { most: 30 };

function drawClient() {
  const run = report.runs[state.run], c = clientsOf(run), row = c.shown ? c.ids.indexOf(state.client) : -1;
  const known_ = row >= 0;
  $("client-missing").hidden = known_;
  $("client-body").hidden = !known_;
  $("client-title").textContent = `Client ${known_ ? fullName(c, row) : nameOf(state.client)}`;
  if (!known_) {
    $("client-missing").textContent = c.loading ? "Loading."
      : c.total > c.shown ? "The page shows only some clients of this run, and not this client. The results file has all clients." : "No round of this run has such a client.";
    return;
  }
  const s = statsOf(run)[row];
  const facts = [fact("Kept", percent(s.fates[0] / s.rounds), `in ${count(s.fates[0])} of ${plural(s.rounds, "round")}`)];
  FATES.slice(1).forEach((fate, i) => { if (s.fates[i + 1]) facts.push(fact(fate[0].toUpperCase() + fate.slice(1), count(s.fates[i + 1]), `${FATE_WORDS[fate]}`)); });
  if (run.truth) facts.push(fact("Sent poison", s.bad ? count(s.bad) : "never", s.bad ? `${s.bad === 1 ? "round" : "rounds"} of ${count(s.rounds)}` : "known from the simulation"));
  $("client-facts").replaceChildren(...facts);
  drawReasons(run, c, s);
  drawClientScores(run, c, row);
  drawHistory(run, c, row);
}

function drawReasons(run, c, s) {
  const { reason } = c.fields, groups = new Map();
  for (let t = 0; t < c.T; t += 1) {
    const k = s.row * c.T + t, fate = c.fate(k);
    if (!fate || fate === KEPT) continue;
    const text = c.reason(k) || "no reason was given", kind = `${fate} ${reason.words[reason.values[k]].replace(/\d[\d.,e+-]*/g, "#")}`;
    if (!groups.has(kind)) groups.set(kind, { fate, rounds: [] });
    Object.assign(groups.get(kind), { text });
    groups.get(kind).rounds.push(c.rounds[t]);
  }
  const found = [...groups.values()].sort((a, b) => b.rounds.length - a.rounds.length);
  $("client-reasons").replaceChildren(...(found.length ? found.map((g) => el("li", {},
    el("span", { class: `fate ${g.fate}`, text: g.fate }),
    el("span", { class: "what" }, el("span", { text: g.text }), el("span", { class: "soft line", text: `${g.rounds.length > 1 ? `${plural(g.rounds.length, "time")}, in ` : "in "}${spans(g.rounds)}` }))))
    : [el("li", {}, el("span", { class: "what", text: "This client was kept in every round that it took part in." }))]));
}

function drawClientScores(run, c, row) {
  const box = $("client-scores"), T = c.T;
  const own = []; // what can be drawn: [position of the round, score, fate]
  if (c.score) for (let t = 0; t < T; t += 1) { const k = row * T + t; if (Number.isFinite(c.score[k])) own.push([t, c.score[k], c.fate(k)]); }
  $("client-scores-card").hidden = !own.length;
  if (!own.length) return;
  const width = Math.max(280, box.clientWidth), height = 250, left = 52, right = 12, top = 26, bottom = 34;
  const first = c.rounds[0], last = c.rounds[T - 1], y = c.scale;
  const x = (round) => left + (last === first ? 0.5 : (round - first) / (last - first)) * (width - left - right);
  const py = (value) => top + (1 - Math.min(1, Math.max(0, y(value)))) * (height - top - bottom);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Score of the client in ${plural(own.length, "round")}, from ${figure(own[0][1])} to ${figure(own[own.length - 1][1])}.` });
  for (const t of y.ticks(4)) chart.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: py(t), y2: py(t) }), svg("text", { x: left - 8, y: py(t) + 4, "text-anchor": "end", text: figure(t) }));
  for (const t of wholeTicks(first, last, width < 520 ? 5 : 10)) chart.append(svg("text", { x: x(t), y: height - bottom + 18, "text-anchor": "middle", text: t }));
  chart.append(svg("text", { x: width - right, y: height - 2, "text-anchor": "end", text: "round" }));
  markStart(chart, run, x, top, height - bottom, first, last, width - right);
  const line = (points, css_) => { if (points.length) chart.append(svg("path", { class: css_, d: points.map(([r, v], i) => `${i ? "L" : "M"}${x(r).toFixed(1)},${py(v).toFixed(1)}`).join("") })); };
  line(c.rounds.map((round, t) => [round, run.threshold[t]]).filter(([, v]) => known(v)), "limit");
  line(own.map(([t, v]) => [c.rounds[t], v]), "own");
  for (const [t, v, fate] of own) {
    const dot = svg("circle", { class: `dot ${fate}`, cx: x(c.rounds[t]), cy: py(v), r: own.length > 200 ? 2 : 4 });
    pointing(dot, (event) => tip(event, el("b", { text: `Round ${c.rounds[t]}` }), ...factsOf(run, c, row * T + t, row, t).map(([name, value]) => el("div", {}, el("span", { text: name }), el("span", { text: value })))), () => tip(null));
    chart.append(dot);
  }
  box.replaceChildren(chart);
  const item = (shade, text) => el("li", { class: "item" }, swatch(shade), el("span", { text }));
  const fates = inOrder(own.map(([, , fate]) => fate));
  $("client-scores-legend").replaceChildren(...fates.map((fate) => item(fate === KEPT ? "var(--honest)" : FATE_SHADES[fate], fate)),
    el("li", { class: "item" }, svg("svg", { width: 26, height: 8, "aria-hidden": "true" }, svg("line", { class: "limit-key", x1: 1, x2: 25, y1: 4, y2: 4 })), el("span", { text: "the largest score of a kept client in the round" })));
}

function drawHistory(run, c, row) {
  const rows = [];
  for (let t = c.T - 1; t >= 0; t -= 1) if (c.fate(row * c.T + t)) rows.push(t);
  const fields = ["score", "probability", "weight"].filter((name) => c.fields[name] && rows.some((t) => fieldText(run, c, name, row * c.T + t)));
  const titles = { score: "Score", probability: "Prob. of malice", weight: "Weight" };
  $("history").replaceChildren(el("table", { class: "history" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Round" }), el("th", { scope: "col", text: "Fate" }), ...fields.map((f) => el("th", { scope: "col", class: "figure", text: titles[f] })),
      run.truth ? el("th", { scope: "col", text: "Sent poison" }) : null, el("th", { scope: "col", text: "Why" }))),
    el("tbody", {}, rows.slice(0, historyTable.most).map((t) => {
      const k = row * c.T + t, fate = c.fate(k);
      return el("tr", {}, el("td", { text: c.rounds[t] }), el("td", {}, el("span", { class: `fate ${fate}`, text: fate, title: FATE_WORDS[fate] })),
        ...fields.map((f) => el("td", { class: "figure", "data-title": titles[f], text: fieldText(run, c, f, k) || "–" })),
        run.truth ? el("td", { "data-title": "Sent poison", text: c.malicious(k) ? "yes" : "no" }) : null, el("td", { class: "why", text: c.reason(k) || (fate === KEPT ? "" : "–") }));
    }))));
  $("history-more").hidden = rows.length <= historyTable.most;
  $("history-more").textContent = `Show all ${plural(rows.length, "round")}`;
}
