"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
(() => {
  const byId = (id) => document.getElementById(id);
  const FILTERS = ["search", "fs", "workload", "metric", "board", "kernel", "view", "state"];
  // What a service has chosen before it sent the page: its controls ask for another page.
  const asked = new Set(data.asked || []);
  const CLOSED = ["accepted", "refuted"], SHOWN = 0.0005, LITTLE = 0.005, FULL = 0.1;
  const { short, median } = charts;
  // Two kernels are a map already.
  const HEAT_FIRST = data.series.some((one) => one.views.kernel.some((track) => track.kernel.length > 1));
  const kernelName = (number) => (number < 0 ? "unknown kernel" : data.kernels[number]);
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const percent = (ratio) => `${ratio > 1 ? "+" : "−"}${(100 * Math.abs(ratio - 1)).toFixed(1)} %`;

  // An element; texts among its children can hold no markup.
  function made(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    const { style = {}, ...rest } = properties;
    Object.assign(element, rest);
    for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
    element.append(...children);
    return element;
  }
  const away = (href, text) => made("a", { href, target: "_blank", rel: "noopener" }, text);
  const address = (template, ...commits) => commits.reduce((text, commit) => text.replace("{}", encodeURIComponent(commit)), template);

  // ------------------------------------------------------------------------------------------------- the data

  for (const one of data.series) {
    one.text = [one.title, one.board, one.metric, one.about, one.simulated ? "simulated" : ""].join(" ").toLowerCase();
    for (const tracks of Object.values(one.views)) {
      for (const track of tracks) {
        let seconds = 0;
        track.at = track.at.map((step) => (seconds += step));
        track.changes = [];
      }
    }
  }
  for (const change of data.changes) {
    change.one = data.series[change.series];
    change.in = change.one.views[change.view][change.track];
    change.in.changes.push(change);
  }
  for (const one of data.series) {
    for (const tracks of Object.values(one.views)) for (const track of tracks) track.changes.sort((a, b) => a.at - b.at);
  }
  const isOpen = (change) => change.still && !CLOSED.includes(change.state);
  const changesOf = (one, view) => one.views[view].flatMap((track) => track.changes);
  const newest = (one, view) => changesOf(one, view).reduce((a, b) => (a && a.in.at[a.at] > b.in.at[b.at] ? a : b), null);

  // ------------------------------------------------------------------------------------------------- choosing

  const options = (id, values) => byId(id).replaceChildren(made("option", { value: "" }, "all"), ...values.map(([value, text]) => made("option", { value }, text)));
  for (const id of ["fs", "workload", "metric", "board"].filter((id) => !asked.has(id))) {
    options(id, [...new Set(data.series.map((one) => one[id]))].sort().map((value) => [value, value]));
  }
  options("kernel", data.kernels.map((name, number) => [String(number), name]));
  const chosen = () => Object.fromEntries(FILTERS.map((id) => [id, asked.has(id) && id !== "view" ? "" : byId(id).value]));

  const fits = (change, want) => {
    if (want.state === "open") return isOpen(change);
    return !want.state || want.state === "any" || change.state === want.state;
  };

  function matches(one, want) {
    const tracks = one.views[want.view];
    if (!tracks.length || ["fs", "workload", "metric", "board"].some((id) => want[id] && one[id] !== want[id])) return false;
    if (!want.search.toLowerCase().split(/\s+/).every((word) => one.text.includes(word))) return false;
    if (want.kernel && !tracks.some((track) => track.kernel.includes(Number(want.kernel)))) return false;
    return !want.state || changesOf(one, want.view).some((change) => fits(change, want));
  }

  // -------------------------------------------------------------------------------------------------- changes

  function commitLinks(before, since) {
    const [older, newer] = [data.runs[before][1], data.runs[since][1]], parts = [];
    if (newer) parts.push(", commit ", data.forge ? away(address(data.forge.commit, newer), newer.slice(0, 12)) : newer.slice(0, 12));
    if (newer && older && older !== newer && data.forge) parts.push(" (", away(address(data.forge.difference, older, newer), `difference from ${older.slice(0, 12)}`), ")");
    return parts;
  }

  function runLink(run) {
    const [id, , href] = data.runs[run];
    return href ? away(href, `run ${id}`) : `run ${id}`;
  }

  function listed(change) {
    const { in: track, at } = change, kernels = [at - 1, at].map((n) => kernelName(track.kernel[n])), way = change.worse ? "worse" : "better";
    const over = change.still || CLOSED.includes(change.state) ? "" : ", over";
    return made("li", {},
      made("span", { className: `state ${change.state} ${way}` }, change.state + over),
      made("span", { className: `change ${way}` }, change.text),
      made("span", { className: "text" }, `since ${kernels[1]}, `, runLink(track.run[at]), ` of ${day(track.at[at]).slice(0, 10)}`,
        ...commitLinks(track.run[at - 1], track.run[at]), `; before: ${kernels[0]}, `, runLink(track.run[at - 1])),
      ...(change.told ? [made("small", {}, change.told)] : []));
  }

  const badge = (one) => (one.simulated ? [made("span", { className: "badge" }, "simulated")] : []);

  function opener(one) {
    const button = made("button", { type: "button", className: "open" }, one.title);
    button.onclick = () => open(one);
    return button;
  }

  // The cards of causes stand in the page. A service has chosen them; else those of the chosen series are shown.
  function showCards(found, want) {
    const keys = new Set(found.map((one) => one.key)), wanted = want.kernel && kernelName(Number(want.kernel));
    for (const view of document.querySelectorAll(".view")) {
      view.hidden = !!view.dataset.view && view.dataset.view !== want.view;
      for (const card of asked.size ? [] : view.querySelectorAll(".card")) {
        const states = card.dataset.states.split(" ");
        card.hidden = !card.dataset.series.split(" ").some((key) => keys.has(key)) ||
          (wanted && !card.dataset.kernels.split("|").includes(wanted)) ||
          (want.state && !states.some((state) => fits({ state, still: card.matches(".open, .gain") }, want)));
      }
      for (const folded of view.querySelectorAll("details")) folded.hidden = !folded.querySelector(".card:not([hidden])");
    }
    const all = [...document.querySelectorAll(".view:not([hidden]) .card")];
    byId("none").hidden = !all.length || all.some((card) => !card.hidden);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-open]"), one = link && data.series.find(({ key }) => key === link.dataset.open);
    if (!one || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(one);
  });

  // --------------------------------------------------------------------------------------------------- series

  let lines = [];
  const inView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      inView.unobserve(target);
      lines.push([target, charts.sparkline(target, target.one, target.view)]);
    }
  }, { rootMargin: "400px" });

  function coloured(element, one) {
    const [light, dark] = data.colours[one.fs];
    element.style.setProperty("--light", light);
    element.style.setProperty("--dark", dark);
  }

  function row(one, view) {
    const spark = made("div", { className: "spark", one, view, onclick: () => open(one) });
    coloured(spark, one);
    const last = one.views[view].map((track) => track.figure[track.figure.length - 1]), change = newest(one, view);
    const way = change && (change.worse ? "worse" : "better");
    const item = made("li", {},
      made("span", { className: "name" }, opener(one), made("small", {}, `${one.board}, ${one.metric} `, ...badge(one))),
      spark,
      made("span", { className: "figure" }, `${last.map(short).join(", ")} ${one.unit}`),
      change
        ? made("span", {}, made("span", { className: `change ${way}` }, change.text), made("small", {}, made("span", { className: `state ${change.state} ${way}` }, change.state), ` ${day(change.in.at[change.at]).slice(0, 10)}`))
        : made("small", {}, "no change"));
    inView.observe(spark);
    return item;
  }

  // Series with the largest open loss first, then those with another change, then the rest as they come.
  function rank(one, view) {
    const found = changesOf(one, view), open = found.filter((change) => change.worse && isOpen(change));
    return open.length ? 2 + Math.max(...open.map((change) => Math.abs(Math.log(change.ratio)))) : found.length ? 1 : 0;
  }

  function showLines(found, want) {
    for (const [, line] of lines) charts.forget(line);
    lines = [];
    inView.disconnect();
    byId("rows").replaceChildren(...found.map((one) => row(one, want.view)));
  }

  // ------------------------------------------------------------------------------------------------- heat map

  function showHeat(found, want) {
    const shown = found.map((one) => [one, one.views.kernel[0]]).filter(([, track]) => track);
    const used = [...new Set(shown.flatMap(([, track]) => track.kernel))].sort((a, b) => b - a);
    const kernels = want.kernel ? used.filter((number) => number === Number(want.kernel)) : used;
    const head = made("tr", {}, made("th", { scope: "col" }, "series"), ...kernels.map((number) => made("th", { scope: "col", className: "kernel" }, kernelName(number).split(" ")[0])));
    const body = shown.map(([one, track]) => {
      const usual = median(track.figure), place = new Map(track.kernel.map((number, n) => [number, n]));
      const cells = kernels.map((number) => cell(one, track, place.get(number), usual));
      return made("tr", {}, made("th", { scope: "row" }, opener(one), ` ${one.board}, ${one.metric}`), ...cells);
    });
    byId("heat-table").replaceChildren(made("table", { className: "heat" }, made("thead", {}, head), made("tbody", {}, ...body)));
  }

  function cell(one, track, n, usual) {
    if (n === undefined) return made("td");
    const ratio = track.figure[n] / usual, off = ratio - 1, worse = off < 0 === one.more;
    const little = Math.abs(off) < LITTLE, text = little ? "" : `${off > 0 ? "+" : "−"}${Math.round(100 * Math.abs(off))}`;
    const title = `${one.title}, ${one.metric}: ${short(track.figure[n])} ${one.unit} on ${kernelName(track.kernel[n])}, ${percent(ratio)}`;
    const href = data.runs[track.run[n]][2];
    const inner = href && text ? away(href, text) : text;
    const found = made("td", { title, className: little ? "" : worse ? "worse" : "better" }, inner);
    found.style.setProperty("--share", `${Math.round(100 * Math.min(1, Math.abs(off) / FULL))}%`);
    return found;
  }

  // --------------------------------------------------------------------------------------------- one series

  const dialog = byId("one");
  let shown = null;

  function open(one) {
    shown = { one, view: byId("view").value };
    if (!one.views[shown.view].length) shown.view = shown.view === "time" ? "kernel" : "time";
    byId("one-title").replaceChildren(`${one.title}: ${one.metric} `, ...badge(one));
    byId("one-about").textContent = `${one.board}, ${one.about}${one.sees ? `; ${one.sees}` : ""}`;
    byId("one-way").textContent = `${one.unit || "ratio"}, ${one.more ? "more is better ↑" : "less is better ↓"}.`;
    const tracks = one.views[shown.view];
    byId("one-tracks").replaceChildren(...(tracks.length < 2 ? [] : tracks.map((track, n) => {
      const [light, dark] = data.tracks[n % data.tracks.length];
      return made("span", { style: { "--light": light, "--dark": dark } }, track.label || "one kernel per run");
    })));
    coloured(byId("one-plot"), one);
    byId("one-found").replaceChildren(...changesOf(one, shown.view).map(listed));
    if (!dialog.open) dialog.showModal();
    draw();
    pairs();
    remember();
  }

  function draw() {
    if (shown.chart) shown.chart.remove();
    const { one, view } = shown, fromZero = byId("zero").checked;
    shown.chart = charts.chart(byId("one-plot"), one, view, { fromZero, kernelName, told, opened });
    const { low, outside, spots } = shown.chart, off = outside ? ` ${outside} ${outside === 1 ? "point lies" : "points lie"} outside of it.` : "";
    byId("one-axis").textContent = (low > 0 ? `The y axis is cut: it begins at ${short(low)}.` : "The y axis begins at 0.") + off +
      (one.published === null ? "" : ` Published: ${short(one.published)} ${one.unit}.`);
    byId("point").max = spots.length - 1;
    // uPlot knows its scales when this task is done.
    queueMicrotask(() => { if (shown) shown.chart.pick(spots.length - 1); });
  }

  const spoken = ({ track, n }, { unit }) => `${short(track.figure[n])} ${unit} (${short(track.low[n])} to ${short(track.high[n])}, ` +
    `${track.boots[n]} boot${track.boots[n] === 1 ? "" : "s"}), ${kernelName(track.kernel[n])}${track.label ? ` (${track.label})` : ""}, ${day(track.at[n])}`;

  function told(place) {
    const spot = shown.chart ? shown.chart.spots[place] : null;
    if (!spot) return;
    const { track, n } = spot, run = track.run[n], board = data.runs[run][3];
    const several = track.runs && track.runs[n] > 1 ? [`${track.runs[n]} runs, the newest `] : [];
    const button = (id, text) => made("button", { type: "button", onclick: () => { byId(id).value = place; compare(); } }, text);
    byId("point").value = place;
    byId("point").setAttribute("aria-valuetext", spoken(spot, shown.one));
    byId("one-told").replaceChildren(`${spoken(spot, shown.one)}, `, ...several, runLink(run), ...commitLinks(run, run),
      board ? `, place ${board} ` : " ", button("from", "compare from here"), " ", button("to", "to here"));
  }

  function opened(place) {
    const { track, n } = shown.chart.spots[place], href = data.runs[track.run[n]][2];
    if (href) away(href, "").click();
  }

  function pairs() {
    const { spots } = shown.chart, change = newest(shown.one, shown.view);
    for (const id of ["from", "to"]) {
      byId(id).replaceChildren(...spots.map((spot, place) => made("option", { value: place },
        `${day(spot.track.at[spot.n])}, ${kernelName(spot.track.kernel[spot.n])}${spot.track.label ? ` (${spot.track.label})` : ""}, run ${data.runs[spot.track.run[spot.n]][0]}`)));
    }
    const placed = (n) => spots.findIndex((spot) => spot.track === change.in && spot.n === n);
    byId("from").value = change ? placed(change.at - 1) : 0;
    byId("to").value = change ? placed(change.at) : spots.length - 1;
    compare();
  }

  function compare() {
    const { one, chart } = shown, [a, b] = ["from", "to"].map((id) => chart.spots[Number(byId(id).value)]);
    const figure = ({ track, n }) => track.figure[n], ratio = figure(b) / figure(a), off = Math.abs(ratio - 1);
    const apart = a.track.low[a.n] > b.track.high[b.n] || b.track.low[b.n] > a.track.high[a.n];
    const word = off < SHOWN ? "the same" : `${(100 * off).toFixed(1)} % ${one.words[ratio > 1 ? 1 : 0]}`;
    const way = off < SHOWN ? "" : ratio > 1 === one.more ? "better" : "worse", runs = [a, b].map(({ track, n }) => track.run[n]);
    byId("compared").replaceChildren(made("span", { className: `change ${way}` }, word), `: ${short(figure(a))} to ${short(figure(b))} ${one.unit}; `,
      `the intervals ${apart ? "are apart" : "overlap"}`, ...commitLinks(...runs), ". Two nights are no verdict.", ...both(...runs));
  }

  function both(...runs) {
    const [baseline, candidate] = runs.map((run) => `run:${data.runs[run][0]}`);
    return data.compare ? [" ", away(`${data.compare}?${new URLSearchParams({ baseline, candidate })}`, "all of both runs")] : [];
  }

  dialog.addEventListener("close", () => {
    shown.chart.remove();
    shown = null;
    remember();
  });
  byId("close").onclick = () => dialog.close();
  byId("zero").onchange = draw;
  byId("point").oninput = () => shown.chart.pick(Number(byId("point").value));
  byId("from").onchange = byId("to").onchange = compare;

  // -------------------------------------------------------------------------------------------------- showing

  // What is chosen stands in the address, so that a link carries it.
  function remember() {
    const want = chosen(), entries = FILTERS.filter((id) => !asked.has(id) && want[id] && !(id === "view" && want[id] === "time")).map((id) => [id, want[id]]);
    if (byId("show-heat").checked !== HEAT_FIRST) entries.push(["show", HEAT_FIRST ? "lines" : "heat"]);
    if (shown) entries.push(["series", shown.one.key]);
    const hash = new URLSearchParams(entries).toString();
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  function recall() {
    const wants = new URLSearchParams(location.hash.slice(1));
    for (const id of FILTERS.filter((id) => !asked.has(id))) {
      const wanted = wants.get(id) ?? "", box = byId(id);
      if (box.tagName === "INPUT") box.value = wanted;
      else box.value = [...box.options].some((option) => option.value === wanted) ? wanted : box.options[0].value;
    }
    byId(`show-${wants.get("show") || (HEAT_FIRST ? "heat" : "lines")}`).checked = true;
    show();
    const one = data.series.find(({ key }) => key === wants.get("series"));
    if (one) open(one);
  }

  function show() {
    const want = chosen(), heat = byId("show-heat").checked;
    const found = data.series.filter((one) => matches(one, want));
    const ranks = new Map(found.map((one) => [one, rank(one, want.view)]));
    found.sort((a, b) => ranks.get(b) - ranks.get(a));
    byId("count").textContent = `${found.length} of ${data.total ?? data.series.length}`;
    showCards(found, want);
    byId("rows").hidden = heat;
    byId("heat").hidden = !heat;
    if (heat) showHeat(found, want);
    else showLines(found, want);
    remember();
  }

  function beside(step) {
    const all = [...document.querySelectorAll("#rows .open, #heat-table .open")], here = all.indexOf(document.activeElement);
    const next = all[here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step];
    if (next) next.focus();
  }

  let later = 0;
  const form = byId("filters");
  if (asked.size) {
    form.addEventListener("change", (event) => {
      if (event.target.id === "kernel") show();
      else if (event.target.type !== "search") form.requestSubmit();
    });
    // An address without what is not chosen; who comes back finds all controls usable.
    form.addEventListener("submit", () => { for (const box of form.elements) box.disabled = !box.value || (box.name === "by" && box.value === "time"); });
    addEventListener("pageshow", () => { for (const box of form.elements) box.disabled = false; });
  } else {
    byId("search").addEventListener("input", () => { clearTimeout(later); later = setTimeout(show, 80); });
    form.addEventListener("change", show);
    form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
  }
  for (const radio of document.getElementsByName("show")) radio.addEventListener("change", show);
  addEventListener("hashchange", recall);
  addEventListener("keydown", (event) => {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "radio";
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.key === "/" && !typing) { event.preventDefault(); byId("search").focus(); byId("search").select(); }
    else if (event.key === "Escape" && event.target.id === "search") { event.target.value = ""; if (!asked.size) show(); event.target.blur(); }
    else if ((event.key === "j" && !typing) || (event.key === "ArrowDown" && event.target.id === "search")) { event.preventDefault(); beside(1); }
    else if (event.key === "k" && !typing) beside(-1);
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(later);
    later = setTimeout(() => { show(); if (shown) draw(); }, 120);
  });
  recall();
})();
