// Figures of predictions: reliability diagrams, the temperature slider, classes, risk and coverage, comparison.

const FEW = 10; // samples below which a bin says little, and is drawn faint
const inPercent = (value) => percent(value, 0);

function binText(edges, bins, m, scale = "Confidence", share = "Accuracy") {
  const range = `${scale} ${percent(edges[m])} to ${percent(edges[m + 1])}`;
  if (!bins.counts[m]) return [range, "no samples"];
  return [
    range,
    `${thousands(bins.counts[m])} ${bins.counts[m] === 1 ? "sample" : "samples"}`,
    `mean ${scale.toLowerCase()} ${percent(bins.confidences[m])}`,
    `${share.toLowerCase()} ${percent(bins.accuracies[m])} (${percent(bins.lows[m])} to ${percent(bins.highs[m])})`,
  ];
}

// Bars of accuracy; the hatched gap runs from accuracy to mean confidence; the whisker is the accuracy's interval.
function drawBins(area, x, y, edges, bins, whiskers, words = []) {
  const gap = x(edges[1]) - x(edges[0]) > 12 ? 1 : 0.5;
  return bins.counts.map((count, m) => {
    const group = draw(area.svg, "g", { class: count && count < FEW ? "bin few" : "bin" });
    const left = x(edges[m]) + gap;
    const width = Math.max(x(edges[m + 1]) - x(edges[m]) - 2 * gap, 1);
    draw(group, "rect", { x: left, width, y: area.y1, height: area.y0 - area.y1, class: "hit" });
    if (count) {
      const accuracy = bins.accuracies[m];
      const confidence = bins.confidences[m];
      draw(group, "rect", { x: left, width, y: y(accuracy), height: area.y0 - y(accuracy), class: "bar" });
      const kind = confidence > accuracy ? "over" : "under";
      const [high, low] = confidence > accuracy ? [confidence, accuracy] : [accuracy, confidence];
      draw(group, "rect", { x: left, width, y: y(high), height: y(low) - y(high), class: `gap ${kind}` });
      draw(group, "rect", { x: left, width, y: y(high), height: y(low) - y(high), class: `hatch ${kind}` });
      if (whiskers) {
        const middle = left + width / 2;
        const cap = Math.min(4, width / 3);
        const [top, bottom] = [y(bins.highs[m]), y(bins.lows[m])];
        draw(group, "path", {
          d: `M${middle - cap},${top}H${middle + cap}M${middle},${top}V${bottom}M${middle - cap},${bottom}H${middle + cap}`,
          class: "whisker",
        });
        draw(group, "line", { x1: left, x2: left + width, y1: y(accuracy), y2: y(accuracy), class: "level" });
      }
    }
    const anchor = count ? y(Math.max(bins.accuracies[m], bins.confidences[m])) : area.y0;
    return { x: left + width / 2, y: anchor, lines: binText(edges, bins, m, ...words), node: group };
  });
}

function reliabilityFigure(edges, current, scale = "Confidence", share = "Accuracy") {
  return (host) => {
    const bins = current();
    const side = Math.min(host.clientWidth, 460);
    const below = 150;
    const area = panel(host, side - 24 + below, { bottom: below });
    const x = linear(0, 1, area.x0, area.x1);
    const y = linear(0, 1, area.y0, area.y1);
    const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1];
    yAxis(area, y, ticks, inPercent, share);
    const marks = drawBins(area, x, y, edges, bins, true, [scale, share]);
    draw(area.svg, "line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" });
    draw(area.svg, "line", { x1: area.x0, x2: area.x1, y1: area.y0, y2: area.y0, class: "baseline" });
    const foot = { ...area, y1: area.y0 + 40, y0: area.height - 40 };
    confidenceHistogram(foot, x, edges, bins);
    xAxis(foot, x, ticks, inPercent, scale);
    return listOfMarks(marks, byX);
  };
}

function confidenceHistogram(area, x, edges, bins) {
  const total = bins.counts.reduce((sum, count) => sum + count, 0);
  const most = largest(bins.counts) / total;
  const y = linear(0, most, area.y0, area.y1);
  draw(area.svg, "text", { x: 0, y: area.y1 - 14, class: "title" }, "Share of samples");
  draw(area.svg, "text", { x: area.x0 - 7, y: area.y1 + 5, "text-anchor": "end", class: "number" }, percent(most, 0));
  bins.counts.forEach((count, m) => {
    const top = y(count / total);
    draw(area.svg, "rect", {
      x: x(edges[m]) + 1, width: Math.max(x(edges[m + 1]) - x(edges[m]) - 2, 1), y: top, height: area.y0 - top,
      class: "count",
    });
  });
  let sure = 0;
  let right = 0;
  bins.counts.forEach((count, m) => {
    sure += count * (bins.confidences[m] || 0);
    right += count * (bins.accuracies[m] || 0);
  });
  for (const [value, kind] of [[sure / total, "mean-confidence"], [right / total, "mean-accuracy"]]) {
    draw(area.svg, "line", { x1: x(value), x2: x(value), y1: area.y1 - 4, y2: area.y0, class: kind });
  }
}

function temperatureFigure(reliability, current) {
  return (host) => {
    const area = panel(host, 150, { bottom: 40 });
    const errors = reliability.scaled.map((bins) => bins.ece);
    const highest = largest(errors) || 1;
    const x = linear(reliability.temperatures[0], reliability.temperatures.at(-1), area.x0, area.x1);
    const y = linear(0, highest, area.y0, area.y1);
    const ticks = niceTicks(0, highest, 3);
    yAxis(area, y, ticks, percentTicks(ticks), "ECE");
    xAxis(area, x, [0.1, 2, 4, 6, 8, 10], String, "Temperature");
    const at = (i) => [x(reliability.temperatures[i]), y(errors[i])];
    draw(area.svg, "path", { d: path(errors.map((_, i) => at(i))), class: "line series-0" });
    const [left, top] = at(current());
    draw(area.svg, "line", { x1: left, x2: left, y1: area.y1, y2: area.y0, class: "now" });
    draw(area.svg, "circle", { cx: left, cy: top, r: 5, class: "dot series-0" });
    const marks = errors.map((error, i) => ({
      x: at(i)[0], y: at(i)[1],
      lines: [
        `Temperature ${reliability.temperatures[i].toFixed(1)}`, `ECE ${percent(error, 2)}`,
        `NLL ${reliability.nll[i].toFixed(4)}`,
      ],
    }));
    return listOfMarks(marks, byX);
  };
}

function classFigure(edges, row) {
  return (host) => {
    const area = panel(host, Math.min(host.clientWidth, 200), { left: 4, right: 4, top: 6, bottom: 8 });
    const x = linear(0, 1, area.x0, area.x1);
    const y = linear(0, 1, area.y0, area.y1);
    draw(area.svg, "rect", {
      x: area.x0, y: area.y1, width: area.x1 - area.x0, height: area.y0 - area.y1, class: "frame",
    });
    const marks = drawBins(area, x, y, edges, row.bins, false);
    draw(area.svg, "line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" });
    return listOfMarks(marks, byX);
  };
}

function riskFigure(curves) {
  return (host) => {
    const area = panel(host, 300);
    const highest = Math.max(largest(curves.flatMap(({ curve }) => curve.risks)), 0.01);
    const x = linear(0, 1, area.x0, area.x1);
    const y = linear(0, highest, area.y0, area.y1);
    const ticks = niceTicks(0, highest, 5);
    yAxis(area, y, ticks, percentTicks(ticks), "Share wrong");
    xAxis(area, x, [0, 0.2, 0.4, 0.6, 0.8, 1], (value) => percent(value, 0), "Share answered");
    const marks = [];
    curves.forEach(({ name, curve }, number) => {
      const points = curve.coverages.map((coverage, i) => [x(coverage), y(curve.risks[i])]);
      draw(area.svg, "path", { d: path(points), class: `line series-${number % 6}` });
      const dot = draw(area.svg, "circle", { r: 4.5, cx: -99, cy: -99, class: `dot visit series-${number % 6}` });
      points.forEach(([left, top], i) => marks.push({
        x: left, y: top, get node() { dot.setAttribute("cx", left); dot.setAttribute("cy", top); return dot; },
        lines: [
          ...(curves.length > 1 ? [name] : []), `answers ${percent(curve.coverages[i])}`,
          `wrong ${percent(curve.risks[i], 2)} of those`, `confidence at least ${percent(curve.thresholds[i])}`,
        ],
      }));
    });
    return listOfMarks(marks, curves.length > 1 ? byDistance : byX);
  };
}

function overlayFigure(subjects) {
  return (host) => {
    const area = panel(host, Math.min(host.clientWidth, 420));
    const x = linear(0, 1, area.x0, area.x1);
    const y = linear(0, 1, area.y0, area.y1);
    const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1];
    yAxis(area, y, ticks, inPercent, "Accuracy");
    xAxis(area, x, ticks, inPercent, "Confidence");
    draw(area.svg, "line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" });
    const marks = [];
    subjects.forEach(({ name, predictions: { reliability: { edges, given } } }, number) => {
      const held = given.counts.map((count, m) => (count ? m : -1)).filter((m) => m >= 0);
      const at = (m) => [x(given.confidences[m]), y(given.accuracies[m])];
      const faint = (m) => (given.counts[m] < FEW ? " few" : "");
      held.slice(1).forEach((m, i) => draw(area.svg, "path", {
        d: path([at(held[i]), at(m)]), class: `line series-${number % 6}${faint(m) || faint(held[i])}`,
      }));
      for (const m of held) {
        const [left, top] = at(m);
        const node = draw(area.svg, "circle", { cx: left, cy: top, r: 3.5, class: `dot series-${number % 6}${faint(m)}` });
        marks.push({ x: left, y: top, node, lines: [name, ...binText(edges, given, m)] });
      }
    });
    return listOfMarks(marks, byDistance);
  };
}

function intervalFigure(names, score) {
  return (host) => {
    const space = Math.min(200, host.clientWidth * 0.38);
    const area = panel(host, 52 + 34 * names.length, { left: space, top: 8 });
    const ends = score.values.map((value, i) => score.highs[i] ?? value);
    const highest = Math.max(largest(ends), largest(score.values), 1e-3) * 1.04;
    const x = linear(0, highest, area.x0, area.x1);
    const y = linear(-0.5, names.length - 0.5, area.y1, area.y0);
    const ticks = niceTicks(0, highest, Math.min(5, (area.x1 - area.x0) / 60));
    for (const tick of ticks) {
      draw(area.svg, "line", { x1: x(tick), x2: x(tick), y1: area.y1, y2: area.y0, class: "grid" });
    }
    xAxis(area, x, ticks, percentTicks(ticks), score.label);
    const marks = names.map((name, i) => {
      const group = draw(area.svg, "g");
      draw(group, "text", { x: area.x0 - 10, y: y(i) + 4, "text-anchor": "end", class: "name" },
        shorten(name, Math.floor(space / 7)));
      const [low, high] = [score.lows[i] ?? score.values[i], ends[i]];
      draw(group, "line", { x1: x(low), x2: x(high), y1: y(i), y2: y(i), class: `range series-${i % 6}` });
      const node = draw(group, "circle", { cx: x(score.values[i]), cy: y(i), r: 5, class: `dot series-${i % 6}` });
      return {
        x: x(score.values[i]), y: y(i), node,
        lines: [name, `${score.label} ${percent(score.values[i], 2)}`, (high < score.values[i] ? "true value " : "")
          + (score.bounds[i] === "upper" ? `at most ${percent(high, 2)}` : `${percent(low, 2)} to ${percent(high, 2)}`)],
      };
    });
    return listOfMarks(marks, byY);
  };
}
