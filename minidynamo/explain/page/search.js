// Search through everything that has a name or stands in a line: "/" goes there, Enter chooses.

import { make, many } from "./dom.js";
import { KIND_NAMES } from "./model.js";
import { Rows } from "./rows.js";
import { choose, chooseLine, state } from "./state.js";

const MOST = 400;

/** @param {(id: string) => void} showStage */
export function searchBox(showStage) {
  const { model } = state;
  let found = [];
  const rows = new Rows("search", "What was found", drawItem, (index) => enter(found[index]));
  const count = make("span", { class: "note", role: "status" });
  const input = make("input", {
    type: "search", placeholder: "search (/)", "aria-label": "Search", id: "search",
    oninput: () => search(input.value),
    onkeydown: (event) => {
      if (event.key === "ArrowDown") rows.element.focus();
      else if (event.key === "Enter" && found.length) enter(found[0]);
      else if (event.key === "Escape") close();
    },
  });
  const list = make("div", { class: "found", hidden: true }, count, rows.element);
  const box = make("div", { class: "search", onfocusout: (event) => {
    if (event.relatedTarget && !box.contains(event.relatedTarget)) list.hidden = true;
  } }, input, list);
  rows.element.addEventListener("keydown", (event) => event.key === "Escape" && close());

  function close() {
    list.hidden = true;
    input.focus();
  }

  function drawItem(index, row) {
    const { what, text } = found[index];
    row.append(make("span", { class: "kind" }, what), make("span", { class: "code" }, text));
  }

  function enter({ id, stage, line }) {
    list.hidden = true;
    if (stage) chooseLine(stage, line);
    else choose(id);
    const shown = stage?.id ?? model.thing(id)?.stage;
    if (shown) showStage(shown);
  }

  function search(words) {
    const wanted = words.trim().toLowerCase();
    found = wanted.length > 1 ? [...matches(wanted)] : [];
    count.textContent = `${many(found.length, "place")}${found.length >= MOST ? " or more" : ""}`;
    list.hidden = wanted.length < 2;
    rows.element.scrollTop = rows.cursor = 0;
    rows.show(found.length, Math.max(0, ...found.map(({ text }) => Math.min(text.length, 200))) + 16);
  }

  function* matches(wanted) {
    let count = 0;
    const has = (text) => text.toLowerCase().includes(wanted) && (count += 1) <= MOST;
    for (const thing of model.things.values()) {
      const { id, kind, label } = thing;
      const detail = model.detail(thing);
      if (kind !== "line" && kind !== "row" && !/^\d+$/.test(label) && has(`${label} ${detail}`)) {
        yield { id, what: KIND_NAMES[kind], text: `${label}   ${detail.split("\n")[0]}` };
      }
    }
    for (const file of model.files.values()) {
      for (const [index, text] of file.lines.entries()) {
        const line = index + file.first_line;
        if (has(text)) yield { id: `${file.id}:${line}`, what: `${file.path}:${line}`, text };
      }
    }
    for (const stage of model.stages.values()) {
      for (const [line, text] of stage.texts.entries()) {
        if (has(text)) yield { stage, line, what: stage.title, text: text.trim() };
      }
    }
  }

  return { element: box, focus: () => input.select() || input.focus() };
}
