// Tables that sort, filter and page. Every row is in the page; without this script all are shown.
"use strict";

const SIZES = [25, 100, 500];
const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
const whole = new Intl.NumberFormat("en");

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// What a cell is sorted by: its number, if it is one; nothing comes last, whichever way.
function keyOf(cell) {
  if (cell.dataset.key !== undefined) return Number(cell.dataset.key);
  const text = cell.textContent.trim();
  return text === "" || text === "–" ? null : text;
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "number" && typeof other === "number") return one - other;
  return words.compare(String(one), String(other));
}

class Rows {
  constructor(region) {
    this.table = region.querySelector("table");
    this.body = this.table.tBodies[0];
    this.all = [...this.body.rows].map((row) => ({
      row,
      text: [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase(),
      keys: [...row.cells].map(keyOf),
    }));
    this.shown = this.all;
    this.page = 0;
    this.size = SIZES[0];
    if (this.all.length > 1) this.sortable();
    if (this.all.length > 10) region.before(this.controls());
    this.show();
  }

  sortable() {
    [...this.table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button", className: "sort" }, head.textContent);
      button.addEventListener("click", () => this.sort(head, column));
      head.replaceChildren(button);
    });
  }

  controls() {
    const label = this.table.caption.textContent;
    this.filter = make("input", { type: "search", placeholder: "Filter", spellcheck: false });
    this.filter.setAttribute("aria-label", `Filter: ${label}`);
    this.filter.addEventListener("input", () => this.find());
    this.back = make("button", { type: "button", ariaLabel: "Previous rows" }, "‹");
    this.on = make("button", { type: "button", ariaLabel: "Next rows" }, "›");
    this.back.addEventListener("click", () => this.turn(-1));
    this.on.addEventListener("click", () => this.turn(1));
    this.where = make("span", { className: "soft" });
    this.where.setAttribute("aria-live", "polite");
    const sizes = make("select", { ariaLabel: "Rows at once" });
    for (const size of SIZES) sizes.append(make("option", { value: size }, `${size} rows`));
    sizes.addEventListener("change", () => {
      this.size = Number(sizes.value);
      this.page = 0;
      this.show();
    });
    return make("div", { className: "controls" }, this.filter, this.back, this.where, this.on, sizes);
  }

  find() {
    const wanted = this.filter.value.toLowerCase().split(/\s+/);
    this.shown = this.all.filter(({ text }) => wanted.every((word) => text.includes(word)));
    this.page = 0;
    this.show();
  }

  sort(head, column) {
    const falls = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const way = falls ? -1 : 1;
    const by = (one, other) => {
      const [a, b] = [one.keys[column], other.keys[column]];
      return a === null || b === null ? compare(a, b) : way * compare(a, b);
    };
    this.all = [...this.all].sort(by);
    if (this.filter) this.find();
    else {
      this.shown = this.all;
      this.show();
    }
  }

  turn(by) {
    this.page += by;
    this.show();
  }

  show(everything = false) {
    const size = this.filter && !everything ? this.size : Infinity;
    const first = size === Infinity ? 0 : this.page * size;
    const rows = this.shown.slice(first, first + size);
    this.body.replaceChildren(...rows.map(({ row }) => row));
    if (!this.filter) return;
    const count = this.shown.length;
    const last = first + rows.length;
    this.where.textContent = count
      ? `${whole.format(first + 1)} to ${whole.format(last)} of ${whole.format(count)}`
      : "Nothing found";
    this.back.disabled = first === 0;
    this.on.disabled = last >= count;
  }
}

const tables = [...document.querySelectorAll(".wide")].map((region) => new Rows(region));
addEventListener("beforeprint", () => tables.forEach((one) => one.show(true)));
addEventListener("afterprint", () => tables.forEach((one) => one.show()));
