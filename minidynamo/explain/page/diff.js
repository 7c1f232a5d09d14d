// The difference between two texts, line by line (E. Myers, "An O(ND) difference algorithm", 1986).

const MOST_EDITS = 600; // above it, the texts are shown as two different ones

/**
 * @param {string[]} before
 * @param {string[]} after
 * @returns {{sign: string, text: string, line: number}[]}  " " in both, "+" in `after` only (both with
 *     their line there), "−" in `before` only (line -1)
 */
export function difference(before, after) {
  let same = 0;
  while (same < before.length && same < after.length && before[same] === after[same]) same += 1;
  const start = after.slice(0, same).map((text, line) => ({ sign: " ", text, line }));
  const rest = shortestEdit(before.slice(same), after.slice(same));
  return [...start, ...rest.map((row) => (row.line < 0 ? row : { ...row, line: row.line + same }))];
}

const removed = (text) => ({ sign: "−", text, line: -1 });
const added = (text, line) => ({ sign: "+", text, line });

/** `reach[k]` is how far one comes in `before` on diagonal k = x - y with so many edits; the `reach` of
 *  each number of edits is kept, and the way is read from them backwards. */
function shortestEdit(before, after) {
  const kept = [];
  let reach = new Map([[1, 0]]);
  for (let edits = 0; edits <= MOST_EDITS; edits += 1) {
    kept.push(new Map(reach));
    for (let k = -edits; k <= edits; k += 2) {
      let x = goesDown(reach, k, edits) ? reach.get(k + 1) : reach.get(k - 1) + 1;
      while (x < before.length && x - k < after.length && before[x] === after[x - k]) x += 1;
      reach.set(k, x);
      if (x >= before.length && x - k >= after.length) return wayBack(kept, before, after);
    }
  }
  return [...before.map(removed), ...after.map(added)];
}

/** Does the best way to diagonal k come from k + 1, by a line that only `after` has? */
function goesDown(reach, k, edits) {
  return k === -edits || (k !== edits && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
}

function wayBack(kept, before, after) {
  const found = [];
  let [x, y] = [before.length, after.length];
  for (let edits = kept.length - 1; edits >= 0; edits -= 1) {
    const reach = kept[edits];
    const k = x - y;
    const down = goesDown(reach, k, edits);
    const fromX = edits === 0 ? 0 : reach.get(down ? k + 1 : k - 1);
    const fromY = edits === 0 ? 0 : fromX - (down ? k + 1 : k - 1);
    while (x > fromX && y > fromY && before[x - 1] === after[y - 1]) {
      [x, y] = [x - 1, y - 1];
      found.push({ sign: " ", text: after[y], line: y });
    }
    if (edits > 0) found.push(down ? added(after[fromY], fromY) : removed(before[fromX]));
    [x, y] = [fromX, fromY];
  }
  return found.reverse();
}
