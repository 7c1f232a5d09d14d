// The user's source: heat, graph breaks, and which lines a chosen thing came from.

import { bytesText, choice, make, many, offer, secondsText } from "./dom.js";
import { paintCode } from "./highlight.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, showEntry, state } from "./state.js";

const HEATS = [
  ["bytes", "bytes moved by kernels"],
  ["seconds", "time in kernels"],
  ["operations", "operations captured"],
];
const HEAT_TEXTS = {
  bytes: bytesText, seconds: secondsText, operations: (count) => many(Math.round(count), "operation"),
};

export function sourcePane() {
  const pane = new Pane("source", "Source");
  const { model } = state;
  let file = null;
  let heat = new Map();
  let hottest = 0;
  let measure = "bytes";
  const files = choice("File", [], (id) => show(model.files.get(id)));
  const heats = choice("Heat", HEATS, (wanted) => {
    measure = wanted;
    update();
  });
  const rows = new Rows("source", "Source lines", drawLine, (index) => {
    const called = model.callers.get(idOf(index)) ?? [];
    const isShown = called.some((frame) => frame === currentEntry()?.frame);
    if (called[0]?.entries.length && !isShown) showEntry(called[0].entries[0].id);
    choose(idOf(index), "source");
  });
  const idOf = (index) => `${file.id}:${file.first_line + index}`;
  pane.tools.append(files, heats);
  pane.body.append(rows.element);

  function drawLine(index, row) {
    const id = idOf(index);
    const cost = heat.get(id);
    const amount = cost?.[measure] ?? 0;
    const bar = make("span", { class: "heat" });
    bar.style.setProperty("--heat-share", `${hottest ? Math.round((amount / hottest) * 100) : 0}%`);
    if (amount) bar.title = HEAT_TEXTS[measure](amount);
    const broken = cost?.breaks ? make("span", { class: "mark", title: "the graph breaks here" }, "✂") : caller(id);
    row.append(make("span", { class: "number" }, String(file.first_line + index)), bar);
    row.append(make("span", { class: "gutter" }, broken));
    const code = make("span", { class: "code" });
    paintCode(code, file.lines[index], "python");
    row.append(code, modulesNote(id));
    row.classList.toggle("lit", state.lit.has(id));
    row.classList.toggle("chosen", state.chosen === id);
  }

  /** Which module runs the line: inside of library blocks nothing else says so. */
  function modulesNote(id) {
    const paths = [...(model.modules.get(id) ?? [])];
    const text = paths.length > 1 ? `in ${many(paths.length, "module")}` : paths.join("");
    return make("span", { class: "note module", title: paths.join("\n") }, text);
  }

  /** A line that calls compiled functions. */
  function caller(id) {
    const called = model.callers.get(id);
    if (!called) return "";
    const title = `calls ${called.map((frame) => frame.function).join(", ")}, compiled`;
    return make("span", { class: "mark call", title }, "▶");
  }

  function show(wanted) {
    if (!wanted) return;
    const isNew = wanted !== file;
    file = wanted;
    files.value = file.id;
    rows.show(file.lines.length, Math.max(...file.lines.map((line) => line.length)) + 14);
    if (isNew) revealFrame();
  }

  /** Scroll to what there is to see in the file: what is lit, the frame, a line with heat, a caller. */
  function revealFrame() {
    const frame = currentEntry()?.frame ?? model.frames[0];
    const first = (test) => file.lines.findIndex((_, index) => test(idOf(index), index));
    const wanted = [
      first((id) => state.lit.has(id)),
      frame?.file === file.id ? frame.first_line - file.first_line : -1,
      first((id) => heat.get(id)?.[measure] > 0),
      first((id) => heat.has(id)),
      first((id) => model.callers.has(id)),
      first((_, index) => file.lines[index].trim()),
    ].find((index) => index >= 0) ?? 0;
    rows.element.scrollTop = Math.max(0, (wanted - 1) * rows.height);
    rows.cursor = wanted;
    rows.refresh();
  }

  function update() {
    const frame = currentEntry()?.frame ?? model.frames[0];
    heat = model.heat(state.entry);
    hottest = Math.max(0, ...[...heat.values()].map((cost) => cost[measure]));
    const readable = [...model.files.values()].filter(({ text }) => text.trim());
    offer(files, readable.map((each) => [each.id, each.path]));
    const wanted = model.files.get(frame?.file) ?? file;
    const isMissing = frame && !frame.file;
    pane.note.textContent = isMissing
      ? `${frame.function} has no source text (exec, the prompt, or C)`
      : "";
    if (wanted) show(wanted);
    else rows.show(0);
  }

  function showLights() {
    if (state.from === "source" || !file) return rows.refresh();
    const isLit = (index) => state.lit.has(idOf(index));
    if (rows.revealLit(isLit) >= 0) return undefined;
    const line = [...state.lit].find((id) => model.things.get(id)?.kind === "line");
    if (line) {
      show(model.place(line).file);
      rows.revealLit(isLit);
    }
    return undefined;
  }

  pane.reveal = (id) => {
    const place = model.place(id);
    if (!place) return;
    show(place.file);
    rows.cursor = place.line - place.file.first_line;
    rows.element.scrollTop = Math.max(0, (rows.cursor - 6) * rows.height);
    rows.refresh();
  };
  onChange((what) => (what === "entry" ? update() : showLights()));
  return pane;
}
