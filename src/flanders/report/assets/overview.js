// The overview: a table with a row for each attack and a column for each defence. A cell shows the mean accuracy of its
// runs, and links to the first of them.

// The colour of an accuracy: orange is low, pale is medium, and blue is high. The colour-blind can tell them apart.
const LOW = [204, 85, 0], MIDDLE = [244, 240, 230], HIGH = [0, 104, 168];
function accuracyColor(x) {
  const t = Math.min(1, Math.max(0, x)), [a, b, part] = t < 0.5 ? [LOW, MIDDLE, t * 2] : [MIDDLE, HIGH, t * 2 - 1];
  return a.map((v, i) => Math.round(v + part * (b[i] - v)));
}
// The colour of text that can be read on this background.
const inkOn = (rgb) => {
  const light = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.19 ? "#14181c" : "#ffffff";
};

const inOrder = (values) => [...new Set(values)];
const sameCell = (a, b) => a.setting === b.setting && a.attack === b.attack && a.defence === b.defence;

function drawOverview() {
  const settings = inOrder(report.runs.map((run) => run.setting));
  $("grids").replaceChildren(...settings.map((setting) => gridOf(setting, report.runs.filter((run) => run.setting === setting), settings.length > 1)));
  const measured = report.runs.some((run) => known(run.cells.final));
  $("overview-title").textContent = measured ? "Accuracy under attack" : "All federations";
  const seeds = new Set(report.runs.map((run) => run.seed)).size;
  $("overview-lede").textContent = measured
    ? `A row for each attack, a column for each defence${seeds > 1 ? ", the mean over seeds" : ""}. Choose a cell to look into it.`
    : "No run has a measured accuracy yet. Choose a cell to look into it.";
  drawScaleLegend(measured);
}

function gridOf(setting, runs, titled) {
  const attacks = inOrder(runs.map((run) => run.attack)), defences = inOrder(runs.map((run) => run.defence));
  return el("div", { class: "scroll grid-box" }, el("table", { class: "grid" },
    titled ? el("caption", { text: setting || "other runs" }) : null,
    el("thead", {}, el("tr", {}, el("td", {}), ...defences.map((name) => el("th", { scope: "col", text: clean(name) })))),
    el("tbody", {}, attacks.map((attack) => el("tr", {}, el("th", { scope: "row", text: clean(attack) }),
      ...defences.map((defence) => gridCell(attack, defence, runs.filter((run) => run.attack === attack && run.defence === defence))))))));
}

function gridCell(attack, defence, runs) {
  if (!runs.length) return el("td", { class: "none", title: "no such run", text: "" });
  const values = runs.map((run) => run.cells.final).filter(known);
  const mean = values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  const open = runs.filter(unfinished), notes = [];
  if (values.length > 1 && percent(Math.min(...values)) !== percent(Math.max(...values))) notes.push(`${percent(Math.min(...values))} to ${percent(Math.max(...values))}`);
  if (open.length) notes.push(open.every((run) => run.status === "failed" || run.status === "damaged") ? open[0].status
    : open.every((run) => run.status === "pending") && !values.length ? "pending" : "so far");
  const link = el("a", { href: routeOf(runs[0]), class: "cell", "aria-label": `${attack}, ${defence}: ${percent(mean)}${notes.length ? `, ${notes.join(", ")}` : ""}, ${plural(runs.length, "run")}` },
    el("b", { text: mean === null ? "–" : percent(mean) }), ...notes.map((note) => el("span", { text: note })));
  if (mean !== null) {
    const rgb = accuracyColor(mean);
    link.style.background = `rgb(${rgb})`;
    link.style.color = inkOn(rgb);
  }
  return el("td", {}, link);
}

function drawScaleLegend(measured) {
  $("grid-legend").hidden = !measured;
  if (!measured) return;
  const strip = canvas(140, 12, devicePixelRatio, { role: "img", "aria-label": "Colour scale of the accuracy, orange is low and blue is high" });
  const pen = strip.getContext("2d");
  for (let i = 0; i < strip.width; i += 1) { pen.fillStyle = `rgb(${accuracyColor(i / (strip.width - 1))})`; pen.fillRect(i, 0, 1, strip.height); }
  $("grid-legend").replaceChildren(el("span", { class: "scale" }, el("span", { text: "0%" }), strip, el("span", { text: "100% accuracy" })));
}

// The list of alarms. The overview shows alarms of runs that are running. The view of a run shows all its alarms.
const ALARM_TITLES = {
  "kept-nobody": "Nobody was kept", "model-stayed": "The model stayed", "heavy-reply": "One reply has most of the weight",
  "limits-widened": "The filter's limits are wider", "dropped-in-a-row": "Dropped or refused three times in a row",
};
const alarms = { all: false };

// The text of an alarm. The names of clients in it link to their histories.
function alarmWords(alarm) {
  const text = clean(alarm.text), link = (id, words) => el("a", { href: routeOf(alarm.run, id), text: words });
  const sentence = `${text[0].toUpperCase()}${text.slice(1)}`;
  if (alarm.clients.length < 2) return [`${sentence}. `, alarm.clients.length ? link(alarm.clients[0], "Its history") : ""];
  const more = alarm.num_clients - alarm.clients.length;
  return [`${sentence.split(": ")[0]}: `, ...alarm.clients.flatMap((id, i) => [i ? ", " : "", link(id, nameOf(id, 40))]), more ? ` and ${count(more)} more.` : "."];
}

function drawAlarms() {
  const one = state.view === "run";
  const found = (one ? [report.runs[state.run]] : report.runs.filter((run) => run.status === "running"))
    .flatMap((run) => run.alarms.map((alarm) => ({ ...alarm, run })));
  $("alarms").hidden = !found.length || state.view === "client";
  if (!found.length) return;
  const groups = inOrder(found.map((alarm) => alarm.kind));
  // The alarms of a finished run are not urgent, so they are hidden at first.
  const calm = one && report.runs[state.run].status !== "running", few = calm ? 0 : 5;
  const recent = [...found].sort((a, b) => b.round - a.round), most = alarms.all ? recent.length : few;
  $("alarms").classList.toggle("calm", calm);
  $("alarms-title").textContent = plural(found.length, "alarm");
  $("alarms-kinds").replaceChildren(...(groups.length > 1 || calm ? groups : []).map((kind) => {
    const some = found.filter((alarm) => alarm.kind === kind);
    return el("li", { class: "chip" }, ALARM_TITLES[kind] || kind, el("b", { text: ` ${some.length > 1 ? `${count(some.length)} times` : `in round ${some[0].round}`}` }));
  }));
  $("alarms-list").replaceChildren(...recent.slice(0, most).map((alarm) => el("li", {},
    el("span", { class: "when", text: `Round ${alarm.round}` }),
    el("span", { class: "what" }, ...alarmWords(alarm)),
    one ? null : el("a", { class: "where", href: routeOf(alarm.run), text: clean(alarm.run.label) }))));
  $("alarms-more").hidden = recent.length <= few;
  $("alarms-more").textContent = alarms.all ? (calm ? "Hide them" : "Show fewer") : `Show ${recent.length > 1 ? `all ${count(recent.length)}` : "it"}`;
}
