// Several series in one chart, as shares of their values at one commit. The address holds all of it.
"use strict";
(() => {
  const { load, historyOf, make, html, decode, expand, quantity, seriesPath, plain, ticks, ROOT } = globalThis.WW.tools;
  const form = document.getElementById("overlay");
  if (!form) return;
  const MOST = 8;
  const [add, index, offered, ready, chosen, figure, readout] =
    ["add", "index", "offered", "ready", "chosen", "drawn", "readout"].map((id) => document.getElementById(id));
  let lines = [];
  let cursor = null;

  const fetchLine = async (number) => {
    const id = (await load("series")).series[number][2];
    const [at, values] = await historyOf(id);
    const own = expand(at);
    const found = decode(values);
    return { number, id, at: own, values: new Map(own.map((c, i) => [c, found[i]])) };
  };

  const measured = (line, c) => (typeof line.values.get(c) === "number" ? line.values.get(c) : null);
  // The value that counts as 100 %: of the commit named, else the first, and never zero.
  const base = (line, commit) => {
    if (commit >= 0) {
      const known = line.at.filter((c) => c <= commit && measured(line, c));
      return known.length ? measured(line, known.at(-1)) : null;
    }
    const first = line.at.find((c) => measured(line, c));
    return first === undefined ? null : measured(line, first);
  };

  const draw = async () => {
    const [{ series }, { commits }] = await Promise.all([load("series"), load("commits")]);
    const at = commits.findIndex(([hash]) => hash === index.value);
    const units = new Set(lines.map((line) => series[line.number][3]));
    const absolute = index.value === "none" && units.size === 1;
    const shown = lines.map((line) => {
      const whole = absolute ? 1 : base(line, at);
      const points = whole === null ? [] : line.at.flatMap((c) => (measured(line, c) === null ? [] : [[c, measured(line, c) / whole]]));
      return { line, points };
    });
    chosen.replaceChildren(...lines.map((line, i) => {
      const [title, home, id] = series[line.number];
      const drop = html("button", { type: "button", textContent: "remove" });
      drop.setAttribute("aria-label", `remove ${title}`);
      drop.addEventListener("click", () => {
        lines = lines.filter((other) => other !== line);
        draw();
      });
      const key = make("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
      key.append(make("path", { class: `o${i}`, d: "M1 4H25" }));
      return html("li", {}, key, ` ${i + 1} `, html("a", { href: new URL(seriesPath(id), ROOT), textContent: title }), ` ${home} `, drop);
    }));
    if (ready) ready.hidden = lines.length > 0;
    const all = shown.flatMap(({ points }) => points);
    figure.replaceChildren();
    readout.replaceChildren();
    remember();
    if (!all.length) return;
    const width = Math.max(figure.clientWidth, 280), height = Math.min(420, Math.max(240, width * 0.42));
    const [left, right, top, bottom] = [64, 26, 12, 26];
    const xs = all.map(([c]) => c), ys = all.map(([, v]) => v);
    const [from, to] = [Math.min(...xs), Math.max(...xs)];
    let [lo, hi] = [Math.min(...ys), Math.max(...ys)];
    const room = (hi - lo) * 0.06 || Math.abs(hi) * 0.02 || 1;
    lo -= room;
    hi += room;
    const x = (c) => left + ((c - from) / Math.max(to - from, 1)) * (width - left - right);
    const y = (v) => top + (1 - (v - lo) / (hi - lo)) * (height - top - bottom);
    const unit = absolute ? [...units][0] : "";
    const say = (v) => (absolute ? quantity(v, unit) : `${(100 * v).toPrecision(4)} %`);
    const svg = make("svg", {
      class: "history live", viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: "application",
      "aria-label": `${lines.length} series over commits: arrow keys move the cursor, Enter opens the commit`,
    });
    for (const v of ticks(lo, hi, 5)) {
      svg.append(make("path", { class: "axis", d: `M${left} ${y(v)}H${width - right}` }),
        make("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, absolute ? quantity(v, unit) : `${+(100 * v).toPrecision(4)} %`));
    }
    svg.append(make("text", { x: left, y: height - 8 }, commits[from][0].slice(0, 8)),
      make("text", { x: width - right, y: height - 8, "text-anchor": "end" }, commits[to][0].slice(0, 8)));
    if (at >= from && at <= to) svg.append(make("path", { class: "border", d: `M${x(at)} ${top}V${height - bottom}` }));
    const ends = [];
    shown.forEach(({ points }, i) => {
      if (!points.length) return;
      svg.append(make("path", { class: `o${i}`, d: `M${points.map(([c, v]) => `${x(c).toFixed(1)} ${y(v).toFixed(1)}`).join("L")}` }));
      const [c, v] = points.at(-1);
      ends.push({ i, left: x(c) + 5, y: y(v) + 4 });
    });
    // Numbers at the ends of lines that meet stand below each other.
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((one, k) => {
      if (k) one.y = Math.max(one.y, ends[k - 1].y + 13);
    });
    const below = Math.max(0, (ends.at(-1)?.y ?? 0) - (height - bottom));
    ends.forEach((one) => {
      one.y -= below;
      svg.append(make("text", { x: one.left, y: one.y }, String(one.i + 1)));
    });
    const stroke = make("path", { class: "cursor" });
    svg.append(stroke);
    const point = (c) => {
      cursor = Math.min(Math.max(c, from), to);
      stroke.setAttribute("d", `M${x(cursor)} ${top}V${height - bottom}`);
      const commit = commits[cursor];
      readout.replaceChildren(
        html("p", {}, html("a", { href: new URL(`c/${commit[0]}.html`, ROOT), textContent: commit[0].slice(0, 10) }), ` ${commit[1]} ${commit[2]}`),
        html("ul", { className: "plain" }, ...shown.map(({ line, points }, i) => {
          const here = points.find(([one]) => one === cursor);
          const value = measured(line, cursor);
          const text = here ? `${quantity(value, series[line.number][3])}${absolute ? "" : `, ${say(here[1])}`}` : "not measured there";
          return html("li", {}, `${i + 1} `, html("b", { textContent: text }), ` ${series[line.number][0]}`);
        })));
      remember();
    };
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      const share = (event.clientX - box.left - left * (box.width / width)) / (box.width * (1 - (left + right) / width));
      return Math.round(from + share * (to - from));
    };
    svg.addEventListener("pointermove", (event) => point(place(event)));
    svg.addEventListener("keydown", (event) => {
      const here = cursor ?? to;
      if (event.key === "ArrowLeft") point(here - 1);
      else if (event.key === "ArrowRight") point(here + 1);
      else if (event.key === "Enter") location.href = new URL(`c/${commits[here][0]}.html`, ROOT);
      else return;
      event.preventDefault();
    });
    figure.append(svg);
    if (cursor !== null) point(cursor);
  };

  const remember = async () => {
    const { commits } = await load("commits");
    const here = cursor === null || !commits[cursor] ? "" : `&c=${commits[cursor][0]}`;
    const names = lines.map((line) => line.id.replace("#", ".")).join(",");
    history.replaceState(null, "", lines.length ? `#s=${names}&i=${index.value}${here}` : location.pathname);
  };

  const offer = async () => {
    const terms = add.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!terms.length) return offered.replaceChildren();
    const { series } = await load("series");
    const found = [];
    for (let i = 0; i < series.length && found.length < 12; i++) {
      const folded = `${series[i][0]} ${series[i][1]}`.toLowerCase();
      if (lines.some((line) => line.number === i) || !terms.every((term) => folded.includes(term))) continue;
      const button = html("button", { type: "button", textContent: `${series[i][0]}, ${series[i][1]}` });
      button.addEventListener("click", async () => {
        if (lines.length < MOST) lines.push(await fetchLine(i));
        add.value = "";
        offered.replaceChildren();
        draw();
      });
      found.push(html("li", {}, button));
    }
    offered.replaceChildren(...(found.length ? found : [html("li", { textContent: "nothing found" })]));
  };

  const begin = async () => {
    const { commits } = await load("commits");
    for (const [hash, day, subject] of [...commits].reverse()) {
      index.append(html("option", { value: hash, textContent: `${hash.slice(0, 10)} ${day} ${subject.slice(0, 50)}` }));
    }
    form.hidden = false;
    follow();
  };
  // What the address says: when the page opens, and when one of its links is followed.
  const follow = async () => {
    const [{ series }, { commits }] = await Promise.all([load("series"), load("commits")]);
    const given = new URLSearchParams(plain(location.hash.slice(1)));
    const ids = (given.get("s") ?? "").split(",").filter(Boolean).slice(0, MOST).map((id) => id.replace(".", "#"));
    if ([...index.options].some((option) => option.value === given.get("i"))) index.value = given.get("i");
    const at = commits.findIndex(([hash]) => hash === given.get("c"));
    if (at >= 0) cursor = at;
    const places = new Map(series.map((one, i) => [one[2], i]));
    lines = await Promise.all(ids.flatMap((id) => (places.has(id) ? [fetchLine(places.get(id))] : [])));
    draw();
  };
  addEventListener("hashchange", follow);
  add.addEventListener("input", offer);
  index.addEventListener("input", draw);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    offered.querySelector("button")?.click();
  });
  addEventListener("resize", draw);
  begin();
})();
