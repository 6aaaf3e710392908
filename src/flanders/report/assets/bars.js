// Precision, recall and false positives of the compared runs, and the time that each phase took.

function drawDetection() {
  const rates = [["precision", "Precision", "--s0"], ["recall", "Recall", "--s2"], ["fpr", "False positives", "--s1"]];
  const rows = state.compare.filter((i) => report.runs[i].rounds.length && report.runs[i].truth);
  $("detection-card").hidden = !rows.length; // in a live federation it is not known who is malicious
  $("pair").classList.toggle("single", !rows.length);
  if (!rows.length) return;
  const why = (d, key) => ({
    precision: d.caught + d.wronged ? `${d.caught.toLocaleString("en")} of ${(d.caught + d.wronged).toLocaleString("en")} that were not kept were malicious` : "everybody was kept",
    recall: d.caught + d.missed ? `${d.caught.toLocaleString("en")} of ${(d.caught + d.missed).toLocaleString("en")} malicious were not kept` : "nobody was malicious",
    fpr: d.wronged + d.passed ? `${d.wronged.toLocaleString("en")} of ${(d.wronged + d.passed).toLocaleString("en")} honest were not kept` : "nobody was honest",
  })[key];
  const cell = (d, [key, title, shade]) => {
    const fill = el("b");
    fill.style.width = `${100 * (d[key] || 0)}%`;
    fill.style.background = `var(${shade})`;
    return el("td", { "data-title": title, title: why(d, key) },
      el("span", { class: "rate" }, el("i", { "aria-hidden": "true" }, known(d[key]) ? fill : null), el("span", { class: "beside", text: percent(d[key]) })),
      el("span", { class: "visually-hidden", text: why(d, key) }));
  };
  $("detection").replaceChildren(el("table", { class: "rates" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Run" }), ...rates.map(([, title]) => el("th", { scope: "col", text: title })))),
    el("tbody", {}, rows.map((i) => el("tr", { class: i === state.run ? "chosen" : null },
      el("th", { scope: "row", text: lineName({ run: report.runs[i] }) }), ...rates.map((rate) => cell(report.runs[i].detection, rate)))))));
}

function drawTime() {
  const total = (run) => report.phases.reduce((sum, phase) => sum + (run.seconds[phase] || 0), 0);
  const rows = state.compare.filter((i) => total(report.runs[i]) > 0);
  $("time-legend").replaceChildren();
  $("time-lede").textContent = "";
  $("time-card").hidden = !rows.length;
  if (!rows.length) return;
  $("time-lede").textContent = "All rounds together.";
  const longest = Math.max(...rows.map((i) => total(report.runs[i])));
  const shade = (phase) => `var(--p${report.phases.indexOf(phase) % 7})`;
  const bars = rows.map((i) => {
    const run = report.runs[i], sum = total(run), bar = el("div", { class: "bar" });
    const words = report.phases.filter((phase) => run.seconds[phase]).map((phase) => `${phase} ${seconds(run.seconds[phase])}`).join(", ");
    for (const phase of report.phases.filter((p) => run.seconds[p])) {
      const part = el("span", {});
      part.style.flexGrow = run.seconds[phase] / sum; // shares that add up to 1 fill the bar
      part.style.background = shade(phase);
      pointing(part, (event) => tip(event, el("b", { text: phase }),
        el("div", { text: `${seconds(run.seconds[phase])}, ${percent(run.seconds[phase] / sum)} of the run, ${seconds(run.seconds[phase] / run.rounds.length)} a round` })), () => tip(null));
      bar.append(part);
    }
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", words);
    bar.style.setProperty("--share", sum / longest);
    return el("div", { class: i === state.run ? "chosen" : null }, el("span", { class: "who", text: lineName({ run }) }),
      el("div", { class: "row" }, bar, el("span", { class: "total", text: `${seconds(sum)} · ${seconds(sum / run.rounds.length)} a round` })));
  });
  $("time").replaceChildren(el("div", { class: "time" }, bars));
  $("time-legend").replaceChildren(...report.phases.map((phase) => {
    return el("li", { class: "item" }, swatch(shade(phase)), el("span", { text: phase }));
  }));
}
