// Rewrite by rewrite: the graph before and after each pass, the groups before and after each fusion, what
// changed marked, and the rule that fired.

import { bytesText, choice, make, many, offer } from "./dom.js";
import { paintCode } from "./highlight.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, state } from "./state.js";

const COUNT = /^ {2}(?:\.\.\. )?([\d,]+) lines?/;

/**
 * @typedef {{text: string, id: string}} Item  a node, or a buffer
 * @typedef {{title: string, rule: string, before: Item[], after: Item[]}} Rewrite
 */

export function rewritesPane() {
  const pane = new Pane("rewrites", "Rewrite by rewrite", {
    wide: true, closed: true, about: "The graph before and after each pass and each fusion",
  });
  /** @type {Rewrite[]} */
  let every = [];
  let index = 0;
  const list = choice("Rewrite", [], (wanted) => go(Number(wanted)));
  const stepper = (sign, label, by) =>
    make("button", { "aria-label": label, title: label, onclick: () => go(index + by) }, sign);
  pane.tools.append(stepper("◀", "Rewrite before", -1), list, stepper("▶", "Next rewrite", 1));
  const rule = make("p", { class: "facts" });
  const sides = ["before", "after"].map((side) => {
    const items = () => every[index]?.[side] ?? [];
    const drawRow = (at, row) => draw(side, items()[at], row);
    const rows = new Rows(`rewrites-${side}`, `The graph ${side}`, drawRow, (at) => pick(items()[at]));
    return { side, items, rows };
  });
  pane.body.append(rule, make("div", { class: "halves" }, ...sides.map(({ rows }) => rows.element)));

  const pick = (item) => item.id && choose(item.id, "rewrites");
  const isChanged = (side, item) => !every[index][side === "before" ? "after" : "before"].includes(item);

  function draw(side, item, row) {
    const code = make("span", { class: "code" });
    paintCode(code, item.text, "python");
    const changed = isChanged(side, item);
    const sign = side === "before" ? "−" : "+";
    row.append(make("span", { class: "gutter" }, changed ? sign : ""), code);
    row.classList.toggle(side === "before" ? "removed" : "added", changed);
    row.classList.toggle("lit", state.lit.has(item.id));
  }

  function go(wanted) {
    index = Math.max(0, Math.min(every.length - 1, wanted));
    list.value = String(index);
    list.hidden = !every.length;
    pane.note.textContent = every.length ? `${index + 1} of ${every.length}` : "nothing was rewritten";
    rule.textContent = every[index]?.rule ?? "";
    for (const { side, items, rows } of sides) {
      const found = items();
      rows.show(found.length, Math.max(0, ...found.map(({ text }) => Math.min(text.length, 400))) + 4);
      rows.revealLit((at) => isChanged(side, found[at]));
    }
  }

  pane.update = () => {
    if (!pane.isOpen) return;
    every = rewritesOf(currentEntry());
    offer(list, every.map(({ title }, at) => [String(at), `${at + 1}. ${title}`]));
    go(index);
  };
  onChange((what) => {
    if (what === "entry") pane.update();
    else if (pane.isOpen) for (const { rows } of sides) rows.refresh();
  });
  return pane;
}

/** @returns {Rewrite[]}  of both halves, in the order in which they were made */
export function rewritesOf(entry) {
  if (!entry) return [];
  const passes = entry.stages.filter(({ kind }) => kind === "pass");
  const halves = ["forward", "backward"];
  const found = [];
  let shared = callsOf(entry.stages.find(({ kind }) => kind === "aten"));
  for (const half of halves) {
    let items = shared;
    for (const stage of passes.filter(({ direction }) => direction === half)) {
      if (stage.title === "partition") shared = half === "forward" ? items : shared;
      const after = passed(items, stage);
      const rule = `pass: ${stage.title} (${half}), ${changes(items, after)}`;
      found.push({ title: stage.title, rule, before: items, after });
      items = after;
    }
    found.push(...fusionsOf(entry, half));
  }
  return found;
}

const changes = (before, after) => {
  const gone = before.filter((item) => !after.includes(item)).length;
  const come = after.filter((item) => !before.includes(item)).length;
  return `${many(gone, "node")} went, ${come} came`;
};

/** The calls of the graph that was traced. */
function callsOf(stage) {
  const isCall = ({ op }) => !["placeholder", "get_attr", "output"].includes(op);
  const calls = new Map(stage?.nodes.filter(isCall).map(({ id }) => [id, null]) ?? []);
  const lines = state.model.stages.get(stage?.id);
  lines?.lines.forEach((ids, line) => {
    const text = lines.texts[line].trim().replace("torch.ops.", "").split(/;| {2}#/)[0];
    for (const id of ids) if (calls.get(id) === null) calls.set(id, text);
  });
  return [...calls].map(([id, text]) => ({ id, text: text ?? state.model.name(id) }));
}

/** What a pass made of a graph: its stage tells the lines that went and came, and counts the others. */
function passed(items, stage) {
  const { texts, lines } = state.model.stages.get(stage.id);
  const after = [];
  let at = 0;
  texts.forEach((text, line) => {
    const count = Number(COUNT.exec(text)?.[1].replaceAll(",", "") ?? 0);
    if (text.startsWith("- ")) at += 1;
    else if (text.startsWith("+ ")) after.push({ text: text.slice(2), id: lines[line][0] ?? "" });
    else if (text.startsWith("  ...")) after.push(...items.slice(at, at + count));
    if (count) at += count;
  });
  return after;
}

/** The groups before and after each fusion.  @returns {Rewrite[]} */
function fusionsOf(entry, half) {
  const loops = entry.stages.find(({ kind, direction }) => kind === "loop_ir" && direction === half);
  if (!loops) return [];
  const { texts, lines } = state.model.stages.get(loops.id);
  const head = (id) => texts[lines.findIndex((ids) => ids.includes(id))] ?? "";
  const isBuffer = ({ name }) => !name.includes(":");
  let groups = loops.nodes.filter(isBuffer).map(({ name, id }) => [{ name, id, text: head(id) }]);
  let items = shown(groups);
  const found = [];
  const ours = entry.fusions.filter(({ id, fused }) => fused && id.includes(`/${half}/`));
  for (const { first, second, category, reason, bytes_saved: saved } of ours) {
    const names = new Set([...first.split("+"), ...second.split("+")]);
    const isMember = (group) => group.some(({ name }) => names.has(name));
    const members = groups.filter(isMember);
    if (members.length < 2) continue;
    groups = groups.filter((group) => !isMember(group) || group === members.at(-1));
    groups[groups.indexOf(members.at(-1))] = members.flat(); // where the last of them stood
    const after = shown(groups, items);
    const rule = `fusion, ${category}: ${reason}${saved ? ` · saves ${bytesText(saved)}` : ""}`;
    found.push({ title: `fuse ${first} + ${second}`, rule, before: items, after });
    items = after;
  }
  return found;
}

/** Groups as rows, those of one kernel held together by a bracket; rows that stay are the same objects. */
function shown(groups, before = []) {
  const known = new Map(before.map((item) => [item.id + item.text, item]));
  return groups.flatMap((group) => group.map(({ id, text }, at) => {
    const bracket = group.length < 2 ? " " : at === 0 ? "┌" : at === group.length - 1 ? "└" : "│";
    const item = { id, text: `${bracket} ${text}` };
    const mark = `${group.map(({ name }) => name).join("+")}${item.text}`;
    const same = known.get(item.id + item.text);
    return same?.mark === mark ? same : { ...item, mark };
  }));
}
