// Figures of runs: lines over epochs, DECE against ECE, the smoothing matrix, superclasses, L2 coefficients.

// Lines over epochs; dashed verticals are learning-rate drops. Left and right go along a line, up and down between lines.
function epochFigure({ epochs, lines, drops, label, format, inPercent = true, thin = false, mean = null }) {
  return (host) => {
    const area = panel(host, 290);
    const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
    const highest = Math.max(largest(values), 1e-9) * 1.03;
    const lowest = Math.min(smallest(values), 0);
    const x = linear(epochs[0], epochs.at(-1), area.x0, area.x1);
    const y = linear(lowest, highest, area.y0, area.y1);
    const levels = niceTicks(lowest, highest, 5);
    yAxis(area, y, levels, inPercent ? percentTicks(levels) : format, label);
    const ticks = niceTicks(epochs[0], epochs.at(-1), Math.min(8, area.width / 70)).filter(Number.isInteger);
    xAxis(area, x, ticks, String, "Epoch");
    for (const drop of drops) {
      const left = epochs.length > 1 ? x(drop - 0.5) : x(drop);
      draw(area.svg, "line", { x1: left, x2: left, y1: area.y1, y2: area.y0, class: "drop" });
    }
    lines.forEach((line, number) => {
      const points = line.values.map((value, i) => (value === null ? null : [x(epochs[i]), y(value)]));
      draw(area.svg, "path", { d: path(points), class: thin ? "line thin" : `line series-${number % 6}` });
    });
    if (mean) draw(area.svg, "path", { d: path(mean.map((v, i) => [x(epochs[i]), y(v)])), class: "line series-0 thick" });
    const trace = draw(area.svg, "path", { d: "", class: "line trace visit" });
    const dot = draw(area.svg, "circle", { r: 4.5, cx: -99, cy: -99, class: "dot visit series-0" });
    const size = epochs.length;
    const at = (i) => {
      const line = lines[Math.floor(i / size)];
      const epoch = epochs[i % size];
      const value = line.values[i % size];
      const [left, top] = [x(epoch), y(value ?? lowest)];
      return {
        x: left, y: top, lines: [`Epoch ${epoch}`, `${line.name}: ${value === null ? "not measured" : format(value)}`],
        get node() {
          dot.setAttribute("cx", left);
          dot.setAttribute("cy", top);
          if (thin) {
            trace.setAttribute("d", path(line.values.map((v, j) => [x(epochs[j]), y(v)])));
            trace.classList.add("lit");
          }
          return dot;
        },
      };
    };
    const find = (left, top) => {
      const column = Math.round(linear(area.x0, area.x1, 0, size - 1)(Math.min(Math.max(left, area.x0), area.x1)));
      let best = -1;
      let least = Infinity;
      lines.forEach((line, number) => {
        if (line.values[column] === null) return;
        const far = Math.abs(y(line.values[column]) - top);
        if (far < least) { least = far; best = number * size + column; }
      });
      return best;
    };
    return { count: size * lines.length, at, find, stride: size };
  };
}

function matrixFigure({ class_names: names, values, highest }) {
  return (host) => {
    const size = names.length;
    const letters = Math.min(largest(names.map((name) => name.length)), 16);
    const space = Math.min(letters * 6.4 + 10, host.clientWidth * 0.3);
    const cell = Math.min((host.clientWidth - space - 8) / size, 44);
    const area = panel(host, space + cell * size + 56, { left: space, top: space, bottom: 56, right: 8 });
    const every = Math.ceil(11 / cell);
    names.forEach((name, i) => {
      if (i % every) return;
      const middle = (i + 0.5) * cell;
      const text = shorten(name, Math.floor((space - 8) / 6.2));
      draw(area.svg, "text", { x: space - 6, y: space + middle + 4, "text-anchor": "end", class: "name small" }, text);
      draw(area.svg, "text", letters <= 2
        ? { class: "name small", x: space + middle, y: space - 6, "text-anchor": "middle" }
        : { class: "name small", transform: `translate(${space + middle + 4},${space - 6}) rotate(-90)` }, text);
    });
    draw(area.svg, "rect", { x: space, y: space, width: cell * size, height: cell * size, class: "frame" });
    const gap = cell > 6 ? 1 : 0;
    values.forEach((row, i) => row.forEach((value, j) => {
      if (i === j || value <= 0) return;
      draw(area.svg, "rect", {
        x: space + j * cell, y: space + i * cell, width: cell - gap, height: cell - gap, class: "cell",
        "fill-opacity": (value / highest).toFixed(3),
      });
    }));
    const ring = draw(area.svg, "rect", { width: cell, height: cell, x: -99, y: -99, class: "ring visit" });
    matrixLegend(area, space, cell * size, highest);
    const at = (i) => {
      const [row, column] = [Math.floor(i / size), i % size];
      const [left, top] = [space + column * cell, space + row * cell];
      return {
        x: left + cell / 2, y: top,
        lines: row === column ? [names[row], "the class itself"]
          : [`${names[row]} to ${names[column]}`, `smoothing ${percent(values[row][column], 3)}`],
        get node() { ring.setAttribute("x", left); ring.setAttribute("y", top); return ring; },
      };
    };
    const find = (left, top) => {
      const [column, row] = [Math.floor((left - space) / cell), Math.floor((top - space) / cell)];
      return row >= 0 && column >= 0 && row < size && column < size ? row * size + column : -1;
    };
    return { count: size * size, at, find, stride: size };
  };
}

function matrixLegend(area, left, width, highest) {
  const top = area.height - 34;
  const length = Math.min(width, 220);
  const steps = 11;
  for (let i = 0; i < steps; i++) {
    draw(area.svg, "rect", {
      x: left + (i * length) / steps, y: top, width: length / steps + 0.5, height: 10, class: "cell",
      "fill-opacity": (i / (steps - 1)).toFixed(3),
    });
  }
  draw(area.svg, "rect", { x: left, y: top, width: length, height: 10, class: "frame" });
  draw(area.svg, "text", { x: left, y: top + 25, class: "number" }, "0");
  draw(area.svg, "text", { x: left + length, y: top + 25, "text-anchor": "end", class: "number" }, percent(highest, 2));
}

function superclassFigure({ rows, within, across }) {
  return (host) => {
    const all = [{ label: "All classes", within, across },
      ...rows.map((row) => ({ label: row.classes.join(", "), within: row.within, across: row.across }))];
    const space = Math.min(240, host.clientWidth * 0.4);
    const area = panel(host, 52 + 26 * all.length, { left: space, top: 8 });
    const highest = Math.max(largest(all.flatMap((row) => [row.within ?? 0, row.across ?? 0])), 1e-9) * 1.05;
    const x = linear(0, highest, area.x0, area.x1);
    const ticks = niceTicks(0, highest, Math.min(5, (area.x1 - area.x0) / 70));
    for (const tick of ticks) {
      draw(area.svg, "line", { x1: x(tick), x2: x(tick), y1: area.y1, y2: area.y0, class: "grid" });
    }
    xAxis(area, x, ticks, percentTicks(ticks), "Mean share given to one other class");
    const marks = all.map((row, i) => {
      const top = area.y1 + 26 * (i + 0.5);
      const group = draw(area.svg, "g", { class: i ? "" : "total" });
      draw(group, "text", { x: area.x0 - 10, y: top + 4, "text-anchor": "end", class: "name" },
        shorten(row.label, Math.floor(space / 6.8)));
      if (row.within !== null && row.across !== null) {
        draw(group, "line", { x1: x(row.within), x2: x(row.across), y1: top, y2: top, class: "link" });
      }
      if (row.across !== null) draw(group, "circle", { cx: x(row.across), cy: top, r: 5, class: "dot hollow" });
      if (row.within !== null) draw(group, "circle", { cx: x(row.within), cy: top, r: 5, class: "dot series-0" });
      return {
        x: x(Math.max(row.within ?? 0, row.across ?? 0)), y: top, node: group,
        lines: [shorten(row.label, 80), `within ${percent(row.within, 3)}`, `across ${percent(row.across, 3)}`],
      };
    });
    return listOfMarks(marks, byY);
  };
}

function histogramFigure({ edges, counts }) {
  return (host) => {
    const area = panel(host, 220);
    const most = largest(counts);
    const x = linear(edges[0], edges.at(-1), area.x0, area.x1);
    const y = linear(0, most, area.y0, area.y1);
    yAxis(area, y, niceTicks(0, most, 4).filter(Number.isInteger), thousands, "Coefficients");
    xAxis(area, x, niceTicks(edges[0], edges.at(-1), Math.min(5, area.width / 90)), compact, "Value");
    const marks = counts.map((count, m) => {
      const [left, right] = [x(edges[m]), x(edges[m + 1])];
      const node = draw(area.svg, "rect", {
        x: left + 0.5, width: Math.max(right - left - 1, 0.5), y: y(count), height: area.y0 - y(count), class: "bar solid",
      });
      return {
        x: (left + right) / 2, y: y(count), node,
        lines: [`${compact(edges[m])} to ${compact(edges[m + 1])}`, `${thousands(count)} coefficients`],
      };
    });
    if (edges[0] < 0 && edges.at(-1) > 0) {
      draw(area.svg, "line", { x1: x(0), x2: x(0), y1: area.y1, y2: area.y0, class: "now" });
    }
    return listOfMarks(marks, byX);
  };
}
