// A list of any length of which only the rows on the screen are in the document.

import { make } from "./dom.js";

const BEYOND = 6; // rows drawn above and below what is visible
const MOST_PRINTED = 2000;
/** @type {Set<Rows>} */
const everywhere = new Set();

/** One list: a single stop of the Tab key; arrows move its cursor, Enter or a click chooses. */
export class Rows {
  /**
   * @param {string} name  the ids of its rows begin with it
   * @param {string} label  what a screen reader calls it
   * @param {(index: number, row: HTMLElement) => void} drawRow  fills the row with this index
   * @param {(index: number) => void} choose
   * @param {number} [lines]  of text in a row
   */
  constructor(name, label, drawRow, choose, lines = 1) {
    Object.assign(this, { name, drawRow, choose, count: 0, cursor: 0, height: lines * 19 });
    this.inner = make("div", { class: "inner", role: "none" });
    this.element = make(
      "div",
      {
        class: "rows", role: "listbox", tabindex: "0", "aria-label": label, id: `${name}-rows`,
        onscroll: () => this.refresh(),
        onkeydown: (event) => this.key(event),
        onclick: (event) => this.clicked(event),
      },
      this.inner,
    );
    everywhere.add(this);
    new ResizeObserver(() => this.element.isConnected && this.refresh()).observe(this.element);
  }

  /** Other content. @param {number} count @param {number} columns  characters in the longest row */
  show(count, columns = 0) {
    this.count = count;
    this.cursor = Math.min(this.cursor, Math.max(0, count - 1));
    this.inner.style.height = `${count * this.height}px`;
    this.element.classList.toggle("empty", count === 0);
    this.inner.style.minWidth = `${Math.min(columns + 2, 4000)}ch`;
    this.refresh();
  }

  /** Draw what is visible again. */
  refresh() {
    const { scrollTop, clientHeight } = this.element;
    const everything = document.documentElement.classList.contains("printing");
    let first = Math.max(0, Math.floor(scrollTop / this.height) - BEYOND);
    let end = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / this.height) + BEYOND);
    if (everything) [first, end] = [0, Math.min(this.count, MOST_PRINTED)];
    const rows = [];
    for (let index = first; index < end; index += 1) rows.push(this.row(index));
    this.inner.replaceChildren(...rows);
    const active = this.cursor >= first && this.cursor < end;
    if (active) this.element.setAttribute("aria-activedescendant", this.rowId(this.cursor));
    else this.element.removeAttribute("aria-activedescendant");
  }

  rowId(index) {
    return `${this.name}-row-${index}`;
  }

  row(index) {
    const row = make("div", { class: "row", role: "option", id: this.rowId(index) });
    row.dataset.index = String(index);
    row.style.top = `${index * this.height}px`;
    row.style.height = `${this.height}px`;
    if (index === this.cursor) row.classList.add("cursor");
    this.drawRow(index, row);
    row.setAttribute("aria-selected", String(row.classList.contains("lit")));
    return row;
  }

  /** Scroll so that a row can be seen. */
  reveal(index) {
    const { scrollTop, clientHeight } = this.element;
    const top = index * this.height;
    if (top < scrollTop || top + this.height > scrollTop + clientHeight) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 3);
    }
    this.refresh();
  }

  /** Scroll to the first of the rows for which `isLit` holds, unless one of them can be seen.
   *  @param {(index: number) => boolean} isLit
   *  @param {(index: number) => number} [breadth]  of a row: how much else it is about.  Those that are
   *     about least are meant: of a kernel the statements, not its first line, which is about all. */
  revealLit(isLit, breadth = () => 0) {
    const { scrollTop, clientHeight } = this.element;
    const isSeen = (index) =>
      index * this.height >= scrollTop && (index + 1) * this.height <= scrollTop + clientHeight;
    const rows = Array.from({ length: this.count }, (_, index) => index).filter(isLit);
    const least = rows.reduce((small, index) => Math.min(small, breadth(index)), Infinity);
    const meant = rows.filter((index) => breadth(index) === least);
    const found = meant.find(isSeen) ?? meant[0] ?? -1;
    if (found >= 0) this.reveal(found);
    else this.refresh();
    return found;
  }

  clicked(event) {
    const row = event.target.closest(".row");
    if (!row || !this.inner.contains(row)) return;
    this.cursor = Number(row.dataset.index);
    this.choose(this.cursor);
    this.refresh();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count,
    };
    if (event.key in steps) {
      const wanted = this.cursor + steps[event.key];
      this.cursor = Math.max(0, Math.min(this.count - 1, wanted));
      this.reveal(this.cursor);
    } else if ((event.key === "Enter" || event.key === " ") && this.count) {
      this.choose(this.cursor);
      this.refresh();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** For paper, the rows that cannot be seen are drawn, too. */
export function watchPrinting() {
  const printing = (on) => () => {
    document.documentElement.classList.toggle("printing", on);
    for (const rows of everywhere) rows.refresh();
  };
  window.addEventListener("beforeprint", printing(true));
  window.addEventListener("afterprint", printing(false));
}
