// The session of this browser: a link's token becomes a cookie that scripts cannot read, and a key
// that stays with this page's origin. Each request carries both.

const KEY = "parley-key";
const MAY_ACT = "parley-may-act";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Whether the session may act, or is read-only. */
export function mayAct() {
  return localStorage.getItem(MAY_ACT) === "yes";
}

/** Sign in with the token in the address, if any, after removing it from the address. */
export async function enter() {
  const token = /^#token=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (token === undefined) return;
  history.replaceState(null, "", location.pathname);
  const entered = await asked("/enter", { token });
  localStorage.setItem(KEY, entered.key);
  localStorage.setItem(MAY_ACT, entered.may_act ? "yes" : "no");
}

/** Request JSON; with `said`, as a POST. Throws Refused. */
export async function asked(path, said) {
  const answer = await fetch(path, request(said));
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.error ?? `the console returned status ${answer.status}`);
  return body;
}

/** Read the console's events until they end: `take` is called with each one. Throws Refused, TypeError. */
export async function read(path, take, signal) {
  const answer = await fetch(path, { ...request(undefined), signal });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, body.error ?? "");
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    const last = events.pop(); // the others are older
    if (last !== undefined) take(JSON.parse(last.slice("data: ".length)));
  }
}

function request(said) {
  const headers = { "x-parley-key": localStorage.getItem(KEY) ?? "" };
  if (said === undefined) return { headers, credentials: "same-origin", cache: "no-store" };
  headers["content-type"] = "application/json";
  return { method: "POST", headers, body: JSON.stringify(said), credentials: "same-origin" };
}
