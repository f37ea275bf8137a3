// The federation: the graph of its servers according to their cards, the paths of tunnels, and links.

import { h } from "./dom.js";
import { counted, short, when } from "./format.js";
import { HEIGHT, WIDTH, places } from "./graph.js";
import { card, chip, facts, heading, namesIn, wayOf, who } from "./parts.js";
import { redraw, state } from "./state.js";
import { table } from "./table.js";

const LABELLED = 40; // servers that have their names beside them; of more, the chosen ones alone
let chosen = null; // {kind: "server", id} or {kind: "way", path}

export function federationView(view) {
  const { federation } = view;
  if (!federation) {
    return [
      heading("Federation"),
      h("p", { class: "empty" }, "This node is not a federation server. To link it with one: ", h("code", {}, "parley serve --link ADDR"), "."),
    ];
  }
  const names = namesIn(view);
  const graph = graphOf(federation);
  const ways = waysOf(view);
  const path = pathOf(federation, ways);
  const tunnels = Math.max(ways.length, federation.tunnels); // not all are listed, and those we dialled are not counted
  return [
    heading("Federation", chip(counted(federation.servers.length + 1, "server")), chip(counted(tunnels, "tunnel"), tunnels ? "info" : "")),
    federation.wrong.length > 0 && card("Issues", h("ul", { class: "concerns" }, federation.wrong.map((one) => h("li", { class: "warn", key: one.text }, one.text)))),
    h("div", { class: "graphed" }, picture(graph, names, path), h("div", { class: "side" }, choice(federation, names, path), waysCard(ways, names))),
    links(federation, names),
    servers(federation, names),
  ];
}

/** {ids, edges: [{a, b, up}]}: a link is drawn once, as a solid line if both servers list it. */
function graphOf(federation) {
  const ids = new Set([federation.self]);
  const listed = new Map(); // "a b" in order: how many sides list it
  const say = (from, to) => {
    ids.add(from);
    ids.add(to);
    const [a, b] = from < to ? [from, to] : [to, from];
    const edge = listed.get(`${a} ${b}`) ?? { a, b, sides: new Set() };
    edge.sides.add(from);
    listed.set(`${a} ${b}`, edge);
  };
  for (const server of federation.servers) {
    ids.add(server.id);
    for (const other of Object.keys(server.links)) say(server.id, other);
  }
  for (const link of federation.links) {
    ids.add(link.id);
    if (link.up) say(federation.self, link.id);
  }
  const edges = [...listed.values()].map(({ a, b, sides }) => ({ a, b, whole: sides.size === 2 }));
  return { ids: [...ids], edges };
}

/** The known tunnels: those of this node's sessions, and those through this node. */
function waysOf(view) {
  const own = view.peers.rows.filter((row) => row.way.length > 1).map((row) => ({ path: row.way, what: row.dialled ? "dialled by this node" : "to this node" }));
  return [...own, ...view.federation.ways.map((path) => ({ path, what: "through this node" }))];
}

function pathOf(federation, ways) {
  if (chosen?.kind === "server") return federation.servers.find((one) => one.id === chosen.id)?.way ?? [];
  if (chosen?.kind === "way") return ways.find((one) => one.path.join() === chosen.path.join())?.path ?? [];
  return [];
}

function choose(what) {
  return () => {
    chosen = JSON.stringify(chosen) === JSON.stringify(what) ? null : what;
    redraw();
  };
}

function picture({ ids, edges }, names, path) {
  const at = places(ids, edges.map(({ a, b }) => [a, b]));
  const steps = new Set(path.slice(1).flatMap((id, index) => [`${path[index]} ${id}`, `${id} ${path[index]}`]));
  const on = new Set(path);
  const few = ids.length <= LABELLED;
  const beyond = path.slice(1).filter((id, index) => !at.has(id) && at.has(path[index]));
  return h(
    "svg",
    { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${counted(ids.length, "server")} and ${counted(edges.length, "link")}` },
    edges.map(({ a, b, whole }) => {
      const used = steps.has(`${a} ${b}`);
      return h("line", { key: `${a} ${b}`, class: `edge ${whole ? "" : "half"} ${used ? "used" : ""}`, x1: at.get(a).x.toFixed(1), y1: at.get(a).y.toFixed(1), x2: at.get(b).x.toFixed(1), y2: at.get(b).y.toFixed(1) });
    }),
    ids.map((id) => server(id, at.get(id), { names, on, few, small: ids.length > 120 })),
    beyond.length > 0 && h("title", {}, "The last node of this path is an account of a server and is not drawn"),
  );
}

function server(id, { x, y }, { names, on, few, small }) {
  const own = id === state.view.federation.self;
  const isChosen = chosen?.kind === "server" && chosen.id === id;
  const name = names.get(id) || short(id);
  const press = choose({ kind: "server", id });
  return h(
    "g",
    {
      key: id,
      class: `server ${own ? "own" : ""} ${on.has(id) ? "on" : ""} ${isChosen ? "chosen" : ""}`,
      role: "button",
      tabindex: "0",
      "aria-pressed": String(isChosen),
      "aria-label": own ? `${name}, this node` : `${name}: show the path`,
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
      on: {
        click: press,
        keydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            press();
          }
        },
      },
    },
    h("title", {}, names.get(id) ? `${names.get(id)} ${id}` : id),
    h("circle", { r: own ? (small ? 10 : 17) : small ? 6 : 12 }),
    (few || own || on.has(id) || isChosen) && h("text", { y: own ? 42 : 36, "text-anchor": "middle" }, cut(name)),
  );
}

function cut(name) {
  return name.length > 18 ? `${name.slice(0, 17)}…` : name;
}

function choice(federation, names, path) {
  if (chosen?.kind === "server") {
    if (chosen.id === federation.self) return card("This node", facts([["Node ID", h("code", { class: "whole" }, federation.self)], ["Links", counted(federation.links.filter((one) => one.up).length, "link is up", "links are up")]]));
    const one = federation.servers.find((server) => server.id === chosen.id);
    const title = names.get(chosen.id) || short(chosen.id);
    if (!one) return card(title, h("p", { class: "empty small" }, "This node does not have the card of this server."));
    return card(
      title,
      facts([
        ["Node ID", h("code", { class: "whole" }, one.id)],
        ["Exports", one.exports.join(", ")],
        ["Addresses (claimed)", one.addresses.join(" ")],
        ["Its card expires", when(one.expires)],
      ]),
      h("h3", {}, "Path"),
      path.length ? wayOf(path, names) : h("p", { class: "empty small" }, "No path is known from the cards."),
    );
  }
  if (path.length) return card("Path of the tunnel", wayOf(path, names));
  return card("Path", h("p", { class: "empty small" }, "Choose a server or a tunnel to show its path."));
}

function waysCard(ways, names) {
  if (ways.length === 0) return card("Tunnels", h("p", { class: "empty small" }, "No tunnels through this node."));
  return card(
    "Tunnels",
    h(
      "ul",
      { class: "ways" },
      ways.slice(0, 50).map(({ path, what }, index) => {
        const pressed = chosen?.kind === "way" && chosen.path.join() === path.join();
        const ends = [path[0], path.at(-1)].map((id) => names.get(id) || short(id));
        return h(
          "li",
          { key: `${index} ${path.join()}` },
          h("button", { type: "button", class: "link", "aria-pressed": String(pressed), on: { click: choose({ kind: "way", path }) } }, `${ends[0]} → ${ends[1]}`),
          h("span", { class: "dim" }, `${what}, ${counted(path.length - 1, "hop")}`),
        );
      }),
    ),
    ways.length > 50 && h("p", { class: "note" }, `The first 50 of ${ways.length}.`),
  );
}

function links({ links: all }, names) {
  return card(
    "Links of this node",
    table({
      id: "links",
      label: "Links of this node",
      word: "link",
      rows: all,
      keyOf: (row) => row.id,
      text: (row) => `${names.get(row.id) ?? ""} ${row.id}`,
      empty: ["No links. To add one: ", h("code", {}, "parley serve --link ADDR"), "."],
      columns: [
        { title: "Server", value: (row) => names.get(row.id) || row.id, cell: (row) => who({ id: row.id, name: names.get(row.id) }) },
        { title: "State", value: (row) => (row.up ? "up" : "down"), cell: (row) => (row.up ? chip("up", "good") : chip("down", "bad")) },
        { title: "Dialled by", value: (row) => (row.kept ? "this node" : "the other node") },
        { title: "Error", value: (row) => row.error ?? "" },
      ],
    }),
  );
}

function servers({ servers: all }, names) {
  return card(
    "Servers",
    table({
      id: "servers",
      label: "Servers",
      word: "server",
      rows: all,
      keyOf: (row) => row.id,
      text: (row) => `${row.name} ${row.id} ${row.exports.join(" ")}`,
      empty: "No cards of other servers yet. They arrive when a link is up.",
      columns: [
        { title: "Server", value: (row) => row.name || row.id, cell: (row) => h("button", { type: "button", class: "link", "aria-label": `Show the path to ${names.get(row.id) || row.id}`, on: { click: choose({ kind: "server", id: row.id }) } }, who(row)) },
        { title: "Hops", number: true, value: (row) => row.way.length - 1, cell: (row) => (row.way.length ? row.way.length - 1 : chip("no path", "bad")) },
        { title: "Links", number: true, value: (row) => Object.keys(row.links).length },
        { title: "Exports", value: (row) => row.exports.join(", ") },
      ],
    }),
  );
}
