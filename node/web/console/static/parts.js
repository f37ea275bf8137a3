// Parts that several views share.

import { h } from "./dom.js";
import { short } from "./format.js";

/** A node: its name, or the beginning of its ID with the whole ID as the tooltip. */
export function who({ id, name, place }) {
  if (name) return h("span", { class: "who", title: id }, h("strong", {}, name), " ", h("code", { class: "dim" }, short(id)));
  return id ? h("code", { class: "who", title: id }, short(id)) : h("span", { class: "who" }, place ?? "unknown");
}

export function chip(text, kind = "") {
  return h("span", { class: `chip ${kind}` }, text);
}

/** A heading with related elements next to it. */
export function heading(title, ...beside) {
  return h("header", { class: "heading" }, h("h1", { id: "title", tabindex: "-1" }, title), h("div", { class: "beside" }, beside));
}

export function card(title, ...body) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), body);
}

/** Facts as pairs. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value === "" || value === null ? "–" : value))),
  );
}

/** The names of a path's nodes, from `names`. */
export function wayOf(path, names) {
  return h(
    "ol",
    { class: "way" },
    path.map((id) => h("li", {}, who({ id, name: names.get(id) }))),
  );
}

/** The names of visible nodes, by ID. */
export function namesIn(view) {
  const names = new Map();
  if (view.node.name) names.set(view.node.id, view.node.name);
  for (const one of [...view.peers.rows, ...(view.federation?.servers ?? [])]) if (one.id && one.name) names.set(one.id, one.name);
  return names;
}
