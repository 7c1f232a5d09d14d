// The page of `explore`: source, IR and assembly side by side, of a file that is compiled again
// whenever it is saved; and what changed since the run before.

import { aboutStrip } from "./about.js";
import { FIGURES } from "./compare.js";
import { difference } from "./diff.js";
import { choice, make, many, offer } from "./dom.js";
import { paintCode } from "./highlight.js";
import { kernelsPane } from "./kernels.js";
import { lineId, Model } from "./model.js";
import { unpack } from "./packing.js";
import { Pane, panes } from "./pane.js";
import { Rows } from "./rows.js";
import { sourcePane } from "./source.js";
import { stagesPane } from "./stages.js";
import { chooseLine, currentEntry, forgetListeners, isLineLit, onChange, showEntry, state } from "./state.js";

const EVERY = 500; // milliseconds between two questions
const headers = { "X-Token": document.documentElement.dataset.token };
/** @type {{version: number, before: Model|null, source: string, stage: string, draft: any}}  draft: what is
 *  edited and not saved, with the digest of the file that it began from */
const live = { version: 0, before: null, source: "", stage: "fused", draft: null };
const element = (id) => document.getElementById(id);

async function ask(path) {
  const answer = await fetch(path, { headers });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

const post = (path, value) => fetch(path, { method: "POST", headers, body: JSON.stringify(value) });

/** Ask how the run goes; show its document when there is another one. */
async function follow() {
  try {
    const told = await (await ask("/state")).json();
    tellStatus(told);
    live.source = told.source;
    if (told.version !== live.version) {
      live.version = told.version;
      const data = await (await ask("/data")).text();
      if (data && data !== live.data) {
        live.data = data;
        show(new Model(await unpack(data)));
      }
      document.documentElement.dataset.ready = String(told.version);
    }
  } catch (error) {
    element("status").textContent = `explore does not answer: ${error.message}`;
  }
  setTimeout(follow, EVERY);
}

function tellStatus({ status, seconds, limit, output, switches }) {
  const past = status.startsWith("ready") || !state.model ? "" : "; below is the run before";
  const isRunning = status === "compiling";
  const text = isRunning ? `compiling, ${seconds} s of at most ${limit} s` : `${status}, ${seconds} s${past}`;
  if (element("status").textContent !== text) element("status").textContent = text;
  if (element("output").textContent !== output) element("output").textContent = output;
  for (const box of element("switches").querySelectorAll("input")) box.checked = switches[box.name];
}

/** All panes anew, of another document. */
function show(model) {
  live.before = state.model;
  forgetListeners();
  panes.length = 0;
  Object.assign(state, { model, chosen: "", lit: new Set(), past: [], future: [], entry: "" });
  const source = sourcePane();
  editing(source);
  const stages = stagesPane();
  assemblyPane();
  kernelsPane();
  changesPane();
  element("explorer").replaceChildren(...panes.map((pane) => pane.element));
  element("about")?.remove();
  element("tools").after(aboutStrip(stages.showStage));
  const names = [...model.entries.keys()].map((id) => [id, `${id} ${model.entryText(id)}`]);
  const entries = choice("Frame and entry", names, showEntry);
  element("tools").replaceChildren(entries);
  const { entry, place } = model.content.opens;
  showEntry(entry || (names[0]?.[0] ?? ""));
  entries.value = state.entry;
  if (place) source.reveal(lineId(place));
  const wanted = currentEntry()?.stages.find(({ kind }) => kind === live.stage);
  if (wanted) stages.showStage(wanted.id);
  stages.tools.addEventListener("change", ({ target }) => {
    live.stage = model.stages.get(target.value)?.kind ?? live.stage;
  });
}

/** The file as a plain text area. */
function editing(pane) {
  const area = make("textarea", { "aria-label": "The file", spellcheck: "false", hidden: true, rows: 18 });
  const edit = make("button", { onclick: toggle }, "edit");
  const save = make("button", { onclick: write, hidden: true, title: "Ctrl-S" }, "save and compile");
  pane.tools.append(edit, save);
  pane.body.append(area);
  area.addEventListener("input", () => {
    live.draft.text = area.value;
  });
  area.addEventListener("keydown", (event) => {
    if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    write();
  });

  function update() {
    area.hidden = save.hidden = !live.draft;
    edit.textContent = live.draft ? "do not save" : "edit";
    if (live.draft) area.value = live.draft.text;
  }

  async function toggle() {
    if (live.draft) live.draft = null;
    else live.draft = { before: live.source, text: await (await ask("/source")).text() };
    update();
    if (live.draft) area.focus();
  }

  async function write() {
    const answer = await post("/source", live.draft);
    pane.note.textContent = answer.ok ? "saved" : await answer.text();
    if (answer.ok) live.draft = null;
    update();
  }

  update();
}

/** The machine code of all kernels, which lights with the lines of their source. */
function assemblyPane() {
  const pane = new Pane("assembly", "Assembly");
  /** @type {{text: string, stage: any, line: number}[]} */
  let shown = [];
  const rows = new Rows("assembly", "Innermost loops as machine code", drawLine, (index) => {
    if (shown[index].line >= 0) chooseLine(shown[index].stage, shown[index].line, "assembly");
  });
  pane.body.append(rows.element);

  function drawLine(index, row) {
    const { text, stage, line } = shown[index];
    const code = make("span", { class: "code" });
    paintCode(code, text, "text");
    row.append(code);
    row.classList.toggle("lit", line >= 0 && isLineLit(stage, line));
    row.classList.toggle("current", line < 0 && text === state.model.things.get(stage.id)?.label);
  }

  function update() {
    const kernels = (currentEntry()?.kernels ?? []).filter(({ assembly }) => assembly);
    shown = kernels.flatMap((kernel) => {
      const stage = state.model.stages.get(kernel.stage);
      const line = (text) => (Number.parseInt(text.slice(0, 5), 10) || 0) - 1;
      const lines = kernel.assembly.split("\n").map((text) => ({ text, stage, line: line(text) }));
      return [{ text: kernel.name, stage, line: -1 }, ...lines];
    });
    pane.note.textContent = shown.length ? many(kernels.length, "kernel") : "no machine code is known";
    rows.show(shown.length, Math.max(0, ...shown.map(({ text }) => text.length)) + 4);
  }

  onChange((what) => {
    if (what === "entry") update();
    else if (state.from === "assembly") rows.refresh();
    else rows.revealLit((index) => shown[index].line >= 0 && isLineLit(shown[index].stage, shown[index].line));
  });
}

/** Rows of a difference as [before, after]; null is no line.  What went stands beside what came. */
function sideBySide(lines) {
  const found = [];
  let [gone, come] = [[], []];
  const flush = () => {
    for (let at = 0; at < Math.max(gone.length, come.length); at += 1) found.push([gone[at] ?? null, come[at] ?? null]);
    [gone, come] = [[], []];
  };
  for (const { sign, text } of lines) {
    if (sign === "−") gone.push(text);
    else if (sign === "+") come.push(text);
    else {
      flush();
      found.push([text, text]);
    }
  }
  flush();
  return found;
}

/** The run before beside this one: figures, and the texts that differ. */
function changesPane() {
  const pane = new Pane("changes", "What changed since the run before", { wide: true });
  const figures = make("table", { class: "figures" });
  let title = "";
  let shown = [];
  const texts = choice("Which text", [], (wanted) => {
    title = wanted;
    update();
  });
  const rows = new Rows("changes", "Before and after", drawLine, () => {});
  pane.tools.append(texts);
  pane.body.append(figures, rows.element);

  function drawLine(index, row) {
    const [before, after] = shown[index];
    row.classList.add("halves");
    for (const [text, other, kind] of [[before, after, "removed"], [after, before, "added"]]) {
      const code = make("span", { class: `code ${text !== other && text !== null ? kind : ""}` });
      paintCode(code, text ?? "", "cpp");
      row.append(code);
    }
  }

  /** Stages by their titles, the kernels of an entry as one text. */
  function textsOf(entry) {
    const found = new Map([["all kernels", []]]);
    for (const stage of entry?.stages ?? []) {
      const name = stage.kind === "kernel" ? "all kernels" : `${stage.title} ${stage.direction}`;
      found.set(name, [...(found.get(name) ?? []), ...stage.text.split("\n")]);
    }
    return found;
  }

  function update() {
    const after = currentEntry();
    const before = live.before?.entries.get(state.entry);
    pane.note.textContent = before ? "" : "nothing yet: save the file, or take a box away";
    if (!before || !after) return rows.show(0);
    const [old, now] = [textsOf(before), textsOf(after)];
    const names = [...new Set([...old.keys(), ...now.keys()])];
    const changed = (name) => (old.get(name) ?? []).join("\n") !== (now.get(name) ?? []).join("\n");
    offer(texts, names.map((name) => [name, `${changed(name) ? "● " : ""}${name}`]));
    if (!names.includes(title)) title = names.find(changed) ?? names[0];
    texts.value = title;
    const lines = difference(old.get(title) ?? [], now.get(title) ?? []);
    shown = sideBySide(lines);
    const count = lines.filter(({ sign }) => sign !== " ").length;
    pane.note.textContent = `${many(names.filter(changed).length, "text")} changed (●); ${many(count, "line")} here`;
    rows.show(shown.length);
    const isChanged = (index) => shown[index][0] !== shown[index][1];
    return showFigures(before, after, rows.revealLit(isChanged));
  }

  function showFigures(before, after) {
    const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
    const rowsOf = FIGURES.map(([name, count, text]) => [name, text(count(before)), text(count(after))]);
    const differing = rowsOf.filter(([, old, now]) => old !== now).map((cells) => line("td", cells));
    figures.replaceChildren(line("th", ["", "before", "after"]), ...differing);
  }

  pane.update = update;
  onChange((what) => what === "entry" && update());
}

element("switches").addEventListener("change", ({ target }) => post("/switches", { [target.name]: target.checked }));
follow();
