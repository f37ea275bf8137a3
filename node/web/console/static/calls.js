// Calls by topic: their number, results and latency.

import { bars } from "./charts.js";
import { h } from "./dom.js";
import { brief, count, took } from "./format.js";
import { chip, heading } from "./parts.js";
import { family, quantile } from "./numbers.js";
import { state } from "./state.js";
import { table } from "./table.js";

export function callsView(view) {
  const rows = topicsOf(view);
  const refused = family(view, "requests_refused")?.samples ?? [];
  return [
    heading("Calls", chip(`${brief(state.past.rate("calls_received"))}/s`), view.peers.running > 0 && chip(`${count(view.peers.running)} running`, "info")),
    table({
      id: "calls",
      label: "Calls by topic",
      word: "topic",
      rows,
      keyOf: (row) => row.topic,
      text: (row) => row.topic,
      empty: [
        "No calls received yet. A program answers calls with ",
        h("code", {}, '@node.on_call("NAME")'),
        ". To call this node: ",
        h("code", {}, "parley call ADDR NAME"),
        ".",
      ],
      columns: [
        { title: "Topic", value: (row) => row.topic, cell: (row) => h("code", { class: "name" }, row.topic) },
        { title: "Rate", number: true, value: (row) => row.rate, cell: (row) => `${brief(row.rate)}/s` },
        { title: "Total", number: true, value: (row) => row.total },
        { title: "Results", value: (row) => row.failed, cell: answers },
        { title: "p50", number: true, value: (row) => row.median ?? -1, cell: (row) => took(row.median) },
        { title: "p95", number: true, value: (row) => row.slow ?? -1, cell: (row) => took(row.slow) },
        { title: "Latency", cell: (row) => row.times && bars(row.times, `Latency of ${row.topic}: p50 ${took(row.median)}, p95 ${took(row.slow)}`, took) },
      ],
    }),
    refused.some((one) => one.value > 0) &&
      h("p", { class: "note" }, "Refused before a handler ran: ", refused.filter((one) => one.value > 0).map((one) => `${one.labels.join(" ")} ${count(one.value)}`).join(", "), "."),
  ];
}

function topicsOf(view) {
  const topics = new Map();
  for (const { labels, value } of family(view, "calls_received")?.samples ?? []) {
    const [topic, code] = labels;
    if (!topics.has(topic)) topics.set(topic, { topic, codes: [], total: 0, failed: 0, rate: 0, median: null, slow: null, times: null });
    const row = topics.get(topic);
    row.codes.push([code, value]);
    row.total += value;
    row.rate += state.past.rate(`calls_received{${labels.join(",")}}`);
    if (!accepted(code)) row.failed += value;
  }
  for (const { labels, ...times } of family(view, "call_received")?.samples ?? []) {
    const row = topics.get(labels[0]);
    if (row) Object.assign(row, { times, median: quantile(times, 0.5), slow: quantile(times, 0.95) });
  }
  return [...topics.values()].filter((row) => row.total > 0).sort((a, b) => b.total - a.total);
}

function accepted(code) {
  return code === "accepted" || code === "0";
}

function answers(row) {
  const codes = row.codes.filter(([, value]) => value > 0);
  return h("span", { class: "chips" }, codes.map(([code, value]) => chip(`${code} ${count(value)}`, accepted(code) ? "good" : "warn")));
}
