// The text in the page -> the document of schema.json.  packing.py says how it was packed.

/** @returns {Promise<any>} */
export async function unpack(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return unfolded(await new Response(stream).json());
}

/** Nodes as objects again, whose ids and places are shared texts. */
export function unfolded(content) {
  if (!content.words) return content; // a document that was never packed
  const stages = content.frames.flatMap((frame) => frame.entries.flatMap((entry) => entry.stages));
  for (const stage of stages) {
    stage.nodes.name = textsAt(content.names, stage.nodes.name);
    stage.text = textsAt(content.texts, stage.text).join("\n");
  }
  const ids = stages.flatMap((stage) => stage.nodes.name.map((name) => `${stage.id}/${name}`));
  const places = new Map();
  const idsOf = (found, at) => {
    if (found === null || found === undefined) return [];
    const list = Array.isArray(found) ? found : [found];
    return list.map((each) => (typeof each === "number" ? ids[at - each] : each));
  };
  const place = (text) => {
    if (!text) return null;
    if (!places.has(text)) {
      const [file, line] = text.split(":");
      places.set(text, { file, line: Number(line) });
    }
    return places.get(text);
  };
  let first = 0;
  for (const stage of stages) {
    const columns = stage.nodes;
    const word = (key, at) => content.words[columns[key]?.[at] ?? 0];
    const start = first;
    stage.nodes = columns.name.map((name, at) => ({
      id: ids[start + at], name, op: word("op", at), reason: word("reason", at),
      shape: word("shape", at), group: word("group", at), bytes: columns.bytes?.[at] ?? null,
      place: place(columns.place?.[at]), origins: idsOf(columns.origins?.[at], start + at),
      inputs: idsOf(columns.inputs?.[at], start + at),
    }));
    stage.lines = stage.lines.map((found, at) => idsOf(found, start + at));
    first += stage.nodes.length;
  }
  const entries = content.frames.flatMap((frame) => frame.entries);
  for (const row of entries.flatMap(({ flow }) => flow)) row.nodes = idsOf(row.nodes, 0);
  for (const { edges } of content.layouts.pictures) {
    for (const edge of edges) for (let at = 4; at < edge.length; at += 1) edge[at] += edge[at - 2];
  }
  return content;
}

/** The texts of a table at these distances, each from behind the one before. */
function textsAt(table, steps) {
  let at = 0;
  return steps.map((step) => table[(at += step + 1) - 1]);
}
