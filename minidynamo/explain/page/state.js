// What is looked at now.  Panes ask here, and are told when it changes.

import { Model } from "./model.js";

/** @type {{model: Model, entry: string, direction: string, chosen: string, lit: Set<string>,
 *          from: string, past: string[], future: string[]}} */
export const state = {
  model: null, entry: "", direction: "", chosen: "", lit: new Set(), from: "", past: [], future: [],
};
/** @type {((what: "entry" | "choice") => void)[]} */
const listeners = [];

export const onChange = (listener) => listeners.push(listener);
/** For a page that is built anew. */
export function forgetListeners() {
  listeners.length = 0;
}

const tell = (what) => listeners.forEach((listener) => listener(what));

/** The entry that is shown, with its frame. */
export const currentEntry = () => state.model.entries.get(state.entry) ?? null;

export function showEntry(id) {
  state.entry = id;
  tell("entry");
}

export function showDirection(direction) {
  state.direction = direction;
  tell("entry");
}

/** Light `id`, its origins and its results in every pane.  `from` names the pane of the click. */
export function choose(id, from = "") {
  if (state.chosen && state.chosen !== id) state.past.push(state.chosen);
  state.future = [];
  light(id, from);
}

/** Forget what was chosen. */
export function chooseNothing() {
  [state.chosen, state.lit, state.from] = ["", new Set(), ""];
  tell("choice");
}

/** Back (-1) to what was chosen before, or forward (1) again. */
export function step(direction) {
  const [source, target] = direction < 0 ? [state.past, state.future] : [state.future, state.past];
  const id = source.pop();
  if (id === undefined) return;
  if (state.chosen) target.push(state.chosen);
  light(id, "");
}

function light(id, from) {
  const thing = state.model.thing(id);
  state.chosen = id;
  state.from = from;
  state.lit = state.model.linked(id);
  const entry = thing?.entry || entryWith(state.lit);
  if (entry && entry !== state.entry) showEntry(entry);
  tell("choice");
}

/** The entry in which something is lit: the one that is shown, if it has anything. */
function entryWith(lit) {
  const entries = new Set([...lit].map((id) => state.model.things.get(id)?.entry).filter(Boolean));
  return entries.has(state.entry) ? state.entry : [...entries][0];
}

/** Is a line of a stage's text lit: itself, or an object that stands in it? */
export function isLineLit(stage, index) {
  if (state.lit.has(`${stage.id}#${index}`)) return true;
  return (stage.lines[index] ?? []).some((id) => state.lit.has(id));
}

/** How many objects a line of a stage's text is about, by what they came from. */
export function breadthOf(stage, index) {
  const origins = (id) => Math.max(1, state.model.things.get(id)?.origins.length ?? 1);
  return (stage.lines[index] ?? []).reduce((sum, id) => sum + origins(id), 0);
}

/** Choose a line of a stage's text: the one object that stands in it, or else the line. */
export function chooseLine(stage, index, from) {
  const ids = stage.lines[index] ?? [];
  choose(ids.length === 1 ? ids[0] : `${stage.id}#${index}`, from);
}
