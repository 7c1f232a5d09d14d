// The stages of an entry, one after the other: as text, as a graph, or what changed since the last.

import { choice, make, offer } from "./dom.js";
import { alignment } from "./align.js";
import { difference } from "./diff.js";
import { GraphView } from "./graph.js";
import { paintCode } from "./highlight.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { breadthOf, chooseLine, currentEntry, isLineLit, onChange, state } from "./state.js";

const VIEWS = [["text", "text"], ["graph", "graph"], ["difference", "difference"]];
const GRAPHS = ["fx", "aten", "joint"]; // whose nodes belong to modules

const MARKS = {
  saved: ["▣", "saved for the backward half: the cut goes through here"],
  backward: ["←", "of the backward half"],
};

/** The stages of the shown entry in order, without kernels, which have a pane of their own. */
export function stagesShown() {
  const stages = currentEntry()?.stages ?? [];
  const wanted = (stage) =>
    stage.kind !== "kernel" &&
    (!state.direction || !stage.direction || stage.direction === state.direction);
  return stages
    .filter(wanted)
    .sort((a, b) => a.step - b.step)
    .map((stage) => state.model.stages.get(stage.id));
}

export function stagesPane() {
  const pane = new Pane("stages", "Stages");
  let stages = [];
  let index = 0;
  let view = "text";
  /** @type {{sign: string, text: string, line: number}[]} */
  let shown = [];
  const list = choice("Stage", [], (id) => go(stages.findIndex((stage) => stage.id === id)));
  const views = choice("View", VIEWS, (wanted) => {
    view = wanted;
    update();
  });
  const stepper = (sign, label, by) =>
    make("button", { "aria-label": label, title: label, onclick: () => go(index + by) }, sign);
  pane.tools.append(
    stepper("◀", "Step before (,)", -1), list, stepper("▶", "Next step (.)", 1), views,
  );
  const rows = new Rows("stages", "Lines of the stage", drawLine, (at) => {
    if (shown[at].line >= 0) chooseLine(stages[index], shown[at].line, "stages");
  });
  const graph = new GraphView("stages");
  pane.body.append(rows.element, graph.element);

  function go(wanted) {
    index = Math.max(0, Math.min(stages.length - 1, wanted));
    update();
  }

  function drawLine(at, row) {
    const { sign, text, line } = shown[at];
    const stage = stages[index];
    row.append(make("span", { class: "number" }, line >= 0 ? String(line + 1) : ""));
    if (view === "difference") row.append(make("span", { class: "gutter" }, sign));
    if (stage.kind === "joint") row.append(halfMark(stage.lines[line]?.[0]));
    const code = make("span", { class: "code" });
    paintCode(code, text, stage.language);
    row.append(code);
    const path = GRAPHS.includes(stage.kind) && line > 0 && state.model.things.get(stage.lines[line]?.[0])?.group;
    if (path) row.append(make("span", { class: "note module" }, path));
    const step = state.model.measured.get(stage.lines[line]?.[0]);
    const speed = step && state.model.speedText(step.bytes, step.seconds, step.at_most);
    if (step) row.append(make("span", { class: "note" }, `  ${speed}`));
    row.classList.toggle("added", sign === "+");
    row.classList.toggle("removed", sign === "−");
    row.classList.toggle("later", sign === "~");
    row.classList.toggle("lit", line >= 0 && isLineLit(stage, line));
    row.classList.toggle("chosen", line >= 0 && Boolean(isChosen(stage, line)));
  }

  /** In the joint graph: what the cut saves, and what is backward. */
  function halfMark(id) {
    const half = state.model.things.get(id)?.half ?? "";
    const [mark, title] = MARKS[half] ?? ["", ""];
    return make("span", { class: `gutter ${half}`, title }, mark);
  }

  function isChosen(stage, line) {
    return state.chosen === `${stage.id}#${line}` || stage.lines[line]?.includes(state.chosen);
  }

  function linesShown(stage) {
    if (view === "difference" && stage.kind === "pass") return stage.texts.map(changedLine);
    const earlier = stages.slice(0, index).filter(({ kind }) => kind !== "pass").reverse();
    if (view === "difference" && earlier.length) return sinceEarlier(earlier, stage);
    return stage.texts.map((text, line) => ({ sign: " ", text, line }));
  }

  function update() {
    if (!pane.isOpen) return;
    const stage = stages[index];
    offer(list, stages.map((each, at) => [each.id, `${at + 1}. ${each.title}${towards(each)}`]));
    const isGraph = view === "graph" && stage && state.model.layouts.stages[stage.id];
    rows.element.hidden = Boolean(isGraph);
    graph.element.hidden = !isGraph;
    pane.note.textContent = stage ? `${index + 1} of ${stages.length}` : "nothing was compiled";
    if (!stage) return rows.show(0);
    list.value = stage.id;
    if (isGraph) return graph.show(stage);
    if (view === "graph") pane.note.textContent += ": this stage has no graph";
    shown = linesShown(stage);
    rows.show(shown.length, Math.max(0, ...shown.map(({ text }) => Math.min(text.length, 400))) + 6);
    return showLights();
  }

  const isLit = (stage) => (at) => shown[at].line >= 0 && isLineLit(stage, shown[at].line);

  function showLights() {
    const stage = stages[index];
    if (!stage) return;
    if (!graph.element.hidden) graph.reveal();
    else if (state.from === "stages") rows.refresh();
    else rows.revealLit(isLit(stage), (at) => breadthOf(stage, shown[at].line));
  }

  function showEntry() {
    const before = stages[index];
    stages = stagesShown();
    const same = stages.findIndex((each) => each.kind === before?.kind && each.direction === before?.direction);
    index = same >= 0 ? same : Math.max(0, stages.findIndex((each) => each.kind === "fx"));
    update();
  }

  pane.update = update;
  pane.view = (wanted) => {
    views.value = view = wanted;
    update();
  };
  pane.go = (by) => go(index + by);
  pane.showStage = (id) => {
    const at = stages.findIndex((stage) => stage.id === id);
    if (at >= 0) go(at);
  };
  onChange((what) => (what === "entry" ? showEntry() : showLights()));
  return pane;
}

/** The difference from the nearest stage that some of it came from; from the one before, where none is. */
function sinceEarlier(earlier, stage) {
  for (const before of earlier) {
    const found = alignment(state.model, before, stage);
    if (found) return found;
  }
  return difference(earlier[0].texts, stage.texts);
}

/** A line of what a pass changed, which says so itself. */
const changedLine = (text, line) => ({ sign: { "+": "+", "-": "−" }[text[0]] ?? " ", text: text.slice(2), line });

const towards = (stage) => (stage.direction ? ` (${stage.direction})` : "");
