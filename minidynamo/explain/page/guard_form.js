// "Would it fail?": other arguments, typed into the page, against the guards of every entry.  Nothing
// runs: a guard is a tree (questions.py), which is evaluated for what the form says.

import { make, many, shortPath } from "./dom.js";
import { choose, state } from "./state.js";

const DTYPES = `float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64
  complex128`.split(/\s+/);

/** The form for a frame's arguments. @returns {HTMLElement} */
export function guardForm(entry) {
  const given = entry?.frame.arguments ?? [];
  if (!given.length) return make("p", { class: "note" }, "No arguments are known of this frame.");
  const fields = given.map((each) => (each.kind === "tensor" ? tensorFields(each) : textField(each)));
  const answers = make("ul", { class: "answers", "aria-live": "polite" });
  const ask = (event) => {
    event.preventDefault();
    const values = new Map(fields.map(({ path, read }) => [path, read()]));
    answers.replaceChildren(...entry.frame.entries.map((each) => answer(each, values)));
  };
  return make(
    "form",
    { onsubmit: ask, "aria-label": "Would a guard fail?" },
    make("h3", {}, "Would another call pass?"),
    ...fields.map(({ element }) => element),
    make("button", { type: "submit" }, "ask the guards"),
    answers,
  );
}

/** An argument that is no tensor: its text, and how its value is read from that. */
function textField({ path, text }) {
  const input = make("input", { value: text ?? "", "aria-label": path, size: 16 });
  const element = make("div", { class: "argument" }, make("b", {}, path), input);
  return { path, element, read: () => pythonValue(input.value.trim()) };
}

/** A number, text, None, True or False; anything else is an object of which nothing is known. */
function pythonValue(text) {
  const constants = { None: null, True: true, False: false };
  if (text in constants) return constants[text];
  if (/^-?\d+(\.\d*)?$/.test(text)) return Number(text);
  return /^(['"]).*\1$/.test(text) ? text.slice(1, -1) : { pythonType: `of ${text}` };
}

/** A tensor: a field for all that guards ask about. */
function tensorFields(given) {
  const { path } = given;
  const input = (name, value) =>
    make("input", { value, "aria-label": `${path}: ${name}`, size: Math.max(6, value.length + 2) });
  const names = DTYPES.map((name) => make("option", {}, name));
  const dtype = make("select", { "aria-label": `${path}: dtype` }, ...names);
  dtype.value = given.dtype;
  const shape = input("shape", given.shape.join(", "));
  const isContiguous = String(contiguous(given.shape)) === String(given.stride);
  const stride = input("stride; empty: contiguous", isContiguous ? "" : given.stride.join(", "));
  stride.placeholder = "contiguous";
  const device = input("device", given.device);
  const gradient = make("input", { type: "checkbox", "aria-label": `${path}: requires_grad` });
  gradient.checked = given.requires_grad;
  const label = (text, field) => make("label", {}, `${text} `, field);
  const read = () => {
    const sizes = numbers(shape.value);
    const strides = stride.value.trim() ? numbers(stride.value) : contiguous(sizes);
    return tensor(`torch.${dtype.value}`, sizes, strides, device.value.trim(), gradient.checked);
  };
  const element = make(
    "div", { class: "argument" }, make("b", {}, path), label("dtype", dtype), label("shape", shape),
    label("stride", stride), label("device", device), label("requires_grad", gradient),
  );
  return { path, element, read };
}

const numbers = (text) => text.split(",").map((part) => part.trim()).filter(Boolean).map(Number);

function contiguous(shape) {
  let step = 1;
  return shape.toReversed().map((size) => {
    const stride = step;
    step *= Math.max(1, size);
    return stride;
  }).reverse();
}

/** A tensor as guards ask about it: attributes, and methods as functions. */
function tensor(dtype, shape, strides, device, gradient) {
  const no = () => false;
  const one = (list) => (index) => (index === undefined ? list : list.at(index));
  return {
    pythonType: "Tensor", dtype, shape, device, requires_grad: gradient, layout: "torch.strided",
    is_cpu: device.startsWith("cpu"), is_cuda: device.startsWith("cuda"), dim: () => shape.length,
    size: one(shape), stride: one(strides), storage_offset: () => 0,
    is_neg: no, is_conj: no, _is_zerotensor: no,
  };
}

// --- evaluating -------------------------------------------------------------------------------------
class Unknown extends Error {}

const same = (a, b) =>
  Array.isArray(a) && Array.isArray(b)
    ? a.length === b.length && a.every((each, index) => same(each, b[index]))
    : a === b;
const COMPARISONS = {
  "==": same, "!=": (a, b) => !same(a, b), "<": (a, b) => a < b, "<=": (a, b) => a <= b,
  ">": (a, b) => a > b, ">=": (a, b) => a >= b,
};
const ARITHMETIC = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b), "%": (a, b) => ((a % b) + b) % b, negative: (a) => -a,
};
const truth = (value) => (Array.isArray(value) ? value.length > 0 : Boolean(value));

/** The value of a tree. @param {any[]} tree @param {Map<string, any>} values  of the arguments */
function evaluate([kind, ...parts], values) {
  const value = (tree) => evaluate(tree, values);
  if (kind in ARITHMETIC) return ARITHMETIC[kind](...parts.map(value));
  switch (kind) {
    case "argument": return values.get(parts[0]);
    case "value": return parts[0];
    case "list": return parts.map(value);
    case "attribute": return attribute(value(parts[0]), parts[1]);
    case "item": return item(value(parts[0]), value(parts[1]));
    case "call": return value(parts[0])(...parts.slice(1).map(value));
    case "len": return value(parts[0]).length;
    case "type": return typeName(value(parts[0]));
    case "not": return !truth(value(parts[0]));
    case "and": return parts.every((part) => truth(value(part)));
    case "or": return parts.some((part) => truth(value(part)));
    case "compare": return compare(parts, value);
    default: throw new Unknown(kind);
  }
}

/** [left, sign, right, sign, right...], as Python chains them. */
function compare([first, ...rest], value) {
  let left = value(first);
  for (let index = 0; index < rest.length; index += 2) {
    const right = value(rest[index + 1]);
    if (!COMPARISONS[rest[index]](left, right)) return false;
    left = right;
  }
  return true;
}

function attribute(value, name) {
  if (value === null || typeof value !== "object" || !(name in value)) throw new Unknown(name);
  return value[name];
}

function item(list, index) {
  const found = list.at(index);
  if (found === undefined) throw new RangeError("no such index"); // as in Python: the guard fails
  return found;
}

function typeName(value) {
  if (value === null) return "NoneType";
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float";
  return value.pythonType ?? { boolean: "bool", string: "str" }[typeof value];
}

// --- answering --------------------------------------------------------------------------------------
/** Does a guard hold for these arguments?  What the form cannot tell is taken to hold. */
function holds(guard, values) {
  try {
    return truth(evaluate(guard.asks, values));
  } catch (error) {
    return error instanceof Unknown;
  }
}

/** The value on the left of the guard's first comparison, and what it should be. */
function readings(guard, values) {
  const [kind, left, sign, right] = guard.asks;
  const text = (tree) => {
    try {
      return pythonText(evaluate(tree, values));
    } catch {
      return "not there";
    }
  };
  if (kind !== "compare") return ["True", text(guard.asks)];
  return [`${sign === "==" ? "" : `${sign} `}${text(right)}`, text(left)];
}

function pythonText(value) {
  if (Array.isArray(value)) return `(${value.join(", ")}${value.length === 1 ? "," : ""})`;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  return String(value);
}

/** What an entry says to the arguments: the first of its guards that fails. */
function answer(entry, values) {
  const asked = entry.guards.filter((guard) => guard.asks);
  const failed = asked.find((guard) => !holds(guard, values));
  if (!failed) {
    return make("li", { class: "passes" }, `${entry.id}: passes; ${many(asked.length, "guard")} asked.`);
  }
  const [expected, actual] = readings(failed, values);
  const name = `${failed.kind} ${shortPath(failed.code)}`;
  const link = make("button", { type: "button", class: "link", onclick: () => choose(failed.id) }, name);
  const told = ` — expected ${expected}, actual ${actual}`;
  return make("li", { class: "fails" }, `${entry.id}: fails at `, link, told);
}
