// Choosing the run to look at and the runs to compare, and drawing all parts of the page.

const MOST = 8;

function chooseRun(i) {
  state.run = i;
  state.round = null;
  if (!state.touched) state.compare = [...runs[i].siblings];
  else if (!state.compare.includes(i)) state.compare = [...state.compare, i].slice(-MOST);
  drawRun();
}

function compareRun(i, on) {
  state.touched = true;
  state.compare = on ? [...state.compare, i].slice(-MOST) : state.compare.filter((j) => j !== i);
  if (!state.compare.length) state.compare = [state.run];
  drawRun();
}

function drawFacts() {
  const run = runs[state.run], d = run.detection, c = run.cells;
  const fact = (name, value, note) => el("div", { class: "fact" }, el("div", { class: "name", text: name }), el("div", { class: "value", text: value }), el("div", { class: "note", text: note }));
  const count = (fate) => run.fates[fate] || 0;
  const facts = [];
  if (run.rounds.length) {
    const twin = run.twin === null || run.twin === state.run ? null : runs[run.twin].cells.final;
    const gap = known(twin) && known(c.final) ? 100 * (c.final - twin) : null;
    facts.push(fact("Final accuracy", percent(c.final), gap === null ? `best ${percent(c.best)}`
      : Math.abs(gap) < 0.05 ? "as without the attack" : `${Math.abs(gap).toFixed(1)} points ${gap < 0 ? "below" : "above"} attack-free`));
    if (d.caught + d.missed) facts.push(fact("Malicious dropped", percent(d.recall), `${d.missed.toLocaleString("en")} of ${(d.caught + d.missed).toLocaleString("en")} slipped through`));
    if (d.wronged + d.passed) facts.push(fact("Honest dropped", percent(d.fpr), `${d.wronged.toLocaleString("en")} of ${(d.wronged + d.passed).toLocaleString("en")}`));
    const replies = count(KEPT) + count(DROPPED) + count(REFUSED);
    if (!run.truth && replies) facts.push(fact("Clients dropped", percent(count(DROPPED) / replies), `${count(DROPPED).toLocaleString("en")} of ${replies.toLocaleString("en")} replies`));
    const unused = [REFUSED, SILENT, BANNED].filter(count);
    if (unused.length) facts.push(fact("No usable reply", unused.reduce((sum, fate) => sum + count(fate), 0).toLocaleString("en"), unused.map((fate) => `${count(fate).toLocaleString("en")} ${fate}`).join(", ")));
    if (known(c.attack_success)) facts.push(fact("Attack success", percent(c.attack_success), "at the end"));
    facts.push(fact("Rounds", String(run.rounds.length), plural(run.clients.total, "client")));
    if (known(c.seconds) && c.seconds > 0) facts.push(fact("Time", seconds(c.seconds), `${seconds(c.seconds / run.rounds.length)} a round`));
  }
  $("facts").hidden = !facts.length;
  $("facts").replaceChildren(...facts);
  const says = [];
  if (run.status === "failed") says.push(`This run failed${run.message ? ": " + run.message : "."}`);
  else if (!run.rounds.length) says.push(`This run is ${run.status}: no round has finished yet.`);
  else if (run.status !== "done") says.push(`This run is ${run.status}: the page shows the ${plural(run.rounds.length, "round")} finished so far.`);
  const notes = Object.entries(run.notes).filter(([, text]) => !text.startsWith("no scores yet"));
  if (notes.length) says.push(`Round ${notes[0][0]}: ${notes[0][1]}.${notes.length > 1 ? ` ${plural(notes.length - 1, "more round")} ${notes.length === 2 ? "has" : "have"} a note.` : ""}`);
  $("run-message").hidden = !says.length;
  $("run-message").textContent = says.join(" ");
}

function drawRun() {
  $("run").value = state.run;
  drawFacts();
  drawChoice();
  drawCharts();
  drawDetection();
  drawTime();
  drawBody();
  $("spec").replaceChildren(el("dt", { text: "id" }), el("dd", { text: runs[state.run].id }),
    ...Object.entries(runs[state.run].spec).flatMap(([key, value]) => [el("dt", { text: key }), el("dd", { text: value })]));
}

function drawCharts() {
  tip(null);
  drawLines();
  drawHeat();
  drawScores();
}

function start() {
  $("left-out").hidden = !report.left_out;
  $("left-out").textContent = report.left_out;
  if (!runs.length) {
    $("report").replaceChildren(empty("This results file holds no runs yet. Start some with: flanders run SPEC"));
    return;
  }
  $("run").replaceChildren(...runs.map((run, i) => el("option", { value: i, text: run.label })));
  $("run").addEventListener("change", (event) => chooseRun(Number(event.target.value)));
  const step = (by) => () => chooseRun((state.run + by + runs.length) % runs.length);
  $("previous").addEventListener("click", step(-1));
  $("next").addEventListener("click", step(1));
  $("picker").hidden = runs.length < 2;
  $("heat-order").addEventListener("change", (event) => { heat.order = event.target.value; drawHeat(); });
  $("heat-marks").addEventListener("change", (event) => { heat.marks = event.target.value; drawHeat(); });
  $("round").addEventListener("input", (event) => chooseRound(Number(event.target.value)));
  $("all-rounds").addEventListener("click", () => chooseRound(null));
  drawHead();
  chooseRun(state.run);
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawCharts();
  }).observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
}
start();
