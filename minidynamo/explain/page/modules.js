// The tree of the model's modules with the bytes, the time and the operations of each; of one source
// line where one is chosen: "container.py:253" alone says little of an nn.Sequential.

import { bytesText, choice, make, many, secondsText } from "./dom.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, state } from "./state.js";

const MEASURES = [["bytes", "bytes moved"], ["seconds", "time"], ["operations", "operations"]];
const UNFOLDED = 12; // so many rows at most at first, where a depth allows it

export function modulesPane() {
  const about = "The modules that were called, with the bytes, time and operations of each";
  const pane = new Pane("modules", "Modules", { about });
  const { model } = state;
  let measure = "bytes";
  let folded = new Set();
  /** @type {{id: string, path: string, depth: number, hasParts: boolean, cost: any}[]} */
  let shown = [];
  let most = 0;
  const rows = new Rows("modules", "Tree of modules", drawItem, (index) => choose(shown[index].id, "modules"));
  rows.element.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") fold(rows.cursor, event.key === "ArrowLeft");
  });
  pane.tools.append(choice("What bars show", MEASURES, (wanted) => {
    measure = wanted;
    update();
  }));
  pane.body.append(rows.element);

  function drawItem(index, row) {
    const { id, path, depth, hasParts, cost } = shown[index];
    const indent = make("span", { class: "indent" });
    indent.style.width = `${depth * 1.2}em`;
    const isFolded = folded.has(id);
    const does = (event) => {
      event.stopPropagation();
      fold(index, !isFolded);
    };
    const mark = hasParts ? "▸▾"[isFolded ? 0 : 1] : "·";
    const sign = make("span", { class: "sign", onclick: hasParts ? does : null }, mark);
    const bar = make("span", { class: "heat" });
    bar.style.setProperty("--heat-share", `${most ? Math.round((cost[measure] / most) * 100) : 0}%`);
    const figures = [bytesText(Math.round(cost.bytes)), cost.seconds ? secondsText(cost.seconds) : "",
      many(Math.round(cost.operations), "operation")];
    row.append(bar, indent, sign, make("span", { class: "code" }, path.split(".").pop() || "(the whole)"));
    row.append(make("span", { class: "note" }, figures.filter(Boolean).join(" · ")));
    row.title = path;
    if (hasParts) row.dataset.folded = isFolded ? "yes" : "no";
    row.classList.toggle("lit", state.lit.has(id));
    row.classList.toggle("chosen", state.chosen === id);
  }

  function fold(index, isFolded) {
    if (!shown[index]?.hasParts) return;
    if (isFolded) folded.add(shown[index].id);
    else folded.delete(shown[index].id);
    update();
  }

  /** The deepest level at which the tree is still short. */
  function foldDeep(tree) {
    const within = (most) => tree.filter(({ depth }) => depth <= most).length;
    let deepest = 1;
    while (within(deepest + 1) <= UNFOLDED && within(deepest) < tree.length) deepest += 1;
    folded = new Set(tree.filter(({ depth }) => depth >= deepest).map(({ id }) => id));
  }

  /** Is a module around this one folded? */
  function isHidden(path) {
    const parts = path.split(".");
    const around = parts.map((_, depth) => parts.slice(0, depth).join("."));
    return path !== "" && around.some((above) => folded.has(`${state.entry}/module/${above}`));
  }

  function update() {
    const entry = currentEntry();
    const line = entry && model.things.get(state.chosen)?.kind === "line" ? state.chosen : "";
    const all = entry ? model.moduleTree(entry.id) : [];
    pane.element.hidden = all.length < 2; // a function without modules
    const tree = line ? model.moduleTree(entry.id, line) : all;
    const used = tree.length > 1 ? tree : all;
    shown = used.filter(({ path }) => !isHidden(path));
    most = Math.max(0, ...used.map(({ cost }) => cost[measure]));
    pane.note.textContent = used === all ? many(all.length - 1, "module") : `of ${model.name(line)}`;
    rows.show(shown.length, Math.max(0, ...shown.map(({ path, depth }) => depth * 2 + path.length)) + 50);
  }

  pane.update = update;
  onChange((what) => {
    if (what === "entry" && currentEntry()) foldDeep(model.moduleTree(state.entry));
    if (!pane.isOpen) return;
    update();
    if (state.from !== "modules") rows.revealLit((index) => state.lit.has(shown[index].id));
  });
  return pane;
}
