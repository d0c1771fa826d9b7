// Charts as SVG: lines or stacked areas over time, with a cursor. Data: series.js.

const SVG = "http://www.w3.org/2000/svg";
/** Dash patterns by the index of a series: series differ in more than their colour. */
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"];

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Round numbers from 0 to at least `top`. */
function ticks(top) {
  if (!(top > 0)) return [0, 1];
  const step = 10 ** Math.floor(Math.log10(top / 3));
  const good = [1, 2, 5, 10].map((times) => times * step).find((each) => top / each <= 4) || 10 * step;
  const marks = [];
  for (let mark = 0; mark < top + good; mark += good) marks.push(mark);
  return marks;
}

/** Powers of ten around the values, at least two. All values must be positive. */
function decades(least, most) {
  const first = Math.floor(Math.log10(least) + 1e-9);
  const last = Math.max(first + 1, Math.ceil(Math.log10(most) - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, place) => 10 ** (first + place));
}

/** Time of day of a point. */
function clock(t) {
  return new Date(t * 1000).toLocaleTimeString([], { hour12: false });
}

class Chart {
  /** `series`: `{ name, tone, of(point) }`. `format`: formats values. `stacked`: stacked areas.
   * `logarithmic`: logarithmic scale. */
  constructor(title, format, { stacked = false, logarithmic = false } = {}) {
    this.format = format;
    this.stacked = stacked;
    this.logarithmic = logarithmic;
    this.picture = svg("svg", { role: "img", "aria-label": title, tabindex: "0" });
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.card = document.createElement("div");
    this.card.className = "card";
    const heading = document.createElement("h3");
    heading.textContent = title;
    this.card.append(heading, this.picture, this.legend);
    this.cursor = null;
    const move = (event) => {
      const box = this.picture.getBoundingClientRect();
      this.cursor = (event.clientX - box.left) / Math.max(1, box.width);
      this.redraw();
    };
    this.picture.addEventListener("pointermove", move);
    this.picture.addEventListener("pointerleave", () => { this.cursor = null; this.redraw(); });
    new ResizeObserver(() => this.redraw()).observe(this.card);
  }

  show(points, series, begin, end) {
    this.data = { points, series, begin, end };
    this.redraw();
  }

  redraw() {
    // A chart that is not on the page has no size.
    if (!this.data || !this.card.isConnected) return;
    const { points, series, begin, end } = this.data;
    const style = getComputedStyle(this.card);
    const width = Math.max(200, this.card.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
    const height = Math.round(Math.min(420, Math.max(150, width * 0.36)));
    const [left, right, top, bottom] = [52, 8, 8, 20];
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const value = (of, point) => { const found = of.of(point); return found == null || Number.isNaN(found) ? null : found; };
    const most = (point) => {
      const values = series.map((of) => value(of, point) || 0);
      return this.stacked ? values.reduce((sum, each) => sum + each, 0) : Math.max(0, ...values);
    };
    const values = this.logarithmic ? points.flatMap((point) => series.map((of) => value(of, point))).filter((each) => each > 0) : [];
    const isLogarithmic = values.length > 0;
    const extreme = (pick) => values.reduce((found, each) => pick(found, each));
    const marks = isLogarithmic ? decades(extreme(Math.min), extreme(Math.max)) : ticks(points.reduce((peak, point) => Math.max(peak, most(point)), 0));
    const [lowest, peak] = [marks[0], marks[marks.length - 1]];
    const share = (v) => isLogarithmic ? Math.log10(Math.max(v, lowest) / lowest) / Math.log10(peak / lowest) : v / peak;
    const x = (t) => left + ((t - begin) / Math.max(1e-9, end - begin)) * (width - left - right);
    const y = (v) => height - bottom - share(v) * (height - top - bottom);
    const parts = [];
    for (const mark of marks) {
      parts.push(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
      const label = svg("text", { class: "label", x: left - 6, y: y(mark) + 4, "text-anchor": "end" });
      label.textContent = this.format(mark);
      parts.push(label);
    }
    // At most one label per second, so that no time is shown twice.
    const count = Math.max(1, Math.min(width < 420 ? 2 : 4, Math.floor(end - begin)));
    for (let step = 0; step <= count; step += 1) {
      const t = begin + ((end - begin) * step) / count;
      const anchor = step === 0 ? "start" : step === count ? "end" : "middle";
      const label = svg("text", { class: "label", x: x(t), y: height - 5, "text-anchor": anchor });
      label.textContent = clock(t);
      parts.push(label);
    }
    parts.push(...(this.stacked ? this.areas(points, series, value, x, y) : this.lines(points, series, value, x, y)));
    const chosen = this.chosen(points, begin, end, left, width, right);
    if (chosen && this.cursor != null) {
      parts.push(svg("line", { class: "cursor", x1: x(chosen.t), x2: x(chosen.t), y1: top, y2: height - bottom }));
    }
    this.picture.replaceChildren(...parts);
    this.tell(series, chosen, value);
  }

  /** The point under the cursor, or else the last one. */
  chosen(points, begin, end, left, width, right) {
    if (this.cursor == null) return points[points.length - 1];
    const t = begin + ((this.cursor * width - left) / (width - left - right)) * (end - begin);
    return points.reduce((best, point) => (!best || Math.abs(point.t - t) < Math.abs(best.t - t) ? point : best), null);
  }

  lines(points, series, value, x, y) {
    return series.map((of, place) => {
      let path = "";
      let pen = false;
      let before = null;
      for (const point of points) {
        const found = value(of, point);
        // Missing seconds are a gap in the line.
        if (before != null && point.t - before > 5) pen = false;
        before = point.t;
        if (found == null) { pen = false; continue; }
        // A single point is a dot: a line of zero length with round ends.
        path += `${pen ? "L" : "M"}${x(point.t).toFixed(1)} ${y(found).toFixed(1)}${pen ? "" : "h0"}`;
        pen = true;
      }
      return svg("path", { class: `stroke ${of.tone}`, d: path, "stroke-dasharray": DASHES[place % DASHES.length], "data-series": of.name });
    });
  }

  areas(points, series, value, x, y) {
    const floor = points.map(() => 0);
    return series.map((of) => {
      const upper = [];
      const lower = [];
      points.forEach((point, index) => {
        lower.push(`${x(point.t).toFixed(1)} ${y(floor[index]).toFixed(1)}`);
        floor[index] += value(of, point) || 0;
        upper.push(`${x(point.t).toFixed(1)} ${y(floor[index]).toFixed(1)}`);
      });
      const outline = upper.concat(lower.reverse());
      return svg("path", { class: `fill ${of.tone}`, d: outline.length ? `M${outline.join("L")}Z` : "", "data-series": of.name });
    });
  }

  tell(series, point, value) {
    this.legend.replaceChildren(...series.map((of, place) => {
      const sample = this.stacked
        ? svg("rect", { class: `fill ${of.tone}`, x: 2, y: 0, width: 20, height: 10 })
        : svg("line", { class: `stroke ${of.tone}`, x1: 0, x2: 26, y1: 5, y2: 5, "stroke-dasharray": DASHES[place % DASHES.length] });
      const item = document.createElement("li");
      const number = document.createElement("b");
      number.textContent = point ? this.format(value(of, point)) : "–";
      item.append(svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, sample), ` ${of.name} `, number);
      return item;
    }));
  }
}
