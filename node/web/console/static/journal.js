// The journal: whether it is being written, how fast, and how much waits for the disk.

import { meter, timeChart } from "./charts.js";
import { h } from "./dom.js";
import { brief, bytes, count, counted } from "./format.js";
import { card, chip, facts, heading } from "./parts.js";
import { state } from "./state.js";

export function journalView({ journal }) {
  if (!journal) {
    return [
      heading("Journal"),
      h("p", { class: "empty" }, "This node does not keep a journal. To keep one: ", h("code", {}, "parley serve --journal DIR --auditor KEY"), "."),
    ];
  }
  const { past } = state;
  const synced = { always: "before anything is sent", interval: `every ${brief(journal.fsync_interval)} s`, never: "when the system decides" }[journal.fsync];
  return [
    heading("Journal", journal.failed ? chip("failed", "bad") : journal.running ? chip("writing", "good") : chip("not writing", "warn")),
    journal.failed && h("p", { class: "alarm", role: "alert" }, journal.failed, journal.on_failure === "stop" ? " The node stops." : " The node continues without it."),
    h(
      "div",
      { class: "columns" },
      card(
        "This run",
        facts([
          ["Records", `${count(journal.records)}, ${brief(past.rate("journal_records"))}/s`],
          ["Written", `${bytes(journal.size)}, ${bytes(past.rate("journal_written"))}/s`],
          ["Sessions recorded", count(journal.sessions)],
          ["Segments", counted(journal.segments, "finished segment")],
          ["Write buffer", h("span", {}, `${bytes(journal.waiting)} of ${bytes(journal.buffer_size)}`, meter(journal.waiting / journal.buffer_size, "Used part of the buffer"))],
        ]),
        timeChart(past.rates("journal_records"), "Records per second", (one) => `${brief(one)}/s`, past.range()),
      ),
      card(
        "Settings",
        facts([
          ["Directory", h("code", { class: "whole" }, journal.directory)],
          ["Segment", journal.segment ? h("code", { class: "whole" }, journal.segment) : "–"],
          ["Segment size", bytes(journal.segment_size)],
          ["fsync", synced],
          ["On failure", journal.on_failure === "stop" ? "the node stops" : "the node continues and logs it"],
          ["Auditors", h("ul", { class: "plain" }, journal.auditors.map((key) => h("li", { key }, h("code", { class: "whole" }, key))))],
        ]),
      ),
    ),
    journal.recovered.length > 0 && card("Closed after a crash", h("ul", { class: "listed" }, journal.recovered.map(recovered))),
  ];
}

function recovered(one) {
  const damaged = one.damaged ? `, ${count(one.damaged)} damaged` : "";
  return h("li", { key: one.name }, h("code", {}, one.name), h("span", { class: "dim" }, `${counted(one.records, "record")}${damaged}`));
}
