// All metrics of the node, by their names in Prometheus and OpenTelemetry.

import { bars } from "./charts.js";
import { h } from "./dom.js";
import { brief, bytes, count, took } from "./format.js";
import { heading } from "./parts.js";
import { quantile } from "./numbers.js";
import { state } from "./state.js";
import { table } from "./table.js";

export function numbersView(view) {
  const rows = view.numbers.flatMap((one) =>
    one.samples.map((sample) => ({ ...one, ...sample, key: `${one.name}{${sample.labels.join(",")}}`, words: one.labels.map((name, index) => `${name}=${sample.labels[index]}`).join(" ") })),
  );
  return [
    heading("Metrics"),
    h("p", { class: "note" }, "All metrics of this node. ", h("code", {}, "parley serve --metrics ADDR"), " exposes them to Prometheus."),
    table({
      id: "numbers",
      label: "Metrics",
      word: "metric",
      rows,
      keyOf: (row) => row.key,
      text: (row) => `${row.name} ${row.words} ${row.help}`,
      empty: "No metrics yet: they appear with the first connection.",
      columns: [
        { title: "Name", value: (row) => row.name, cell: (row) => h("span", {}, h("code", { class: "name" }, row.name), row.words && h("span", { class: "dim" }, ` ${row.words}`)) },
        { title: "Value", number: true, value: valueOf, cell: shown },
        { title: "Rate", number: true, value: rateOf, cell: (row) => (row.kind === "gauge" ? "–" : perSecond(row)) },
        { title: "Description", value: (row) => row.help },
      ],
    }),
  ];
}

function nameOf(row) {
  return row.labels.length ? row.key : row.name;
}

function valueOf(row) {
  return row.counts ? row.counts.reduce((sum, one) => sum + one, 0) : row.value;
}

function rateOf(row) {
  return row.kind === "gauge" ? 0 : state.past.rate(nameOf(row));
}

function perSecond(row) {
  const rate = rateOf(row);
  if (row.counts || row.unit === "") return brief(rate);
  return row.unit === "bytes" ? bytes(rate) : took(rate);
}

function shown(row) {
  if (row.counts) return h("span", { class: "histogram" }, bars(row, `${row.help} p50 ${took(quantile(row, 0.5))}`, took), `${count(valueOf(row))}, p50 ${took(quantile(row, 0.5))}, p95 ${took(quantile(row, 0.95))}`);
  if (row.unit === "bytes") return bytes(row.value);
  return row.unit === "seconds" ? took(row.value) : brief(row.value);
}
