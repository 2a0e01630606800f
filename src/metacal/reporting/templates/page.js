// The page: which figure goes where, the temperature slider, the theme, and what is folded away.

const report = JSON.parse(document.getElementById("report-data").textContent);
const withPredictions = report.subjects.filter((subject) => subject.predictions);

const drawings = {
  given: ({ predictions: { reliability } }) => reliabilityFigure(reliability.edges, () => reliability.given),
  classes: ({ predictions: { classes } }, key) => classFigure(classes.edges, classes.rows[key]),
  positive: ({ predictions: { positive } }) => reliabilityFigure(positive.edges, () => positive.bins, "Probability", "Frequency"),
  groups: ({ predictions: { groups } }) => intervalFigure(groups.names, groups.scores.find(({ key }) => key === "ece")),
  risk: ({ name, predictions }) => riskFigure([{ name, curve: predictions.risk_coverage }]),
  error: ({ run: { curves } }) => epochFigure(
    { ...curves, lines: curves.error, label: "Error", format: (value) => percent(value, 2) }),
  ece: ({ run: { curves } }) => epochFigure(
    { ...curves, lines: curves.ece, label: "ECE", format: (value) => percent(value, 2) }),
  loss: ({ run: { curves } }) => epochFigure(
    { ...curves, lines: curves.loss, label: "Mean loss", format: compact, inPercent: false }),
  strengths: ({ run: { strengths } }) => epochFigure({
    ...strengths, lines: strengths.classes, thin: strengths.classes.length > 1, label: "Strength",
    format: (value) => percent(value, 2),
  }),
  smoothing: ({ run }) => matrixFigure(run.smoothing),
  superclasses: ({ run }) => superclassFigure(run.superclasses),
  l2: ({ run }, key) => histogramFigure(run.l2[key]),
  "compared-ece": () => intervalFigure(report.comparison.names, report.comparison.scores.find(({ key }) => key === "ece")),
  "compared-reliability": () => overlayFigure(withPredictions),
  "compared-risk": () => riskFigure(
    withPredictions.map(({ name, predictions }) => ({ name, curve: predictions.risk_coverage }))),
};

function connectTemperature(section) {
  const { reliability } = report.subjects[section.dataset.subject].predictions;
  const slider = section.querySelector("input[type=range]");
  const place = () => Number(slider.value);
  const hosts = section.querySelectorAll("[data-figure=scaled], [data-figure=temperature]");
  const fill = (name, text) => {
    for (const node of section.querySelectorAll(`[data-value=${name}]`)) node.textContent = text;
  };
  const update = () => {
    const bins = reliability.scaled[place()];
    const temperature = reliability.temperatures[place()].toFixed(1);
    fill("temperature", temperature);
    fill("ece", percent(bins.ece, 2));
    fill("nll", reliability.nll[place()].toFixed(4));
    fill("chance", percent(bins.chance, 2));
    slider.setAttribute("aria-valuetext", `temperature ${temperature}, ECE ${percent(bins.ece, 2)}`);
    for (const button of section.querySelectorAll("[data-step]")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.step) === place()));
    }
    section.querySelectorAll("[data-table=scaled] tbody tr").forEach((row, m) => {
      const [, count, sure, right, range] = row.children;
      count.textContent = thousands(bins.counts[m]);
      sure.textContent = bins.counts[m] ? percent(bins.confidences[m], 2) : "";
      right.textContent = bins.counts[m] ? percent(bins.accuracies[m], 2) : "";
      range.textContent = bins.counts[m] ? `${percent(bins.lows[m], 2)} to ${percent(bins.highs[m], 2)}` : "";
    });
    for (const host of hosts) if (figures.has(host)) redraw(host);
  };
  for (const host of hosts) {
    register(host, host.dataset.figure === "scaled"
      ? reliabilityFigure(reliability.edges, () => reliability.scaled[place()])
      : temperatureFigure(reliability, place));
  }
  slider.addEventListener("input", update);
  for (const button of section.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => { slider.value = button.dataset.step; update(); });
  }
  update();
}

function connectTheme() {
  const stored = () => { try { return localStorage.getItem("metacal-theme"); } catch { return null; } };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const wanted = ["light", "dark"].includes(stored()) ? stored() : "auto";
  for (const choice of document.querySelectorAll("input[name=theme]")) {
    choice.checked = choice.value === wanted;
    choice.addEventListener("change", () => {
      apply(choice.value);
      try { localStorage.setItem("metacal-theme", choice.value); } catch { /* a page without storage forgets */ }
    });
  }
  apply(wanted);
}

connectTheme();
for (const host of document.querySelectorAll("[data-figure]")) {
  const make = drawings[host.dataset.figure];
  if (make) register(host, make(report.subjects[host.dataset.subject], host.dataset.key));
}
document.querySelectorAll(".temperature").forEach(connectTemperature);
for (const button of document.querySelectorAll("[data-more]")) {
  button.addEventListener("click", () => {
    const more = document.getElementById(button.dataset.more);
    more.hidden = false;
    button.remove();
    more.querySelector("[tabindex]").focus();
  });
}
document.documentElement.classList.add("ready");
