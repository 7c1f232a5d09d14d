// The page: unpack the data, make the panes, listen to the keys.

import { aboutStrip } from "./about.js";
import { bytecodePane } from "./bytecode.js";
import { comparePane } from "./compare.js";
import { choice, make } from "./dom.js";
import { flowPane } from "./flow.js";
import { guardsPane } from "./guards.js";
import { kernelsPane } from "./kernels.js";
import { fusionPane, savedPane } from "./lists.js";
import { memoryPane } from "./memory.js";
import { lineId, Model } from "./model.js";
import { modulesPane } from "./modules.js";
import { mapPane, timesPane } from "./overview.js";
import { unpack } from "./packing.js";
import { panes, showLitPane } from "./pane.js";
import { watchPrinting } from "./rows.js";
import { rewritesPane } from "./rewrites.js";
import { searchBox } from "./search.js";
import { sourcePane } from "./source.js";
import { stagesPane } from "./stages.js";
import { chooseNothing, onChange, showDirection, showEntry, state, step } from "./state.js";
import { tablePane } from "./table.js";

const THEMES = [["", "system's colours"], ["light", "light"], ["dark", "dark"]];
const KEYS = `/ search · [ ] back, forward · , . step through the stages · g graph, t text, d difference ·
  arrows move within a list, Enter chooses · + - 0 larger, smaller, all of a graph · Escape chooses nothing`;

async function start() {
  const root = document.documentElement;
  state.model = new Model(await unpack(document.getElementById("data").textContent));
  const main = document.getElementById("explorer");
  const showStage = (id) => {
    if (state.model.stages.get(id)?.kind !== "kernel") stages.showStage(id);
  };
  const flow = flowPane(showStage);
  const source = sourcePane();
  const stages = stagesPane();
  kernelsPane();
  guardsPane();
  modulesPane();
  mapPane();
  fusionPane();
  memoryPane();
  timesPane();
  savedPane();
  rewritesPane();
  bytecodePane();
  comparePane();
  tablePane();
  const search = searchBox(showStage);
  const only = root.dataset.pane;
  main.append(...panes.filter(({ key }) => !only || key === only).map(({ element }) => element));
  if (only) panes.find(({ key }) => key === only)?.open(true);
  else document.getElementById("tools").append(search.element, ...selectors());
  document.querySelector("header").after(aboutStrip(showStage));
  watchPrinting();
  onChange((what) => what === "choice" && state.from && showLitPane(state.from));
  listen(search, stages);
  const { entry, place } = state.model.content.opens ?? {};
  showEntry(entryOfAddress() || entry || ([...state.model.entries.keys()][0] ?? ""));
  if (place) source.reveal(lineId(place));
  flow.listPanes();
  root.dataset.ready = "yes";
}

/** page.html#f1: the entry, or the first one of the frame, that the address names. */
function entryOfAddress() {
  const wanted = location.hash.slice(1);
  return [...state.model.entries.keys()].find((id) => id === wanted || id.startsWith(`${wanted}.`) && wanted) ?? "";
}

/** Which entry, which half, which colours. */
function selectors() {
  const { model } = state;
  const names = [...model.entries.keys()].map((id) => [id, `${id} ${model.entryText(id)}`]);
  const entries = choice("Frame and entry", names, showEntry);
  onChange(() => {
    entries.value = state.entry;
  });
  const halves = [["", "forward and backward"], ["forward", "forward"], ["backward", "backward"]];
  const direction = choice("Direction", halves, showDirection);
  const theme = choice("Colours", THEMES, (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  });
  return [entries, direction, theme];
}

function listen(search, stages) {
  const close = make("form", { method: "dialog" }, make("button", {}, "close"));
  const help = make("dialog", { "aria-label": "Keys" }, make("p", {}, KEYS), close);
  document.body.append(help);
  const view = (name) => () => stages.view(name);
  const does = {
    "/": () => search.focus(), "[": () => step(-1), "]": () => step(1), ",": () => stages.go(-1),
    ".": () => stages.go(1), g: view("graph"), t: view("text"), d: view("difference"),
    Escape: chooseNothing, "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
    if (isTyping || help.open || !(event.key in does)) return;
    event.preventDefault();
    does[event.key]();
  });
}

start().catch((error) => {
  document.getElementById("explorer").append(`The page could not be shown: ${error.message}`);
  throw error;
});
