// Colours for code: one line at a time, for what is on the screen only.

import { make } from "./dom.js";

const PYTHON = `and as assert async await break class continue def del elif else except finally for
  from global if import in is lambda None nonlocal not or pass raise return True False try while
  with yield`;
const CPP = `auto bool break case char const continue double else extern false float for if inline int
  int32_t int64_t return static struct switch template true typename uint8_t using void while`;
const WORDS = { python: new Set(PYTHON.split(/\s+/)), cpp: new Set(CPP.split(/\s+/)) };
const STRING = `"(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*'`;
const REST = "([0-9][\\w.]*)|([A-Za-z_]\\w*)|(\\s+|.)";
const TOKENS = {
  python: new RegExp(`(#.*)|(${STRING})|${REST}`, "gu"),
  cpp: new RegExp(`(//.*|^\\s*#.*)|(${STRING})|${REST}`, "gu"),
};
const KINDS = ["comment", "string", "number"];

/**
 * Fill `element` with one line of code.
 * @param {HTMLElement} element
 * @param {string} text
 * @param {string} language  "python" | "triton" | "cpp" | "text"
 */
export function paintCode(element, text, language) {
  const known = language === "triton" ? "python" : language;
  if (!(known in TOKENS) || text.length > 2000) {
    element.append(text);
    return;
  }
  let plain = "";
  for (const token of text.matchAll(TOKENS[known])) {
    let kind = KINDS.find((_, index) => token[index + 1] !== undefined);
    if (token[4] !== undefined && WORDS[known].has(token[4])) kind = "word";
    if (!kind) {
      plain += token[0];
      continue;
    }
    element.append(plain, make("span", { class: kind }, token[0]));
    plain = "";
  }
  element.append(plain);
}
