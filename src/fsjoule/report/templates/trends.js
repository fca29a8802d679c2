"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const FILTERS = ["board", "kernel", "fs", "workload", "metric", "view", "only"];
  const AT_ONCE = 12, SHOWN_CHANGES = 6, HEIGHT = 200;
  const ROOM = { left: 52, right: 10, top: 18, bottom: 24 };
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const short = (number) => (number === 0 ? "0" : String(Number(number.toPrecision(4))));
  // Places in a point, as the page's maker writes them.
  const [RUN, KERNEL, STARTED, FIGURE, LOW, HIGH, BOOTS, RUNS] = [0, 1, 2, 3, 4, 5, 6, 7];
  const kernelName = (number) => (number < 0 ? "unknown kernel" : data.kernels[number]);

  // -------------------------------------------------------------------------------------------------- choosing

  function options(id, values, all) {
    byId(id).innerHTML = (all ? `<option value="">${all}</option>` : "") +
      values.map(([value, text]) => `<option value="${escaped(value)}">${escaped(text)}</option>`).join("");
  }
  const distinct = (name) => [...new Set(data.cards.map((card) => card[name]))].sort().map((value) => [value, value]);
  options("board", distinct("board"), "all");
  options("fs", distinct("fs"), "all");
  options("workload", distinct("workload"), "all");
  options("metric", distinct("metric"), "all");
  options("kernel", data.kernels.map((name, number) => [String(number), name]), "all");
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const id of FILTERS) {
    const wanted = asked.get(id), box = byId(id);
    if (wanted !== null && [...box.options].some((option) => option.value === wanted)) box.value = wanted;
  }
  const chosen = () => Object.fromEntries(FILTERS.map((id) => [id, byId(id).value]));
  const tracksOf = (card, view) => card.views[view] || [];
  const changesOf = (card, view) => tracksOf(card, view).flatMap((track) => track.changes);

  function matches(card, want) {
    const tracks = tracksOf(card, want.view);
    if (!tracks.length) return false;
    if ((want.board && card.board !== want.board) || (want.fs && card.fs !== want.fs)) return false;
    if ((want.workload && card.workload !== want.workload) || (want.metric && card.metric !== want.metric)) return false;
    if (want.kernel && !tracks.some((track) => track.points.some((p) => p[KERNEL] === Number(want.kernel)))) return false;
    const changes = changesOf(card, want.view);
    if (want.only === "changed") return changes.length > 0;
    return want.only !== "confirmed" || changes.some((change) => change.status === "confirmed");
  }

  // --------------------------------------------------------------------------------------------------- drawing

  function ticks(low, high, most) {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-6; n += 1) found.push(Number((n * step).toPrecision(12)));
    return found;
  }

  function range(card, tracks) {
    const points = tracks.flatMap((track) => track.points), figures = points.map((p) => p[FIGURE]).sort((a, b) => a - b);
    // A single stall must not flatten all the rest, nor must its whisker.
    const cut = Math.floor(figures.length / 20), kept = figures.slice(cut, figures.length - cut);
    const from = kept[0], to = kept[kept.length - 1], span = Math.max(to - from, to * 0.02);
    const within = (value) => Math.min(to + span / 2, Math.max(from - span / 2, value));
    let low = within(Math.min(figures[0], ...points.map((p) => p[LOW])));
    let high = within(Math.max(figures[figures.length - 1], ...points.map((p) => p[HIGH])));
    const published = card.published;
    const near = published !== null && published > low * 0.7 && published < high * 1.4;
    if (near) { low = Math.min(low, published); high = Math.max(high, published); }
    return { low: Math.max(0, low - span * 0.08), high: high + span * 0.12, near };
  }

  const median = (values) => {
    const s = [...values].sort((a, b) => a - b), half = s.length >> 1;
    return s.length % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
  };

  function draw(plot, card, want) {
    const tracks = tracksOf(card, want.view), width = Math.max(240, plot.clientWidth);
    const { low, high, near } = range(card, tracks);
    const times = tracks.flatMap((track) => track.points.map((p) => Date.parse(p[STARTED])));
    const first = Math.min(...times), last = Math.max(...times), long = Math.max(1, tracks[0].points.length - 1);
    const inner = width - ROOM.left - ROOM.right - 12;
    const share = want.view === "time" ? (p) => (Date.parse(p[STARTED]) - first) / Math.max(1, last - first) : (p, n) => n / long;
    const x = (p, n) => ROOM.left + 6 + inner * share(p, n);
    const floor = HEIGHT - ROOM.bottom;
    const y = (value) => floor - ((Math.min(high, Math.max(low, value)) - low) / (high - low)) * (floor - ROOM.top);
    const out = [], spots = [];
    for (const tick of ticks(low, high, 4)) {
      out.push(`<line class="grid" x1="${ROOM.left}" x2="${width - ROOM.right}" y1="${y(tick).toFixed(1)}" y2="${y(tick).toFixed(1)}"/>`);
      out.push(`<text x="${ROOM.left - 7}" y="${(y(tick) + 4).toFixed(1)}" text-anchor="end">${short(tick)}</text>`);
    }
    out.push(...axis(tracks, want.view, width, x, first, last));
    if (near) out.push(`<line class="published" x1="${ROOM.left}" x2="${width - ROOM.right}" y1="${y(card.published).toFixed(1)}" y2="${y(card.published).toFixed(1)}"/>`);
    tracks.forEach((track, number) => {
      const style = tracks.length > 1 ? ` style="--c:var(--k${number % data.trackColours})"` : "";
      out.push(`<g${style}>`);
      track.points.forEach((p, n) => {
        const at = x(p, n).toFixed(1), faded = want.kernel && p[KERNEL] !== Number(want.kernel) ? " faded" : "";
        const outside = p[FIGURE] < low || p[FIGURE] > high ? " outside" : "";
        out.push(`<line class="whisker${faded}" x1="${at}" x2="${at}" y1="${y(p[LOW]).toFixed(1)}" y2="${y(p[HIGH]).toFixed(1)}"/>`);
        out.push(`<circle class="${(faded + outside).trim()}" cx="${at}" cy="${y(p[FIGURE]).toFixed(1)}" r="${track.points.length > 120 ? 1.8 : 2.6}"/>`);
        spots.push([x(p, n), y(p[FIGURE]), p, track]);
      });
      out.push(...levels(track, x, y), "</g>");
      for (const change of track.changes) out.push(...marked(change, track, x, floor));
    });
    out.push('<line class="cursor" y1="18" y2="176" x1="-9" x2="-9"/>');
    plot.innerHTML = `<svg viewBox="0 0 ${width} ${HEIGHT}" role="img" aria-label="${escaped(card.title)}">${out.join("")}</svg>`;
    const svg = plot.firstChild, cursor = svg.querySelector(".cursor"), told = plot.nextElementSibling;
    const rest = card.published !== null && !near ? `Published: ${short(card.published)} ${card.unit}, off the chart.` : "";
    told.textContent = rest;
    svg.onpointermove = svg.onpointerdown = (event) => {
      const box = svg.getBoundingClientRect(), mx = (event.clientX - box.left) * (width / box.width), my = event.clientY - box.top;
      const [px, , p, track] = spots.reduce((a, b) => (Math.hypot(a[0] - mx, (a[1] - my) / 4) <= Math.hypot(b[0] - mx, (b[1] - my) / 4) ? a : b));
      cursor.setAttribute("x1", px);
      cursor.setAttribute("x2", px);
      told.textContent = spoken(p, card, track);
    };
    svg.onpointerleave = () => { cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); told.textContent = rest; };
  }

  function axis(tracks, view, width, x, first, last) {
    const y = HEIGHT - 7;
    const text = (at, anchor, name) => `<text x="${at.toFixed(1)}" y="${y}" text-anchor="${anchor}">${escaped(name)}</text>`;
    if (view === "time") {
      const day = (t) => new Date(t).toISOString().slice(0, last - first < 3 * 864e5 ? 16 : 10).replace("T", " ");
      return first === last ? [text(x(tracks[0].points[0], 0), "start", day(first))]
        : [text(ROOM.left, "start", day(first)), text(width - ROOM.right, "end", day(last))];
    }
    const points = tracks[0].points, found = [];
    let free = 0;
    points.forEach((p, n) => {
      const name = kernelName(p[KERNEL]).split(" ")[0], wide = name.length * 6.2, end = n === points.length - 1 && n > 0;
      const from = end ? width - ROOM.right - wide : Math.max(ROOM.left - 6, x(p, n) - (n ? wide / 2 : 8));
      const lastWide = kernelName(points[points.length - 1][KERNEL]).split(" ")[0].length * 6.2;
      if (from < free || (!end && n < points.length - 1 && from + wide > width - ROOM.right - lastWide - 10)) return;
      found.push(text(from, "start", name));
      free = from + wide + 10;
    });
    return found;
  }

  function levels(track, x, y) {
    const starts = [0, ...track.changes.map((change) => change.at), track.points.length];
    return starts.slice(1).map((end, number) => {
      const part = track.points.slice(starts[number], end);
      if (!part.length) return "";
      const at = y(median(part.map((p) => p[FIGURE]))).toFixed(1);
      return `<path class="level" d="M${x(part[0], starts[number]).toFixed(1)} ${at}H${x(part[part.length - 1], end - 1).toFixed(1)}"/>`;
    });
  }

  function marked(change, track, x, floor) {
    const before = change.at - 1;
    const at = (x(track.points[before], before) + x(track.points[change.at], change.at)) / 2;
    const kind = `${change.status} ${change.way}`, text = (change.ratio > 1 ? "+" : "−") + (100 * Math.abs(change.ratio - 1)).toFixed(1) + " %";
    const mark = change.status === "refuted"
      ? `<path class="mark ${kind}" d="M${at - 3.5} 5.5l7 7m0 -7l-7 7"/>`
      : `<path class="mark ${kind}" d="M${at} 4l5 5l-5 5l-5 -5z"/>`;
    const right = at < ROOM.left + 60;
    return [
      `<line class="change ${kind}" x1="${at.toFixed(1)}" x2="${at.toFixed(1)}" y1="14" y2="${floor}"/>`, mark,
      `<text x="${(at + (right ? 9 : -9)).toFixed(1)}" y="13" text-anchor="${right ? "start" : "end"}">${text}</text>`,
    ];
  }

  function spoken(p, card, track) {
    const run = data.runs[p[RUN]], several = p[RUNS] > 1 ? `${p[RUNS]} runs, the newest ${run[0]}` : `run ${run[0]}`;
    const commit = run[1] ? `, commit ${run[1].slice(0, 12)}` : "", label = track.label ? ` (${track.label})` : "";
    return `${short(p[FIGURE])} ${card.unit} (${short(p[LOW])} to ${short(p[HIGH])}, ${p[BOOTS]} boot${p[BOOTS] === 1 ? "" : "s"}), ` +
      `${kernelName(p[KERNEL])}${label}, ${p[STARTED].slice(0, 16).replace("T", " ")}, ${several}${commit}`;
  }

  // --------------------------------------------------------------------------------------------------- showing

  let waiting = [];

  function element(card, want) {
    const article = document.createElement("article"), [light, dark] = data.colours[card.fs];
    article.className = "card";
    article.style.setProperty("--light", light);
    article.style.setProperty("--dark", dark);
    const tracks = tracksOf(card, want.view);
    const legend = tracks.length > 1
      ? `<div class="tracks">${tracks.map((track, n) => `<span style="--c:var(--k${n % data.trackColours})">${escaped(track.label || "one kernel a run")}</span>`).join("")}</div>` : "";
    article.innerHTML = `<h3>${escaped(card.title)}${card.simulated ? '<span class="badge">simulated</span>' : ""}</h3>` +
      `<p>${escaped(card.metric)}${card.unit ? ", " + escaped(card.unit) : ""} · ${escaped(card.about)}</p>${legend}<div class="plot"></div><p class="told"></p>`;
    article.drawn = () => draw(article.querySelector(".plot"), card, want);
    return article;
  }

  function next() {
    const want = chosen(), box = byId("cards");
    for (const card of waiting.splice(0, AT_ONCE)) {
      const made = element(card, want);
      box.append(made);
      made.drawn();
    }
  }

  function fill() {
    while (waiting.length && byId("end").getBoundingClientRect().top < innerHeight + 800) next();
  }

  function show() {
    const want = chosen(), found = data.cards.filter((card) => matches(card, want));
    const numbers = new Set(found.map((card) => card.number));
    // Cards come with changes first, as their maker has sorted them; those of this view before those of the other.
    waiting = [...found].sort((a, b) => Number(changesOf(b, want.view).length > 0) - Number(changesOf(a, want.view).length > 0));
    byId("cards").replaceChildren();
    byId("count").textContent = `${found.length} of ${data.cards.length} histories` + (found.length > AT_ONCE ? ", drawn as they are scrolled to" : "");
    next();  // whatever the window's height is: while a page loads it may have none
    fill();
    let shown = 0, hidden = 0;
    for (const item of byId("found").children) {
      const fits = item.dataset.view === want.view && numbers.has(Number(item.dataset.card)) &&
        (want.only !== "confirmed" || item.dataset.status === "confirmed") &&
        (!want.kernel || item.dataset.kernels.split(" ").includes(want.kernel));
      item.hidden = !fits || (shown >= SHOWN_CHANGES && !show.all);
      shown += fits && !item.hidden;
      hidden += fits && item.hidden;
    }
    byId("none").hidden = shown > 0 || !byId("found").children.length;
    byId("rest").hidden = !hidden;
    byId("rest").textContent = `${hidden} more`;
    const hash = new URLSearchParams(Object.entries(want).filter(([id, value]) => value && !(id === "view" && value === "time"))).toString();
    if (hash !== location.hash.slice(1)) location.replace(`#${hash}`);
  }

  byId("filters").addEventListener("change", () => { show.all = false; show(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("rest").addEventListener("click", () => { show.all = true; show(); });
  addEventListener("scroll", fill, { passive: true });
  let last = innerWidth, later = 0;
  addEventListener("resize", () => {
    fill();
    if (innerWidth === last) return;
    last = innerWidth;
    clearTimeout(later);
    later = setTimeout(() => { for (const card of byId("cards").children) card.drawn(); }, 120);
  });
  show();
})();
