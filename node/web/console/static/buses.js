// Durable buses: streams, groups and their lag, and dead letters, which can be inspected, replayed or dropped.

import { act, actionButton, drawPanel, openPanel } from "./dialogs.js";
import { h } from "./dom.js";
import { bytes, count, counted, when } from "./format.js";
import { chip, facts, heading } from "./parts.js";
import { asked } from "./session.js";

export function busesView(view) {
  if (view.buses.length === 0) {
    return [
      heading("Buses"),
      h("p", { class: "empty" }, "This node has no durable bus. To offer one: ", h("code", {}, "parley serve --bus sqlite:///FILE"), "."),
    ];
  }
  const dead = view.buses.reduce((sum, bus) => sum + bus.dead, 0);
  return [heading("Buses", dead > 0 && chip(counted(dead, "dead letter"), "warn")), view.buses.map(busCard)];
}

function busCard(bus) {
  const { counters } = bus;
  const done = ["published", "delivered", "acknowledged", "failed", "retried"].map((name) => `${count(counters[name])} ${name}`);
  return h(
    "section",
    { class: "card bus", key: bus.address, "aria-label": bus.address },
    h("h2", {}, h("code", {}, bus.address)),
    bus.error && h("p", { class: "alarm", role: "alert" }, bus.error),
    h("p", { class: "dim" }, "By this process and its peers: ", done.join(", "), "."),
    bus.total > bus.streams.length && !bus.error && h("p", { class: "note" }, `The first ${bus.streams.length} of ${bus.total} streams are listed.`),
    bus.streams.length === 0 && !bus.error && h("p", { class: "empty small" }, "No events published yet. To publish one: ", h("code", {}, `parley bus publish ${bus.address} STREAM JSON`), "."),
    bus.streams.map((stream) => streamPart(bus, stream)),
  );
}

function streamPart(bus, stream) {
  const look = () => openLetters(bus.address, stream.name);
  return h(
    "div",
    { class: "stream", key: stream.name },
    h(
      "header",
      {},
      h("h3", {}, h("code", {}, stream.name)),
      h("span", { class: "dim" }, `${counted(stream.length, "event")}, ${bytes(stream.size)}`),
      stream.dead > 0 && h("button", { type: "button", class: "letters", "aria-label": `Show ${counted(stream.dead, "dead letter")} of ${stream.name}`, on: { click: look } }, counted(stream.dead, "dead letter")),
    ),
    stream.groups.length === 0
      ? h("p", { class: "empty small" }, "No consumer group. To consume it: ", h("code", {}, `parley bus consume ${bus.address} ${stream.name} --group NAME`), ".")
      : h(
          "div",
          { class: "scroll", role: "region", "aria-label": `Groups of ${stream.name}`, tabindex: "0" },
          h(
            "table",
            { "aria-label": `Groups of ${stream.name}` },
            h("thead", {}, h("tr", {}, ["Group", "Lag", "Pending", "Redelivered", "Dead letters", "Consumers"].map((title, index) => h("th", { scope: "col", class: index ? "number" : "" }, title)))),
            h("tbody", {}, stream.groups.map(groupRow)),
          ),
        ),
  );
}

function groupRow(group) {
  const cells = [
    ["Lag", group.lag === null ? "unknown" : group.lag > 0 ? chip(count(group.lag), group.lag > 100 ? "warn" : "info") : "0"],
    ["Pending", count(group.pending)],
    ["Redelivered", count(group.redelivered)],
    ["Dead letters", group.dead_lettered ? chip(count(group.dead_lettered), "warn") : "0"],
    ["Consumers", group.consumers ? count(group.consumers) : chip("none", "warn")],
  ];
  return h(
    "tr",
    { key: group.name },
    h("td", { "data-title": "Group" }, h("div", {}, h("code", { class: "name" }, group.name))),
    cells.map(([title, shown]) => h("td", { class: "number", "data-title": title }, h("div", {}, shown))),
  );
}

/** Open a panel with the dead letters of a stream. */
function openLetters(bus, stream) {
  const chosen = new Set();
  let letters = null;
  let more = false;
  let failed = "";

  async function load(after) {
    const place = new URLSearchParams({ bus, stream, ...(after ? { after } : {}) });
    try {
      const page = await asked(`/api/letters?${place}`);
      letters = after ? [...letters, ...page.letters] : page.letters;
      more = page.more;
      failed = "";
    } catch (error) {
      failed = error.message;
    }
    drawPanel();
  }

  async function settle(action, all) {
    const which = all ? "all dead letters" : counted(chosen.size, "dead letter");
    const question =
      action === "replay"
        ? { title: `Replay ${which}?`, text: `Each letter returns to the group of ${stream} in which it failed, with its attempts reset.`, button: "Replay" }
        : { title: `Drop ${which}?`, text: `The letters, and the events of ${stream} in them, are deleted permanently.`, button: "Drop" };
    const done = await act(action, { bus, stream, letters: all ? "all" : [...chosen] }, question);
    if (done) {
      chosen.clear();
      await load();
    }
  }

  function listed() {
    return [
      letters.length === 0 && !failed && h("p", { class: "empty" }, "No dead letters."),
      letters.map((one) => letterPart(one, chosen, choose)),
      more && h("button", { type: "button", on: { click: () => load(letters.at(-1).id) } }, "More"),
      letters.length > 0 &&
        h(
          "div",
          { class: "buttons sticky" },
          h("span", { class: "dim" }, chosen.size ? `${count(chosen.size)} selected` : "None selected: the buttons apply to all"),
          actionButton(chosen.size ? "Replay selected" : "Replay all", () => settle("replay", chosen.size === 0)),
          actionButton(chosen.size ? "Drop selected" : "Drop all", () => settle("drop", chosen.size === 0), { grave: true }),
        ),
    ];
  }

  function choose(id) {
    if (!chosen.delete(id)) chosen.add(id);
    drawPanel();
  }

  openPanel(() => ({
    title: ["Dead letters of ", h("code", {}, stream)],
    body: [
      failed && h("p", { class: "alarm", role: "alert" }, `Cannot fetch the dead letters: ${failed}`),
      failed && h("button", { type: "button", on: { click: () => load() } }, "Try again"),
      !failed && !letters && h("p", { class: "empty" }, "Loading…"),
      letters && listed(),
    ],
  }));
  load();
}

function letterPart(letter, chosen, choose) {
  const last = letter.history.at(-1);
  return h(
    "article",
    { class: "letter", key: letter.id },
    h(
      "header",
      {},
      h("input", { type: "checkbox", id: `letter-${letter.id}`, checked: chosen.has(letter.id), "aria-label": `Select letter ${letter.id}`, on: { change: () => choose(letter.id) } }),
      h("label", { for: `letter-${letter.id}` }, h("code", {}, letter.event_id || letter.id)),
      chip(letter.group || "no group"),
      h("span", { class: "dim" }, counted(letter.attempts, "attempt")),
    ),
    last && h("p", { class: "why" }, last.error),
    h(
      "details",
      {},
      h("summary", {}, "The event and its attempts"),
      h("pre", { tabindex: "0", role: "region", "aria-label": "The event's data" }, pretty(letter.body)),
      facts(letter.history.map((one) => [`Attempt ${one.attempt}, ${when(one.at)}`, [one.consumer && h("code", {}, one.consumer), " ", one.error]])),
    ),
  );
}

function pretty(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
