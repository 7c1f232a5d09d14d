// A small part of Python's expressions: what guards are written in.  The guards' form asks here what
// `x.shape[0] >= 2` or `x.stride() == (8, 1)` is for values that were typed into the page.
//
// Values: numbers, strings, booleans, null (None), arrays (tuples and lists), and
// objects of the form ({attributes, methods}).  What cannot be told raises `Unknown`.

export class Unknown extends Error {}

const TOKEN = /\s*(?:(\d+\.\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|([A-Za-z_]\w*)|(\/\/|\*\*|[<>=!]=|[-+*\/%()[\],.<>{}:]))/y;
const CONSTANTS = { None: null, True: true, False: false };
const WORDS = new Set(["and", "or", "not", "is", "in", "if", "else", "for", "lambda"]);
const COMPARISONS = {
  "==": same, "!=": (a, b) => !same(a, b), "<": (a, b) => a < b, "<=": (a, b) => a <= b,
  ">": (a, b) => a > b, ">=": (a, b) => a >= b, is: same, "is not": (a, b) => !same(a, b),
  in: (a, b) => items(b).some((each) => same(a, each)),
  "not in": (a, b) => !items(b).some((each) => same(a, each)),
};
const SUMS = { "+": (a, b) => a + b, "-": (a, b) => a - b };
const PRODUCTS = {
  "*": (a, b) => a * b, "/": (a, b) => a / b, "//": (a, b) => Math.floor(a / b),
  "%": (a, b) => ((a % b) + b) % b,
};

function items(value) {
  if (!Array.isArray(value)) throw new Unknown("no list");
  return value;
}

function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((each, index) => same(each, b[index]));
  }
  return a === b;
}

/** Python's truth of a value. */
const truth = (value) => (Array.isArray(value) ? value.length > 0 : Boolean(value));

/**
 * @param {string} code
 * @param {(name: string) => any} lookup  what a name means; raises Unknown
 */
export function evaluate(code, lookup) {
  const reader = new Reader(code, lookup);
  const value = reader.either();
  if (reader.token !== null) throw new Unknown(`cannot read ${reader.token}`);
  return value;
}

/** Reads and evaluates at once, one method for each strength of binding. */
class Reader {
  constructor(code, lookup) {
    Object.assign(this, { code, lookup, position: 0 });
    this.next();
  }

  next() {
    TOKEN.lastIndex = this.position;
    const found = TOKEN.exec(this.code);
    if (!found && this.code.slice(this.position).trim()) throw new Unknown(this.code);
    this.position = TOKEN.lastIndex || this.code.length;
    [this.kind, this.token] = ["end", null];
    ["number", "string", "name", "sign"].forEach((kind, index) => {
      if (found?.[index + 1] !== undefined) [this.kind, this.token] = [kind, found[index + 1]];
    });
  }

  take(sign) {
    if (this.token !== sign || this.kind === "string") return false;
    this.next();
    return true;
  }

  need(sign) {
    if (!this.take(sign)) throw new Unknown(`${sign} is missing`);
  }

  either() {
    let value = this.both();
    while (this.take("or")) {
      const other = this.both();
      value = truth(value) ? value : other;
    }
    return value;
  }

  both() {
    let value = this.negation();
    while (this.take("and")) {
      const other = this.negation();
      value = truth(value) ? other : value;
    }
    return value;
  }

  negation() {
    return this.take("not") ? !truth(this.negation()) : this.comparison();
  }

  comparison() {
    let left = this.chain(SUMS);
    let holds = null;
    for (let sign = this.sign(); sign; sign = this.sign()) {
      const right = this.chain(SUMS);
      holds = (holds ?? true) && COMPARISONS[sign](left, right);
      left = right;
    }
    return holds ?? left;
  }

  sign() {
    if (this.take("not")) {
      this.need("in");
      return "not in";
    }
    if (this.take("is")) return this.take("not") ? "is not" : "is";
    const sign = this.token;
    return sign in COMPARISONS && this.take(sign) ? sign : "";
  }

  chain(signs) {
    const inner = () => (signs === SUMS ? this.chain(PRODUCTS) : this.signed());
    let value = inner();
    while (this.kind === "sign" && this.token in signs) {
      const does = signs[this.token];
      this.next();
      value = does(value, inner());
    }
    return value;
  }

  signed() {
    return this.take("-") ? -this.signed() : this.access(this.atom());
  }

  atom() {
    const { kind, token } = this;
    if (kind === "end") throw new Unknown("nothing is there");
    this.next();
    if (kind === "number") return Number(token);
    if (kind === "string") return token.slice(1, -1).replace(/\\(.)/g, "$1");
    if (token === "(" || token === "[") return this.group(token);
    if (kind !== "name" || WORDS.has(token)) throw new Unknown(`cannot read ${token}`);
    return token in CONSTANTS ? CONSTANTS[token] : this.lookup(token);
  }

  group(opened) {
    const found = this.list(opened === "(" ? ")" : "]");
    return opened === "[" || found.isTuple || !found.length ? found : found[0];
  }

  /** What stands before `closing`, with commas between. */
  list(closing) {
    const found = [];
    while (!this.take(closing)) {
      found.push(this.either());
      if (this.take(",")) Object.defineProperty(found, "isTuple", { value: true, configurable: true });
      else if (this.token !== closing) throw new Unknown(`${closing} is missing`);
    }
    return found;
  }

  access(start) {
    let value = start;
    for (;;) {
      if (this.take(".")) {
        const name = this.token;
        this.next();
        value = attribute(value, name);
      } else if (this.take("[")) {
        value = element(value, this.either());
        this.need("]");
      } else if (this.take("(")) {
        if (typeof value !== "function") throw new Unknown("cannot be called here");
        value = value(...this.list(")"));
      } else {
        return value;
      }
    }
  }
}

function attribute(value, name) {
  if (value === null || typeof value !== "object" || !(name in value) || Array.isArray(value)) {
    throw new Unknown(`nothing is known of .${name}`);
  }
  return value[name];
}

function element(value, index) {
  const list = items(value);
  const found = list[index < 0 ? list.length + index : index];
  if (found === undefined) throw new RangeError("index out of range"); // the guard is false
  return found;
}
