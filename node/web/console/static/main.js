// The page: its session, its stream of views, its menu, and its keys.

import { closePanel, drawPanel, notice, openPanel } from "./dialogs.js";
import { h, show } from "./dom.js";
import { numbersView } from "./all_numbers.js";
import { busesView } from "./buses.js";
import { callsView } from "./calls.js";
import { federationView } from "./federation.js";
import { findingsView } from "./findings.js";
import { count, short } from "./format.js";
import { journalView } from "./journal.js";
import { concerns, overviewView } from "./overview.js";
import { peersView } from "./peers.js";
import { asked, enter, mayAct, read } from "./session.js";
import { drawnBy, redraw, state } from "./state.js";
import { topicsView } from "./topics.js";

const AGAIN = [500, 1000, 2000, 5000]; // ms between attempts to reach the node
const SILENT = 8000; // ms without a view after which the stream is taken for lost
const THEMES = { "": "same as the system", light: "light", dark: "dark" };

const PAGES = [
  { id: "overview", title: "Overview", draw: overviewView, badge: (view) => concerns(view).length, kind: "warn" },
  { id: "peers", title: "Peers", draw: peersView, badge: (view) => view.peers.total },
  { id: "calls", title: "Calls", draw: callsView, badge: (view) => view.peers.running },
  { id: "topics", title: "Topics", draw: topicsView, badge: (view) => view.topics.total },
  { id: "buses", title: "Buses", draw: busesView, badge: (view) => view.buses.reduce((sum, bus) => sum + bus.dead, 0), kind: "warn" },
  { id: "journal", title: "Journal", draw: journalView, badge: (view) => (view.journal?.failed ? "!" : 0), kind: "bad" },
  { id: "federation", title: "Federation", draw: federationView, badge: (view) => view.federation?.servers.length ?? 0 },
  { id: "findings", title: "Findings", draw: findingsView, badge: (view) => (view.findings ?? []).filter((one) => one.level === "problem" || one.level === "weak").length, kind: "bad" },
  { id: "numbers", title: "Metrics", draw: numbersView, badge: () => 0 },
];

function page() {
  return PAGES.find((one) => `#${one.id}` === location.hash) ?? PAGES[0];
}

// Drawing.

function draw() {
  const app = document.getElementById("app");
  if (!state.view) {
    show(app, [before()]);
    return;
  }
  const now = page();
  document.title = `${now.title} – ${state.view.node.name || state.view.node.short} – Parley`;
  show(app, [h("div", { class: "frame" }, menu(now), h("main", { id: "main", class: `page-${now.id}`, tabindex: "-1" }, banner(), now.draw(state.view)))]);
  drawPanel();
}

function before() {
  const texts = {
    connecting: ["Connecting", "Opening the console."],
    lost: ["The node cannot be reached", `${state.why} Retrying.`],
    over: ["This page needs a new link", `${state.why} Each link works once. To get another one, run this on the node's machine:`],
  };
  const [title, text] = texts[state.status] ?? texts.connecting;
  return h(
    "main",
    { id: "main", class: "before", tabindex: "-1" },
    h("h1", {}, title),
    h("p", {}, text),
    state.status === "over" && h("pre", {}, "parley console"),
  );
}

function banner() {
  if (state.status === "live") return null;
  const text = state.status === "over" ? "This session has ended. Get a new link with: parley console" : "The node cannot be reached. This data is from before; retrying.";
  return h("p", { class: "alarm", role: "alert", key: "banner" }, text);
}

function menu(now) {
  const { node } = state.view;
  return h(
    "header",
    { class: "menu" },
    h("div", { class: "brand" }, h("img", { src: "/static/icon.svg", alt: "", width: "28", height: "28" }), h("div", {}, h("strong", {}, node.name || "Parley"), h("code", { class: "dim", title: node.id }, short(node.id)))),
    h(
      "nav",
      { "aria-label": "Views" },
      PAGES.map((one, index) => {
        const badge = one.badge(state.view);
        const number = typeof badge === "number" ? count(badge) : badge;
        return h(
          "a",
          { key: one.id, href: `#${one.id}`, "aria-current": one === now ? "page" : null, "aria-keyshortcuts": String(index + 1) },
          h("span", {}, one.title),
          badge !== 0 && h("span", { class: `badge ${one.kind ?? ""}` }, number),
        );
      }),
    ),
    h(
      "div",
      { class: "foot" },
      h("span", { class: `status ${state.status}` }, { live: "Live", lost: "Unreachable", over: "Ended", connecting: "…" }[state.status]),
      h("span", { class: "right" }, mayAct() ? "Can act" : "Read-only"),
      h("div", { class: "tools" }, h("button", { type: "button", title: `Now ${THEMES[theme()]}`, on: { click: nextTheme } }, "Colours"), h("button", { type: "button", on: { click: openKeys } }, "Keys"), h("button", { type: "button", on: { click: leave } }, "Leave")),
    ),
  );
}

// The theme.

function theme() {
  return document.documentElement.dataset.theme ?? "";
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(theme()) + 1) % names.length];
  setTheme(next);
  localStorage.setItem("parley-theme", next);
  notice(`Colours: ${THEMES[next]}`, "good");
  redraw();
}

// Keys.

function openKeys() {
  const keys = [
    ...PAGES.map((one, index) => [String(index + 1), one.title]),
    ["/", "Search the table"],
    ["t", "Change the colours"],
    ["Esc", "Close the panel"],
    ["?", "Show this list"],
  ];
  openPanel(() => ({
    title: "Keys",
    body: h("dl", { class: "keys" }, keys.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
  }));
}

function pressed(event) {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]") || !state.view) return;
  const wanted = PAGES[Number(event.key) - 1];
  if (wanted) location.hash = wanted.id;
  else if (event.key === "/") document.querySelector("main input.find")?.focus();
  else if (event.key === "t") nextTheme();
  else if (event.key === "?") openKeys();
  else return;
  event.preventDefault();
}

// The session and its stream.

async function leave() {
  try {
    await asked("/leave", {});
  } catch (error) {
    notice(error.message, "bad");
  }
  end("You have signed out.");
}

function end(why) {
  Object.assign(state, { view: null, status: "over", why });
  closePanel();
  redraw();
}

async function follow(entering) {
  let attempts = 0;
  for (;;) {
    const silence = new AbortController();
    let timer;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENT);
    };
    const take = (view) => {
      wait();
      attempts = 0;
      Object.assign(state, { view, status: "live", why: "" });
      state.past.add(view);
      redraw();
    };
    try {
      wait();
      await read("/api/events", take, silence.signal);
      state.status = "lost";
    } catch (error) {
      if (error.status === 401) {
        end(state.view ? "The session has ended." : entering);
        return;
      }
      Object.assign(state, { status: "lost", why: error.status ? `${error.message}.` : "" });
    } finally {
      clearTimeout(timer);
    }
    if (state.status === "over") return;
    redraw();
    await new Promise((go) => setTimeout(go, AGAIN[Math.min(attempts, AGAIN.length - 1)]));
    attempts += 1;
  }
}

async function begin() {
  setTheme(localStorage.getItem("parley-theme") ?? "");
  drawnBy(draw);
  addEventListener("keydown", pressed);
  addEventListener("hashchange", () => {
    if (location.hash.startsWith("#token=")) location.reload();
    closePanel();
    redraw();
    scrollTo(0, 0);
    document.querySelector(`nav a[href="#${page().id}"]`)?.scrollIntoView({ block: "nearest", inline: "center" });
  });
  redraw();
  let why = "";
  try {
    await enter();
  } catch (error) {
    why = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
  }
  await follow(why); // there may be a session from before
}

begin();
