// Drawing: SVG at the size it is shown, axes, and marks that pointer and keyboard can visit.
// All text from data goes in as textContent, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function draw(parent, tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  parent.append(node);
  return node;
}

function linear(from, to, start, end) {
  const span = to - from;
  return (value) => (span === 0 ? (start + end) / 2 : start + ((value - from) / span) * (end - start));
}

function niceTicks(low, high, count) {
  const raw = (high - low || 1) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i++) ticks.push(i * step + 0);
  return ticks;
}

const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);
const smallest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);
const percent = (value, digits = 1) => (value === null ? "none" : `${(value * 100).toFixed(digits)} %`);
// Percent with as many digits as tell the ticks apart.
function percentTicks(ticks) {
  const digits = [0, 1, 2, 3].find((count) => ticks.every((tick) => Math.abs(tick * 100 - +(tick * 100).toFixed(count)) < 1e-7));
  return (value) => percent(value, digits ?? 4);
}
const thousands = (value) => value.toLocaleString("en-GB");
const compact = (value) =>
  value === null ? "none" : Math.abs(value) >= 1e-3 || value === 0 ? String(+value.toPrecision(4)) : String(Number(value.toPrecision(3)).toExponential());
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// A panel is one SVG with an area to draw in, from (x0, y0) at the lower left to (x1, y1) at the upper right.
function panel(host, height, { left = 46, right = 14, top = 26, bottom = 40 } = {}) {
  const width = host.clientWidth;
  const svg = draw(host, "svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", focusable: "false",
  });
  return { svg, width, height, x0: left, x1: width - right, y0: height - bottom, y1: top };
}

function xAxis(area, scale, ticks, format, label) {
  const group = draw(area.svg, "g", { class: "axis" });
  draw(group, "line", { x1: area.x0, x2: area.x1, y1: area.y0, y2: area.y0, class: "baseline" });
  for (const tick of ticks) {
    draw(group, "line", { x1: scale(tick), x2: scale(tick), y1: area.y0, y2: area.y0 + 4, class: "tick" });
    draw(group, "text", { x: scale(tick), y: area.y0 + 17, "text-anchor": "middle" }, format(tick));
  }
  if (label) draw(group, "text", { x: area.x1, y: area.y0 + 33, "text-anchor": "end", class: "title" }, label);
}

function yAxis(area, scale, ticks, format, label) {
  const group = draw(area.svg, "g", { class: "axis" });
  for (const tick of ticks) {
    draw(group, "line", { x1: area.x0, x2: area.x1, y1: scale(tick), y2: scale(tick), class: "grid" });
    draw(group, "text", { x: area.x0 - 7, y: scale(tick) + 4, "text-anchor": "end" }, format(tick));
  }
  if (label) draw(group, "text", { x: 0, y: area.y1 - 12, class: "title" }, label);
}

function path(points) {
  let commands = "";
  let pen = "M";
  for (const point of points) {
    if (point === null) { pen = "M"; continue; }
    commands += `${pen}${point[0].toFixed(2)},${point[1].toFixed(2)}`;
    pen = "L";
  }
  return commands;
}

// Every figure is redrawn when its width changes, so that text keeps its size from phone to desktop.
const figures = new Map();
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const figure = figures.get(target);
    if (figure && target.clientWidth && figure.width !== target.clientWidth) redraw(target);
  }
});

function redraw(host) {
  const figure = figures.get(host);
  if (!host.clientWidth) return;
  figure.width = host.clientWidth;
  host.replaceChildren();
  figure.marks = figure.drawing(host) || null;
}

function register(host, drawing) {
  const figure = { drawing, width: 0, marks: null, current: -1 };
  figures.set(host, figure);
  host.addEventListener("pointermove", (event) => point(host, event));
  host.addEventListener("pointerdown", (event) => point(host, event));
  host.addEventListener("pointerleave", () => hideTip(host));
  host.addEventListener("blur", () => hideTip(host));
  host.addEventListener("keydown", (event) => step(host, event));
  redraw(host);
  sizes.observe(host);
}

// Marks: { count, at(i) -> { x, y, lines, node }, find(x, y) -> i, stride }. Arrow left and right go by one, up and
// down by the stride.
function listOfMarks(marks, distance) {
  return {
    count: marks.length,
    at: (i) => marks[i],
    find: (x, y) => {
      let best = -1;
      let least = Infinity;
      marks.forEach((mark, i) => {
        const far = distance(mark, x, y);
        if (far < least) { least = far; best = i; }
      });
      return best;
    },
    stride: 1,
  };
}
const byX = (mark, x) => Math.abs(mark.x - x);
const byY = (mark, x, y) => Math.abs(mark.y - y);
const byDistance = (mark, x, y) => Math.hypot(mark.x - x, mark.y - y);

const tip = document.getElementById("tip");

function showTip(host, i) {
  const figure = figures.get(host);
  const mark = figure.marks.at(i);
  clearLit(host);
  figure.current = i;
  if (mark.node) mark.node.classList.add("lit");
  tip.replaceChildren(...mark.lines.map((line) => {
    const row = document.createElement("div");
    row.textContent = line;
    return row;
  }));
  tip.hidden = false;
  const frame = host.getBoundingClientRect();
  const { width, height } = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = frame.left + mark.x + 14;
  const top = frame.top + mark.y - height - 10;
  tip.style.left = `${Math.max(8, left + width + 8 > room ? frame.left + mark.x - width - 14 : left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function clearLit(host) {
  for (const node of host.querySelectorAll(".lit")) node.classList.remove("lit");
}

function hideTip(host) {
  tip.hidden = true;
  clearLit(host);
}

function point(host, event) {
  const { marks } = figures.get(host);
  if (!marks || !marks.count) return;
  const frame = host.getBoundingClientRect();
  const i = marks.find(event.clientX - frame.left, event.clientY - frame.top);
  if (i >= 0) showTip(host, i);
  else hideTip(host);
}

function step(host, event) {
  const figure = figures.get(host);
  if (!figure.marks || !figure.marks.count) return;
  if (event.key === "Escape") { hideTip(host); return; }
  const moves = {
    ArrowRight: 1, ArrowLeft: -1, ArrowUp: -figure.marks.stride, ArrowDown: figure.marks.stride,
  };
  let next;
  if (event.key === "Home") next = 0;
  else if (event.key === "End") next = figure.marks.count - 1;
  else if (event.key in moves) next = figure.current < 0 ? 0 : figure.current + moves[event.key];
  else return;
  event.preventDefault();
  if (next >= 0 && next < figure.marks.count) showTip(host, next);
}
