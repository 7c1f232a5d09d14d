// What is chosen, in words: where it came from and what came of it, each a button.

import { make } from "./dom.js";
import { KIND_NAMES } from "./model.js";
import { choose, chooseNothing, onChange, state, step } from "./state.js";

const MOST = 5; // buttons of one kind
const INVITATION = `Click on anything, or press Enter: where it came from, and what came of it, lights
  up everywhere. ? lists the keys.`;

/** @param {(id: string) => void} showStage */
export function aboutStrip(showStage) {
  const strip = make("div", { class: "about", id: "about", role: "region", "aria-label": "What is chosen" });
  const { model } = state;

  /** Groups of what is lit, in the order of the pipeline: [title, ids]. */
  function groups() {
    const found = new Map();
    for (const id of state.lit) {
      const thing = model.things.get(id);
      if (!thing || id === state.chosen || thing.kind === "entry" || thing.kind === "frame") continue;
      const stage = model.stages.get(thing.stage);
      const title = stage?.title ?? KIND_NAMES[thing.kind];
      const isLate = !stage || stage.kind === "bytecode" || stage.kind === "replacement";
      const order = thing.kind === "line" ? -1 : (isLate ? 1000 : stage.step);
      if (!found.has(title)) found.set(title, { title, order, ids: [] });
      found.get(title).ids.push(id);
    }
    const inOrder = [...found.values()].sort((a, b) => a.order - b.order);
    for (const { ids } of inOrder) ids.sort(new Intl.Collator("en", { numeric: true }).compare);
    return inOrder;
  }

  function chip(id) {
    const thing = model.things.get(id);
    const does = () => {
      choose(id);
      if (thing.stage) showStage(thing.stage);
    };
    return make("button", { class: "chip", title: model.detail(thing), onclick: does }, thing.label);
  }

  function update() {
    const thing = state.chosen ? model.thing(state.chosen) : null;
    const button = (text, label, does, isOff) =>
      make("button", { "aria-label": label, title: label, onclick: does, disabled: isOff }, text);
    const back = button("←", "Back to what was chosen before ([)", () => step(-1), !state.past.length);
    const on = button("→", "Forward again (])", () => step(1), !state.future.length);
    if (!thing) {
      strip.replaceChildren(back, on, make("span", { class: "invitation" }, INVITATION));
      return;
    }
    const parts = groups().map(({ title, ids }) => {
      const more = ids.length > MOST ? ` and ${ids.length - MOST} more` : "";
      return make("span", { class: "group" }, make("i", {}, `${title}: `), ...ids.slice(0, MOST).map(chip), more);
    });
    strip.replaceChildren(
      back, on, button("×", "Choose nothing (Escape)", chooseNothing, false),
      make("b", { "aria-live": "polite" }, `${KIND_NAMES[thing.kind]} ${thing.label}`),
      make("span", { class: "detail" }, model.detail(thing).slice(0, 300)), ...parts,
    );
  }

  onChange((what) => what === "choice" && update());
  update();
  return strip;
}
