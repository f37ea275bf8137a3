// Numbers, times and IDs in readable form.

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** 1,234 */
export function count(number) {
  return PLAIN.format(number);
}

/** "1 peer", "2 peers" */
export function counted(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}

/** A rate or a level: 0, 0.4, 12, 1,234, 56.7k */
export function brief(number) {
  if (number >= 100_000) return `${ONE.format(number / 1000)}k`;
  if (number >= 10 || Number.isInteger(number)) return PLAIN.format(number);
  return ONE.format(number);
}

export function bytes(number) {
  let step = 0;
  while (number >= 1000 && step < SIZES.length - 1) {
    number /= 1000;
    step += 1;
  }
  return `${step === 0 || number >= 100 ? PLAIN.format(number) : ONE.format(number)} ${SIZES[step]}`;
}

/** 12 kB/s */
export function bytesPerSecond(number) {
  return `${bytes(number)}/s`;
}

/** A duration in seconds: 85 µs, 4.2 ms, 1.5 s */
export function took(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0.001) return `${PLAIN.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${ONE.format(seconds * 1000)} ms`;
  return `${ONE.format(seconds)} s`;
}

/** An age in seconds: 42 s, 5 min, 3 h 20 min, 4 d 2 h */
export function lasted(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A time of day: seconds since 1970 */
export function when(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";
}

/** The first characters of a node ID, which distinguish a small number of nodes. */
export function short(id) {
  return id ? `${id.slice(0, 8)}…` : "–";
}
