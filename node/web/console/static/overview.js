// The overview: the node's state, its traffic, and its identity.

import { actionButton, act, notice } from "./dialogs.js";
import { timeChart } from "./charts.js";
import { h } from "./dom.js";
import { brief, bytesPerSecond, count, counted, lasted } from "./format.js";
import { card, chip, facts, heading } from "./parts.js";
import { state } from "./state.js";

const perSecond = (number) => `${brief(number)}/s`;
const percent = (number) => `${brief(number * 100)} %`;

export function overviewView(view) {
  const attention = concerns(view);
  return [
    heading("Overview", verdict(view, attention)),
    h("div", { class: "tiles" }, tiles(view)),
    attention.length > 0 && card("Issues", h("ul", { class: "concerns" }, attention.map(concern))),
    h("div", { class: "columns" }, thisNode(view), addresses(view)),
  ];
}

/** The state of the node in a few words: its issues, then the notes of `parley doctor`. */
function verdict(view, attention) {
  if (attention.length > 0) return chip(counted(attention.length, "issue"), attention[0].kind);
  if (!view.findings) return chip("no issues; findings are being checked", "info");
  const notes = view.findings.filter((one) => one.level === "note").length;
  return notes > 0 ? chip(`no issues, ${counted(notes, "note")} in the findings`, "info") : chip("no issues", "good");
}

function tiles(view) {
  const { past } = state;
  const flow = (title, name, show, page) => tile(title, show(past.rate(name)), past.rates(name), page, show);
  return [
    tile("Peers", count(view.peers.total), past.levels("peers"), "peers", count, `${counted(view.peers.streams, "stream")} open`),
    flow("Calls", "calls_received", perSecond, "calls"),
    flow("Notes delivered", "notes_delivered", perSecond, "topics"),
    flow("Bytes in", "received", bytesPerSecond, "numbers"),
    flow("Bytes out", "sent", bytesPerSecond, "numbers"),
    flow("CPU", "loop_processor", percent, "numbers"),
  ];
}

function tile(title, text, series, page, show, more) {
  return h(
    "a",
    { class: "tile", key: title, href: `#${page}`, "aria-label": `${title}: ${text}` },
    h("span", { class: "title" }, title),
    h("span", { class: "figure" }, text),
    h("span", { class: "more" }, more ?? ""),
    timeChart(series, title, show, state.past.range()),
  );
}

/** The issues for an operator, the worst first: {kind, text, page}. */
export function concerns(view) {
  const found = [];
  const say = (kind, page, text) => found.push({ kind, page, text });
  if (view.node.draining) say("warn", "overview", "The node drains: it accepts nothing new, and stops when all work is done.");
  if (view.journal?.failed) say("bad", "journal", `The journal has failed: ${view.journal.failed}`);
  for (const bus of view.buses) {
    if (bus.error) say("bad", "buses", `The bus ${bus.address} does not respond: ${bus.error}`);
    if (bus.dead > 0) say("warn", "buses", `${counted(bus.dead, "dead letter")} on ${bus.address}`);
  }
  for (const link of view.federation?.links ?? []) {
    if (!link.up) say("bad", "federation", `The link with ${link.id.slice(0, 8)}… is down${link.error ? `: ${link.error}` : ""}`);
  }
  const wrong = (view.federation?.wrong ?? []).filter((one) => one.kind !== "link-down");
  if (wrong.length > 0) say("warn", "federation", `${counted(wrong.length, "problem")} in the federation`);
  for (const one of view.findings ?? []) {
    if (one.level === "problem" || one.level === "weak") say(one.level === "weak" ? "warn" : "bad", "findings", `${one.subject}: ${one.text}`);
  }
  if (view.peers.suspended > 0) say("warn", "peers", `${counted(view.peers.suspended, "session is", "sessions are")} suspended, without a transport`);
  return found.sort((one, other) => (one.kind < other.kind ? -1 : one.kind > other.kind ? 1 : 0)); // bad, then warn
}

function concern({ kind, page, text }, index) {
  return h("li", { key: `${index} ${text}`, class: kind }, h("a", { href: `#${page}` }, text));
}

function thisNode(view) {
  const { node } = view;
  return card(
    "This node",
    facts([
      ["Node ID", h("span", { class: "copied" }, h("code", { class: "whole" }, node.id), copyButton(node.id, "Copy the node ID"))],
      node.name && ["Name", node.name],
      ["Role", node.role],
      ["Trust policy", node.trust],
      ["Version", `${node.version} on Python ${node.python}`],
      ["Uptime", lasted(node.uptime)],
      ["Rejected connections", count(node.turned_away)],
    ]),
    node.can_drain && h("div", { class: "buttons" }, actionButton("Drain and stop", drain, { grave: true })),
  );
}

function addresses(view) {
  const { addresses: all } = view.node;
  return card(
    "Listening addresses",
    all.length === 0
      ? h("p", { class: "empty small" }, "This node does not listen. To let others connect, start it with ", h("code", {}, "parley serve --listen ADDR"), ".")
      : h("ul", { class: "addresses" }, all.map((one) => h("li", { key: one }, h("code", {}, one), copyButton(one, "Copy this address")))),
  );
}

function copyButton(text, label) {
  const click = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notice("Copied", "good");
    } catch {
      notice("The browser refused to copy it", "bad");
    }
  };
  return h("button", { type: "button", class: "copy", "aria-label": label, title: label, on: { click } }, "Copy");
}

function drain() {
  return act("drain", {}, {
    title: "Drain and stop this node?",
    text: "It accepts no more connections, finishes running work, closes its connections, and its process ends. This page then stops working.",
    button: "Drain and stop",
  });
}
