// A stage as boxes and arrows.  Where the boxes lie was worked out in Python (layout.py); a large
// stage is a picture of groups, each of which opens on demand.

import { draw, make, many } from "./dom.js";
import { choose, state } from "./state.js";

const MARGIN = 12;
const LETTERS = 1 / 6.4; // of a box's label per unit of its width

/**
 * @typedef {{width: number, height: number, boxes: number[][], edges: number[][]}} Picture
 *     boxes: [x, y, width, height]; edges: [from, to, x, y, ...], the points of a Bézier curve
 * @typedef {{picture: number, members: (number|string)[]}} View
 *     what box n is: an index into the stage's nodes, or the name of another view
 */
export class GraphView {
  /** @param {string} name  the ids of its boxes begin with it */
  constructor(name) {
    Object.assign(this, { name, stage: null, view: "", cursor: 0, boxes: [], isVisible: () => true });
    const button = (text, label, does) =>
      make("button", { "aria-label": label, title: label, onclick: does }, text);
    this.up = button("↑ all groups", "Back to the picture of all groups", () => this.open(""));
    this.where = make("span", { class: "note" });
    const tools = make(
      "div",
      { class: "graph-tools" },
      this.up,
      button("+", "Larger", () => this.zoom(0.75)),
      button("−", "Smaller", () => this.zoom(1 / 0.75)),
      button("fit", "The whole picture", () => this.fit()),
      this.where,
    );
    this.svg = draw("svg", {
      role: "listbox", tabindex: "0", "aria-label": "Graph", class: "graph",
      onkeydown: (event) => this.key(event),
      onpointerdown: (event) => this.grab(event),
      onwheel: (event) => this.wheel(event),
    });
    this.element = make("div", { class: "graph-view", hidden: true }, tools, this.svg);
  }

  /** Another stage. */
  show(stage) {
    this.element.hidden = false;
    if (this.stage !== stage) {
      this.stage = stage;
      this.views = state.model.layouts.stages[stage.id];
      this.parts = partsOf(stage);
      this.open("");
    }
    this.light();
  }

  /** Another view of the stage: "" is the whole. */
  open(name) {
    this.view = name;
    this.cursor = 0;
    const { picture, members } = this.views[name];
    this.picture = state.model.layouts.pictures[picture];
    this.members = members;
    this.up.hidden = name === "";
    this.where.textContent = name || many(this.nodesOf("").length, "operation");
    this.boxes = members.map((member, index) => this.box(member, this.picture.boxes[index], index));
    const arrow = draw("path", { d: "M0,0 L6,3 L0,6 z" });
    const size = { markerWidth: 6, markerHeight: 6, refX: 6, refY: 3, markerUnits: "userSpaceOnUse" };
    this.edges = this.picture.edges.map(([, , ...points]) => this.edge(points));
    this.svg.replaceChildren(
      draw("defs", {}, draw("marker", { ...size, id: `${this.name}-arrow`, orient: "auto" }, arrow)),
      draw("g", { role: "none", "aria-hidden": "true" }, ...this.edges),
      draw("g", { role: "none" }, ...this.boxes),
    );
    this.fit();
    this.light();
  }

  edge([x, y, ...rest]) {
    const path = `M${x},${y} C${rest.join(" ")}`;
    return draw("path", { d: path, class: "edge", "marker-end": `url(#${this.name}-arrow)` });
  }

  box(member, [x, y, width, height], index) {
    const isGroup = typeof member === "string";
    const node = isGroup ? null : this.stage.nodes[member];
    const upper = isGroup ? member : node.name;
    const lower = isGroup ? many(this.nodesOf(member).length, "operation") : `${node.op} ${node.shape}`;
    const most = Math.floor(width * LETTERS);
    const line = (text, dy) =>
      draw("text", { x: x + width / 2, y: y + dy, "text-anchor": "middle" }, shortened(text, most));
    const kind = isGroup ? "group" : kindOf(node);
    return draw(
      "g",
      {
        class: `box ${kind}`, role: "option", id: `${this.name}-box-${index}`,
        "aria-label": `${upper}, ${lower}`, onclick: () => this.enter(index),
      },
      draw("title", {}, `${upper}\n${lower}`),
      draw("rect", { x, y, width, height, rx: kind === "input" ? 12 : 3 }),
      line(upper, 14),
      line(lower, 28),
    );
  }

  /** The nodes within a group, those of groups within it included. */
  nodesOf(member) {
    if (typeof member === "number") return this.parts.get(this.stage.nodes[member]) ?? [this.stage.nodes[member]];
    return this.views[member].members.flatMap((each) => this.nodesOf(each));
  }

  /** What is lit, chosen and visible now. */
  light() {
    if (!this.stage) return;
    const lit = this.members.map((member) => this.nodesOf(member).some(({ id }) => state.lit.has(id)));
    const seen = this.members.map((member) => this.nodesOf(member).some(({ id }) => this.isVisible(id)));
    this.boxes.forEach((box, index) => {
      box.classList.toggle("lit", lit[index]);
      box.classList.toggle("chosen", this.isChosen(this.members[index]));
      box.classList.toggle("cursor", index === this.cursor);
      box.classList.toggle("later", !seen[index]);
      box.setAttribute("aria-selected", String(lit[index]));
    });
    this.picture.edges.forEach(([from, to], index) => {
      this.edges[index].classList.toggle("lit", lit[from] && lit[to]);
      this.edges[index].classList.toggle("later", !seen[from] || !seen[to]);
    });
    this.svg.setAttribute("aria-activedescendant", `${this.name}-box-${this.cursor}`);
  }

  /** Light, and look at what is lit: one box of it, if none can be seen. */
  reveal() {
    if (!this.stage) return;
    this.light();
    if (state.from === this.name) return;
    const lit = this.boxes.flatMap((box, index) => (box.classList.contains("lit") ? [index] : []));
    const isElsewhere = this.nodesOf("").some(({ id }) => state.lit.has(id));
    if (!lit.length && this.view && isElsewhere) this.open("");
    else if (lit.length && lit.every((index) => this.isOut(index))) this.lookAt(lit[0]);
  }

  isChosen(member) {
    return typeof member === "number" && this.stage.nodes[member].id === state.chosen;
  }

  enter(index) {
    this.cursor = index;
    const member = this.members[index];
    if (typeof member === "string") this.open(member);
    else choose(this.stage.nodes[member].id, this.name);
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Enter") this.enter(this.cursor);
    else if (event.key === "Backspace" && this.view) this.open("");
    else if (event.key === "+") this.zoom(0.75);
    else if (event.key === "-") this.zoom(1 / 0.75);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  move(by) {
    this.cursor = (this.cursor + by + this.boxes.length) % this.boxes.length;
    if (this.isOut(this.cursor)) this.lookAt(this.cursor);
    this.light();
  }

  isOut(index) {
    const [x, y, width, height] = this.picture.boxes[index];
    const { frame } = this;
    return x < frame.x || y < frame.y || x + width > frame.x + frame.width || y + height > frame.y + frame.height;
  }

  lookAt(index) {
    const [x, y, width] = this.picture.boxes[index];
    const { frame } = this;
    this.look(x + width / 2 - frame.width / 2, y - frame.height / 3, frame.width);
  }

  // --- what part of the picture is seen -----------------------------------------------------------
  fit() {
    const ratio = this.ratio();
    const { width, height } = this.picture;
    const wanted = Math.max(width + 2 * MARGIN, 320, Math.min((height + 2 * MARGIN) / ratio, 900));
    this.look(width / 2 - wanted / 2, -MARGIN, wanted);
  }

  ratio() {
    return (this.svg.clientHeight || 400) / (this.svg.clientWidth || 600);
  }

  look(x, y, width) {
    this.frame = { x, y, width, height: width * this.ratio() };
    this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${this.frame.height}`);
  }

  zoom(factor, atX = 0.5, atY = 0.5) {
    const { x, y, width, height } = this.frame;
    const larger = Math.max(60, Math.min(width * factor, 20000));
    const change = larger / width;
    this.look(x + width * (1 - change) * atX, y + height * (1 - change) * atY, larger);
  }

  wheel(event) {
    if (!event.ctrlKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    const [atX, atY] = [(event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height];
    this.zoom(event.deltaY < 0 ? 0.85 : 1 / 0.85, atX, atY);
  }

  grab(event) {
    const { x, y, width } = this.frame;
    const scale = width / this.svg.clientWidth;
    const drag = (moved) =>
      this.look(x - (moved.clientX - event.clientX) * scale, y - (moved.clientY - event.clientY) * scale, width);
    this.svg.addEventListener("pointermove", drag);
    const stop = () => this.svg.removeEventListener("pointermove", drag);
    window.addEventListener("pointerup", stop, { once: true });
  }
}

/** Of the loop IR: a buffer, or a group of buffers, with the statements in it. */
function partsOf({ kind, nodes }) {
  if (kind !== "loop_ir" && kind !== "fused") return new Map();
  const ofBuffer = Map.groupBy(nodes, ({ name }) => name.split(/[:.]/)[0]);
  const buffers = ({ op, name }) => (op === "group" ? name.slice("group:".length).split("+") : [name]);
  return new Map(nodes.map((node) => [node, [node, ...buffers(node).flatMap((name) => ofBuffer.get(name) ?? [])]]));
}

function kindOf(node) {
  if (node.op === "placeholder" || node.op === "get_attr") return "input";
  return node.half === "saved" || node.half === "backward" ? node.half : "call";
}

const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
