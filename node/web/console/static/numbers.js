// Counters of the last minutes, with the rates, series and call times computed from them.

const MOST = 181; // samples, about one a second
export const LEAST = 60; // samples that a chart has room for

/** The last views of the node. */
export class Past {
  constructor() {
    this.samples = []; // {at, values: Map}
  }

  add(view) {
    const last = this.samples.at(-1);
    if (last && view.at < last.at) this.samples = []; // the node was started again
    if (last && view.at === last.at) return;
    this.samples.push({ at: view.at, values: flattened(view) });
    if (this.samples.length > MOST) this.samples.shift();
  }

  /** The growth of a counter per second, over the last `seconds`. */
  rate(name, seconds = 5) {
    const last = this.samples.at(-1);
    const first = this.samples.find((one) => one.at >= (last?.at ?? 0) - seconds - 0.2);
    return between(first, last, name);
  }

  /** The growth of a counter that some views lack; null if unknown. */
  listedRate(name, seconds = 5) {
    const since = (this.samples.at(-1)?.at ?? 0) - seconds - 0.2;
    const seen = this.samples.filter((one) => one.at >= since && one.values.has(name));
    return seen.length < 2 ? null : between(seen[0], seen.at(-1), name);
  }

  /** The rate at each moment; null if unknown. */
  rates(name) {
    return this.samples.slice(1).map((one, index) => between(this.samples[index], one, name));
  }

  /** The seconds that a chart of the rates or levels spans. */
  range() {
    const count = this.samples.length;
    if (count < 2) return LEAST;
    const each = (this.samples.at(-1).at - this.samples[0].at) / (count - 1);
    return Math.round(each * Math.max(count, LEAST));
  }

  /** A level at each moment. */
  levels(name) {
    return this.samples.map((one) => one.values.get(name) ?? 0);
  }
}

function between(first, last, name) {
  if (!first || !last || last.at <= first.at) return 0;
  const grew = (last.values.get(name) ?? 0) - (first.values.get(name) ?? 0);
  return Math.max(0, grew / (last.at - first.at));
}

/**
 * All counters and levels of a view by name: `calls`, and `calls{a,b}` for samples with labels; the bytes of
 * listed peers as `peer_received{key}` and `peer_sent{key}`.
 */
function flattened(view) {
  const values = new Map();
  for (const family of view.numbers) {
    for (const { labels, value, counts } of family.samples) {
      const number = counts ? counts.reduce((sum, one) => sum + one, 0) : value;
      values.set(family.name, (values.get(family.name) ?? 0) + number);
      if (labels.length > 0) {
        const name = `${family.name}{${labels.join(",")}}`;
        values.set(name, number);
      }
    }
  }
  values.set("peers", view.peers.total);
  for (const { key, received, sent } of view.peers.rows) {
    values.set(`peer_received{${key}}`, received);
    values.set(`peer_sent{${key}}`, sent);
  }
  return values;
}

/** A family of a view by its name. */
export function family(view, name) {
  return view.numbers.find((one) => one.name === name);
}

/** A quantile of a histogram, interpolated between its bounds. */
export function quantile({ bounds, counts }, share) {
  const total = counts.reduce((sum, one) => sum + one, 0);
  if (total === 0) return null;
  let below = 0;
  for (let index = 0; index < counts.length; index += 1) {
    const upTo = below + counts[index];
    if (upTo >= share * total && counts[index] > 0) {
      if (index >= bounds.length) return bounds.at(-1);
      const low = index === 0 ? 0 : bounds[index - 1];
      return low + ((bounds[index] - low) * (share * total - below)) / counts[index];
    }
    below = upTo;
  }
  return bounds.at(-1);
}
