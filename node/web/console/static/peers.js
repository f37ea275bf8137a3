// Peers: the connected nodes, their open streams and calls, and the actions on them.

import { act, actionButton, closePanel, drawPanel, notice, openPanel } from "./dialogs.js";
import { h } from "./dom.js";
import { bytes, bytesPerSecond, counted } from "./format.js";
import { chip, facts, heading, namesIn, wayOf, who } from "./parts.js";
import { asked } from "./session.js";
import { redraw, state } from "./state.js";
import { searched, table } from "./table.js";

const AGAIN = 2000; // ms after which an open panel asks again

export function peersView(view) {
  const { peers } = view;
  const partly = peers.total > peers.rows.length;
  const find = searched("peers");
  if (partly && find && state.found?.find !== find) search(find);
  const listed = partly && find && state.found?.find === find ? state.found.peers : peers;
  const flow = (title, name) => ({
    title,
    number: true,
    value: (row) => (listed === peers ? (flowNow(row, name) ?? 0) : row[name]),
    cell: (row) => [flowText(row, name), h("span", { class: "sum dim" }, bytes(row[name]))],
  });
  return [
    heading("Peers", chip(`${counted(peers.streams, "stream")} open`), peers.suspended > 0 && chip(`${peers.suspended} suspended`, "warn")),
    partly && h("p", { class: "note" }, `The first ${peers.rows.length} of ${peers.total} are listed. A search covers all of them.`),
    table({
      id: "peers",
      label: "Peers",
      word: "peer",
      rows: listed.rows,
      total: partly ? peers.total : undefined,
      keyOf: (row) => row.key,
      text: (row) => `${row.name} ${row.id ?? ""} ${row.place} ${row.role}`,
      empty: [
        "No peers connected. They are listed here when they connect, for example with ",
        h("code", {}, `parley ping ${view.node.addresses[0] ?? "ADDR"}`),
        ".",
      ],
      columns: [
        { title: "Peer", value: (row) => row.name || row.id || row.place, cell: peerButton },
        { title: "Address", value: (row) => row.place, cell: (row) => h("span", { class: "place" }, row.dialled ? `→ ${row.place}` : row.place) },
        { title: "Role", value: (row) => row.role, cell: (row) => h("span", { class: "role" }, row.role) },
        { title: "State", value: stateText, cell: stateChips },
        { title: "Streams", number: true, value: (row) => row.streams },
        { title: "Running calls", number: true, value: (row) => row.running },
        flow("Bytes in", "received"),
        flow("Bytes out", "sent"),
        { title: "Resumptions", number: true, value: (row) => row.resumes },
      ],
    }),
  ];
}

function peerButton(row) {
  const label = `Show ${row.name || row.id || row.place}`;
  return h("button", { type: "button", class: "link", "aria-label": label, on: { click: () => openPeer(row.key) } }, who(row));
}

function stateText(row) {
  return [row.suspended ? "suspended" : "open", row.encrypted ? "" : "unencrypted", row.way.length ? "tunnel" : ""].join(" ");
}

function stateChips(row) {
  return h(
    "span",
    { class: "chips" },
    row.suspended ? chip("suspended", "warn") : chip("open", "good"),
    !row.encrypted && chip("unencrypted", "bad"),
    row.way.length > 0 && chip("tunnel", "info"),
  );
}

async function search(find) {
  state.found = { find, peers: state.view.peers };
  try {
    const peers = await asked(`/api/peers?find=${encodeURIComponent(find)}`);
    if (searched("peers") === find) state.found = { find, peers };
  } catch (error) {
    notice(error.message, "bad");
  }
  redraw();
}

/** Open a panel on a peer, which is updated while it is open. */
export function openPeer(key) {
  let peer = null;
  let gone = false;
  let open = true;
  async function ask() {
    if (!open) return;
    try {
      peer = await asked(`/api/peers/${key}`);
    } catch (error) {
      gone = true;
      if (error.status !== 404) notice(error.message, "bad");
    }
    drawPanel();
    if (!gone) setTimeout(ask, AGAIN);
  }
  openPanel(() => ({ title: peer ? peer.name || peer.place : "Peer", body: gone ? h("p", { class: "empty" }, "This peer has disconnected.") : peer && peerBody(peer) }));
  document.querySelector("dialog.panel").addEventListener("close", () => (open = false));
  ask();
}

function peerBody(peer) {
  const view = state.view;
  const names = namesIn(view);
  const shown = peer.name || peer.id || peer.place;
  const suite = Object.values(peer.suite).join(", ");
  const info = Object.entries(peer.info);
  return [
    facts([
      ["Node ID", peer.id ? h("code", { class: "whole" }, peer.id) : "not authenticated"],
      ["State", stateChips(peer)],
      [peer.dialled ? "Dialled address" : "Remote address", peer.place],
      ["Role", `${peer.role} (claimed)`],
      ["Cipher suite", suite || "none: unencrypted"],
      ["Running calls", String(peer.running)],
      ["Bytes in", flowOf(peer, "received")],
      ["Bytes out", flowOf(peer, "sent")],
      ["Send queue", peer.waiting_events === 0 ? "empty" : `${counted(peer.waiting_events, "event")}, ${bytes(peer.waiting)}`],
      ["Resumptions", peer.resumes === 0 ? "none" : `${counted(peer.resumes, "time")}, last after: ${peer.suspended_by || "–"}`],
      peer.ignored + peer.dropped > 0 && ["Dropped", `${counted(peer.ignored, "named event")}, ${counted(peer.dropped, "other event")}`],
    ]),
    peer.way.length > 0 && h("section", {}, h("h3", {}, "Path through the federation"), wayOf(peer.way, names)),
    h("section", {}, h("h3", {}, counted(peer.streams, "stream")), listed(peer.stream_list.map((one) => ({ key: one.id, text: one.label, beside: `#${one.id}` })), "No open streams.")),
    h("section", {}, h("h3", {}, "Subscriptions"), listed(peer.topics.map((name) => ({ key: name, text: name })), "No subscriptions.")),
    info.length > 0 && h("section", {}, h("h3", {}, "Node information (claimed)"), facts(info)),
    h(
      "div",
      { class: "buttons" },
      peer.id && view.node.can_forget && actionButton("Forget", () => forget(peer, shown), { label: `Forget ${shown}`, grave: true }),
      actionButton("Close the connection", () => close(peer, shown), { label: `Close the connection with ${shown}`, grave: true }),
    ),
  ];
}

/** A peer's bytes per second; null for peers found only by a search and for new peers. */
function flowNow(peer, name) {
  return state.past.listedRate(`peer_${name}{${peer.key}}`);
}

function flowText(peer, name) {
  const now = flowNow(peer, name);
  return now === null ? null : bytesPerSecond(now);
}

function flowOf(peer, name) {
  const now = flowText(peer, name);
  return bytes(peer[name]) + (now === null ? "" : `, now ${now}`);
}

function listed(items, none) {
  if (items.length === 0) return h("p", { class: "empty small" }, none);
  return h("ul", { class: "listed" }, items.map((one) => h("li", { key: one.key }, h("span", {}, one.text), one.beside && h("span", { class: "dim" }, one.beside))));
}

async function close(peer, shown) {
  const question = {
    title: "Close this connection?",
    text: `Data queued for ${shown} is sent first. The peer can reconnect.`,
    button: "Close the connection",
  };
  if (await act("close", { peer: peer.key }, question)) closePanel();
}

async function forget(peer, shown) {
  const question = {
    title: "Forget this node?",
    text: `${shown} is removed from the known peers. Sessions that were accepted because of that record end.`,
    button: "Forget this node",
  };
  if (await act("forget", { id: peer.id }, question)) closePanel();
}
