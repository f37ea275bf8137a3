// The first look: whether all is well, what goes on, and which node this is.

import { actionButton, act, notice } from "./dialogs.js";
import { sparkline } from "./charts.js";
import { h } from "./dom.js";
import { brief, bytesPerSecond, count, counted, lasted } from "./format.js";
import { card, chip, facts, heading } from "./parts.js";
import { state } from "./state.js";

const perSecond = (number) => `${brief(number)}/s`;
const percent = (number) => `${brief(number * 100)} %`;

export function overviewView(view) {
  const attention = concerns(view);
  return [
    heading("Overview", attention.length === 0 ? chip("all is well", "good") : chip(counted(attention.length, "thing to look at", "things to look at"), "warn")),
    h("div", { class: "tiles" }, tiles(view)),
    attention.length > 0 && card("To look at", h("ul", { class: "concerns" }, attention.map(concern))),
    h("div", { class: "columns" }, thisNode(view), addresses(view)),
  ];
}

function tiles(view) {
  const { past } = state;
  const flow = (title, name, show, page) => tile(title, show(past.rate(name)), past.rates(name), page);
  return [
    tile("Peers", count(view.peers.total), past.levels("peers"), "peers", `${counted(view.peers.streams, "stream")} open`),
    flow("Calls answered", "calls_received", perSecond, "calls"),
    flow("Notes handed on", "notes_delivered", perSecond, "topics"),
    flow("Bytes in", "received", bytesPerSecond, "numbers"),
    flow("Bytes out", "sent", bytesPerSecond, "numbers"),
    flow("Processor", "loop_processor", percent, "numbers"),
  ];
}

function tile(title, text, series, page, more) {
  return h(
    "a",
    { class: "tile", key: title, href: `#${page}`, "aria-label": `${title}: ${text}` },
    h("span", { class: "title" }, title),
    h("span", { class: "figure" }, text),
    h("span", { class: "more" }, more ?? ""),
    sparkline(series, `${title} over the last three minutes`),
  );
}

/** What an operator should look at, the worst first: {kind, text, page}. */
export function concerns(view) {
  const found = [];
  const say = (kind, page, text) => found.push({ kind, page, text });
  if (view.node.draining) say("warn", "overview", "The node drains: it takes nothing new, and ends when all is done.");
  if (view.journal?.failed) say("bad", "journal", `The journal has failed: ${view.journal.failed}`);
  for (const bus of view.buses) {
    if (bus.error) say("bad", "buses", `The bus ${bus.address} cannot be asked: ${bus.error}`);
    if (bus.dead > 0) say("warn", "buses", `${counted(bus.dead, "dead letter")} on ${bus.address}`);
  }
  for (const link of view.federation?.links ?? []) {
    if (!link.up) say("bad", "federation", `The link with ${link.id.slice(0, 8)}… is down${link.error ? `: ${link.error}` : ""}`);
  }
  const wrong = (view.federation?.wrong ?? []).filter((one) => one.kind !== "link-down");
  if (wrong.length > 0) say("warn", "federation", `${counted(wrong.length, "thing is", "things are")} wrong in the federation`);
  const problems = (view.findings ?? []).filter((one) => one.level === "problem");
  for (const one of problems) say("bad", "findings", `${one.subject}: ${one.text}`);
  if (view.peers.parted > 0) say("warn", "peers", `${counted(view.peers.parted, "session is", "sessions are")} without a transport`);
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
      ["Node id", h("span", { class: "copied" }, h("code", { class: "whole" }, node.id), copyButton(node.id, "Copy the node id"))],
      node.name && ["Called", node.name],
      ["Role", node.role],
      ["Lets in", node.trust],
      ["Version", `${node.version} on Python ${node.python}`],
      ["Watched for", lasted(node.uptime)],
      ["Turned away", counted(node.turned_away, "connection")],
    ]),
    node.can_drain && h("div", { class: "buttons" }, actionButton("Drain and end", drain, { grave: true })),
  );
}

function addresses(view) {
  const { addresses: all } = view.node;
  return card(
    "It listens on",
    all.length === 0
      ? h("p", { class: "empty small" }, "It listens nowhere.")
      : h("ul", { class: "addresses" }, all.map((one) => h("li", { key: one }, h("code", {}, one), copyButton(one, "Copy this address")))),
  );
}

function copyButton(text, label) {
  const click = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notice("Copied", "good");
    } catch {
      notice("The browser did not let it be copied", "bad");
    }
  };
  return h("button", { type: "button", class: "copy", "aria-label": label, title: label, on: { click } }, "Copy");
}

function drain() {
  return act("drain", {}, {
    title: "Drain this node and end it?",
    text: "It takes no more connections, lets what runs finish, says goodbye to its peers, and its process ends. This page ends with it.",
    button: "Drain and end",
  });
}
