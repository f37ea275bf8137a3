// What the page knows, and how it is drawn anew.

import { Past } from "./numbers.js";

export const state = {
  view: null, // the last that came
  past: new Past(),
  status: "connecting", // or live, lost, over
  why: "", // of lost and over
  found: null, // peers that were searched for where not all are listed: {find, peers}
};

let draw = () => {};

/** Have `what` draw the page. */
export function drawnBy(what) {
  draw = what;
}

/** Draw it anew with the browser's next frame, however often this is called before. */
export function redraw() {
  if (redraw.due) return;
  redraw.due = true;
  requestAnimationFrame(() => {
    redraw.due = false;
    draw();
  });
}
