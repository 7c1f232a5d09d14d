// Everything of the shown entry as one table: sorted by any column, filtered by any word.

import { make, many } from "./dom.js";
import { KIND_NAMES } from "./model.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, onChange, state } from "./state.js";

const COLUMNS = ["kind", "name", "stage", "about", "source line", "bytes"];

export function tablePane() {
  const pane = new Pane("table", "Table of everything", { wide: true, closed: true });
  const { model } = state;
  let every = [];
  let shown = [];
  let order = { column: -1, sign: 1 };
  const filter = make("input", {
    type: "search", "aria-label": "Filter the table", placeholder: "filter", oninput: update,
  });
  pane.tools.append(filter);
  const heads = COLUMNS.map((name, column) => make("button", { onclick: () => sortBy(column) }, name));
  const rows = new Rows("table", "Table of everything", drawItem, (index) => choose(shown[index].id, "table"));
  pane.body.append(make("div", { class: "row head cells" }, ...heads), rows.element);

  function cellsOf(thing) {
    const { kind, label, stage, data, id } = thing;
    const detail = model.detail(thing);
    const lines = model.linesOf(id).map((line) => model.name(line));
    const bytes = data?.bytes ?? data?.bytes_saved ?? (kind === "kernel" ? data.bytes_read + data.bytes_written : null);
    const where = model.stages.get(stage)?.title ?? "";
    return [KIND_NAMES[kind], label, where, detail.split("\n")[0], lines.slice(0, 3).join(", "), bytes];
  }

  function sortBy(column) {
    order = { column, sign: order.column === column ? -order.sign : 1 };
    update();
  }

  function drawItem(index, row) {
    const { cells, id } = shown[index];
    row.classList.add("cells");
    row.append(...cells.map((cell) => make("span", { title: String(cell ?? "") }, cell === null ? "" : String(cell))));
    row.classList.toggle("lit", state.lit.has(id));
  }

  function update() {
    if (!pane.isOpen) return;
    const wanted = filter.value.toLowerCase();
    shown = every.filter(({ cells }) => !wanted || cells.join(" ").toLowerCase().includes(wanted));
    const { column, sign } = order;
    const isText = (value) => typeof value === "string";
    const compare = (a, b) => (isText(a) || isText(b) ? (a ?? "").localeCompare(b ?? "") : a - b); // null: not known
    if (column >= 0) shown.sort((a, b) => sign * compare(a.cells[column], b.cells[column]));
    pane.note.textContent = many(shown.length, "row");
    rows.show(shown.length);
  }

  function collect() {
    if (!pane.isOpen) return;
    const isWanted = ({ entry, kind, stage }) =>
      entry === state.entry && kind !== "row" && kind !== "entry" && model.stages.get(stage)?.kind !== "bytecode";
    every = [...model.things.values()].filter(isWanted).map((thing) => ({ id: thing.id, cells: cellsOf(thing) }));
    update();
  }

  pane.update = collect;
  onChange((what) => (what === "entry" ? collect() : pane.isOpen && rows.refresh()));
  return pane;
}
