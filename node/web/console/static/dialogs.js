// Dialogs, notices, and actions with their questions and results.

import { h, show } from "./dom.js";
import { asked, mayAct } from "./session.js";
import { redraw } from "./state.js";

const NOTICE = 6000; // ms that a notice stays
let panel = null; // {dialog, draw}: what looks at one thing

/** Open a panel on one object: `draw()` returns {title, body}, or null when the object no longer exists. */
export function openPanel(draw) {
  closePanel();
  const dialog = document.createElement("dialog");
  dialog.className = "panel";
  dialog.setAttribute("aria-labelledby", "panel-title");
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (panel?.dialog === dialog) panel = null;
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  document.body.append(dialog);
  panel = { dialog, draw };
  drawPanel();
  dialog.showModal();
}

export function closePanel() {
  panel?.dialog.close();
}

/** Redraw the open panel. */
export function drawPanel() {
  if (!panel) return;
  const { title, body } = panel.draw();
  const close = () => closePanel();
  show(panel.dialog, [
    h(
      "div",
      { class: "inside" },
      h("header", {}, h("h2", { id: "panel-title" }, title), h("button", { type: "button", class: "close", "aria-label": "Close", on: { click: close } }, "×")),
      h("div", { class: "body" }, body),
    ),
  ]);
}

/** Ask a question; resolve to whether the user pressed its button. */
export function confirmed({ title, text, button }) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.className = "question";
    dialog.setAttribute("role", "alertdialog");
    dialog.setAttribute("aria-labelledby", "question-title");
    dialog.setAttribute("aria-describedby", "question-text");
    const end = (answer) => () => {
      resolve(answer);
      dialog.close();
    };
    dialog.addEventListener("close", () => {
      resolve(false);
      dialog.remove();
    });
    show(dialog, [
      h("h2", { id: "question-title" }, title),
      h("p", { id: "question-text" }, text),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", autofocus: true, on: { click: end(false) } }, "Cancel"),
        h("button", { type: "button", class: "danger", on: { click: end(true) } }, button),
      ),
    ]);
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Show a notice at the edge of the page; `kind` is good or bad. */
export function notice(text, kind) {
  const place = document.getElementById("notices");
  const one = document.createElement("p");
  one.className = kind;
  one.textContent = text[0].toUpperCase() + text.slice(1);
  place.append(one);
  place.hidePopover?.(); // so that it comes to stand above a dialog that was opened since
  place.showPopover?.();
  while (place.children.length > 4) place.firstChild.remove();
  setTimeout(() => one.remove(), NOTICE);
}

/** Run an action after a question and show its result; resolve to whether it succeeded. */
export async function act(name, said, question) {
  if (!(await confirmed(question))) return false;
  try {
    const { done } = await asked(`/api/do/${name}`, said);
    notice(done, "good");
    return true;
  } catch (error) {
    notice(error.message, "bad");
    return false;
  } finally {
    redraw();
  }
}

/** A button for an action. In a read-only session it is disabled and says why. */
export function actionButton(text, click, { label, grave = false } = {}) {
  const allowed = mayAct();
  return h(
    "button",
    {
      type: "button",
      class: grave ? "action grave" : "action",
      disabled: !allowed,
      "aria-label": label ?? text,
      title: allowed ? null : "This session is read-only: open a link from `parley console --act` to act",
      on: { click },
    },
    text,
  );
}
