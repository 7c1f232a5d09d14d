// What an entry assumes, one guard a row, and a form that asks whether another call would pass.

import { choice, make, many, shortPath } from "./dom.js";
import { guardForm } from "./guard_form.js";
import { paintCode } from "./highlight.js";
import { lineId } from "./model.js";
import { Pane } from "./pane.js";
import { Rows } from "./rows.js";
import { choose, currentEntry, onChange, state } from "./state.js";

export function guardsPane() {
  const pane = new Pane("guards", "Guards");
  let guards = [];
  let kind = "";
  const kinds = choice("Kind of guard", [["", "all kinds"]], (wanted) => {
    kind = wanted;
    update();
  });
  const rows = new Rows("guards", "Guards", drawGuard, (index) => choose(guards[index].id, "guards"));
  const form = make("div", { class: "form" });
  pane.tools.append(kinds);
  pane.body.append(rows.element, form);

  function drawGuard(index, row) {
    const guard = guards[index];
    row.append(make("span", { class: "kind" }, guard.kind));
    const code = make("span", { class: "code" });
    paintCode(code, shortPath(guard.code), "python");
    row.append(code);
    if (guard.actual) row.append(make("span", { class: "note" }, `  here: ${guard.actual}`));
    if (guard.line) row.append(make("span", { class: "note" }, `  # ${state.model.name(lineId(guard.line))}`));
    row.title = guard.code;
    row.classList.toggle("lit", state.lit.has(guard.id));
    row.classList.toggle("chosen", state.chosen === guard.id);
  }

  const width = (guard) => shortPath(guard.code).length + (guard.actual ?? "").length + 50;

  function update() {
    const entry = currentEntry();
    const every = entry?.guards ?? [];
    const names = [...new Set(every.map((guard) => guard.kind))].sort();
    kinds.replaceChildren(
      ...["", ...names].map((value) => make("option", { value }, value || "all kinds")),
    );
    kind = names.includes(kind) ? kind : "";
    kinds.value = kind;
    guards = every.filter((guard) => !kind || guard.kind === kind);
    pane.note.textContent = many(guards.length, "guard");
    rows.show(guards.length, Math.min(300, Math.max(0, ...guards.map(width))));
  }

  onChange((what) => {
    if (what === "entry") {
      update();
      form.replaceChildren(guardForm(currentEntry()));
    } else if (state.from === "guards") rows.refresh();
    else rows.revealLit((index) => state.lit.has(guards[index].id));
  });
  return pane;
}
