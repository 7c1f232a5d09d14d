// Elements of the page.  Text is always set as text: nothing here reads HTML, so that a name with a
// `<` in it stays a name.

/**
 * An element with attributes, listeners and children: make("button", {class: "x", onclick: f}, "go").
 * @param {string} tag
 * @param {Object<string, any>} [attributes]  `on...` are listeners; null and false are left out
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. @returns {SVGElement} */
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A <select> of [value, text] rows. @returns {HTMLSelectElement} */
export function choice(label, rows, changed) {
  const select = make("select", { "aria-label": label, onchange: () => changed(select.value) });
  offer(select, rows);
  return select;
}

/** Give a <select> other rows, and keep what was selected where that is still there. */
export function offer(select, rows) {
  const before = select.value;
  select.replaceChildren(...rows.map(([value, text]) => make("option", { value }, text)));
  if (rows.some(([value]) => value === before)) select.value = before;
}

/** 1234567 -> "1.2 MB" */
export function bytesText(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  let rest = count;
  while (rest >= 1000 && power < units.length - 1) {
    rest /= 1000;
    power += 1;
  }
  return `${power && rest < 100 ? rest.toFixed(1) : Math.round(rest)} ${units[power]}`;
}

/** 0.0123 -> "12.3 ms" */
export function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toFixed(1)} ms`;
  return `${(seconds * 1e6).toFixed(1)} µs`;
}

/** many(1, "kernel") -> "1 kernel", many(2, "kernel") -> "2 kernels" */
export function many(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A guard's text without the tables in which nn.Module keeps its parts:
 *  self.__dict__['_modules']['h'] -> self.h */
export function shortPath(text) {
  let short = text;
  for (const table of ["_modules", "_parameters", "_buffers"]) {
    const [first, ...rest] = short.split(`.__dict__['${table}']['`);
    short = first + rest.map((part) => `.${part.replace("']", "")}`).join("");
  }
  return short;
}
