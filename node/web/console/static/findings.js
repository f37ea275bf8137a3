// The findings of `parley doctor` on this machine, and the problems of the federation.

import { notice } from "./dialogs.js";
import { h } from "./dom.js";
import { chip, heading } from "./parts.js";
import { asked } from "./session.js";

const LEVELS = ["problem", "weak", "note", "ok"];
const KINDS = { problem: "bad", weak: "warn", note: "info", ok: "good" };

export function findingsView(view) {
  const again = h("button", { type: "button", on: { click: lookAgain } }, "Check again");
  const found = view.findings && [...view.findings].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
  const wrong = view.federation?.wrong ?? [];
  return [
    heading("Findings", again),
    wrong.map((one) => finding({ level: "problem", subject: "federation", text: one.text, mend: "" })),
    !found && h("p", { class: "empty" }, "The checks of `parley doctor` are running…"),
    found?.length === 0 && wrong.length === 0 && h("p", { class: "empty" }, "No findings: all checks of `parley doctor` passed."),
    found?.map(finding),
  ];
}

function finding({ level, subject, text, mend }) {
  return h(
    "article",
    { class: `finding ${KINDS[level]}`, key: `${level} ${subject} ${text}` },
    chip(level, KINDS[level]),
    h("div", {}, h("h2", {}, subject), h("p", {}, text), mend && h("p", { class: "mend" }, "→ ", mend)),
  );
}

async function lookAgain() {
  try {
    await asked("/api/look", {});
    notice("Checking again", "good");
  } catch (error) {
    notice(error.message, "bad");
  }
}
