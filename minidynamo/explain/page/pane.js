// A pane: a heading that opens and closes it, tools beside the heading, a body.

import { make } from "./dom.js";

/** @type {Pane[]} */
export const panes = [];

/** What is lit is seen: where all of it lies outside of the window, the window moves to the first pane that
 *  has some.  @param {string} from  the pane of the click */
export function showLitPane(from) {
  const others = panes.filter(({ key, isOpen }) => key !== from && isOpen);
  const lit = others.map((pane) => ({ pane, ...pane.lights })).filter(({ any }) => any);
  if (lit.length && !lit.some(({ seen }) => seen)) lit[0].pane.element.scrollIntoView({ block: "nearest" });
}

export class Pane {
  /**
   * @param {string} key  its name in the page's address and ids
   * @param {string} title
   * @param {{wide?: boolean, closed?: boolean, about?: string}} [how]
   */
  constructor(key, title, how = {}) {
    Object.assign(this, { key, title });
    this.body = make("div", { class: "body", id: `${key}-body` });
    this.tools = make("div", { class: "tools" });
    this.note = make("span", { class: "note" });
    this.button = make(
      "button",
      { class: "fold", "aria-controls": `${key}-body`, onclick: () => this.open(this.body.hidden) },
      title,
    );
    const heading = make("h2", { id: `${key}-title` }, this.button);
    this.element = make(
      "section",
      { class: `pane ${how.wide ? "wide" : ""}`, id: `pane-${key}`, "aria-labelledby": `${key}-title` },
      make("div", { class: "bar" }, heading, this.note, this.tools),
      this.body,
    );
    if (how.about) this.button.title = how.about;
    this.open(!how.closed);
    panes.push(this);
  }

  open(isOpen) {
    this.body.hidden = this.tools.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.update?.();
  }

  /** Is something lit in it, and can that be seen in the window? */
  get lights() {
    const lit = [...this.body.querySelectorAll(".row.lit, .box.lit, .area.lit")];
    const inWindow = ({ top, bottom }) => top >= 0 && bottom <= window.innerHeight;
    return { any: lit.length > 0, seen: lit.some((one) => inWindow(one.getBoundingClientRect())) };
  }

  get isOpen() {
    return !this.body.hidden;
  }
}
