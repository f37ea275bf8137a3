// Tables that are searched, sorted and paged; on a phone each row is a card.

import { h } from "./dom.js";
import { count, counted } from "./format.js";
import { redraw } from "./state.js";

const PAGE = 50;
const FEW = 3; // rows among which nobody searches
const tables = new Map(); // by id: {search, column, down, page}

/** The search text and page of each table. */
export function searched(id) {
  return settings(id).search;
}

/**
 * `columns` have a title, `value(row)` to sort by and, if the display differs, `cell(row)`; `number`
 * columns are right-aligned. A search looks at `text(row)`; `total` also counts rows that are not listed.
 */
export function table({ id, label, word, columns, rows, keyOf, text, empty, total, onSearch }) {
  const set = settings(id);
  const wanted = set.search.toLowerCase();
  const fitting = wanted ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : [...rows];
  if (set.column !== null) sort(fitting, columns[set.column], set.down);
  const pages = Math.max(1, Math.ceil(fitting.length / PAGE));
  set.page = Math.min(set.page, pages - 1);
  const page = fitting.slice(set.page * PAGE, (set.page + 1) * PAGE);
  if (rows.length === 0 && !wanted) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: "tabled" },
    (rows.length > FEW || wanted) && h("div", { class: "tools" }, finder(id, set, label, onSearch), tally(rows, fitting, total, word)),
    h(
      "div",
      { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
      h(
        "table",
        { "aria-label": label },
        h("thead", {}, h("tr", {}, columns.map((column, index) => head(set, column, index)))),
        h("tbody", {}, page.map((row) => h("tr", { key: keyOf(row) }, columns.map((column) => cell(column, row))))),
      ),
    ),
    fitting.length === 0 && h("p", { class: "empty" }, `No rows match “${set.search}”.`),
    pages > 1 && pager(set, pages, label),
  );
}

function settings(id) {
  if (!tables.has(id)) tables.set(id, { search: "", column: null, down: false, page: 0 });
  return tables.get(id);
}

function finder(id, set, label, onSearch) {
  return h("input", {
    class: "find",
    type: "search",
    id: `find-${id}`,
    placeholder: "Search",
    "aria-label": `Search ${label}`,
    spellcheck: "false",
    maxlength: "200",
    value: set.search,
    on: {
      input: (event) => {
        set.search = event.target.value;
        set.page = 0;
        onSearch?.(set.search);
        redraw();
      },
    },
  });
}

function tally(rows, fitting, total, word) {
  const all = total ?? rows.length;
  const text = fitting.length === all ? counted(all, word) : `${count(fitting.length)} of ${counted(all, word)}`;
  return h("span", { class: "tally" }, text);
}

function head(set, column, index) {
  const active = set.column === index;
  const sorted = active ? (set.down ? "descending" : "ascending") : "none";
  const click = () => {
    // Numbers are sorted in descending order first, because the largest ones matter most.
    if (active && set.down === !column.number) set.column = null;
    else if (active) set.down = !set.down;
    else Object.assign(set, { column: index, down: Boolean(column.number) });
    redraw();
  };
  return h(
    "th",
    { scope: "col", class: column.number ? "number" : "", "aria-sort": sorted },
    column.value
      ? h("button", { type: "button", class: "sort", on: { click } }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }, active ? (set.down ? "↓" : "↑") : ""))
      : column.title,
  );
}

function cell(column, row) {
  const shown = column.cell ? column.cell(row) : column.value(row);
  const content = typeof shown === "number" ? count(shown) : shown;
  return h("td", { class: column.number ? "number" : "", "data-title": column.title }, h("div", {}, content === "" ? "–" : content));
}

function sort(rows, column, down) {
  const sign = down ? -1 : 1;
  rows.sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a ?? "").localeCompare(String(b ?? ""));
  });
}

function pager(set, pages, label) {
  const go = (page) => () => {
    set.page = page;
    redraw();
  };
  return h(
    "div",
    { class: "pager", role: "group", "aria-label": `Pages of ${label}` },
    h("button", { type: "button", disabled: set.page === 0, on: { click: go(set.page - 1) } }, "Previous"),
    h("span", {}, `Page ${set.page + 1} of ${pages}`),
    h("button", { type: "button", disabled: set.page === pages - 1, on: { click: go(set.page + 1) } }, "Next"),
  );
}
