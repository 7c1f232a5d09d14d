// What stages move, as a stream from left to right that ends in kernels: a bar for each stage, as high as its
// bytes, in parts that have the colours of source lines, and ribbons from one bar to the next.

import { draw } from "./dom.js";
import { choose, state } from "./state.js";

const MOST_BLOCKS = 48; // kernels that are drawn one by one
const [BAR, BLOCK] = [9, 46]; // widths of a stage's bar and of a kernel
const LAST = 1.3; // width of the last column in widths of the others, as style.css says
const LETTER = 6.7; // pixels of a name
const BETWEEN = 13; // names of kernels

/**
 * @param {SVGElement} svg
 * @param {any[]} rows  of the document: what was lowered, loop IR, kernels, and those again
 * @param {number} scale  pixels of a byte
 * @param {{shares: (row: any) => number[], chooseLane: (lane: number) => void}} about
 */
export function paintStream(svg, rows, scale, { shares, chooseLane }) {
  const width = svg.clientWidth;
  if (!width || !rows.length) return svg.replaceChildren();
  const column = (at) => (at * width) / (4 + LAST);
  const pixels = (row) => shares(row).map((bytes) => bytes * scale);
  const blocks = blocksOf(rows[3], pixels);
  const gap = Math.min(3, 60 / blocks.length);
  const wall = blocks.reduce((sum, { high }) => sum + high + gap, -gap);
  const bars = [rows[0], ...rows.slice(0, 3)].map(pixels);
  const tall = Math.max(wall, ...bars.map(sumOf)) + BETWEEN;
  svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  svg.style.height = `${tall}px`;
  const placed = bars.map((bar) => stacked(bar, tall / 2));
  const parts = [];
  const add = (shape, lane) => {
    shape.addEventListener("click", () => chooseLane(lane));
    parts.push(shape);
  };
  placed.forEach((bar, at) => bar.forEach(([top, bottom], lane) => {
    if (at) add(ribbon(lane, column(at - 1) + BAR, placed[at - 1][lane], column(at), [top, bottom]), lane);
    if (bottom > top) add(rect(lane, column(at), top, BAR, bottom - top), lane);
  }));
  const from = placed[3].map(([top]) => top);
  let y = (tall - wall) / 2;
  for (const block of blocks) {
    block.shape = shapeOf(block, column(4), y);
    block.middle = y + block.high / 2;
    stacked(block.parts.map((part) => (part * block.high) / (sumOf(block.parts) || 1)), block.middle)
      .forEach((ends, lane) => {
        const start = from[lane];
        from[lane] += block.parts[lane];
        if (block.parts[lane]) add(ribbon(lane, column(3) + BAR, [start, from[lane]], column(4), ends), lane);
      });
    y += block.high + gap;
  }
  parts.push(...blocks.map(({ shape }) => shape));
  nameLargest(blocks, column(4) + BLOCK + 6, Math.floor((width - column(4) - BLOCK - 6) / LETTER));
  return svg.replaceChildren(...parts);
}

const sumOf = (values) => values.reduce((sum, each) => sum + each, 0);

/** Where the parts of a bar around this middle begin and end. */
function stacked(values, middle) {
  let at = middle - sumOf(values) / 2;
  return values.map((value) => [at, (at += value)]);
}

/** Kernels and calls of a library in the order of the program; of many those that move most. */
function blocksOf({ nodes, bytes }, pixels) {
  const block = (id, label, row) => {
    const parts = pixels(row);
    return { id, label, parts, high: Math.max(1.5, sumOf(parts)) };
  };
  const order = nodes.map((id, at) => ({ id, count: bytes[at] }));
  const rest = [...order].sort((a, b) => b.count - a.count).slice(MOST_BLOCKS);
  const blocks = order
    .filter((one) => !rest.includes(one))
    .map(({ id, count }) => block(id, nameOf(id), { nodes: [id], bytes: [count] }));
  if (!rest.length) return blocks;
  const row = { nodes: rest.map(({ id }) => id), bytes: rest.map(({ count }) => count) };
  return [...blocks, block("", `${rest.length} smaller ones`, row)];
}

/** Of a library's call the operation, of ours the kernel. */
function nameOf(id) {
  const operation = state.model.thing(id)?.op ?? "";
  return operation.replace(/^aten\./, "").replace(/\.\w+$/, "") || state.model.name(id);
}

/** A kernel from left to right in the colours of the lines that it computes. */
function shapeOf({ id, label, parts, high }, x, y) {
  const shape = draw("g", { class: "block", "data-id": id }, draw("title", {}, label));
  shape.addEventListener("click", () => id && choose(id, "flow"));
  stacked(parts.map((part) => (BLOCK * part) / (sumOf(parts) || 1)), x + BLOCK / 2).forEach(([left, right], lane) => {
    if (right > left) shape.append(rect(lane, left, y, right - left, high));
  });
  return shape;
}

/** The names of the largest blocks for which there is room. */
function nameLargest(blocks, x, room) {
  const taken = [];
  for (const { shape, label, middle } of [...blocks].sort((a, b) => b.high - a.high)) {
    if (taken.some((other) => Math.abs(other - middle) < BETWEEN)) continue;
    taken.push(middle);
    shape.append(draw("text", { x, y: middle + 4 }, label.length > room ? `${label.slice(0, room - 1)}…` : label));
  }
}

function ribbon(lane, x, [a, b], to, [c, d]) {
  const half = (x + to) / 2;
  const path = `M${x} ${a}C${half} ${a} ${half} ${c} ${to} ${c}V${d}C${half} ${d} ${half} ${b} ${x} ${b}Z`;
  return draw("path", { class: `ribbon lane${lane}`, "data-lane": lane, d: path });
}

const rect = (lane, x, y, width, height) =>
  draw("rect", { class: `lane${lane}`, "data-lane": lane, x, y, width, height: Math.max(height, 0.5) });
