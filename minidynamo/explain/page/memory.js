// Memory over time: live bytes at each step of the wrapper, one area a buffer.  The top of the axis is
// the peak that the planner counted.

import { bytesText, choice, draw, make, offer } from "./dom.js";
import { Pane } from "./pane.js";
import { choose, currentEntry, onChange, state } from "./state.js";

const [WIDTH, HEIGHT, LEFT, BELOW, TOP] = [640, 220, 64, 24, 8];
const MOST_AREAS = 160; // smaller buffers share one

export function memoryPane() {
  const pane = new Pane("memory", "Memory over time");
  let plan = null;
  const plans = choice("Direction", [], (direction) => show(direction));
  const picture = make("div", { class: "picture" });
  pane.tools.append(plans);
  pane.body.append(picture);

  function update() {
    const every = currentEntry()?.memory.filter((each) => each.lives.length) ?? [];
    offer(plans, every.map(({ direction }) => [direction, direction || "the call"]));
    plans.hidden = every.length < 2;
    show(plans.value);
  }

  function show(direction) {
    plan = currentEntry()?.memory.find((each) => each.direction === direction && each.lives.length);
    pane.note.textContent = plan ? `peak ${bytesText(plan.peak_live_bytes)}` : "no buffers of its own";
    picture.replaceChildren(...(plan ? [chart(plan)] : []));
  }

  pane.update = update;
  onChange((what) => (what === "entry" ? update() : show(plan?.direction)));
  return pane;
}

/** The buffers as stacked areas. */
function chart(plan) {
  const count = Math.max(plan.steps.length, ...plan.lives.map((life) => life.last + 1));
  const across = (step) => LEFT + (step / count) * (WIDTH - LEFT - 8);
  const up = (bytes) => TOP + (1 - bytes / (plan.peak_live_bytes || 1)) * (HEIGHT - TOP - BELOW);
  const filled = new Array(count).fill(0); // how high the stack is at each step
  const areas = byAge(plan.lives).map((life) => {
    const upper = [];
    const lower = [];
    for (let step = life.first; step <= life.last; step += 1) {
      lower.push(`${across(step)},${up(filled[step])}`, `${across(step + 1)},${up(filled[step])}`);
      filled[step] += life.bytes;
      upper.push(`${across(step)},${up(filled[step])}`, `${across(step + 1)},${up(filled[step])}`);
    }
    const label = `${state.model.names(life.buffer)}: ${bytesText(life.bytes)}, steps ${life.first} to ${life.last}`;
    return draw(
      "polygon",
      {
        points: [...upper, ...lower.reverse()].join(" "),
        class: `area ${state.lit.has(life.id) ? "lit" : ""}`,
        onclick: () => life.id && choose(life.id, "memory"),
      },
      draw("title", {}, label),
    );
  });
  const text = (x, y, words, anchor) => draw("text", { x, y, "text-anchor": anchor }, words);
  const label = `Live bytes over ${count} steps, at most ${bytesText(plan.peak_live_bytes)}`;
  return draw(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "memory", role: "img", "aria-label": label },
    draw("path", { class: "axis", d: `M${LEFT},${TOP} V${HEIGHT - BELOW} H${WIDTH - 8}` }),
    draw("path", { class: "peak", d: `M${LEFT},${TOP} H${WIDTH - 8}` }),
    text(LEFT - 6, TOP + 10, bytesText(plan.peak_live_bytes), "end"),
    text(LEFT - 6, HEIGHT - BELOW, "0", "end"),
    text(LEFT, HEIGHT - 6, "step 0", "start"),
    text(WIDTH - 8, HEIGHT - 6, `step ${count - 1}`, "end"),
    ...areas,
  );
}

/** Lives from the longest to the shortest; the smallest of very many are left out of the picture's
 *  parts, and stand in it as one. */
function byAge(lives) {
  const sorted = [...lives].sort((a, b) => b.last - b.first - (a.last - a.first));
  if (sorted.length <= MOST_AREAS) return sorted;
  const smallest = [...lives].sort((a, b) => a.bytes - b.bytes).slice(0, lives.length - MOST_AREAS);
  const rest = new Set(smallest);
  return [...sorted.filter((life) => !rest.has(life)), ...merged(smallest)];
}

/** For each step the sum of small buffers, as a life of that step alone. */
function merged(lives) {
  const last = Math.max(...lives.map((life) => life.last));
  const sums = new Array(last + 1).fill(0);
  for (const life of lives) for (let step = life.first; step <= life.last; step += 1) sums[step] += life.bytes;
  return sums.map((bytes, step) => ({ id: "", buffer: "small buffers", bytes, first: step, last: step }));
}
