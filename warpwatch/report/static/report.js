// Charts, linked cursors and search. Pages are complete without this script, but for charts, lines
// in rows and newest values in large reports. It runs from a file too, so it never fetches: data
// comes as scripts of the site. Text is only ever set as text.
"use strict";
(() => {
  const ROOT = new URL(".", document.currentScript.src);
  const SVG = "http://www.w3.org/2000/svg";
  const SHAPES = { regressed: "▼", missing: "✕", improved: "▲", new: "✚", "other space": "◇" };
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const CODE = new Int8Array(128);
  for (let i = 0; i < 64; i++) CODE[LETTERS.charCodeAt(i)] = i;
  const store = (globalThis.WW ??= {});
  const loading = {};

  const load = (name) =>
    (loading[name] ??= new Promise((resolve, reject) => {
      if (store[name]) return resolve(store[name]);
      const script = document.createElement("script");
      script.src = new URL(`data/${name}.js`, ROOT);
      script.onload = () => resolve(store[name]);
      script.onerror = reject;
      document.head.append(script);
    }));

  // At which commits a series was measured, and its values: "1a2b" or "1a2b#s3c4d" names it. In large
  // reports also words of its newest value and noise, whether it has levels, changes and borders.
  const pageOf = async (id) => (await load(`h${id.slice(0, 2)}`)).histories[id.split("#")[0]];
  const historyOf = async (id) => {
    const page = await pageOf(id);
    const [at, ...rest] = page.series[id.split("#")[1] ?? ""];
    return [at || page.at, ...rest]; // most series of a page were measured at the same commits
  };

  const make = (name, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };
  const html = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  const verdictCell = (name, text) => {
    const className = `verdict v-${name.toLowerCase().replace(" ", "-")}`;
    return html("td", {}, html("b", { className, textContent: text }));
  };
  const labelled = (label, value) => {
    const cell = html("td", { className: "num", textContent: value });
    cell.dataset.label = label;
    return cell;
  };
  const heads = (...names) => html("thead", {}, html("tr", {}, ...names.map((name) => {
    const isNumber = /^(base|head|before|after|change)$/.test(name);
    return html("th", { textContent: name, className: isNumber ? "num" : "" });
  })));

  // ---- values as the site stores them -------------------------------------------------------
  const decode = (stored) => {
    if (stored.runs) return stored.runs.flatMap(([count, value]) => Array(count).fill(value));
    const { letters, width, lo, hi } = stored;
    const top = 64 ** width - 3;
    const values = new Array(letters.length / width);
    for (let i = 0; i < values.length; i++) {
      let code = 0;
      for (let k = 0; k < width; k++) code = code * 64 + CODE[letters.charCodeAt(i * width + k)];
      values[i] = code > top ? (code === top + 1 ? "f" : "s") : lo + ((hi - lo) * code) / top;
    }
    return values;
  };
  // One value of those, without the others.
  const valueIn = (stored, place) => {
    if (!stored.runs) {
      const { letters, width } = stored;
      const digits = letters.slice(place * width, (place + 1) * width);
      return decode({ ...stored, letters: digits })[0];
    }
    let end = 0;
    return stored.runs.find(([count]) => (end += count) > place)[1];
  };
  const expand = (spans) =>
    spans.flatMap(([first, count]) => Array.from({ length: count }, (_, i) => first + i));

  // Of a page, or of a section on it: "1a2b" or "1a2b#s3c4d".
  const seriesPath = (id) => `s/${id.replace(/#|$/, ".html$&")}`;

  const plain = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return "";
    }
  };

  const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const SHORT = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const number = (v) => {
    const size = Math.abs(v);
    if (size < 1e12 && (Number.isInteger(v) || size >= 1e4)) return WHOLE.format(v);
    return size >= 1e-3 && size < 1e4 ? SHORT.format(v) : v.toExponential(3);
  };
  const SCALES = {
    seconds: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]],
    bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  };
  SCALES.s = SCALES.seconds;
  SCALES.B = SCALES.bytes;
  const quantity = (v, unit) => {
    if (v === "f") return "failed";
    if (v === "s") return "not applicable";
    const scale = SCALES[unit];
    if (scale) {
      const [factor, prefix] = scale.find(([f]) => Math.abs(v) >= f) ?? scale.at(-1);
      return `${number(v / factor)} ${prefix}`;
    }
    if (["", "unit", "count", "level", "ratio"].includes(unit)) return number(v);
    return `${number(v)} ${unit === "us" ? "µs" : unit}`;
  };

  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `13px ${getComputedStyle(document.body).fontFamily}`; // as charts write
  const widthOf = (text) => ruler.measureText(text).width;
  const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });
  // What stands beside an axis has little room: long units are in the readout.
  const tickText = (v, unit) =>
    SCALES[unit] || Math.abs(v) < 1e5
      ? quantity(v, !SCALES[unit] && unit.length > 3 ? "" : unit)
      : COMPACT.format(v);

  // ---- one chart ---------------------------------------------------------------------------
  const charts = [];
  class Chart {
    constructor(figure, data, [at, values, , , , steps, borders]) {
      this.figure = figure;
      this.section = figure.closest("section[id]")?.id;
      // That a series begins is seen anyway.
      this.data = { steps: steps?.filter(([, , verdict]) => verdict !== "unchanged"), borders, ...data };
      this.values = decode(values);
      this.low = data.low && decode(data.low);
      this.high = data.high && decode(data.high);
      this.at = expand(at);
      this.range = [0, Math.max(this.values.length - 1, 1)];
      this.cursor = null;
      this.old = figure.querySelector("svg");
      this.readout = html("p", { className: "readout" });
      this.readout.setAttribute("aria-live", "polite");
      this.old.insertAdjacentElement("afterend", this.readout);
      this.draw();
      charts.push(this);
      addEventListener("resize", () => this.draw());
    }

    draw() {
      const width = Math.max(this.figure.clientWidth, 280);
      const height = Math.min(300, Math.max(200, width * 0.4));
      const [right, bottom] = [12, 26];
      const [first, last] = this.range;
      let lo = Infinity, hi = -Infinity, low = Infinity, high = -Infinity;
      for (let i = Math.ceil(first); i <= last; i++) {
        const v = this.values[i];
        if (typeof v === "number") {
          lo = Math.min(lo, v);
          hi = Math.max(hi, v);
          low = Math.min(low, this.low?.[i] ?? v);
          high = Math.max(high, this.high?.[i] ?? v);
        }
      }
      if (lo > hi) [lo, hi] = [0, 1];
      // Intervals belong to the picture, but must not make the line flat.
      const span = hi - lo;
      if (low < lo) lo = Math.max(low, lo - span);
      if (high > hi) hi = Math.min(high, hi + span);
      const room = Math.max(0.01 * Math.max(Math.abs(lo), Math.abs(hi)) - (hi - lo), 0) / 2 ||
        (hi - lo) * 0.05 || 0.5;
      lo -= room;
      hi += room;
      const scale = ticks(lo, hi, 5).map((tick) => [tick, tickText(tick, this.data.unit)]);
      const left = Math.max(48, 12 + Math.max(...scale.map(([, text]) => widthOf(text)), 0));
      // An exact metric takes no value between two commits: each is a tread of its own.
      const tread = this.data.stairs ? 0.5 : 0;
      const unit = (width - left - right) / (last - first + 2 * tread);
      this.x = (i) => left + (i - first + tread) * unit;
      this.index = (x) => first - tread + (x - left) / unit;
      // The words of steps stand above the chart, in as many rows as they need beside each other.
      const inside = (i) => i >= first && i <= last;
      const ends = [];
      const words = this.data.steps.filter(([index]) => inside(index)).map(([index, , , word, size]) => {
        const text = `${word} ${size}`.trim();
        const wide = 1.15 * widthOf(text); // bold
        const at = Math.min(this.x(index) + 3, width - right - wide);
        const row = (ends.findIndex((end) => end < at) + 1 || ends.length + 1) - 1;
        ends[row] = at + wide + 6;
        return { text, at, row };
      });
      const top = 12 + 15 * ends.length;
      this.top = top;
      const y = (v) => top + (1 - (v - lo) / (hi - lo)) * (height - top - bottom);
      const within = (v) => Math.min(Math.max(y(v), top), height - bottom);
      this.y = y;
      this.floor = height - bottom;
      const svg = make("svg", {
        class: "history live", viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0,
        role: "application",
        "aria-label": `${this.old.getAttribute("aria-label")}: arrow keys move the cursor, plus ` +
          "and minus zoom, Enter opens the commit",
      });
      for (const [tick, text] of scale) {
        svg.append(
          make("path", { class: "axis", d: `M${left} ${y(tick)}H${width - right}` }),
          make("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, text),
        );
      }
      for (const border of this.data.borders) {
        if (!inside(border)) continue;
        const line = make("path", { class: "border", d: `M${this.x(border - 0.5)} ${top}V${this.floor}` });
        line.append(make("title", {}, "the method or the platform changed here"));
        svg.append(line);
      }
      if (this.low) svg.append(make("path", { class: "band", d: this.band(first, last, within) }));
      svg.append(make("path", { class: "line", d: this.line(first, last, y) }));
      if (last - first <= 120) {
        for (let i = Math.ceil(first); i <= last; i++) {
          const v = this.values[i];
          if (typeof v === "number") {
            svg.append(make("circle", { class: "dot", cx: this.x(i), cy: y(v), r: 2.5 }));
          } else if (v === "f") {
            // Drawn as the dots are, and no wider than a commit's share of the axis: a letter as
            // narrow could not be read.
            const half = Math.min(4.5, 0.42 * (this.x(i + 1) - this.x(i)));
            const [x, at] = [this.x(i), this.floor - 8];
            svg.append(make("path", {
              class: "cross v-missing",
              d: `M${x - half} ${at - half}L${x + half} ${at + half}M${x - half} ${at + half}L${x + half} ${at - half}`,
            }));
          }
        }
      }
      for (const [index, interval, verdict] of this.data.steps) {
        if (!inside(index)) continue;
        const group = make("g", { class: `v-${verdict.replace(" ", "-")}` });
        const [a, b] = interval.map((i) => this.x(Math.min(Math.max(i, first), last)));
        group.append(make("rect", { class: "interval", x: Math.min(a, b) - 3, y: top, width: Math.abs(b - a) + 6, height: this.floor - top }));
        group.append(make("path", { class: "step", d: `M${this.x(index)} ${top}V${this.floor}` }));
        const { text, at, row } = words.shift();
        group.append(make("text", { x: at, y: 11 + 15 * row }, text));
        svg.append(group);
      }
      this.line_ = make("path", { class: "cursor" });
      this.spot = make("circle", { class: "spot", r: 4.5, cx: -9 });
      this.brush = make("rect", { class: "brush", y: top, height: this.floor - top });
      svg.append(this.brush, this.line_, this.spot);
      this.labels(svg, first, last, width, height, left, right);
      this.old.replaceWith(svg);
      this.old = svg;
      this.listen(svg);
      if (this.cursor !== null) this.show(this.cursor, false, true);
    }

    async labels(svg, first, last, width, height, left, right) {
      const { commits } = await load("commits");
      const narrow = width - left - right < 320; // both labels would touch
      const label = (i) => {
        const commit = commits[this.at[Math.min(Math.max(Math.round(i), 0), this.at.length - 1)]];
        return commit ? commit[0].slice(0, 8) + (narrow ? "" : ` ${commit[1]}`) : "";
      };
      svg.append(
        make("text", { x: left, y: height - 8 }, label(first)),
        make("text", { x: width - right, y: height - 8, "text-anchor": "end" }, label(last)),
      );
    }

    line(first, last, y) {
      let path = "", pen = false;
      for (let i = Math.floor(first); i <= Math.ceil(last); i++) {
        const v = this.values[i];
        const good = typeof v === "number";
        const half = this.data.stairs ? 0.5 : 0;
        if (good) path += `${pen ? "L" : "M"}${this.x(i - half).toFixed(1)} ${y(v).toFixed(1)}`;
        if (good && half) path += `H${this.x(i + half).toFixed(1)}`;
        pen = good;
      }
      return path;
    }

    band(first, last, y) {
      let path = "", there = "", back = "";
      for (let i = Math.ceil(first); i <= last + 1; i++) {
        const a = this.low[i], b = this.high[i];
        if (i <= last && typeof a === "number" && typeof b === "number") {
          there += `${there ? "L" : "M"}${this.x(i).toFixed(1)} ${y(a).toFixed(1)}`;
          back = `L${this.x(i).toFixed(1)} ${y(b).toFixed(1)}${back}`;
        } else if (there) { // Nothing was measured here: the band ends.
          path += `${there}${back}Z`;
          there = back = "";
        }
      }
      return path;
    }

    listen(svg) {
      const place = (event) => {
        const box = svg.getBoundingClientRect();
        return this.index(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
      };
      let start = null;
      svg.addEventListener("pointerdown", (event) => {
        start = place(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        const here = place(event);
        this.show(Math.round(here));
        if (start === null) return;
        const [a, b] = [this.x(Math.min(start, here)), this.x(Math.max(start, here))];
        this.brush.setAttribute("x", a);
        this.brush.setAttribute("width", Math.max(b - a, 0));
      });
      svg.addEventListener("pointerup", (event) => {
        const here = place(event);
        const range = [Math.min(start, here), Math.max(start, here)];
        start = null;
        this.brush.removeAttribute("width");
        if (range[1] - range[0] >= 3) this.zoom(...range);
        else this.mark();
      });
      svg.addEventListener("dblclick", () => this.zoom(0, this.values.length - 1));
      svg.addEventListener("keydown", (event) => {
        const step = event.shiftKey ? 10 : 1;
        const here = this.cursor ?? this.values.length - 1;
        const [first, last] = this.range;
        const half = (last - first) / 4;
        if (event.key === "ArrowLeft") this.show(here - step, true);
        else if (event.key === "ArrowRight") this.show(here + step, true);
        else if (event.key === "Home") this.show(0, true);
        else if (event.key === "End") this.show(this.values.length - 1, true);
        else if (event.key === "+") this.zoom(here - half, here + half);
        else if (event.key === "-") this.zoom(first - 2 * half, last + 2 * half);
        else if (event.key === "0" || event.key === "Escape") this.zoom(0, this.values.length - 1);
        else if (event.key === "Enter") this.open();
        else return;
        event.preventDefault();
        this.old.focus();
      });
    }

    zoom(first, last) {
      const end = Math.max(this.values.length - 1, 1);
      this.range = [Math.max(first, 0), Math.min(last, end)];
      if (this.range[1] - this.range[0] < 2) this.range = [0, end];
      this.draw();
    }

    async show(index, mark = false, alone = false) {
      const i = Math.min(Math.max(index, 0), this.values.length - 1);
      this.cursor = i;
      // The charts of a page show the same commit.
      for (const other of alone ? [] : charts) {
        const there = other === this ? -1 : other.at.indexOf(this.at[i]);
        if (there >= 0) other.show(there, false, true);
      }
      const v = this.values[i];
      this.line_.setAttribute("d", `M${this.x(i)} ${this.top}V${this.floor}`);
      this.spot.setAttribute("cx", this.x(i));
      this.spot.setAttribute("cy", typeof v === "number" ? this.y(v) : this.floor);
      const { commits } = await load("commits");
      if (this.cursor !== i) return;
      const commit = commits[this.at[i]];
      const before = this.values[i - 1];
      const ratio = typeof v === "number" && typeof before === "number" && before
        ? ` (${v >= before ? "+" : "−"}${Math.abs(100 * (v / before - 1)).toPrecision(3)} %)` : "";
      const link = html("a", { href: new URL(`c/${commit[0]}.html`, ROOT), textContent: commit[0].slice(0, 10) });
      this.readout.replaceChildren(
        html("b", { textContent: quantity(v, this.data.unit) }), `${ratio} at `, link, ` ${commit[1]} ${commit[2]}`);
      if (mark) this.mark();
    }

    async mark() {
      const { commits } = await load("commits");
      const commit = commits[this.at[this.cursor ?? -1]];
      const section = this.section ? `${this.section}&` : "";
      if (commit) history.replaceState(null, "", `#${section}c=${commit[0]}`);
    }

    async open() {
      const { commits } = await load("commits");
      const commit = commits[this.at[this.cursor ?? -1]];
      if (commit) location.href = new URL(`c/${commit[0]}.html`, ROOT);
    }

    async follow(wanted) {
      const { commits } = await load("commits");
      const index = this.at.findIndex((at) => commits[at]?.[0] === wanted);
      if (index >= 0) this.show(index, false, true);
    }
  }

  const ticks = (lo, hi, count) => {
    const rough = (hi - lo) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? rough;
    const found = [];
    for (let v = Math.ceil(lo / step) * step; v <= hi && found.length < 20; v += step) {
      found.push(Math.abs(v) < step / 1e6 ? 0 : v);
    }
    return found;
  };

  store.tools = { load, historyOf, make, html, decode, expand, quantity, seriesPath, plain, ticks, ROOT };

  // What the series of a page share stands there once. A chart is drawn when it comes near: a page
  // may hold dozens.
  const shared = JSON.parse(document.getElementById("shared")?.textContent ?? "{}");
  const asked = /^#(?:(s[0-9a-f]+)&)?c=([0-9a-f]{12})$/.exec(location.hash);
  const changesOf = async ([at, , , , , steps]) => {
    const { commits } = await load("commits");
    const places = expand(at);
    const rows = [...steps].reverse().map(([index, , , word, size, before, after]) => {
      const [hash, , subject] = commits[places[index]];
      const link = html("a", { href: new URL(`c/${hash}.html`, ROOT), textContent: hash.slice(0, 10) });
      return html("tr", {}, verdictCell(word, `${SHAPES[word]} ${word}`), html("td", { className: "whole" }, link, ` ${subject}`),
        labelled("before", before), labelled("after", after), html("td", { className: "num", textContent: size }));
    });
    return html("div", { className: "scroll" }, html("table", { className: "cards" }, html("caption", { textContent: "Changes" }),
      heads("verdict", "commit", "before", "after", "change"), html("tbody", {}, ...rows)));
  };
  const start = async (figure) => {
    near.unobserve(figure);
    const { of } = figure.dataset;
    if (of && !figure.firstChild) {
      const href = new URL(`overlay.html#s=${of.replace("#", ".")}`, ROOT);
      const link = html("a", { href, textContent: "overlay it with other series" });
      figure.append(make("svg", { class: "history", "aria-label": "History" }), html("figcaption", {}, link));
    }
    const block = figure.querySelector("script[type='application/json']");
    if (!block && !of) return;
    const data = { ...shared, ...(block ? JSON.parse(block.textContent) : { of }) };
    const history = await historyOf(data.of);
    if (!figure.querySelector("svg.history:not(.live)")) return;
    const chart = new Chart(figure, data, history);
    const beside = (element) => figure.insertAdjacentElement("afterend", element);
    if (shared.scripted && history[5].length) beside(await changesOf(history));
    if (history[3] && shared.scripted !== false) beside(html("p", { textContent: history[3] }));
    if (asked && (asked[1] ?? chart.section) === chart.section) chart.follow(asked[2]);
  };
  const near = new IntersectionObserver(
    (seen) => seen.forEach((one) => one.isIntersecting && (one.target.tagName === "FIGURE" ? start : line)(one.target)),
    { rootMargin: "50%" });
  const AT_ONCE = 4;
  [...document.querySelectorAll("figure.chart")].forEach((figure, i) =>
    i < AT_ONCE ? start(figure) : near.observe(figure));
  const section = asked?.[1] && document.getElementById(asked[1]);
  const first = section?.querySelector("figure.chart");
  if (first) start(first).then(() => section.scrollIntoView());

  for (const place of document.querySelectorAll("[data-now]")) {
    historyOf(place.dataset.now).then((history) => (place.textContent = history[2]));
  }
  for (const cell of document.querySelectorAll("td[data-of]")) {
    const [newest, size] = cell.querySelectorAll("a, span");
    historyOf(cell.dataset.of).then(([, , text, , , steps]) => {
      newest.textContent = text;
      if (size) size.textContent = steps.at(-1)[4];
    });
  }

  // ---- lines in rows, as svg.py draws those of smaller reports: to the same pixel ---------------
  const [ROW_WIDTH, ROW_HEIGHT, INNER, EDGE, DRAWN] = [140, 26, 22, 2, 32];
  // To the even neighbour where two are as near, as Python rounds.
  const whole = (v) => {
    const up = Math.round(v);
    return up - v === 0.5 && up % 2 ? up - 1 : up;
  };
  const line = async (svg) => {
    near.unobserve(svg);
    const { of } = svg.closest("[data-of]").dataset;
    const [{ tables }, { table }, [at, stored, , , stairs, steps]] =
      await Promise.all([load("commits"), pageOf(of), historyOf(of)]);
    const columns = new Map(expand(tables[table]).map((commit, i) => [commit, i]));
    const places = expand(at).map((commit) => columns.get(commit));
    const count = columns.size;
    const values = new Array(count).fill(NaN);
    decode(stored).forEach((v, i) => (values[places[i]] = typeof v === "number" ? v : NaN));
    const measured = values.filter((v) => !isNaN(v));
    if (measured.length < 2) return svg.remove();
    // Commits at which nobody requested a value lie between two that have one.
    places.slice(1).forEach((right, i) => {
      const left = places[i];
      const end = stairs && !isNaN(values[right]) ? values[left] : values[right];
      const rise = (end - values[left]) / (right - left);
      for (let k = 1; k < right - left; k++) values[left + k] = values[left] + k * rise;
    });
    let low = Infinity, high = -Infinity;
    for (const v of measured) [low, high] = [Math.min(low, v), Math.max(high, v)];
    const room = Math.max(0.01 * Math.max(Math.abs(low), Math.abs(high)) - (high - low), 0) / 2 ||
      (high - low) * 0.04 || 0.5;
    [low, high] = [low - room, high + room];
    const width = ROW_WIDTH - 2 * EDGE;
    const step = width / Math.max(stairs ? count : count - 1, 1);
    const tread = stairs ? step / 2 : 0;
    const x = (i) => i * step + (tread + EDGE);
    const y = (v) => whole((1 - (v / 2 - low / 2) / (high / 2 - low / 2)) * INNER + EDGE);
    // Of many points the lowest and highest of each bucket.
    let points = values.map((v, i) => [i, v]);
    if (count > DRAWN) {
      const edges = Array.from({ length: DRAWN / 2 + 1 }, (_, i) => Math.floor(i * (count / (DRAWN / 2))));
      points = edges.slice(0, -1).flatMap((from, i) => {
        const some = values.slice(from, edges[i + 1]).filter((v) => !isNaN(v));
        return [[from, some.length ? Math.min(...some) : NaN], [from, some.length ? Math.max(...some) : NaN]];
      });
    }
    let path = "", pen = false, last = null;
    for (const [i, v] of points) {
      const [left, right, height] = [whole(x(i) - tread), whole(x(i) + tread), y(v)];
      if (isFinite(height)) {
        path += pen && left === last ? `V${height}` : `${pen ? "L" : "M"}${left} ${height}`;
        if (stairs) path += `H${right}`;
        last = right;
      }
      pen = isFinite(height);
    }
    const attributes = { viewBox: `0 0 ${ROW_WIDTH} ${ROW_HEIGHT}`, width: ROW_WIDTH, height: ROW_HEIGHT, "aria-hidden": true };
    for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
    svg.classList.toggle("stairs", stairs);
    const marks = steps.filter(([, , verdict]) => verdict !== "unchanged");
    svg.append(make("path", { d: path }), ...marks.map(([index, , verdict]) => {
      const v = values[places[index]];
      const cy = isNaN(v) ? INNER + EDGE : y(v);
      return make("circle", { class: `v-${verdict.replace(" ", "-")}`, r: 2.5, cx: whole(x(places[index])), cy });
    }));
  };
  for (const svg of document.querySelectorAll("svg.spark:empty")) near.observe(svg);

  // ---- small charts of one table share a cursor ----------------------------------------------
  for (const table of document.querySelectorAll("table.linked")) {
    const readout = document.getElementById("cursor");
    table.addEventListener("pointermove", async (event) => {
      const svg = event.target.closest?.("svg.spark");
      if (!svg) return;
      const { commits, tables } = await load("commits");
      const columns = (row) => (row.columns_ ??= expand(tables[row.dataset.m] ?? []));
      const row = svg.closest("tr");
      const box = svg.getBoundingClientRect();
      const share = (event.clientX - box.left - 2) / (box.width - 4);
      const mine = columns(row);
      const half = svg.classList.contains("stairs") ? 0.5 : 0;
      const index = Math.round(share * (mine.length - 1 + 2 * half) - half);
      const at = mine[Math.min(Math.max(index, 0), mine.length - 1)];
      if (at === undefined) return;
      readout.textContent = `${commits[at][0].slice(0, 10)} ${commits[at][1]} ${commits[at][2]}`;
      for (const other of table.querySelectorAll("svg.spark[viewBox]")) {
        const theirs = columns(other.closest("tr"));
        const index = theirs.indexOf(at);
        const tread = other.classList.contains("stairs") ? 0.5 : 0;
        let line = other.querySelector(".cursor");
        if (!line) other.append((line = make("path", { class: "cursor" })));
        const share = (index + tread) / Math.max(theirs.length - 1 + 2 * tread, 1);
        const x = 2 + share * (other.viewBox.baseVal.width - 4);
        line.setAttribute("d", index < 0 ? "" : `M${x} 0V${other.viewBox.baseVal.height}`);
      }
    });
  }

  // ---- any two commits -----------------------------------------------------------------------
  const form = document.getElementById("compare");
  if (form) {
    const [base, head, narrow] = ["base", "head", "narrow"].map((id) => document.getElementById(id));
    const shown = document.getElementById("compared");
    const ORDER = ["missing", "regressed", "inconclusive", "improved", "not applicable", "unchanged"];
    const QUIET = ["inconclusive", "unchanged"]; // listed where words ask for them
    const SHAPE = { missing: "✕", regressed: "▼", inconclusive: "◇", improved: "▲", "not applicable": "○", unchanged: "●" };
    // Every value of the newest commits is kept as it is; those of older ones are in the histories
    // that charts of several series read, to four digits.
    const kept = Number(form.dataset.kept);
    const placeIn = (spans, at) => {
      let passed = 0;
      for (const [first, count] of spans) {
        if (at >= first && at < first + count) return passed + at - first;
        passed += count;
      }
      return -1;
    };
    const valuesAt = async (hash) => {
      const { commits } = await load("commits");
      const at = commits.findIndex(([name]) => name === hash);
      if (at >= commits.length - kept) return (await load(`v${hash}`)).values;
      const { series } = await load("series");
      return Promise.all(series.map(async ([, , id]) => {
        const [spans, stored] = await historyOf(id);
        const place = placeIn(spans, at);
        return place < 0 ? null : valueIn(stored, place);
      }));
    };
    // The judgement itself was made when the site was built: here it is only looked up.
    const judge = ([, , , , exact, better, steps, borders], before, after, from, to) => {
      if (before === null || after === null) return "inconclusive";
      if (after === "f") return before === "f" ? "unchanged" : "missing";
      if (after === "s" || before === "s") return "not applicable";
      if (before === "f") return "improved";
      const between = (at) => at > Math.min(from, to) && at <= Math.max(from, to);
      if (borders.some(between)) return "inconclusive";
      if (!better || before === after) return "unchanged";
      if (!exact && !steps.some(([at]) => between(at))) return "unchanged";
      return after < before === (better === "lower") ? "improved" : "regressed";
    };
    // Evidence has no verdict, and only an exact value that differs is sure to have changed.
    const moved = (verdict, [, , , , exact], before, after) =>
      verdict !== "unchanged" ? verdict : before === after ? "equal" : exact ? "changed" : "not judged";
    const update = async () => {
      const [{ series }, { commits }, old, fresh] = await Promise.all(
        [load("series"), load("commits"), valuesAt(base.value), valuesAt(head.value)]);
      const at = (hash) => commits.findIndex(([name]) => name === hash);
      const [from, to] = [at(base.value), at(head.value)];
      const terms = narrow.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = [];
      const counts = {};
      let alone = 0;
      series.forEach((one, i) => {
        const [before, after] = [old[i], fresh[i]];
        if (before === null && after === null) return;
        const verdict = judge(one, before, after, from, to);
        const lonely = before === null || after === null;
        if (lonely) alone += 1;
        else if (one[5]) counts[verdict] = (counts[verdict] ?? 0) + 1;
        const folded = `${one[0]} ${one[1]}`.toLowerCase();
        const wanted = terms.length ? true : one[5] && !QUIET.includes(verdict) && !lonely;
        if (wanted && terms.every((term) => folded.includes(term))) rows.push([verdict, one, before, after]);
      });
      const size = ([, , a, b]) => typeof a === "number" && typeof b === "number" && a > 0 && b > 0 ? Math.abs(Math.log(b / a)) : 1e9;
      rows.sort((a, b) => ORDER.indexOf(a[0]) - ORDER.indexOf(b[0]) || size(b) - size(a));
      const text = (v, unit) => (v === null ? "—" : quantity(v, unit));
      const change = (a, b) => b / a >= 3 ? `${+(b / a).toPrecision(3)}x` : `${b > a ? "+" : ""}${(100 * (b / a - 1)).toPrecision(3)} %`;
      const body = rows.slice(0, 300).map(([verdict, one, a, b]) =>
        html("tr", {},
          verdictCell(verdict, one[5] ? `${SHAPE[verdict]} ${verdict}` : `· evidence: ${moved(verdict, one, a, b)}`),
          html("td", { className: "whole" }, html("a", { href: new URL(seriesPath(one[2]), ROOT), textContent: one[0] })),
          html("td", { className: "whole", textContent: one[1] }),
          labelled("base", text(a, one[3])),
          labelled("head", text(b, one[3])),
          html("td", { className: "num", textContent: typeof a === "number" && typeof b === "number" && a ? change(a, b) : "" })));
      const summary = ORDER.filter((word) => counts[word]).map((word) => `${counts[word]} ${word}`);
      if (alone) summary.push(`${alone} measured at one of the two alone`);
      shown.replaceChildren(
        html("p", { className: "lead", textContent: summary.join(", ") || "nothing was measured at either commit" }),
        html("div", { className: "scroll", hidden: !rows.length }, html("table", { className: "cards" }, heads("verdict", "what", "where", "base", "head", "change"), html("tbody", {}, ...body))),
        html("p", { hidden: !counts.inconclusive, textContent: "Inconclusive: the method or the platform changed between the two." }),
        html("p", { className: "quiet", textContent: rows.length > 300 ? `and ${rows.length - 300} more: narrow them down` : rows.length ? "" : "Nothing that can be compared changed; words in the name list all the rest." }));
      const only = narrow.value && `&q=${encodeURIComponent(narrow.value)}`;
      history.replaceState(null, "", `#${base.value}..${head.value}${only}`);
    };
    const given = /^#([0-9a-f]{12})\.\.([0-9a-f]{12})(?:&q=(.+))?$/.exec(location.hash);
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    load("commits").then(({ commits }) => {
      for (const [hash, , subject] of commits.slice(0, commits.length - kept).reverse()) {
        const textContent = `${hash.slice(0, 10)} ${subject.slice(0, 70)}`;
        for (const one of [base, head]) one.append(html("option", { value: hash, textContent }));
      }
      const known = new Set(commits.map(([hash]) => hash));
      if (given && known.has(given[1]) && known.has(given[2])) {
        [base.value, head.value, narrow.value] = [given[1], given[2], plain(given[3] ?? "")];
      }
      form.hidden = false;
      if (base.options.length) update();
    });
  }

  // ---- paper has nothing to unfold ------------------------------------------------------------
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not(.code):not([open])")) {
      fold.open = true;
      addEventListener("afterprint", () => (fold.open = false), { once: true });
    }
  });

  // ---- search ------------------------------------------------------------------------------
  const find = document.getElementById("find");
  if (find) {
    const list = document.getElementById("found");
    const update = async () => {
      const terms = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      history.replaceState(null, "", terms.length ? `#q=${encodeURIComponent(find.value)}` : location.pathname);
      if (!terms.length) return list.replaceChildren();
      const [{ workloads, series }, { commits }] = await Promise.all([load("series"), load("commits")]);
      const fits = (text) => {
        const folded = text.toLowerCase();
        return terms.every((term) => folded.includes(term));
      };
      const found = [];
      const add = (kind, text, path) => {
        if (found.length < 40 && fits(text)) {
          found.push(html("li", {}, html("a", { href: new URL(path, ROOT), textContent: text }), ` ${kind}`));
        }
      };
      for (const [name, id] of workloads) add("workload", name, `w/${id}.html`);
      for (const [hash, day, subject, author] of commits) add("commit", `${hash.slice(0, 10)} ${subject} ${author} ${day}`, `c/${hash}.html`);
      for (const [title, where, id] of series) add("series", `${title} ${where}`, seriesPath(id));
      list.replaceChildren(...(found.length ? found : [html("li", { textContent: "nothing found" })]));
    };
    find.addEventListener("input", update);
    find.form.addEventListener("submit", (event) => {
      event.preventDefault();
      list.querySelector("a")?.click();
    });
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
        event.preventDefault();
        find.focus();
      }
    });
    const given = /^#q=(.+)$/.exec(location.hash);
    if (given) find.value = plain(given[1]);
    if (find.value) update();
  }
})();
