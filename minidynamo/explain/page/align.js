// Two neighbouring stages as one list: a line stands below those of the stage before that it came from.
// Names and calls change from stage to stage; what came from what does not.

/**
 * @param {import("./model.js").Model} model
 * @param {{id: string, texts: string[], lines: string[][]}} before
 * @param {{id: string, texts: string[], lines: string[][]}} after
 * @returns {{sign: string, text: string, line: number, old: number}[]|null}  line: in `after`, or -1; old:
 *     in `before`, or -1.  " " in both, "~" became what follows, "→" came of it, "−" went, "+" is new; null
 *     where nothing of `after` came from `before`.
 */
export function alignment(model, before, after) {
  const parents = parentsOf(model, before, after);
  const used = new Set(parents.flat());
  if (!parents.some((found, line) => found.length && !sameFrame(before.texts, after.texts[line]).length)) return null;
  const kept = sameTexts(before, after, used, parents);
  const rows = [];
  let next = 0; // of `before`
  const tellUntil = (end) => {
    for (; next < end; next += 1) {
      if (kept.has(next)) continue; // it stands where `after` has it
      rows.push({ sign: used.has(next) ? "~" : "−", text: before.texts[next], line: -1, old: next });
    }
  };
  after.texts.forEach((text, line) => {
    const found = parents[line];
    tellUntil(Math.max(-1, ...found) + 1);
    const same = [...kept].find(([, where]) => where === line)?.[0] ?? -1;
    const sign = same >= 0 ? " " : (found.length ? "→" : "+");
    rows.push({ sign, text, line, old: same });
  });
  tellUntil(before.texts.length);
  return rows;
}

/** For each line of `after` the lines of `before` that it came from. */
function parentsOf(model, before, after) {
  const lineOf = new Map();
  before.lines.forEach((ids, line) => ids.forEach((id) => lineOf.has(id) || lineOf.set(id, line)));
  const known = new Map();
  const linesOf = (id) => {
    if (!known.has(id)) {
      known.set(id, [...model.originsOf(id)].filter((one) => lineOf.has(one)).map((one) => lineOf.get(one)));
    }
    return known.get(id);
  };
  return after.lines.map((ids, line) => {
    const found = [...new Set(ids.flatMap(linesOf))].sort((a, b) => a - b);
    return found.length ? found : sameFrame(before.texts, after.texts[line]);
  });
}

/** The first and the last line of a graph are those of the graph before. */
function sameFrame(texts, text) {
  const word = /^ *(def|return)\b/.exec(text)?.[1];
  const found = word ? texts.findIndex((each) => each.trim().startsWith(`${word} `)) : -1;
  return found >= 0 ? [found] : [];
}

/** Lines that are what they were: line of `before` -> line of `after`. */
function sameTexts(before, after, used, parents) {
  const kept = new Map();
  after.texts.forEach((text, line) => {
    const free = (one) => before.texts[one] === text && !kept.has(one);
    let found = parents[line].find(free);
    if (found === undefined && !parents[line].length) {
      found = before.texts.findIndex((_, one) => free(one) && !used.has(one));
    }
    if (found !== undefined && found >= 0) kept.set(found, line);
  });
  return kept;
}
