// The three views of the page: the overview, one run, one client. The address names the view that is shown. So a link can
// lead to a view, and the browser's buttons for back and forward work.

const MOST = 8; // the most lines in one chart; more could not be told apart
const source = { load: null, waiting: "This results file holds no runs yet. Start some with: flanders run SPEC" };

function routeOf(run, client) {
  return `#/run/${encodeURIComponent(run.id)}${client === undefined ? "" : `/client/${encodeURIComponent(JSON.stringify(client))}`}`;
}

function readRoute() {
  const [kind, id, inner, client] = location.hash.replace(/^#\/?/, "").split("/");
  const run = kind === "run" && id ? report.runs.findIndex((r) => r.id === decode(id)) : -1;
  if (run < 0) return { view: report.runs.length === 1 ? "run" : "overview", run: report.runs.length === 1 ? 0 : Math.max(0, Math.min(state.run, report.runs.length - 1)), client: null };
  const found = inner === "client" && client ? parsed(decode(client)) : undefined;
  return found === undefined ? { view: "run", run, client: null } : { view: "client", run, client: found };
}
function decode(text) { try { return decodeURIComponent(text); } catch { return text; } }
function parsed(text) { try { return JSON.parse(text); } catch { return undefined; } }

function follow() {
  const before = { ...state }, route = readRoute();
  Object.assign(state, route);
  if (report.runs.length && (route.run !== before.run || !state.compare.length)) chooseCompared(route.run);
  if (route.run !== before.run) { state.round = null; clientTable.most = few(); }
  if (route.client !== before.client) historyTable.most = 30;
  draw();
  scrollTo(0, 0);
  if (before.shown) $("heading").focus({ preventScroll: true });
  state.shown = true;
}

function chooseCompared(i) {
  if (!state.touched) {
    const { siblings } = report.runs[i], others = siblings.filter((j) => j !== i).slice(0, MOST - 1);
    state.compare = [i, ...others].sort((a, b) => a - b);
  } else if (!state.compare.includes(i)) state.compare = [...state.compare, i].slice(-MOST);
}

function compareRun(i, on) {
  state.touched = true;
  state.compare = on ? [...state.compare, i].slice(-MOST) : state.compare.filter((j) => j !== i);
  if (!state.compare.length) state.compare = [state.run];
  draw();
}

const fact = (name, value, note) => el("div", { class: "fact" }, el("div", { class: "name", text: name }), el("div", { class: "value", text: value }), el("div", { class: "note", text: note }));

function drawFacts() {
  const run = report.runs[state.run], d = run.detection, c = run.cells, facts = [], of = (fate) => run.fates[fate] || 0;
  if (run.rounds.length) {
    const free = run.twin === null || report.runs[run.twin] === run ? null : report.runs[run.twin];
    const twin = free && !unfinished(run) && !unfinished(free) ? free.cells.final : null;
    const gap = known(twin) && known(c.final) ? 100 * (c.final - twin) : null;
    if (known(c.final)) {
      facts.push(fact(unfinished(run) ? "Accuracy so far" : "Final accuracy", percent(c.final), gap === null ? `best ${percent(c.best)}`
        : Math.abs(gap) < 0.05 ? "as without the attack" : `${Math.abs(gap).toFixed(1)} points ${gap < 0 ? "below" : "above"} attack-free`));
    }
    if (d.caught + d.missed) facts.push(fact("Malicious not kept", percent(d.recall), `${count(d.missed)} of ${count(d.caught + d.missed)} were kept`));
    if (d.wronged + d.passed) facts.push(fact("Honest not kept", percent(d.fpr), `${count(d.wronged)} of ${count(d.wronged + d.passed)}`));
    const replies = of(KEPT) + of(DROPPED) + of(REFUSED);
    if (!run.truth && replies) facts.push(fact("Replies dropped", percent(of(DROPPED) / replies), `${count(of(DROPPED))} of ${count(replies)}`));
    for (const fate of [REFUSED, SILENT, BANNED]) if (of(fate)) facts.push(fact(fate[0].toUpperCase() + fate.slice(1), count(of(fate)), { [REFUSED]: "replies that cannot be used", [SILENT]: "asked, but no reply", [BANNED]: "times not asked" }[fate]));
    if (known(c.attack_success)) facts.push(fact("Attack success", percent(c.attack_success), unfinished(run) ? "so far" : "at the end"));
    facts.push(fact(unfinished(run) ? "Rounds so far" : "Rounds", run.planned && unfinished(run) ? `${count(run.rounds.length)} of ${count(run.planned)}` : count(run.rounds.length), plural(run.num_clients, "client")));
    if (known(c.seconds) && c.seconds > 0) facts.push(fact("Time", seconds(c.seconds), `${seconds(c.seconds / run.rounds.length)} a round`));
  }
  $("facts").hidden = !facts.length;
  $("facts").replaceChildren(...facts);
  const says = [];
  if (run.status === "failed" || run.status === "damaged") says.push(`This run ${run.status === "failed" ? "failed" : "could not be read"}${run.message ? `: ${clean(run.message)}` : "."}`);
  else if (!run.rounds.length) says.push(`This run is ${run.status}: no round has finished yet.`);
  else if (unfinished(run) && !(report.live && run.status === "running")) says.push(`This run is ${run.status}: the page shows the ${plural(run.rounds.length, "round")} finished so far.`);
  const notes = Object.entries(run.notes).filter(([, text]) => !text.startsWith("no scores yet") && !text.startsWith("too little is known yet"));
  if (notes.length) says.push(`Round ${notes[0][0]}: ${clean(notes[0][1])}.${notes.length > 1 ? ` ${plural(notes.length - 1, "more round")} ${notes.length === 2 ? "has" : "have"} a note; point at the rounds below to read them.` : ""}`);
  $("run-message").hidden = !says.length;
  $("run-message").textContent = says.join(" ");
}

function drawTop() {
  const run = report.runs[state.run], crumbs = [], several = report.runs.length > 1;
  const cell = run ? report.runs.filter((other) => sameCell(other, run)) : [];
  if (several && state.view !== "overview") crumbs.push(el("a", { href: "#/", text: "Overview" }));
  if (state.view === "client") crumbs.push(el("a", { href: routeOf(run), text: several ? clean(run.label) : "All clients" }));
  $("crumbs").hidden = !crumbs.length;
  $("crumbs").replaceChildren(...crumbs);
  $("source").hidden = state.view === "overview" && !report.live;
  const runName = run ? (several ? `${clean(run.defence)}, ${clean(run.attack)}` : report.name) : "";
  $("heading").textContent = state.view === "overview" ? report.name : state.view === "run" ? runName : $("client-title").textContent;
  $("summary").textContent = state.view === "overview" ? clean(report.summary) : state.view === "run" ? (several ? clean([run.setting, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(" · ")) : clean(report.summary)) : clientWords(run);
  $("seeds").hidden = state.view !== "run" || cell.length < 2;
  $("seeds").replaceChildren(el("span", { text: "Runs like this one" }), ...cell.map((other, n) => el("a", { class: "chip", href: routeOf(other), "aria-current": other === run ? "page" : null, text: other.seed === null ? `run ${n + 1}` : `seed ${other.seed}` })));
  const place = { overview: report.name, run: several ? `${runName} · ${report.name}` : report.name, client: `${$("client-title").textContent} · ${report.name}` }[state.view];
  const loud = report.live ? report.runs.filter((r) => r.status === "running").reduce((sum, r) => sum + r.alarms.length, 0) : 0;
  document.title = `${loud ? `(${loud}) ` : ""}${place} – flanders ${report.live ? "watch" : "report"}`;
}

function clientWords(run) {
  const c = clientsOf(run), s = c.shown ? statsOf(run)[c.ids.indexOf(state.client)] : null;
  return s ? `Took part in ${count(s.rounds)} of ${plural(c.T, "round")}` : "";
}

// Draws the view again. A link that had the focus gets the focus back.
function draw() {
  tip(null);
  const holder = document.activeElement, link = holder && holder.matches && holder.matches("main a[href]") ? holder.getAttribute("href") : null;
  const any = report.runs.length > 0;
  $("nothing").hidden = any;
  $("nothing").textContent = source.waiting;
  for (const view of ["overview", "run", "client"]) $(`view-${view}`).hidden = !any || state.view !== view;
  $("picker").hidden = state.view !== "run" || report.runs.length < 2;
  $("grid").hidden = !any || report.runs.length < 2 || state.view === "client";
  $("left-out").hidden = !report.left_out || state.view === "client";
  $("left-out").textContent = report.left_out;
  if (!any) { $("heading").textContent = report.name; $("summary").textContent = ""; $("alarms").hidden = true; return; }
  const run = report.runs[state.run];
  if (source.load && state.view !== "overview" && !run.loading && (!run.clients || run.clients.T !== run.rounds.length)) source.load(run);
  if (state.view === "overview") drawOverview();
  if (state.view === "run") { $("run").replaceChildren(...report.runs.map((r, i) => el("option", { value: i, text: clean(r.label) }))); $("run").value = state.run; drawRun(); }
  if (state.view === "client") drawClient();
  drawTop();
  drawAlarms();
  $("grid").classList.toggle("plain", state.view === "overview"); // only the page of a run draws runs side by side
  $("grid-lede").textContent = state.view === "overview" ? "Choose a name to look at a run." : "Choose a name to look at a run. Tick runs to draw them side by side.";
  if (!$("grid").hidden) { drawHead(); drawBody(); }
  if (link) { const again = [...document.querySelectorAll("main a[href]")].find((a) => a.getAttribute("href") === link); if (again && document.activeElement !== again) again.focus({ preventScroll: true }); }
}

function drawRun() {
  const run = report.runs[state.run];
  drawFacts();
  drawChoice();
  drawLines();
  drawRounds();
  drawClients();
  drawHeat();
  $("scores-card").hidden = !run.judged || !clientsOf(run).shown;
  drawDetection();
  $("pair").hidden = $("scores-card").hidden && $("detection-card").hidden;
  $("pair").classList.toggle("single", $("scores-card").hidden !== $("detection-card").hidden);
  if (!$("scores-card").hidden) drawScores();
  drawTime();
  $("spec").replaceChildren(el("dt", { text: "id" }), el("dd", { text: run.id }),
    ...Object.entries(run.spec).flatMap(([key, value]) => [el("dt", { text: key }), el("dd", { text: clean(value) })]));
}

function begin() {
  const words = (event) => event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  $("run").addEventListener("change", (event) => { location.hash = routeOf(report.runs[Number(event.target.value)]); });
  const step = (by) => () => { location.hash = routeOf(report.runs[(state.run + by + report.runs.length) % report.runs.length]); };
  $("previous").addEventListener("click", step(-1));
  $("next").addEventListener("click", step(1));
  $("heat-order").addEventListener("change", (event) => { heat.order = event.target.value; drawHeat(); });
  $("heat-marks").addEventListener("change", (event) => { heat.marks = event.target.value; drawHeat(); });
  $("round").addEventListener("input", (event) => chooseRound(Number(event.target.value)));
  $("all-rounds").addEventListener("click", () => chooseRound(null));
  $("clients-filter").addEventListener("input", (event) => { clientTable.words = words(event); clientTable.most = few(); drawClients(); });
  $("clients-order").addEventListener("change", (event) => { clientTable.order = event.target.value; drawClients(); });
  $("clients-more").addEventListener("click", () => { clientTable.most += 200; drawClients(); });
  $("history-more").addEventListener("click", () => { historyTable.most = Infinity; drawClient(); });
  $("alarms-more").addEventListener("click", () => { alarms.all = !alarms.all; drawAlarms(); });
  $("runs-more").addEventListener("click", () => { table.most = Infinity; drawBody(); });
  $("filter").addEventListener("input", (event) => { table.words = words(event); drawBody(); });
  addEventListener("hashchange", follow);
  follow();
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    draw();
  }).observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
