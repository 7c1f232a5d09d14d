// The pipeline of this program: what each stage holds and the bytes that it would move, as a stream in the
// colours of the source lines, which ends in kernels; and the way to everything else.

import { bytesText, draw, make, many, secondsText } from "./dom.js";
import { lineId } from "./model.js";
import { Pane, panes } from "./pane.js";
import { choose, currentEntry, onChange, showEntry, state } from "./state.js";
import { paintStream } from "./stream.js";

const LANES = 7; // source lines with a colour of their own; the others share one
const MOST_ENTRIES = 12;
const HIGH = { 1: 190, 2: 130 }; // pixels of the most bytes, of one half or of two
const NO_CALLS = ["placeholder", "get_attr", "output"];

/**
 * @typedef {{nodes: string[], bytes: number[], at_most: boolean, stage: string}} Row  of the document
 * @typedef {{key: string, title: string, count: string, about: string, go: () => void, row: Row|null}} Step
 */

/** @param {(id: string) => void} showStage */
export function flowPane(showStage) {
  const pane = new Pane("flow", "Pipeline", { wide: true });
  const entries = make("div", { class: "chips" });
  const halves = make("div", {});
  const ways = make("nav", { class: "chips", "aria-label": "Panes" });
  pane.body.append(entries, halves, ways);
  const { model } = state;
  /** @type {{svg: SVGElement, rows: Row[], scale: number}[]} */
  let drawn = [];
  /** @type {Map<string, number>}  source line -> its lane */
  let lanes = new Map();
  /** @type {Map<string, number[]>}  object -> its share of each lane */
  let known = new Map();

  /** The source lines of what was captured for an object. */
  function linesOf(id) {
    const found = new Set(model.nodesOf(id).map(({ place }) => lineId(place)).filter(Boolean));
    return found.size ? [...found] : model.linesOf(id);
  }

  /** Which part of an object's bytes belongs to each lane: as much as of what it was made of. */
  function partsOf(id, before) {
    if (known.has(id)) return known.get(id);
    const parts = new Array(LANES + 1).fill(0);
    const made = before ? [...model.originsOf(id)].filter((each) => before.get(each)) : [];
    const all = made.reduce((sum, each) => sum + before.get(each), 0);
    for (const each of made) {
      known.get(each).forEach((part, lane) => (parts[lane] += (part * before.get(each)) / all));
    }
    const lines = made.length ? [] : linesOf(id);
    for (const line of lines) parts[lanes.get(line) ?? LANES] += 1 / lines.length;
    if (!made.length && !lines.length) parts[LANES] = 1;
    known.set(id, parts);
    return parts;
  }

  /** Bytes of a stage by lane. */
  function shares({ nodes, bytes }) {
    const found = new Array(LANES + 1).fill(0);
    nodes.forEach((id, at) => known.get(id).forEach((part, lane) => (found[lane] += part * bytes[at])));
    return found;
  }

  /** The lines that move most have lanes, in the order of the program. */
  function setLanes(rows) {
    const cost = new Map();
    for (const { nodes, bytes } of rows) {
      nodes.forEach((id, at) => {
        const lines = linesOf(id);
        for (const line of lines) cost.set(line, (cost.get(line) ?? 0) + bytes[at] / lines.length);
      });
    }
    const most = new Set([...cost].sort((a, b) => b[1] - a[1]).slice(0, LANES).map(([line]) => line));
    lanes = new Map([...cost.keys()].filter((line) => most.has(line)).map((line, at) => [line, at]));
  }

  /** Of a half the parts of every object, stage by stage. */
  function setParts(rows) {
    let before = null;
    for (const { nodes, bytes } of rows) {
      nodes.forEach((id) => partsOf(id, before));
      before = new Map(nodes.map((id, at) => [id, bytes[at]]));
    }
  }

  // --- what there is to say ----------------------------------------------------------------------
  function toPane(key) {
    const found = panes.find((each) => each.key === key);
    found.open(true);
    found.element.scrollIntoView({ block: "start" });
    found.button.focus({ preventScroll: true });
  }

  const toStage = (id) => () => {
    toPane("stages");
    showStage(id);
  };

  /** @returns {Step[]} */
  function stepsOf(entry, half, lines) {
    const stages = entry.stages.map(({ id }) => model.stages.get(id));
    const captured = stages.find(({ kind }) => kind === "fx");
    const joint = stages.find(({ kind }) => kind === "joint");
    const calls = captured?.nodes.filter(({ op }) => !NO_CALLS.includes(op)).length ?? 0;
    const kept = entry.saved.filter((each) => !each.is_input).reduce((sum, { bytes }) => sum + bytes, 0);
    const steps = half === "backward" ? [
      step("source", "Backward", `${bytesText(kept)}`, "saved by the forward half", () => toPane("saved")),
      step("fx", "Joint graph", many(joint?.nodes.length ?? 0, "node"), "both halves, cut", toStage(joint?.id)),
    ] : [
      step("source", "Source", many(lines, "line"), `${entry.frame.function}`, () => toPane("source")),
      step("fx", "FX graph", many(calls, "operation"), many(entry.guards.length, "guard"), toStage(captured?.id)),
    ];
    const rows = entry.flow.filter(({ stage }) => model.stages.get(stage).direction === half);
    const titles = [["ATen graph", "operation"], ["Loop IR", "buffer"], ["After fusion", ""]];
    setParts(rows);
    const own = entry.kernels.filter(({ stage }) => model.stages.get(stage).direction === half);
    rows.forEach((row, at) => {
      const [title, noun] = titles[at];
      const calls = row.nodes.length - own.length;
      const last = [[own.length, "loop"], [calls, "call"]].filter(([number]) => number);
      const count = at < 2 ? many(row.nodes.length, noun) : last.map((each) => many(...each)).join(", ");
      steps.push({ ...step(row.stage, title, count, bytesSaid(row, rows[at - 1]), toStage(row.stage)), row });
    });
    if (rows.length) steps.push(kernelsStep(entry, half, own, rows[2]));
    return steps;
  }

  const step = (key, title, count, about, go) => ({ key, title, count, about, go, row: null });

  function kernelsStep(entry, half, own, row) {
    const seconds = (entry.steps ?? []).filter(({ line }) => line.startsWith(`${entry.id}/${half}/`))
      .reduce((sum, each) => sum + each.seconds, 0);
    const peak = entry.memory.find(({ direction }) => direction === half)?.peak_live_bytes;
    const calls = row.nodes.length - own.length;
    const about = [calls ? `and ${calls} of a library` : "", seconds ? secondsText(seconds) : "",
      peak ? `at most ${bytesText(peak)} live` : ""];
    const go = () => toPane(own.length ? "kernels" : "fusion");
    return { ...step("kernels", "Kernels", many(own.length, "kernel"), about.filter(Boolean).join(" · "), go), row };
  }

  const total = (row) => row.bytes.reduce((sum, each) => sum + each, 0);

  /** "12.1 MB · −55 %": what a stage moves, and how much less than the one before. */
  function bytesSaid(row, before) {
    const [now, then] = [total(row), before ? total(before) : 0];
    const change = then ? Math.round((100 * (now - then)) / then) : 0;
    const said = change ? ` · ${change < 0 ? "−" : "+"}${Math.abs(change)} %` : "";
    return `${row.at_most ? "≤ " : ""}${bytesText(now)}${said}`;
  }

  // --- the picture -------------------------------------------------------------------------------
  function headOf({ title, count, about, go, row }, scale) {
    const bar = make("span", { class: "flow-bar", "aria-hidden": "true" });
    for (const [lane, bytes] of row ? shares(row).entries() : []) {
      const part = make("span", { class: `lane${lane}` });
      part.style.width = `${100 * bytes * scale}%`;
      bar.append(part);
    }
    bar.hidden = !row;
    return make("button", { class: "flow-head", onclick: go },
      make("span", { class: "flow-title" }, title), make("b", {}, count),
      make("span", { class: "note" }, about), bar);
  }

  function legend(count) {
    const rows = [...lanes].map(([line, lane]) => {
      const place = model.place(line);
      const name = `${place.file.path.split("/").pop()}:${place.line}`;
      const does = () => choose(line, "flow");
      return make("li", {}, make("button", { class: `lane lane${lane}`, "data-line": line, onclick: does },
        make("span", { class: "note" }, name), make("code", {}, place.text.trim())));
    });
    const others = count - lanes.size;
    if (others > 0) rows.push(make("li", { class: `lane lane${LANES} note` }, many(others, "other line")));
    return make("ol", { class: "lanes", "aria-label": "Source lines that move most" }, ...rows);
  }

  function update() {
    if (!pane.isOpen) return;
    const entry = currentEntry();
    pane.note.textContent = "";
    listEntries();
    drawn = [];
    known = new Map();
    if (!entry) {
      halves.replaceChildren(make("p", {}, "nothing was compiled"));
      return;
    }
    const given = ["forward", "backward"].filter((half) => !state.direction || half === state.direction);
    const first = (half) => entry.flow.find(({ stage }) => model.stages.get(stage).direction === half);
    const rows = given.map(first).filter(Boolean);
    setLanes(rows);
    const most = Math.max(1, ...rows.map(total));
    const captured = entry.stages.find(({ kind }) => kind === "fx")?.nodes ?? [];
    const places = new Set(captured.map(({ place }) => lineId(place)).filter(Boolean));
    const shown = given.filter((half, at) => first(half) || (!at && half === "forward"));
    halves.replaceChildren(...shown.map((half, at) => {
      const steps = stepsOf(entry, half, places.size);
      const svg = draw("svg", { class: "flow-svg", "aria-hidden": "true" });
      const beside = at === 0 ? legend(places.size) : make("span", {});
      const moved = steps.filter(({ row }) => row).map(({ row }) => row);
      drawn.push({ svg, rows: moved, scale: HIGH[shown.length] / most });
      return make("div", { class: "flow-half" }, ...steps.map((each) => headOf(each, 1 / most)), beside, svg);
    }));
    const why = entry.notes.find((note) => note.includes("runs eagerly"));
    const said = [why, rows.length ? "bytes of each operation, loop nest or kernel by itself" : ""];
    pane.note.textContent = said.filter(Boolean).join(" · ");
    paint();
    showLights();
  }

  function paint() {
    for (const { svg, rows, scale } of drawn) paintStream(svg, rows, scale, { shares, chooseLane });
  }

  function chooseLane(lane) {
    const line = [...lanes].find(([, at]) => at === lane)?.[0];
    if (line) choose(line, "flow");
  }

  // --- what is lit; the ways to other graphs and panes --------------------------------------------
  function showLights() {
    const lit = new Set([...lanes].filter(([line]) => state.lit.has(line)).map(([, lane]) => String(lane)));
    pane.element.classList.toggle("some-lit", lit.size > 0);
    const mark = (which, name, holds) => {
      for (const part of halves.querySelectorAll(which)) part.classList.toggle(name, holds(part.dataset));
    };
    mark("[data-lane]", "on", ({ lane }) => lit.has(lane));
    mark("[data-line]", "on", ({ line }) => state.lit.has(line));
    mark(".block", "chosen", ({ id }) => state.chosen === id);
  }

  function listEntries() {
    const graphs = [...model.entries.values()].filter(({ stages }) => stages.some(({ kind }) => kind === "fx"));
    const breaks = model.frames.reduce((sum, frame) => sum + frame.breaks.length, 0);
    const nameOfFrame = ({ function: name }) =>
      name.replace(/^<resume of (.*) at line (\d+)>$/, "$1 from line $2").replaceAll("<locals>.", "");
    const chips = graphs.slice(0, MOST_ENTRIES).map(({ id, frame, kernels }) => make("button", {
      class: "chip", "aria-pressed": String(id === state.entry), onclick: () => showEntry(id),
    }, `${id} ${nameOfFrame(frame)} · ${many(kernels.length, "kernel")}`));
    const more = graphs.length - MOST_ENTRIES;
    if (more > 0) chips.push(make("span", { class: "note" }, `and ${more} more`));
    const text = `✂ ${many(breaks, "graph break")}`;
    if (breaks) chips.push(make("button", { class: "chip bad", onclick: () => toPane("map") }, text));
    entries.hidden = graphs.length < 2 && !breaks;
    entries.replaceChildren(make("span", { class: "note" }, many(graphs.length, "graph")), ...chips);
  }

  pane.listPanes = () => {
    const others = panes.filter(({ key, element }) => key !== "flow" && !element.hidden);
    ways.replaceChildren(...others.map(({ key, title }) =>
      make("button", { class: "chip", onclick: () => toPane(key) }, title)));
  };
  pane.update = () => {
    update();
    pane.listPanes();
  };
  new ResizeObserver(paint).observe(halves);
  onChange((what) => (what === "entry" ? update() : showLights()));
  return pane;
}
