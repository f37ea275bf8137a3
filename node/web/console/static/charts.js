// Small charts, as SVG: a line over the last minutes, and the bars of a histogram.

import { h } from "./dom.js";

const WIDTH = 160;
const HEIGHT = 36;

/** A line; `label` says in words what it shows. */
export function sparkline(series, label) {
  const known = series.filter((one) => one !== null);
  const most = Math.max(...known, 1e-9);
  const step = WIDTH / Math.max(series.length - 1, 59);
  const start = WIDTH - step * (series.length - 1);
  const points = series.map((one, index) => [start + index * step, HEIGHT - 2 - (one / most) * (HEIGHT - 5)]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const area = points.length > 1 ? `M${points[0][0].toFixed(1)} ${HEIGHT}L${line.replaceAll(" ", "L").replaceAll(",", " ")}L${WIDTH} ${HEIGHT}Z` : "";
  return h(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("path", { class: "area", d: area }),
    h("polyline", { class: "line", points: line, "vector-effect": "non-scaling-stroke" }),
  );
}

/** The bars of a histogram, from the first that has any to the last. */
export function bars({ counts }, label) {
  const most = Math.max(...counts, 1);
  const width = 100 / counts.length;
  return h(
    "svg",
    { class: "bars", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    counts.map((one, index) => {
      const height = one === 0 ? 1 : Math.max(2, (one / most) * 24);
      return h("rect", {
        class: one === 0 ? "none" : "some",
        x: (index * width + 0.6).toFixed(2),
        y: (24 - height).toFixed(2),
        width: (width - 1.2).toFixed(2),
        height: height.toFixed(2),
      });
    }),
  );
}

/** How much of something is used, 0 to 1. */
export function meter(share, label) {
  const part = Math.min(1, Math.max(0, share));
  return h(
    "div",
    { class: `meter ${part > 0.9 ? "full" : part > 0.5 ? "high" : ""}`, role: "img", "aria-label": label },
    h("div", { style: { width: `${(part * 100).toFixed(1)}%` } }),
  );
}
