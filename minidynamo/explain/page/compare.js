// A beside B: two entries of this page, or this page and another one from disk.

import { bytesText, choice, make, many, offer, secondsText } from "./dom.js";
import { difference } from "./diff.js";
import { Model } from "./model.js";
import { unfolded, unpack } from "./packing.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { state } from "./state.js";
import { paintCode } from "./highlight.js";

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const moved = (kernel) => kernel.bytes_read + kernel.bytes_written;
export const FIGURES = [
  ["operations in the FX graph", (entry) => entry.stages.find(({ kind }) => kind === "fx")?.nodes.length ?? 0, String],
  ["guards", (entry) => entry.guards.length, String],
  ["kernels", (entry) => entry.kernels.length, String],
  ["eager kernels", (entry) => entry.eager_kernels.length, String],
  ["bytes moved by kernels", (entry) => sum(entry.kernels.map(moved)), bytesText],
  ["saved for backward", (entry) => sum(entry.saved.map((each) => (each.is_input ? 0 : each.bytes))), bytesText],
  ["peak of live bytes", (entry) => Math.max(0, ...entry.memory.map((plan) => plan.peak_live_bytes)), bytesText],
  ["time of compilation", (entry) => sum(Object.values(entry.times)), secondsText],
];

export function comparePane() {
  const pane = new Pane("compare", "Compare two runs: A | B", { wide: true, closed: true });
  const models = { A: state.model, B: state.model };
  const picked = { A: "", B: "" };
  let title = "";
  let shown = [];
  const lists = ["A", "B"].map((side) => choice(`Entry ${side}`, [], (id) => {
    picked[side] = id;
    update();
  }));
  const stages = choice("Stage", [], (wanted) => {
    title = wanted;
    update();
  });
  const file = make("input", {
    type: "file", accept: ".html,.json", "aria-label": "Another saved page, as B", onchange: load,
  });
  const figures = make("table", { class: "figures" });
  const rows = new Rows("compare", "Differences between A and B", drawLine, () => {});
  pane.tools.append("A ", lists[0], " B ", lists[1], stages, file);
  pane.body.append(figures, rows.element);

  function drawLine(index, row) {
    const { sign, text } = shown[index];
    const code = make("span", { class: "code" });
    paintCode(code, text, "python");
    row.append(make("span", { class: "gutter" }, sign), code);
    row.classList.toggle("added", sign === "+");
    row.classList.toggle("removed", sign === "−");
  }

  /** B from a page that was saved before, or from what `to_json()` gave. */
  async function load() {
    const text = await file.files[0].text();
    try {
      const page = file.files[0].name.endsWith(".json")
        ? unfolded(JSON.parse(text))
        : await unpack(new DOMParser().parseFromString(text, "text/html").getElementById("data").textContent);
      models.B = new Model(page);
      picked.B = "";
      update();
    } catch (error) {
      pane.note.textContent = `${file.files[0].name} is no saved page: ${error.message}`;
    }
  }

  function update() {
    if (!pane.isOpen) return;
    const entries = ["A", "B"].map((side, index) => {
      const ids = [...models[side].entries.keys()];
      if (!ids.includes(picked[side])) picked[side] = usualEntry(side, ids);
      offer(lists[index], ids.map((id) => [id, `${id} ${models[side].entryText(id)}`]));
      lists[index].value = picked[side] ?? "";
      return models[side].entries.get(picked[side]);
    });
    if (entries.includes(undefined)) return;
    showFigures(entries);
    showDifference(entries);
  }

  /** A: what the page shows; B: another entry of the same frame, or else the next one. */
  function usualEntry(side, ids) {
    if (models[side] !== models.A || !ids.includes(state.entry)) return ids[0];
    const frame = models.A.entries.get(state.entry).frame.id;
    const others = ids.filter((id) => id !== state.entry);
    return side === "A" ? state.entry : (others.find((id) => id.startsWith(`${frame}.`)) ?? others[0] ?? ids[0]);
  }

  function showFigures(entries) {
    const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
    const body = FIGURES.map(([name, count, text]) => {
      const cells = entries.map((entry) => text(count(entry)));
      return line("td", [name, ...cells]);
    });
    figures.replaceChildren(line("th", ["", "A", "B"]), ...body);
  }

  function showDifference([a, b]) {
    const nameOf = (stage) => `${stage.title}${stage.direction ? ` (${stage.direction})` : ""}`;
    const names = [...new Set([...a.stages, ...b.stages].map(nameOf))];
    stages.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    const graph = [...a.stages, ...b.stages].find(({ kind }) => kind === "fx");
    if (!names.includes(title)) title = graph ? nameOf(graph) : (names[0] ?? "");
    stages.value = title;
    const lines = (entry) => entry.stages.find((stage) => nameOf(stage) === title)?.text.split("\n") ?? [];
    shown = difference(lines(a), lines(b));
    pane.note.textContent = many(shown.filter(({ sign }) => sign !== " ").length, "line") + " differ";
    rows.show(shown.length, Math.max(0, ...shown.map(({ text }) => Math.min(300, text.length))) + 4);
  }

  pane.update = update;
  return pane;
}
