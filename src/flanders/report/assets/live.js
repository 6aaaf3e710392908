// The live page. It asks the server regularly for new rounds and draws them. It sends nothing except these requests.

const PAUSE = 1000, LONGEST_PAUSE = 15000; // milliseconds between two requests; the pause grows while the server does not answer
const live = { version: null, pause: PAUSE, down: false, late: false, answered: 0 };

async function ask(path) {
  const response = await fetch(path, { credentials: "same-origin", cache: "no-store" });
  if (response.status === 401) { location.reload(); throw new Error("the session is over"); }
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

async function update() {
  const began = performance.now();
  try {
    const news = await ask(`api/results?version=${encodeURIComponent(live.version || "")}`);
    live.answered = Date.now();
    live.pause = PAUSE;
    if (news.problem) source.waiting = news.problem;
    if (news.version !== live.version) await take(news);
    say(report.runs.some((run) => run.status === "running") ? "live" : "waiting", report.runs.some((run) => run.status === "running") ? "Live" : "No run is going on");
  } catch (error) {
    live.pause = Math.min(LONGEST_PAUSE, 2 * live.pause);
    say("lost", `No answer from flanders watch. Trying again. ${live.answered ? `Last news at ${new Date(live.answered).toLocaleTimeString()}.` : ""}`);
  }
  // A page that takes long to draw asks less often, so that it stays usable.
  setTimeout(update, Math.max(live.pause, 5 * (performance.now() - began)));
}

// Takes over what is new. If a run has another epoch than before, its clients are out of date and are loaded again.
async function take(news) {
  const before = report.runs[state.run], kept = new Map(report.runs.map((run) => [run.id, run]));
  const runs = news.order.map((id) => {
    const fresh = news.runs[id], old = kept.get(id);
    return fresh ? { ...fresh, clients: old && old.epoch === fresh.epoch ? old.clients : null } : old;
  });
  const shown = runs.find((run) => before && run.id === before.id);
  if (shown && state.view !== "overview" && news.runs[shown.id]) await loadCells(shown);
  live.version = news.version;
  Object.assign(report, { summary: news.summary, columns: news.columns, phases: news.phases, runs, left_out: news.left_out });
  if (before && shown) {
    const moved = new Map(runs.map((run, i) => [run.id, i])), ids = state.compare.map((i) => kept.size && [...kept.keys()][i]);
    state.compare = ids.map((id) => moved.get(id)).filter((i) => i !== undefined);
  }
  if (before && shown && state.shown) { Object.assign(state, readRoute()); if (!state.touched) chooseCompared(state.run); redraw(); } else follow();
}

async function loadCells(run) {
  const have = run.clients && run.clients.decoded ? run.clients.T : 0, until = run.rounds.length;
  if (have === until && have) return;
  extendClients(run, await ask(`api/runs/${encodeURIComponent(run.id)}?since=${have}&until=${until}&epoch=${have ? run.clients.epoch : ""}`));
  if (!clientsOf(run).shown) run.clients.T = until; // no client took part in any round, so there is nothing more to ask for
}

// While a mouse button is held down, nothing is drawn. Otherwise the target of the click could disappear.
function redraw() {
  if (live.down) { live.late = true; return; }
  live.late = false;
  draw();
}
function say(kind, text) {
  $("live").className = `live ${kind}`;
  $("live").hidden = false;
  if ($("live").textContent !== text) $("live").textContent = text;
}

addEventListener("pointerdown", () => { live.down = true; }, true);
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(() => { live.down = false; if (live.late) redraw(); }, 50), true);
source.load = (run) => {
  const old = run.clients;
  if (!old) run.clients = { shown: 0, total: run.num_clients };
  run.loading = run.clients.loading = true;
  loadCells(run).then(() => { run.loading = false; redraw(); }, () => { run.loading = false; run.clients = old; });
};
source.waiting = "Waiting for the first run.";
begin();
update();
