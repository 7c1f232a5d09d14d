// Two panes about the whole run: the map of frames, breaks and recompilations, and times by stage.

import { make, many, secondsText } from "./dom.js";
import { lineId } from "./model.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, showEntry, state } from "./state.js";

const MOST_STEPS = 40;

/** Every frame with its entries and breaks, a frame that continues another below that one. */
export function mapPane() {
  const pane = new Pane("map", "Frames, breaks, recompilations");
  const { model } = state;
  /** @type {{depth: number, sign: string, text: string, id: string, entry: string}[]} */
  const shown = [];
  const add = (depth, sign, text, id, entry = "") => shown.push({ depth, sign, text, id, entry });

  function addFrame(frame, depth) {
    const why = frame.skipped ? `, not compiled: ${frame.skipped}` : "";
    const calls = frame.calls ? `, ${many(frame.calls, "call")}` : "";
    add(depth, "▸", `${frame.function}${calls}${why}`, frame.id, frame.entries[0]?.id);
    if (frame.error) add(depth + 1, "!", frame.error.trim().split("\n").pop(), frame.id);
    for (const entry of frame.entries) addEntry(entry, depth + 1);
    for (const found of frame.breaks) addBreak(found, depth + 1);
    for (const child of model.frames) if (child.parent === frame.id) addFrame(child, depth + 1);
  }

  function addEntry(entry, depth) {
    add(depth, "●", `entry ${entry.id}: ${model.entryText(entry.id)}`, entry.id, entry.id);
    const why = entry.recompiled_because;
    if (!why) return;
    const values = why.expected ? `expected ${why.expected}, was ${why.actual}` : why.text;
    const where = why.line ? ` (${model.name(lineId(why.line))})` : "";
    add(depth + 1, "↻", `compiled again: ${why.kind} ${values}${where}`, why.guard || lineId(why.line), entry.id);
  }

  function addBreak(found, depth) {
    add(depth, "✂", `break: ${found.reason}${found.hint ? ` — ${found.hint}` : ""}`, found.id);
    for (const call of found.stack) {
      const where = `${call.path}:${call.line}, in ${call.function}`;
      add(depth + 1, "at", where, call.file ? lineId(call) : found.id);
    }
  }

  for (const frame of model.frames) {
    if (!frame.parent || !model.frames.some(({ id }) => id === frame.parent)) addFrame(frame, 0);
  }
  const rows = new Rows("map", "Map of the run", drawItem, (index) => {
    const { id, entry } = shown[index];
    if (entry) showEntry(entry);
    if (id) choose(id, "map");
  });
  pane.body.append(rows.element);

  function drawItem(index, row) {
    const { depth, sign, text, id, entry } = shown[index];
    const indent = make("span", { class: "indent" });
    indent.style.width = `${depth * 1.4}em`;
    row.append(indent, make("span", { class: "sign" }, sign), make("span", { class: "code" }, text));
    row.classList.toggle("lit", state.lit.has(id) && sign !== "▸");
    row.classList.toggle("current", sign === "●" && entry === state.entry);
  }

  const breaks = model.frames.reduce((sum, frame) => sum + frame.breaks.length, 0);
  const again = [...model.entries.values()].filter((entry) => entry.recompiled_because).length;
  pane.note.textContent =
    `${many(model.frames.length, "frame")}, ${many(breaks, "break")}, ${many(again, "recompilation")}`;
  const longest = Math.max(0, ...shown.map(({ depth, text }) => depth * 2 + text.length));
  rows.show(shown.length, Math.min(300, longest + 6));
  onChange(() => {
    if (state.from === "map") rows.refresh();
    else rows.revealLit((index) => state.lit.has(shown[index].id));
  });
  return pane;
}

/** Rows of a chart. @param {(name: any, text: string) => Node[]} about  [what, how long] of a row */
function bars(times, about) {
  const longest = Math.max(0, ...times.map(([, seconds]) => seconds));
  return times.map(([name, seconds]) => {
    const bar = make("span", { class: "bar-fill" });
    bar.style.width = `${longest ? (seconds / longest) * 100 : 0}%`;
    const [what, text] = about(name, secondsText(seconds));
    return make("li", {}, what, make("span", { class: "bar-room" }, bar), text);
  });
}

/** The kernel that a measured line of a wrapper calls, or the operation of the library. */
function calledBy({ kernel, line }) {
  const made = state.model.thing(line).origins.map((id) => state.model.thing(id));
  return kernel ? state.model.name(kernel) : made[0]?.data?.op ?? state.model.detail(state.model.thing(line));
}

export function timesPane() {
  const pane = new Pane("times", "Times by stage");
  const list = make("ol", { class: "bars" });
  const heading = make("h3", {});
  const calls = make("ol", { class: "bars measured" });
  pane.body.append(heading, calls, list);

  pane.update = () => {
    const times = Object.entries(currentEntry()?.times ?? {});
    list.replaceChildren(...bars(times, (stage, text) => [make("span", {}, stage), text]));
    const steps = currentEntry()?.steps ?? [];
    const slowest = steps.map((step) => [step, step.seconds]).sort((a, b) => b[1] - a[1]).slice(0, MOST_STEPS);
    calls.replaceChildren(...bars(slowest, (step) => {
      const name = calledBy(step);
      const button = make("button", { class: "link", title: name, onclick: () => choose(step.line) }, name);
      return [button, state.model.speedText(step.bytes, step.seconds, step.at_most)];
    }));
    heading.hidden = !steps.length;
    const spent = secondsText(steps.reduce((sum, { seconds }) => sum + seconds, 0));
    heading.textContent = `One call: ${spent} in ${many(steps.length, "kernel")}`;
    pane.note.textContent = times.length ? "" : "no times were kept";
  };
  onChange((what) => what === "entry" && pane.update());
  return pane;
}
