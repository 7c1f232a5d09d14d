// The evaluator's way through the frame: one instruction after the other, and the graph as it grows.

import { make, many } from "./dom.js";
import { GraphView } from "./graph.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, isLineLit, onChange, state } from "./state.js";

export function bytecodePane() {
  const pane = new Pane("bytecode", "Bytecode, step by step", { wide: true, closed: true });
  const { model } = state;
  let code = null;
  let graph = null;
  let bounds = []; // node n of the graph exists from this instruction on
  let walk = new Map(); // instruction -> the symbolic stack before it, and the calls in the graph
  let now = 0;
  const slider = make("input", {
    type: "range", min: 0, "aria-label": "Instruction", oninput: () => go(Number(slider.value)),
  });
  const rows = new Rows("bytecode", "Instructions", drawLine, (index) => {
    go(index);
    const [id] = code.lines[index] ?? [];
    if (id) choose(id, "bytecode");
  });
  const view = new GraphView("growing");
  const stack = make("ol", { class: "stack", "aria-label": "Symbolic stack, its top first" });
  pane.tools.append(
    make("button", { "aria-label": "Instruction before", onclick: () => go(now - 1) }, "◀"), slider,
    make("button", { "aria-label": "Next instruction", onclick: () => go(now + 1) }, "▶"),
  );
  const left = make("div", {}, rows.element, make("h3", {}, "The symbolic stack before it, top first"), stack);
  pane.body.append(make("div", { class: "pair" }, left, view.element));

  function drawLine(index, row) {
    row.append(make("span", { class: "code" }, code.texts[index]));
    const before = walk.get(code.lines[index]?.[0])?.stack ?? [];
    row.append(make("span", { class: "note" }, before.length ? `  [${before.join(", ")}]` : ""));
    row.classList.toggle("chosen", index === now);
    row.classList.toggle("later", index > now);
    row.classList.toggle("lit", (code.lines[index] ?? []).some((id) => state.lit.has(id)));
  }

  /** The first instruction that has a source line, or is an instruction, that the node came from. */
  function bornAt(node) {
    if (node.op === "output") return code.texts.length - 1;
    const origins = model.originsOf(node.id);
    if (!origins.size) return 0;
    const isOrigin = (id) => origins.has(id) || (model.thing(id)?.origins ?? []).some((line) => origins.has(line));
    const lines = code.lines.map((ids, index) => ({ ids, index }));
    const instructions = lines.filter(({ ids }) => ids.some((id) => origins.has(id)));
    if (instructions.length) return Math.max(...instructions.map(({ index }) => index));
    return Math.max(-1, ...lines.filter(({ ids }) => ids.some(isOrigin)).map(({ index }) => index));
  }

  function update() {
    const entry = currentEntry();
    const stage = (kind) => model.stages.get(entry?.stages.find((each) => each.kind === kind)?.id);
    [code, graph] = [stage("bytecode"), stage("fx")];
    pane.note.textContent = code ? "" : "nothing was compiled";
    if (!pane.isOpen || !code) return rows.show(0);
    walk = new Map(entry.walk.map((step) => [step.node, step]));
    bounds = (graph?.nodes ?? []).map(bornAt);
    slider.max = String(code.texts.length - 1);
    rows.show(code.texts.length, Math.max(...code.texts.map((text) => text.length)) + 60);
    return go(Math.min(now, code.texts.length - 1));
  }

  function go(wanted) {
    if (!code) return;
    now = Math.max(0, Math.min(code.texts.length - 1, wanted));
    slider.value = String(now);
    const born = new Set(graph?.nodes.filter((_, index) => bounds[index] <= now).map(({ id }) => id));
    view.isVisible = (id) => born.has(id);
    pane.note.textContent = `instruction ${now + 1} of ${code.texts.length}: ${many(born.size, "node")}`;
    if (graph && model.layouts.stages[graph.id]) view.show(graph);
    const values = walk.get(code.lines[now]?.[0])?.stack.toReversed() ?? [];
    stack.replaceChildren(...(values.length ? values : ["empty"]).map((text) => make("li", {}, text)));
    rows.cursor = now;
    rows.reveal(now);
  }

  function showLights() {
    view.reveal();
    if (state.from === "bytecode") rows.refresh();
    else rows.revealLit((index) => isLineLit(code, index));
  }

  pane.update = update;
  onChange((what) => (what === "entry" ? update() : pane.isOpen && code && showLights()));
  return pane;
}
