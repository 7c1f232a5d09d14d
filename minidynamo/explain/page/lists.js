// Two panes that are lists: fusion decisions with their reasons, and what is saved for backward.

import { bytesText, choice, make, many } from "./dom.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, state } from "./state.js";

const SIGNS = { "✓": "yes", "✗": "no" };

/** A pane with one list of things of the shown entry, each of two lines of text. */
function listPane(key, title, about, items, describe, sum) {
  const pane = new Pane(key, title, { about, wide: key === "saved" });
  let shown = [];
  const rows = new Rows(key, title, drawItem, (index) => choose(shown[index].id, key), 2);
  pane.body.append(rows.element);

  function drawItem(index, row) {
    const item = shown[index];
    const { mark, upper, lower } = describe(item);
    row.append(make("span", { class: `sign ${SIGNS[mark] ?? ""}` }, mark));
    row.append(make("span", { class: "two" }, make("b", {}, upper), make("span", {}, lower)));
    row.classList.toggle("lit", state.lit.has(item.id));
    row.classList.toggle("chosen", state.chosen === item.id);
  }

  function update() {
    const entry = currentEntry();
    shown = entry ? items(entry) : [];
    pane.element.hidden = key === "saved" && !shown.length; // nothing is saved without gradients
    pane.note.textContent = sum(shown);
    const width = (item) => Math.max(...Object.values(describe(item)).map((text) => text.length));
    rows.show(shown.length, Math.max(0, ...shown.map(width)) + 4);
  }

  pane.update = update;
  onChange((what) => {
    if (what === "entry") update();
    else if (state.from === key) rows.refresh();
    else rows.revealLit((index) => state.lit.has(shown[index].id));
  });
  return pane;
}

export function fusionPane() {
  let wanted = "";
  const pane = listPane(
    "fusion",
    "Fusion",
    "Which pairs of loops became one kernel, and why the others did not",
    (entry) => entry.fusions.filter((each) => !wanted || each.fused === (wanted === "yes")),
    ({ first, second, fused, category, reason, bytes_saved: saved }) => ({
      mark: fused ? "✓" : "✗",
      upper: `${state.model.names(first)} + ${state.model.names(second)}`,
      lower: [category, reason, saved ? `saves ${bytesText(saved)}` : ""].filter(Boolean).join(" · "),
    }),
    (shown) => `${shown.filter((each) => each.fused).length} of ${many(shown.length, "pair")} fused`,
  );
  const kinds = [["", "all pairs"], ["yes", "fused"], ["no", "refused"]];
  pane.tools.append(
    choice("Which pairs", kinds, (value) => {
      wanted = value;
      pane.update();
    }),
  );
  return pane;
}

export function savedPane() {
  const pane = listPane(
    "saved",
    "Saved for backward",
    "The cut through the joint graph: what the forward half keeps for the backward half",
    (entry) => entry.saved,
    ({ node, shape, bytes, is_input: isInput, reason }) => ({
      mark: isInput ? "→" : "▣",
      upper: `${state.model.name(node)}  ${shape}`,
      lower: `${isInput ? "an input, which is in memory anyway" : bytesText(bytes)} · ${reason}`,
    }),
    (shown) => bytesText(shown.reduce((sum, each) => sum + (each.is_input ? 0 : each.bytes), 0)),
  );
  return pane;
}
