"use strict";
// Charts of a series' tracks, drawn by uPlot: a line as small as a row, and the chart of one series.
const charts = (() => {
  const HEIGHT = 320, SMALL = 40, STALLS = 20, CUT = 0.05, ABOUT = 3;
  const DASHES = { new: [5, 4], refuted: [1.5, 3] }, SIGNS = { new: "◇", accepted: "✓", refuted: "×" };
  const drawn = new Set();
  const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
  const short = (number) => (number === 0 ? "0" : String(Number(number.toPrecision(4))));
  const median = (values) => {
    const s = [...values].sort((a, b) => a - b), half = s.length >> 1;
    return s.length % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
  };

  // The scale ignores single stalls: one figure in twenty on either side may lie outside. The points about a change and
  // its levels never do, and a published figure is drawn only where the measured ones leave room for it.
  function range(one, tracks, fromZero) {
    const figures = tracks.flatMap((track) => track.figure).sort((a, b) => a - b);
    const cut = Math.floor(figures.length / STALLS), changed = tracks.flatMap(aboutChanges);
    const from = Math.min(figures[cut], ...changed), to = Math.max(figures[figures.length - 1 - cut], ...changed);
    const span = Math.max(to - from, to * 0.02);
    const within = (value) => Math.min(to + span / 2, Math.max(from - span / 2, value));
    let low = within(Math.min(...tracks.flatMap((track) => track.low))), high = within(Math.max(...tracks.flatMap((track) => track.high)));
    low = fromZero ? 0 : Math.max(0, low - span * 0.08);
    high += span * 0.12;
    if (low < high * CUT) low = 0;
    const near = one.published !== null && one.published > low && one.published < high;
    return { low, high, near, outside: figures.filter((figure) => figure < low || figure > high).length };
  }

  const startsOf = (track) => [0, ...track.changes.map((change) => change.at), track.figure.length];
  const levelsOf = (track) => startsOf(track).slice(1).map((end, n) => median(track.figure.slice(startsOf(track)[n], end)));
  const aboutChanges = (track) => (track.changes.length ? levelsOf(track) : [])
    .concat(track.changes.flatMap(({ at }) => track.figure.slice(Math.max(0, at - ABOUT), at + ABOUT)));

  function trackColour(element, tracks, number) {
    if (tracks.length === 1) return () => colour(element, "--c");
    const [light, dark] = data.tracks[number % data.tracks.length];
    return () => (matchMedia("(prefers-color-scheme: dark)").matches ? dark : light);
  }

  // Tracks share their x: seconds, or the number of a point over kernels.
  const xOf = (track, view) => (view === "time" ? track.at : track.at.map((_, n) => n));
  const joined = (tracks, view) => uPlot.join(tracks.map((track) => [xOf(track, view), track.figure]));
  const padded = (view) => (_, low, high) => {
    const room = (high - low) * 0.02 || (view === "time" ? 43200 : 0.5);
    return [low - room, high + room];
  };

  function inside(u, draw) {
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    draw(u.ctx, (x) => u.valToPos(x, "x", true), (y) => u.valToPos(y, "y", true), devicePixelRatio);
    u.ctx.restore();
  }

  function line(ctx, points, stroke, width, dash = []) {
    ctx.beginPath();
    ctx.setLineDash(dash);
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width;
    points.forEach(([x, y], n) => (n ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
  }

  // Where a change lies: between its first point and the one before.
  const between = (track, change, view) => {
    const x = xOf(track, view);
    return (x[change.at - 1] + x[change.at]) / 2;
  };
  const wayColour = (element, change) => colour(element, ["accepted", "refuted"].includes(change.state) ? "--muted" : change.worse ? "--bad" : "--good");

  function sparkline(element, one, view) {
    const tracks = one.views[view], { low, high } = range(one, tracks, false);
    const mark = (u) => inside(u, (ctx, x, _, ratio) => {
      for (const track of tracks) {
        for (const change of track.changes) {
          const at = x(between(track, change, view));
          line(ctx, [[at, 0], [at, u.bbox.top + u.bbox.height]], wayColour(element, change), 1.5 * ratio, (DASHES[change.state] || []).map((d) => d * ratio));
        }
      }
    });
    const made = new uPlot({
      width: Math.max(60, element.clientWidth), height: SMALL, padding: [3, 3, 3, 3],
      cursor: { show: false }, legend: { show: false }, axes: [{ show: false }, { show: false }],
      scales: { x: { time: false, range: padded(view) }, y: { range: [low, high] } },
      series: [{}, ...tracks.map((_, n) => ({ stroke: trackColour(element, tracks, n), width: 1.25, spanGaps: true, points: { show: false } }))],
      hooks: { draw: [mark] },
    }, joined(tracks, view), element);
    drawn.add(made);
    return made;
  }

  // One series. `told` gets the place of the point that the pointer or the slider is at; `opened` one that was clicked.
  function chart(element, one, view, { fromZero, kernelName, told, opened }) {
    const tracks = one.views[view], { low, high, near, outside } = range(one, tracks, fromZero);
    const spots = tracks.flatMap((track) => xOf(track, view).map((x, n) => ({ x, y: track.figure[n], track, n }))).sort((a, b) => a.x - b.x);
    const days = spots[spots.length - 1].x - spots[0].x > 3 * 86400;
    const name = view === "time"
      ? (x) => new Date(x * 1000).toISOString().slice(0, days ? 10 : 16).replace("T", " ")
      : (x) => (Number.isInteger(x) && x in tracks[0].kernel ? kernelName(tracks[0].kernel[x]).split(" ")[0] : "");
    const at = { spot: -1, picked: -1 };

    const beneath = (u) => inside(u, (ctx, x, y, ratio) => {
      tracks.forEach((track, t) => {
        const own = trackColour(element, tracks, t)(), xs = xOf(track, view);
        ctx.globalAlpha = 0.4;
        track.figure.forEach((_, n) => line(ctx, [[x(xs[n]), y(track.low[n])], [x(xs[n]), y(track.high[n])]], own, 1.5 * ratio));
        ctx.globalAlpha = 0.8;
        const starts = startsOf(track);
        levelsOf(track).forEach((level, n) => line(ctx, [[x(xs[starts[n]]), y(level)], [x(xs[starts[n + 1] - 1]), y(level)]], colour(element, "--text"), 1.5 * ratio));
        ctx.globalAlpha = 1;
      });
      if (near) line(ctx, [[u.bbox.left, y(one.published)], [u.bbox.left + u.bbox.width, y(one.published)]], colour(element, "--muted"), 1.5 * ratio, [8 * ratio, 4 * ratio]);
    });

    const above = (u) => inside(u, (ctx, x, _, ratio) => {
      for (const track of tracks) {
        for (const change of track.changes) {
          const where = x(between(track, change, view)), own = wayColour(element, change), right = where < u.bbox.left + 90 * ratio;
          line(ctx, [[where, u.bbox.top], [where, u.bbox.top + u.bbox.height]], own, 1.5 * ratio, (DASHES[change.state] || []).map((d) => d * ratio));
          const sign = SIGNS[change.state] || "◆", percent = (100 * Math.abs(change.ratio - 1)).toFixed(1);
          ctx.font = `${11.5 * ratio}px system-ui, sans-serif`;
          ctx.fillStyle = own;
          ctx.textAlign = right ? "left" : "right";
          ctx.fillText(`${sign} ${change.ratio > 1 ? "+" : "−"}${percent} %`, where + (right ? 6 : -6) * ratio, u.bbox.top + 12 * ratio);
        }
      }
    });

    function nearest(u, left, top) {
      let best = 0, least = Infinity;
      spots.forEach((spot, place) => {
        const far = Math.hypot(u.valToPos(spot.x, "x") - left, (u.valToPos(spot.y, "y") - top) / 4);
        if (far < least) { least = far; best = place; }
      });
      return best;
    }

    const axis = (more) => ({
      stroke: () => colour(element, "--muted"), font: "11px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: () => colour(element, "--line"), width: 1 }, ...more,
    });
    const many = spots.length > 150;
    const made = new uPlot({
      width: Math.max(240, element.clientWidth), height: HEIGHT, padding: [18, 12, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false }, points: { show: false },
        move: (u, left, top) => {
          if (left < 0) return [left, top];
          at.spot = at.picked >= 0 ? at.picked : nearest(u, left, top);
          return [u.valToPos(spots[at.spot].x, "x"), u.valToPos(spots[at.spot].y, "y")];
        },
      },
      axes: [
        axis({ values: (_, splits) => splits.map(name), space: view === "time" ? 90 : 110, grid: { show: false } }),
        axis({ values: (_, splits) => splits.map(short), size: 56 }),
      ],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      scales: { x: { time: view === "time", range: padded(view) }, y: { range: [low, high] } },
      series: [{}, ...tracks.map((_, n) => {
        const own = trackColour(element, tracks, n);
        return { stroke: own, paths: () => null, points: { show: true, size: many ? 4 : 6, width: 0, fill: own, stroke: own } };
      })],
      hooks: { drawAxes: [beneath], draw: [above], setCursor: [() => { if (at.spot >= 0) told(at.spot); }] },
    }, joined(tracks, view), element);
    drawn.add(made);
    let pressed = 0;
    made.over.addEventListener("pointerdown", (event) => { pressed = event.clientX; });
    made.over.addEventListener("click", (event) => {
      // A drag was a zoom; a finger has no pointer to look with first.
      if (Math.abs(event.clientX - pressed) < 4 && event.pointerType !== "touch" && at.spot >= 0) opened(at.spot);
    });
    return {
      spots, low, outside,
      pick: (place) => {
        at.picked = place;
        made.setCursor({ left: made.valToPos(spots[place].x, "x"), top: made.valToPos(spots[place].y, "y") });
        at.picked = -1;
      },
      remove: () => { drawn.delete(made); made.destroy(); },
    };
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const made of drawn) made.redraw(false); });
  const forget = (made) => { drawn.delete(made); made.destroy(); };
  return { sparkline, chart, forget, short, median };
})();
