// The document that Python wrote, with an index over every object in it.
//
// Each object has an id and the ids that it came from (`origins`).  A source line is an object, too:
// "file0:12".  Following origins from a line of a kernel ends in source lines; following them
// backwards (`results`) from a source line ends in lines of kernels.

import { bytesText, many, secondsText, shortPath } from "./dom.js";

/**
 * @typedef {{file: string, line: number}} Place
 * @typedef {Object} Thing  anything that can be chosen
 * @property {string} id
 * @property {string} kind  "line", "node", "guard", "break", "kernel", ...
 * @property {string} label
 * @property {string} detail
 * @property {string[]} origins
 * @property {string} entry  id of the entry that it belongs to, or ""
 * @property {string} stage  id of its stage, or ""
 * @property {any} data  as it stands in the document
 */

export const KIND_NAMES = {
  line: "source line", node: "operation", guard: "guard", break: "graph break", kernel: "kernel",
  fusion: "fusion decision", saved: "saved for backward", life: "buffer in memory",
  eager: "eager kernel", row: "line of text", frame: "frame", entry: "compiled entry", module: "module",
};

export const FROM_CACHE = 125; // hundredths of a copy's rate

export const lineId = (/** @type {Place|null} */ place) =>
  place ? `${place.file}:${place.line}` : "";

/** What an object of a stage is called: instructions and lines have numbers for names. */
function labelOf(stage, { name, op }) {
  if (stage.kind === "bytecode" || stage.kind === "replacement") return `${op} at ${name}`;
  return stage.kind === "kernel" || stage.kind === "wrapper" ? `line ${name}` : name;
}

/** In the joint graph: which nodes are saved, and which only the backward half computes. */
function markHalves(entry) {
  const joint = entry.stages.find(({ kind }) => kind === "joint");
  const later = entry.stages.filter(({ step, direction }) => step > joint?.step && direction === "forward");
  const forward = new Set(later.flatMap(({ nodes }) => nodes.flatMap(({ origins }) => origins)));
  const saved = new Set(entry.saved.filter((each) => !each.is_input).map(({ node }) => node));
  for (const node of joint?.nodes ?? []) {
    const isEdge = node.op === "placeholder" || node.op === "output";
    node.half = isEdge || forward.has(node.id) ? "forward" : "backward";
    if (saved.has(node.id)) node.half = "saved";
  }
}

/** Everything that is known of a run. */
export class Model {
  constructor(content) {
    this.content = content;
    this.layouts = content.layouts || { pictures: [], stages: {} };
    /** @type {Map<string, Thing>} */
    this.things = new Map();
    /** @type {Map<string, string[]>|null}  made when first asked for, see resultsOf */
    this.results = null;
    this.lines = new Map();
    this.files = new Map(content.files.map((file) => [file.id, this.withLines(file)]));
    /** @type {Map<string, Set<string>>}  source line -> paths of the modules that run it */
    this.modules = new Map();
    this.frames = content.frames;
    this.entries = new Map();
    this.stages = new Map();
    for (const frame of this.frames) this.addFrame(frame);
    /** @type {Map<string, any[]>}  source line -> the compiled frames that it calls */
    this.callers = Map.groupBy(this.frames.filter(({ caller }) => caller), ({ caller }) => lineId(caller));
    this.heats = new Map();
    this.captured = new Map();
    this.trees = new Map();
    /** @type {Map<string, {seconds: number, bytes: number}>}  line of a wrapper -> what it took */
    this.measured = new Map();
    for (const { steps } of this.entries.values()) for (const step of steps ?? []) this.measured.set(step.line, step);
  }

  /** How fast bytes are moved, in hundredths of what a copy moves on this machine; null: not known. */
  shareOfCopy(bytes, seconds) {
    const roof = this.content.made.copy?.bytes_per_second;
    return roof && bytes && seconds ? Math.round((100 * bytes) / seconds / roof) : null;
  }

  /** "3.1 µs · 52 % of a copy".  Whatever is faster than a copy by a quarter does not come from memory:
   *  no rate is said of it. */
  speedText(bytes, seconds, atMost = false) {
    if (seconds === null || seconds === undefined) return "";
    const share = this.shareOfCopy(bytes, seconds);
    if (share === null) return secondsText(seconds);
    const rate = share > FROM_CACHE ? "from cache" : `${atMost ? "at most " : ""}${share} % of a copy`;
    return `${secondsText(seconds)} · ${rate}`;
  }

  withLines(file) {
    return { ...file, lines: file.text.split("\n") };
  }

  addFrame(frame) {
    const where = frame.file ? [`${frame.file}:${frame.first_line}`] : [];
    this.add(frame.id, "frame", frame.function, frame.skipped || frame.error, where, "", "", frame);
    for (const found of frame.breaks) {
      const lines = found.stack.filter((call) => call.file).map(lineId);
      this.add(found.id, "break", found.reason, found.hint, lines.slice(-1), "", "", found);
    }
    for (const entry of frame.entries) this.addEntry(frame, entry);
  }

  addEntry(frame, entry) {
    this.entries.set(entry.id, { ...entry, frame });
    this.add(entry.id, "entry", `${frame.function}, ${entry.id}`, "", [], entry.id, "", entry);
    for (const guard of entry.guards) {
      const from = guard.origins?.length ? guard.origins : [lineId(guard.line)];
      this.add(guard.id, "guard", shortPath(guard.code), guard.kind, from, entry.id, "", guard);
    }
    for (const stage of entry.stages) this.addStage(entry, stage);
    this.addModules(entry);
    markHalves(entry);
    for (const found of entry.kernels) {
      const moved = found.bytes_read + found.bytes_written;
      const bytes = `${found.at_most ? "at most " : ""}${bytesText(moved)}`;
      const detail = [bytes, this.speedText(moved, found.seconds, found.at_most)].filter(Boolean).join(" · ");
      this.add(found.id, "kernel", found.name, detail, found.nodes, entry.id, found.stage, found);
    }
    for (const found of entry.fusions) {
      const from = found.nodes ?? [];
      const label = `${this.names(found.first)} + ${this.names(found.second)}`;
      this.add(found.id, "fusion", label, found.reason, from, entry.id, "", found);
    }
    for (const found of entry.saved) {
      this.add(found.id, "saved", this.name(found.node), found.reason, [found.node], entry.id, "", found);
    }
    for (const plan of entry.memory) {
      for (const found of plan.lives) {
        const detail = `${found.bytes} bytes`;
        this.add(found.id, "life", this.name(found.buffer), detail, [found.buffer], entry.id, "", found);
      }
    }
    for (const found of entry.eager_kernels) {
      const from = found.origins.length ? found.origins : [lineId(found.place)];
      const detail = [found.reason, this.speedText(found.bytes, found.seconds, true)].filter(Boolean).join(" · ");
      this.add(found.id, "eager", found.op, detail, from, entry.id, "", found);
    }
  }

  addStage(entry, stage) {
    const lines = stage.text.split("\n");
    this.stages.set(stage.id, { ...stage, texts: lines, entry: entry.id });
    for (const node of stage.nodes) {
      const label = labelOf(stage, node);
      const more = { kind: "node", label, entry: entry.id, stage: stage.id, data: node };
      if (!node.origins.length && node.place) node.origins = [lineId(node.place)];
      this.things.set(node.id, Object.assign(node, more));
    }
  }

  /** The modules of the captured graph are objects, too: a node comes from its module, that from the
   *  module around it. */
  addModules(entry) {
    const captured = entry.stages.find(({ kind }) => kind === "fx");
    const idOf = (path) => `${entry.id}/module/${path}`;
    for (const node of captured?.nodes.filter(({ group }) => group) ?? []) {
      node.origins.push(idOf(node.group));
      let path = node.group;
      while (path && !this.things.has(idOf(path))) {
        const around = path.split(".").slice(0, -1).join(".");
        this.add(idOf(path), "module", path, "", around ? [idOf(around)] : [], entry.id, "", { path });
        path = around;
      }
      if (node.place) {
        const key = lineId(node.place);
        if (!this.modules.has(key)) this.modules.set(key, new Set());
        this.modules.get(key).add(node.group);
      }
    }
  }

  add(id, kind, label, detail, from, entry, stage, data) {
    const origins = from.filter(Boolean);
    this.things.set(id, { id, kind, label, detail, origins, entry, stage, data });
  }

  /** What came of an object, directly. */
  resultsOf(id) {
    if (!this.results) {
      this.results = new Map();
      for (const thing of [...this.things.values()]) {
        for (const origin of thing.origins) {
          const found = this.results.get(origin);
          if (found) found.push(thing.id);
          else this.results.set(origin, [thing.id]);
        }
      }
    }
    return this.results.get(id) ?? [];
  }

  addLine(id) {
    const place = this.place(id);
    if (!place) return;
    const label = `${place.file.path}:${place.line}`;
    this.add(id, "line", label, place.text.trim(), [], "", "", place);
  }

  /** "file0:12" -> its file, line and text. */
  place(id) {
    const [name, line] = id.split(":");
    const file = this.files.get(name);
    if (!file || !line) return null;
    const text = file.lines[Number(line) - file.first_line] ?? "";
    return { file, line: Number(line), text };
  }

  name(id) {
    return this.thing(id)?.label ?? id.split("/").pop();
  }

  /** "buf1+buf2", or ids of buffers joined by "+", without what stands before their names. */
  names(text) {
    return text.split("+").map((part) => this.name(part)).join("+");
  }

  /** What is called `id`; a line of a stage's text ("stage#4") and a source line are made when asked
   *  for. @returns {Thing|undefined} */
  thing(id) {
    const known = this.things.get(id);
    if (known) return known;
    const [stage, index] = id.split("#");
    if (index !== undefined && this.stages.has(stage)) {
      const { texts, lines, entry, title } = this.stages.get(stage);
      const label = `${title}, line ${Number(index) + 1}`;
      this.add(id, "row", label, texts[index].trim(), lines[index] ?? [], entry, stage, null);
    } else {
      this.addLine(id);
    }
    return this.things.get(id);
  }

  /** All that can be reached from `id`, without it. @returns {Set<string>} */
  reached(id, neighbours) {
    const found = new Set();
    const waiting = [...neighbours(id)];
    while (waiting.length) {
      const next = waiting.pop();
      if (found.has(next)) continue;
      found.add(next);
      waiting.push(...neighbours(next));
    }
    return found;
  }

  originsOf(id) {
    return this.reached(id, (each) => this.thing(each)?.origins ?? []);
  }

  /** What lights up with `id`: itself, what it came from, and what came of it. */
  linked(id) {
    const results = this.reached(id, (each) => this.resultsOf(each));
    return new Set([id, ...this.originsOf(id), ...results]);
  }

  /** The source lines that `id` came from. @returns {string[]} */
  linesOf(id) {
    const isLine = (origin) => this.thing(origin)?.kind === "line";
    if (!this.lines.has(id)) this.lines.set(id, [...this.originsOf(id)].filter(isLine));
    return this.lines.get(id);
  }

  /** A sentence about an object: its op, shape, or why it has no origin. */
  detail(thing) {
    if (thing.kind !== "node") return thing.detail;
    return [thing.op, thing.shape, thing.reason].filter(Boolean).join(" · ");
  }

  /** Which source lines cost what in an entry: line -> {bytes, seconds, operations, breaks}. */
  heat(entryId) {
    if (!this.heats.has(entryId)) this.heats.set(entryId, this.costs(entryId, (id) => this.linesOf(id)));
    return this.heats.get(entryId);
  }

  /** What an entry costs by `keysOf(id)`, the keys among which an object's share is divided. */
  costs(entryId, keysOf) {
    const heat = new Map();
    const give = (key, what, amount) => {
      if (!heat.has(key)) heat.set(key, { bytes: 0, seconds: 0, operations: 0, breaks: 0 });
      heat.get(key)[what] += amount;
    };
    const share = (ids, what, amount) => {
      for (const id of ids) {
        const keys = keysOf(id);
        for (const key of keys) give(key, what, amount / ids.length / keys.length);
      }
    };
    const entry = this.entries.get(entryId);
    for (const kernel of entry?.kernels ?? []) {
      share(kernel.nodes, "bytes", kernel.bytes_read + kernel.bytes_written);
    }
    for (const { line, seconds, bytes, kernel } of entry?.steps ?? []) {
      share([line], "seconds", seconds);
      if (!kernel) share([line], "bytes", bytes);
    }
    const graph = entry?.stages.find((stage) => stage.kind === "fx");
    const operations = graph?.nodes.filter((node) => !node.reason) ?? [];
    for (const node of operations) share([node.id], "operations", 1);
    for (const frame of this.frames) {
      for (const found of frame.breaks) share([found.id], "breaks", 1);
    }
    return heat;
  }

  /** The captured nodes that an object came from. */
  nodesOf(id) {
    if (!this.captured.has(id)) {
      const isCaptured = (each) => this.stages.get(this.things.get(each)?.stage)?.kind === "fx";
      this.captured.set(id, [id, ...this.originsOf(id)].filter(isCaptured).map((each) => this.things.get(each)));
    }
    return this.captured.get(id);
  }

  /** The modules of an entry in the order of the tree, each with what it and its parts cost; of the
   *  nodes of one source line, if `line` says so. */
  moduleTree(entryId, line = "") {
    const key = `${entryId} ${line}`;
    if (this.trees.has(key)) return this.trees.get(key);
    const isMeant = (node) => !line || lineId(node.place) === line || this.linesOf(node.id).includes(line);
    const paths = (id) => this.nodesOf(id).map((node) => (isMeant(node) ? node.group : null));
    const costs = this.costs(entryId, paths);
    costs.delete(null);
    const totals = new Map([["", { bytes: 0, seconds: 0, operations: 0 }]]);
    for (const [path, cost] of costs) {
      const parts = path ? path.split(".") : [];
      for (let depth = 0; depth <= parts.length; depth += 1) {
        const above = parts.slice(0, depth).join(".");
        if (!totals.has(above)) totals.set(above, { bytes: 0, seconds: 0, operations: 0 });
        for (const what of ["bytes", "seconds", "operations"]) totals.get(above)[what] += cost[what];
      }
    }
    const order = [...totals.keys()].sort(new Intl.Collator("en", { numeric: true }).compare);
    const tree = order.map((path) => ({
      id: `${entryId}/module/${path}`, path, depth: path ? path.split(".").length : 0, cost: totals.get(path),
      hasParts: order.some((other) => other !== path && (!path || other.startsWith(`${path}.`))),
    }));
    this.trees.set(key, tree);
    return tree;
  }

  /** One sentence about an entry, for lists. */
  entryText(entryId) {
    const { frame, guards, kernels } = this.entries.get(entryId);
    return `${frame.function}: ${many(guards.length, "guard")}, ${many(kernels.length, "kernel")}`;
  }
}
