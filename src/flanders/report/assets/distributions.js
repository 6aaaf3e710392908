// The distribution of the scores, in one round or in all rounds. Bars of honest clients go up, and bars of malicious
// clients go down. If it is not known who is malicious, kept clients go up and dropped clients go down.

function chooseRound(t) {
  const T = clientsOf(report.runs[state.run]).T || 0;
  state.round = t === null ? null : Math.min(T - 1, Math.max(0, t));
  drawScores();
}

function drawScores() {
  const run = report.runs[state.run], box = $("scores"), c = clientsOf(run), T = c.T || 0;
  const slider = $("round"), one = state.round !== null;
  $("scores-round").hidden = true;
  $("scores-lede").textContent = "";
  $("scores-title").textContent = run.truth ? "Honest and malicious scores" : "Scores of kept and dropped clients";
  if (!run.rounds.length) return box.replaceChildren(empty("This run has no finished round yet."));
  if (!run.judged) return box.replaceChildren(empty("No filter judged the clients of this run, so there are no scores to compare."));
  if (!c.shown) return box.replaceChildren(empty("The clients of this run were left out to keep the page small."));
  if (!c.score) return box.replaceChildren(empty("No client of this run has a score."));
  $("scores-round").hidden = T < 2;
  slider.max = T - 1;
  slider.value = one ? state.round : T - 1;
  slider.setAttribute("aria-valuetext", one ? `round ${run.rounds[state.round]}` : "all rounds");
  $("scores-round").classList.toggle("all", !one);
  $("all-rounds").setAttribute("aria-pressed", String(!one));
  $("round-name").textContent = one ? `round ${run.rounds[state.round]}` : "";
  const groups = { honest: [], malicious: [] };
  const isBad = (k) => (run.truth ? c.malicious(k) : c.fate(k) !== KEPT);
  for (let row = 0; row < c.shown; row += 1) {
    if (c.spreadOnly && !c.spreadOnly.has(row)) continue; // the other rows are the clients that were most often not kept: they are not typical
    for (let t = one ? state.round : 0; t < (one ? state.round + 1 : T); t += 1) {
      const k = row * T + t;
      if (c.fate(k) && Number.isFinite(c.score[k])) groups[isBad(k) ? "malicious" : "honest"].push(c.score[k]);
    }
  }
  const cuts = (one ? [run.threshold[state.round]] : run.threshold).filter(known).sort((a, b) => a - b);
  $("scores-lede").textContent = scoreWords(one, cuts, c.shown < c.total);
  if (!groups.honest.length && !groups.malicious.length) {
    return box.replaceChildren(empty(`Nobody was scored in round ${run.rounds[state.round]}${run.notes[run.rounds[state.round]] ? ": " + clean(run.notes[run.rounds[state.round]]) : ""}.`));
  }
  return box.replaceChildren(mirror(groups, cuts, c.scale, Math.max(260, box.clientWidth), one, run.truth));
}

function scoreWords(one, cuts, sampled) {
  const parts = [one ? "A bar is a share of its group in this round." : "A bar is a share of its group, in all rounds together."];
  if (!cuts.length) parts.push(one ? "No client with a score was kept." : "No client with a score was kept in any round.");
  else if (one) parts.push(`The line is the threshold, the largest score of a kept client: ${figure(cuts[0])}.`);
  else parts.push("The threshold of a round is the largest score of a kept client. The line is the median of these thresholds, and the band is their range.");
  if (sampled) parts.push("Only some clients are counted: they stand at equal distances in the list of all clients.");
  return parts.join(" ");
}

function mirror(groups, cuts, x, width, one, truth) {
  const words = truth ? { honest: "honest", malicious: "malicious" } : { honest: "kept", malicious: "dropped" };
  const height = 300, left = 42, right = 10, top = 22, bottom = 40, middle = top + (height - top - bottom) / 2;
  const bins = Math.max(12, Math.min(48, Math.floor((width - left - right) / 11)));
  const counted = Object.fromEntries(Object.entries(groups).map(([name, values]) => {
    const heights = new Array(bins).fill(0);
    for (const value of values) heights[Math.min(bins - 1, Math.max(0, Math.floor(x(value) * bins)))] += 1 / values.length;
    return [name, heights];
  }));
  const tallest = Math.max(0.05, ...counted.honest, ...counted.malicious);
  const px = (value) => left + Math.min(1, Math.max(0, x(value))) * (width - left - right);
  const py = (share) => (middle - top) * (share / tallest);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `Scores of ${plural(groups.honest.length, `${words.honest} client`)} above the line and ${plural(groups.malicious.length, `${words.malicious} client`)} below, ${one ? "one round" : "counted once a round"}.` });
  const step = ticks(0, tallest, false, 2).filter((t) => t > 0).slice(-1)[0] || tallest;
  for (const [share, sign] of [[step, -1], [step, 1]]) {
    const y = middle + sign * py(share);
    chart.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y, y2: y }),
      svg("text", { x: left - 6, y: y + 4, "text-anchor": "end", text: percent(share, share < 0.01 ? 1 : 0) }));
  }
  const wide = (width - left - right) / bins;
  for (const [name, sign] of [["honest", -1], ["malicious", 1]]) {
    counted[name].forEach((share, i) => {
      if (!share) return;
      const h = Math.max(1, py(share));
      const bar = svg("rect", { x: left + i * wide + 0.5, width: Math.max(1, wide - 1), y: sign < 0 ? middle - h : middle, height: h, rx: 1, fill: `var(--${name})` });
      pointing(bar, (event) => tip(event, el("b", { text: `${percent(share)} of ${plural(groups[name].length, `${words[name]} score`)}` }),
        el("div", {}, el("span", { text: `score ${figure(x.at(i / bins))} to ${figure(x.at((i + 1) / bins))}` }))), () => tip(null));
      chart.append(bar);
    });
  }
  chart.append(svg("line", { class: "base", x1: left, x2: width - right, y1: middle, y2: middle }));
  if (cuts.length) {
    const low = px(cuts[0]), high = px(cuts[cuts.length - 1]), at = px(cuts[cuts.length >> 1]);
    if (high - low > 1) chart.append(svg("rect", { class: "band", x: low, width: high - low, y: top, height: height - top - bottom }));
    const anchor = at > width * 0.7 ? "end" : at < width * 0.25 ? "start" : "middle";
    chart.append(svg("line", { class: "threshold", x1: at, x2: at, y1: top, y2: height - bottom }),
      svg("text", { x: at, y: top - 8, "text-anchor": anchor, class: "strong", text: "threshold" }));
  }
  chart.append(
    svg("text", { x: width - right, y: top + 10, "text-anchor": "end", class: "halo group honest", text: `${words.honest} (${groups.honest.length.toLocaleString("en")})` }),
    svg("text", { x: width - right, y: height - bottom - 6, "text-anchor": "end", class: "halo group malicious", text: `${words.malicious} (${groups.malicious.length.toLocaleString("en")})` }));
  let edge = -Infinity;
  for (const t of x.ticks(width < 420 ? 4 : 6)) {
    if (px(t) - edge < 38) continue;
    edge = px(t);
    chart.append(svg("text", { x: px(t), y: height - bottom + 18, "text-anchor": "middle", text: figure(t) }));
  }
  chart.append(svg("text", { x: width - right, y: height - 4, "text-anchor": "end", text: x.log ? "anomaly score, logarithmic" : "anomaly score" }));
  return chart;
}
