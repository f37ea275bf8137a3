// Small SVG charts with axes: a line over the last minutes, and a histogram.

import { h } from "./dom.js";
import { lasted } from "./format.js";
import { LEAST } from "./numbers.js";

const WIDTH = 160;
const HEIGHT = 36;

/**
 * A line over the last minutes with its axes: the highest value and 0 at the left, the time range of `seconds` below.
 * `label` names what it shows; `show` formats a value.
 */
export function timeChart(series, label, show, seconds) {
  const known = series.filter((one) => one !== null);
  const highest = known.length > 0 ? Math.max(...known) : 0;
  const range = lasted(seconds);
  return h(
    "figure",
    { class: "chart", role: "img", "aria-label": `${label} over the last ${range}, at most ${show(highest)}` },
    h("div", { class: "y", "aria-hidden": "true" }, h("span", {}, show(highest)), h("span", {}, "0")),
    line(series, highest),
    h("div", { class: "x", "aria-hidden": "true" }, h("span", {}, `${range} ago`), h("span", {}, "now")),
  );
}

function line(series, highest) {
  const most = Math.max(highest, 1e-9);
  const step = WIDTH / Math.max(series.length - 1, LEAST - 1);
  const start = WIDTH - step * (series.length - 1);
  const points = series.map((one, index) => [start + index * step, HEIGHT - 2 - (one / most) * (HEIGHT - 5)]);
  const drawn = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const area = points.length > 1 ? `M${points[0][0].toFixed(1)} ${HEIGHT}L${drawn.replaceAll(" ", "L").replaceAll(",", " ")}L${WIDTH} ${HEIGHT}Z` : "";
  return h(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "area", d: area }),
    h("polyline", { class: "line", points: drawn, "vector-effect": "non-scaling-stroke" }),
  );
}

/** The buckets of a histogram, with the bounds of the first and the last bucket below; `show` formats a bound. */
export function bars({ bounds, counts }, label, show) {
  const most = Math.max(...counts, 1);
  const width = 100 / counts.length;
  return h(
    "figure",
    { class: "histogram-chart", role: "img", "aria-label": label },
    h(
      "svg",
      { class: "bars", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
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
    ),
    h("div", { class: "x", "aria-hidden": "true" }, h("span", {}, `≤ ${show(bounds[0])}`), h("span", {}, `> ${show(bounds.at(-1))}`)),
  );
}

/** A bar for the used part of something, 0 to 1. */
export function meter(share, label) {
  const part = Math.min(1, Math.max(0, share));
  return h(
    "div",
    { class: `meter ${part > 0.9 ? "full" : part > 0.5 ? "high" : ""}`, role: "img", "aria-label": label },
    h("div", { style: { width: `${(part * 100).toFixed(1)}%` } }),
  );
}
