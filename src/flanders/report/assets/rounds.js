// A chart with a column for each round. It shows how many of all clients had each fate, that is, what happened to them.

function drawRounds() {
  const run = report.runs[state.run], box = $("rounds"), T = run.rounds.length, fates = FATES.filter((fate) => run.fates_by_round[fate]);
  $("rounds-card").hidden = !T || !fates.length;
  if ($("rounds-card").hidden) return;
  const sums = run.rounds.map((_, t) => fates.reduce((sum, fate) => sum + run.fates_by_round[fate][t], 0));
  const most = Math.max(1, ...bounds(sums)), width = Math.max(280, box.clientWidth), height = 190, left = 46, right = 12, top = 24, bottom = 34;
  const wide = (width - left - right) / T, py = (value) => top + (1 - value / most) * (height - top - bottom);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Clients by fate in ${plural(T, "round")}: ${fates.map((fate) => `${run.fates[fate]} ${fate}`).join(", ")}` });
  for (const t of wholeTicks(0, most, 4)) chart.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: py(t), y2: py(t) }), svg("text", { x: left - 8, y: py(t) + 4, "text-anchor": "end", text: count(t) }));
  const below = new Float64Array(T), gap = wide > 5 ? 1 : 0;
  for (const fate of fates) {
    const counts = run.fates_by_round[fate];
    let path = "";
    for (let t = 0; t < T; t += 1) {
      if (!counts[t]) continue;
      path += `M${(left + t * wide).toFixed(2)},${py(below[t]).toFixed(2)}V${py(below[t] + counts[t]).toFixed(2)}h${(wide - gap).toFixed(2)}V${py(below[t]).toFixed(2)}z`;
      below[t] += counts[t];
    }
    chart.append(svg("path", { d: path, fill: FATE_SHADES[fate] }));
  }
  const first = run.rounds[0], last = run.rounds[T - 1], step = wholeTicks(first, last, width < 520 ? 5 : 10);
  run.rounds.forEach((round, t) => { if (step.includes(round) || T === 1) chart.append(svg("text", { x: left + (t + 0.5) * wide, y: height - bottom + 18, "text-anchor": "middle", text: round })); });
  chart.append(svg("text", { x: width - right, y: height - 2, "text-anchor": "end", text: "round" }));
  const t0 = run.start === null ? -1 : run.rounds.findIndex((round) => round >= run.start);
  if (t0 >= 0) markStart(chart, run, (round) => left + (round < run.start ? t0 - 0.5 : t0 + (t0 ? 0.5 : 0)) * wide, top, height - bottom, first, last, width - right);
  const at = (event) => Math.min(T - 1, Math.max(0, Math.floor((event.clientX - chart.getBoundingClientRect().left - left) / wide)));
  pointing(chart, (event) => {
    const t = at(event), note = run.notes[run.rounds[t]];
    tip(event, el("b", { text: `Round ${run.rounds[t]}` }), ...fates.filter((fate) => run.fates_by_round[fate][t]).map((fate) => el("div", {}, swatch(FATE_SHADES[fate]), el("span", { text: fate }), el("span", { text: count(run.fates_by_round[fate][t]) }))),
      note ? el("p", { text: clean(note) }) : "");
  }, () => tip(null));
  box.replaceChildren(chart);
  $("rounds-legend").replaceChildren(...fates.map((fate) => el("li", { class: "item" }, swatch(FATE_SHADES[fate]), el("span", { text: `${fate}: ${FATE_WORDS[fate]}` }))));
}
