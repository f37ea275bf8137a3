// The positions of a federation's servers in the drawing: linked servers attract each other, and all
// repel each other. The layout is deterministic, because it starts on a circle in the order of the IDs.

export const WIDTH = 1000;
export const HEIGHT = 640;
const MARGIN = 60;

let last = { key: "", places: new Map() };

/** Positions by ID, for IDs and edges [id, id]; recomputed only if these have changed. */
export function places(ids, edges) {
  const sorted = [...ids].sort();
  const key = `${sorted.join()}|${edges.map((edge) => edge.join("-")).sort().join()}`;
  if (key !== last.key) last = { key, places: settled(sorted, edges) };
  return last.places;
}

function settled(ids, edges) {
  const count = ids.length;
  const radius = Math.min(WIDTH, HEIGHT) / 2 - MARGIN;
  const points = ids.map((_, index) => {
    const angle = (2 * Math.PI * index) / count - Math.PI / 2;
    return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  });
  const index = new Map(ids.map((id, at) => [id, at]));
  const pairs = edges.map(([a, b]) => [index.get(a), index.get(b)]);
  const wanted = Math.sqrt((WIDTH * HEIGHT) / Math.max(count, 1)) * 0.75;
  const steps = count <= 60 ? 300 : count <= 200 ? 80 : 25;
  for (let step = 0; step < steps; step += 1) move(points, pairs, wanted, 0.12 * WIDTH * (1 - step / steps));
  return new Map(ids.map((id, at) => [id, points[at]]).map(fitted(points)));
}

function move(points, pairs, wanted, most) {
  const forces = points.map((one) => ({ x: -one.x * 0.01, y: -one.y * 0.02 }));
  for (let a = 0; a < points.length; a += 1) {
    for (let b = a + 1; b < points.length; b += 1) push(points, forces, a, b, (far) => (wanted * wanted) / far);
  }
  for (const [a, b] of pairs) push(points, forces, a, b, (far) => -(far * far) / wanted);
  for (const [at, force] of forces.entries()) {
    const size = Math.hypot(force.x, force.y) || 1;
    const far = Math.min(size, most);
    points[at].x += (force.x / size) * far;
    points[at].y += (force.y / size) * far;
  }
}

function push(points, forces, a, b, strength) {
  const x = points[a].x - points[b].x;
  const y = points[a].y - points[b].y;
  const far = Math.hypot(x, y) || 0.1;
  const force = strength(far) / far;
  forces[a].x += x * force;
  forces[a].y += y * force;
  forces[b].x -= x * force;
  forces[b].y -= y * force;
}

/** Scale the positions to fill the drawing. */
function fitted(points) {
  const xs = points.map((one) => one.x);
  const ys = points.map((one) => one.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const wide = (WIDTH - 2 * MARGIN) / Math.max(right - left, 1);
  const high = (HEIGHT - 2 * MARGIN) / Math.max(bottom - top, 1);
  const [x, y] = [Math.min(wide, 3), Math.min(high, 3)];
  return ([id, one]) => [id, { x: WIDTH / 2 + (one.x - (left + right) / 2) * x, y: HEIGHT / 2 + (one.y - (top + bottom) / 2) * y }];
}
