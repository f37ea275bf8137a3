// The state of the page, and redrawing it.

import { Past } from "./numbers.js";

export const state = {
  view: null, // the last that came
  past: new Past(),
  status: "connecting", // or live, lost, over
  why: "", // of lost and over
  found: null, // peers that were searched for where not all are listed: {find, peers}
};

let draw = () => {};

/** Set the function that draws the page. */
export function drawnBy(what) {
  draw = what;
}

/** Redraw the page with the browser's next frame, once for any number of calls. */
export function redraw() {
  if (redraw.due) return;
  redraw.due = true;
  requestAnimationFrame(() => {
    redraw.due = false;
    draw();
  });
}
