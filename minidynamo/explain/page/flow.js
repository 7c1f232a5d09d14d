// The pipeline of this program: what each stage holds and the bytes that it would move, as a stream in the
// colours of the source lines, which ends in kernels; and the way to everything else.

import { bytesText, draw, make, many, secondsText } from "./dom.js";
import { lineId } from "./model.js";
import { Pane, panes } from "./pane.js";
import { choose, currentEntry, onChange, showEntry, state } from "./state.js";

const LANES = 7; // source lines with a colour of their own; the others share one
const MOST_BLOCKS = 48; // kernels that are drawn one by one
const MOST_ENTRIES = 12;
const HIGH = { 1: 190, 2: 130 }; // pixels of the most bytes, of one half or of two
const LETTER = 6.7; // pixels of a name
const BETWEEN = 13; // names of kernels
const [BAR, BLOCK] = [9, 46]; // widths of a stage's bar and of a kernel
const LAST = 1.3; // width of the last column in widths of the others, as style.css says
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
  /** @type {{svg: SVGElement, steps: Step[], scale: number}[]} */
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
    for (const each of made) known.get(each).forEach((part, lane) => (parts[lane] += (part * before.get(each)) / all));
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
      step("fx", "Joint graph", many(joint?.nodes.length ?? 0, "node"), "both halves, then cut", toStage(joint?.id)),
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
      make("span", { class: "flow-title" }, title), make("b", {}, count), make("span", { class: "note" }, about), bar);
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
      drawn.push({ svg, steps, scale: HIGH[shown.length] / most });
      return make("div", { class: "flow-half" }, ...steps.map((each) => headOf(each, 1 / most)), beside, svg);
    }));
    const why = entry.notes.find((note) => note.includes("runs eagerly"));
    const said = [why, rows.length ? "bytes of each operation, loop nest or kernel by itself" : ""];
    pane.note.textContent = said.filter(Boolean).join(" · ");
    paint();
    showLights();
  }

  /** A stage's bar, or the ribbon from one to the next: lane by lane, around the middle. */
  function stacked(values, middle) {
    let at = middle - values.reduce((sum, each) => sum + each, 0) / 2;
    return values.map((value) => [at, (at += value)]);
  }

  function paint() {
    for (const { svg, steps, scale } of drawn) paintHalf(svg, steps, scale);
  }

  function paintHalf(svg, steps, scale) {
    const width = svg.clientWidth;
    const rows = steps.filter(({ row }) => row).map(({ row }) => row);
    if (!width || !rows.length) return svg.replaceChildren();
    const column = (at) => (at * width) / (4 + LAST);
    const blocks = blocksOf(rows[3], scale);
    const gap = Math.min(3, 60 / blocks.length);
    const tall = Math.max(scale * total(rows[0]), blocks.reduce((sum, { high }) => sum + high + gap, 0)) + 4;
    const middle = tall / 2;
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.style.height = `${tall}px`;
    const bars = [rows[0], ...rows.slice(0, 3)].map((row) =>
      stacked(shares(row).map((bytes) => bytes * scale), middle));
    const parts = [];
    const room = Math.floor((width - column(4) - BLOCK - 6) / LETTER);
    const named = [];
    bars.forEach((bar, at) => bar.forEach(([top, bottom], lane) => {
      const before = bars[at - 1]?.[lane];
      if (before) parts.push(ribbon(lane, column(at - 1) + BAR, before, column(at), [top, bottom]));
      if (bottom > top) parts.push(rect(lane, column(at), top, BAR, bottom - top, () => chooseLane(lane)));
    }));
    const from = bars[3].map(([top]) => top);
    let y = middle - blocks.reduce((sum, { high }) => sum + high + gap, -gap) / 2;
    for (const { id, parts: values, high, label } of blocks) {
      const sum = values.reduce((all, each) => all + each, 0) || 1;
      let [x, top] = [column(4), y];
      const block = draw("g", { class: "block", "data-id": id, onclick: () => id && choose(id, "flow") },
        draw("title", {}, label));
      values.forEach((value, lane) => {
        if (!value) return;
        const part = (high * value) / sum;
        parts.push(ribbon(lane, column(3) + BAR, [from[lane], (from[lane] += value)], column(4), [top, (top += part)]));
        block.append(rect(lane, x, y, (BLOCK * value) / sum, high));
        x += (BLOCK * value) / sum;
      });
      named.push({ block, high, label, y: y + high / 2 + 4 });
      parts.push(block);
      y += high + gap;
    }
    nameLargest(named, column(4) + BLOCK + 6, room);
    return svg.replaceChildren(...parts);
  }

  /** The names of the largest blocks for which there is room. */
  function nameLargest(named, x, room) {
    const taken = [];
    for (const { block, label, y } of [...named].sort((a, b) => b.high - a.high)) {
      if (taken.some((other) => Math.abs(other - y) < BETWEEN)) continue;
      taken.push(y);
      block.append(draw("text", { x, y }, label.length > room ? `${label.slice(0, room - 1)}…` : label));
    }
  }

  /** Kernels and calls of a library in the order of the program; of many those that move most. */
  function blocksOf({ nodes, bytes }, scale) {
    const block = (id, label, row) => {
      const parts = shares(row).map((each) => each * scale);
      return { id, label, parts, high: Math.max(1.5, parts.reduce((sum, each) => sum + each, 0)) };
    };
    const order = nodes.map((id, at) => ({ id, count: bytes[at] }));
    const rest = [...order].sort((a, b) => b.count - a.count).slice(MOST_BLOCKS);
    const blocks = order.filter((one) => !rest.includes(one))
      .map(({ id, count }) => block(id, nameOf(id), { nodes: [id], bytes: [count] }));
    if (!rest.length) return blocks;
    const row = { nodes: rest.map(({ id }) => id), bytes: rest.map(({ count }) => count) };
    return [...blocks, block("", `${rest.length} smaller ones`, row)];
  }

  /** Of a library's call the operation, of ours the kernel. */
  const nameOf = (id) => model.things.get(id)?.op?.replace(/^aten\./, "").replace(/\.\w+$/, "") ?? model.name(id);

  function ribbon(lane, x, [a, b], to, [c, d]) {
    const half = (x + to) / 2;
    const path = `M${x} ${a}C${half} ${a} ${half} ${c} ${to} ${c}V${d}C${half} ${d} ${half} ${b} ${x} ${b}Z`;
    return draw("path", { class: `ribbon lane${lane}`, "data-lane": lane, d: path, onclick: () => chooseLane(lane) });
  }

  const rect = (lane, x, y, width, height, onclick) =>
    draw("rect", { class: `lane${lane}`, "data-lane": lane, x, y, width, height: Math.max(height, 0.5), onclick });

  function chooseLane(lane) {
    const line = [...lanes].find(([, at]) => at === lane)?.[0];
    if (line) choose(line, "flow");
  }

  // --- what is lit; the ways to other graphs and panes --------------------------------------------
  function showLights() {
    const lit = new Set([...lanes].filter(([line]) => state.lit.has(line)).map(([, lane]) => String(lane)));
    pane.element.classList.toggle("some-lit", lit.size > 0);
    for (const part of halves.querySelectorAll("[data-lane]")) part.classList.toggle("on", lit.has(part.dataset.lane));
    for (const part of halves.querySelectorAll("[data-line]")) part.classList.toggle("on", state.lit.has(part.dataset.line));
    for (const part of halves.querySelectorAll(".block")) part.classList.toggle("chosen", state.chosen === part.dataset.id);
  }

  function listEntries() {
    const graphs = [...model.entries.values()].filter(({ stages }) => stages.some(({ kind }) => kind === "fx"));
    const breaks = model.frames.reduce((sum, frame) => sum + frame.breaks.length, 0);
    const nameOfFrame = ({ function: name }) => name.replace(/^<resume of (.*) at line (\d+)>$/, "$1 from line $2");
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
