// Topics that the node publishes: their subscribers, rates, queues and losses.

import { meter } from "./charts.js";
import { h } from "./dom.js";
import { brief, bytes, count, counted } from "./format.js";
import { chip, heading } from "./parts.js";
import { state } from "./state.js";
import { table } from "./table.js";

export function topicsView(view) {
  const { topics } = view;
  const rate = (row) => state.past.rate(`notes_published{${row.name}}`);
  const most = Math.max(1, ...topics.rows.map((row) => row.waiting));
  return [
    heading("Topics", chip(`${brief(state.past.rate("notes_published"))} notes/s published`)),
    topics.total > topics.rows.length && h("p", { class: "note" }, `The first ${topics.rows.length} of ${topics.total} are listed.`),
    table({
      id: "topics",
      label: "Topics",
      word: "topic",
      rows: topics.rows,
      keyOf: (row) => row.name,
      text: (row) => row.name,
      empty: [
        "This node publishes no topics. A program creates one with ",
        h("code", {}, 'node.topic("NAME")'),
        "; to publish from the command line: ",
        h("code", {}, "parley pub NAME"),
        ".",
      ],
      columns: [
        { title: "Topic", value: (row) => row.name, cell: (row) => h("code", { class: "name" }, row.name) },
        { title: "Subscribers", number: true, value: (row) => row.subscribers },
        { title: "Rate", number: true, value: rate, cell: (row) => `${brief(rate(row))}/s` },
        { title: "Queued", number: true, value: (row) => row.waiting, cell: (row) => [bytes(row.waiting), row.waiting > 0 && meter(row.waiting / most, `${bytes(row.waiting)} queued`)] },
        { title: "Retained", number: true, value: (row) => row.kept, cell: (row) => (row.kept ? `${counted(row.kept, "note")}, ${bytes(row.kept_bytes)}` : "–") },
        { title: "Backlog", number: true, value: (row) => row.behind },
        { title: "Dropped", number: true, value: (row) => row.dropped, cell: (row) => (row.dropped ? chip(count(row.dropped), "warn") : "0") },
      ],
    }),
  ];
}
