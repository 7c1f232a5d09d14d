// The generated kernels: source with the provenance of each line, bytes, time, assembly.

import { bytesText, choice, make, offer } from "./dom.js";
import { paintCode } from "./highlight.js";
import { FROM_CACHE } from "./model.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { breadthOf, choose, chooseLine, currentEntry, isLineLit, onChange, state } from "./state.js";

export function kernelsPane() {
  const pane = new Pane("kernels", "Kernels");
  let kernels = [];
  let index = 0;
  let isAssembly = false;
  const list = choice("Kernel", [], (id) => go(kernels.findIndex((kernel) => kernel.id === id)));
  const stepper = (sign, label, by) =>
    make("button", { "aria-label": label, title: label, onclick: () => go(index + by) }, sign);
  const all = make("button", { onclick: () => choose(kernels[index].id, "") }, "light all of it");
  const assembly = make("button", { "aria-pressed": "false", onclick: toggle }, "assembly");
  pane.tools.append(stepper("◀", "Kernel before", -1), list, stepper("▶", "Next kernel", 1), all, assembly);
  const facts = make("p", { class: "facts" });
  const rows = new Rows("kernels", "Lines of the kernel", drawLine, (at) => {
    const line = lineOf(kernels[index], at);
    if (line >= 0) chooseLine(stageOf(kernels[index]), line, "kernels");
  });
  pane.body.append(facts, rows.element);
  const stageOf = (kernel) => state.model.stages.get(kernel.stage);

  function toggle() {
    isAssembly = !isAssembly;
    assembly.setAttribute("aria-pressed", String(isAssembly));
    update();
  }

  function textsOf(kernel) {
    return isAssembly ? kernel.assembly.split("\n") : stageOf(kernel).texts;
  }

  /** The line of the source that is shown at a row: machine code begins with its number. */
  function lineOf(kernel, at) {
    return isAssembly ? Number.parseInt(textsOf(kernel)[at].slice(0, 5), 10) - 1 : at;
  }

  function drawLine(at, row) {
    const kernel = kernels[index];
    if (!isAssembly) row.append(make("span", { class: "number" }, String(at + 1)));
    const code = make("span", { class: "code" });
    paintCode(code, textsOf(kernel)[at], isAssembly ? "text" : kernel.language);
    row.append(code);
    const stage = stageOf(kernel);
    const line = lineOf(kernel, at);
    row.classList.toggle("lit", isLineLit(stage, line));
    const isChosen = state.chosen === `${stage.id}#${line}` || stage.lines[line]?.includes(state.chosen);
    row.classList.toggle("chosen", Boolean(isChosen));
  }

  function go(wanted) {
    index = Math.max(0, Math.min(kernels.length - 1, wanted));
    isAssembly = false;
    update();
    if (kernels.length) reveal(kernels[index]);
  }

  /** Scroll to what is lit. */
  function reveal(kernel) {
    const stage = stageOf(kernel);
    rows.revealLit((at) => isLineLit(stage, lineOf(kernel, at)), (at) => breadthOf(stage, lineOf(kernel, at)));
  }

  function factsOf(kernel) {
    const most = kernel.at_most ? "at most " : "";
    const parts = [
      kernel.language,
      `reads ${most}${bytesText(kernel.bytes_read)}`,
      `writes ${most}${bytesText(kernel.bytes_written)}`,
    ];
    const moved = kernel.bytes_read + kernel.bytes_written;
    if (kernel.seconds && state.model.shareOfCopy(moved, kernel.seconds) <= FROM_CACHE) {
      parts.push(`${most}${bytesText(moved / kernel.seconds)} a second`);
    }
    parts.push(state.model.speedText(moved, kernel.seconds, kernel.at_most));
    const lines = state.model.linesOf(kernel.id).map((id) => state.model.name(id));
    parts.push(lines.length > 4 ? `from ${lines.length} source lines` : `from ${lines.join(", ")}`);
    return parts.filter(Boolean).join(" · ");
  }

  function update() {
    if (!pane.isOpen) return undefined;
    offer(list, kernels.map((kernel, at) => [kernel.id, `${at + 1}. ${isLit(kernel) ? "● " : ""}${kernel.name}`]));
    pane.note.textContent = kernels.length ? `${index + 1} of ${kernels.length}` : "no kernel of ours";
    all.hidden = !kernels.length;
    facts.hidden = !kernels.length;
    const kernel = kernels[index];
    assembly.hidden = !kernel?.assembly;
    if (!kernel) return rows.show(0);
    list.value = kernel.id;
    facts.textContent = factsOf(kernel);
    const texts = textsOf(kernel);
    rows.show(texts.length, Math.max(...texts.map((text) => Math.min(text.length, 400))) + 6);
    return undefined;
  }

  function isLit(kernel) {
    const stage = stageOf(kernel);
    return state.lit.has(kernel.id) || stage.lines.some((_, at) => isLineLit(stage, at));
  }

  function showEntry() {
    const stages = currentEntry()?.kernels ?? [];
    kernels = stages.filter((kernel) => {
      const { direction } = stageOf(kernel);
      return !state.direction || !direction || direction === state.direction;
    });
    index = Math.min(index, Math.max(0, kernels.length - 1));
    isAssembly = false;
    update();
  }

  function showLights() {
    if (!kernels.length) return;
    if (!isLit(kernels[index])) {
      const found = kernels.findIndex(isLit);
      if (found >= 0) index = found;
    }
    update();
    const kernel = kernels[index];
    if (state.from !== "kernels") reveal(kernel);
  }

  pane.update = update;
  onChange((what) => (what === "entry" ? showEntry() : showLights()));
  return pane;
}
