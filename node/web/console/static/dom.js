// Pages as plain values, and the only code that changes the document. Text becomes text nodes and
// attributes, never markup. Existing nodes are changed as little as possible, so that focus,
// selection and scroll positions survive a new view each second.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "circle", "line", "rect", "text", "polyline", "title"]);

/** An element: `props` are attributes, except `key`, `style` (an object), `on` (listeners by event) and `value`. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(Infinity).filter(present) };
}

function present(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

/** Update the children of `parent` to match `wanted`. */
export function patch(parent, wanted) {
  const keyed = new Map();
  const free = [];
  for (const node of parent.childNodes) {
    const key = node.made?.props.key;
    if (key === undefined) free.push(node);
    else keyed.set(key, node);
  }
  let place = parent.firstChild;
  for (const one of wanted) {
    let node = one.props?.key === undefined ? take(free, one) : keyed.get(one.props.key);
    if (node && one.props?.key !== undefined) keyed.delete(one.props.key);
    if (node && !fits(node, one)) {
      if (node === place) place = place.nextSibling;
      node.remove();
      node = undefined;
    }
    if (node === undefined) {
      node = make(one);
      parent.insertBefore(node, place);
    } else if (node === place) {
      place = place.nextSibling;
    } else {
      parent.insertBefore(node, place);
    }
    update(node, one);
  }
  for (const node of [...keyed.values(), ...free]) node.remove();
}

/** The same, keeping the focus. */
export function show(parent, wanted) {
  const focused = document.activeElement;
  patch(parent, wanted);
  if (focused && focused !== document.activeElement && focused.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

function take(free, one) {
  if (free.length > 0 && fits(free[0], one)) return free.shift();
  const index = free.findIndex((node) => fits(node, one));
  return index < 0 ? undefined : free.splice(index, 1)[0];
}

function fits(node, one) {
  if (one.tag === undefined) return node.nodeType === Node.TEXT_NODE;
  return node.nodeType === Node.ELEMENT_NODE && node.localName === one.tag;
}

function make(one) {
  if (one.tag === undefined) return document.createTextNode("");
  return SVG_TAGS.has(one.tag) ? document.createElementNS(SVG, one.tag) : document.createElement(one.tag);
}

function update(node, one) {
  if (one.tag === undefined) {
    const text = String(one);
    if (node.data !== text) node.data = text;
    return;
  }
  const before = node.made?.props ?? {};
  for (const name of Object.keys(before)) if (!(name in one.props)) drop(node, name, before[name]);
  for (const [name, value] of Object.entries(one.props)) put(node, name, value, before[name]);
  node.made = one;
  patch(node, one.children);
}

function put(node, name, value, before) {
  if (name === "key") return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) {
      const listeners = (node.listeners ??= {});
      if (!(event in listeners)) node.addEventListener(event, (what) => node.listeners[event]?.(what));
      listeners[event] = listener;
    }
  } else if (name === "style") {
    for (const [property, set] of Object.entries(value)) {
      if (before?.[property] !== set) node.style.setProperty(property, set);
    }
  } else if (name === "value") {
    if (node.value !== value) node.value = value;
  } else if (value === false || value === null || value === undefined) {
    node.removeAttribute(name);
  } else if (before !== value) {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

function drop(node, name, before) {
  if (name === "on") for (const event of Object.keys(before)) delete node.listeners[event];
  else if (name === "style") for (const property of Object.keys(before)) node.style.removeProperty(property);
  else if (name !== "key" && name !== "value") node.removeAttribute(name);
}
