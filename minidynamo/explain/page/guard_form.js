// "Would it fail?": other arguments, typed into the page, against the guards of every entry.  Nothing
// runs: the guards' own text is evaluated (expression.js).

import { make, shortPath } from "./dom.js";
import { evaluate, Unknown } from "./expression.js";
import { choose, state } from "./state.js";

const DTYPES = `float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64
  complex128`.split(/\s+/);

/** The form for a frame's arguments. @returns {HTMLElement} */
export function guardForm(entry) {
  const given = entry && entry.frame === state.model.frames[0] ? state.model.content.call.arguments : [];
  if (!given.length) return make("p", { class: "note" }, "No arguments are known of this frame.");
  const fields = given.map(argumentFields);
  const answers = make("ul", { class: "answers", "aria-live": "polite" });
  const ask = (event) => {
    event?.preventDefault();
    const values = new Map(fields.map(({ path, read }) => [path, read()]));
    answers.replaceChildren(...state.model.frames[0].entries.map((each) => answer(each, values)));
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

/** One argument: its fields, and how its value is read from them. */
function argumentFields(given) {
  const { path } = given;
  if (given.kind !== "tensor") {
    const text = make("input", { value: given.text ?? "", "aria-label": path, size: 16 });
    const element = make("div", { class: "argument" }, make("b", {}, path), " ", text);
    return { path, element, read: () => pythonValue(text.value) };
  }
  const input = (name, value) =>
    make("input", { value, "aria-label": `${path}: ${name}`, size: Math.max(6, value.length + 2) });
  const dtype = make("select", { "aria-label": `${path}: dtype` }, ...DTYPES.map((name) => make("option", {}, name)));
  dtype.value = given.dtype;
  const shape = input("shape", given.shape.join(", "));
  const stride = input("stride; empty: contiguous", isContiguous(given) ? "" : given.stride.join(", "));
  stride.placeholder = "contiguous";
  const device = input("device", given.device);
  const gradient = make("input", { type: "checkbox", "aria-label": `${path}: requires_grad` });
  gradient.checked = given.requires_grad;
  const label = (text, field) => make("label", {}, `${text} `, field);
  const read = () =>
    tensor({
      dtype: dtype.value, shape: numbers(shape.value), device: device.value.trim(),
      stride: stride.value.trim() ? numbers(stride.value) : null, requires_grad: gradient.checked,
    });
  const element = make(
    "div", { class: "argument" }, make("b", {}, path), label("dtype", dtype), label("shape", shape),
    label("stride", stride), label("device", device), label("requires_grad", gradient),
  );
  return { path, element, read };
}

const numbers = (text) => text.split(",").map((part) => part.trim()).filter(Boolean).map(Number);

function contiguous(shape) {
  const stride = [];
  let step = 1;
  for (let index = shape.length - 1; index >= 0; index -= 1) {
    stride.unshift(step);
    step *= Math.max(1, shape[index]);
  }
  return stride;
}

const isContiguous = ({ shape, stride }) => String(contiguous(shape)) === String(stride);

function pythonValue(text) {
  try {
    return evaluate(text, unknownName);
  } catch {
    return { opaque: text };
  }
}

function unknownName(name) {
  throw new Unknown(`nothing is known of ${name}`);
}

/** A tensor as guards ask about it. */
export function tensor({ dtype, shape, stride, device, requires_grad: gradient }) {
  const strides = stride ?? contiguous(shape);
  const [kind] = device.split(":");
  return {
    pythonType: "Tensor", shape, dtype: `torch.${dtype}`, device, requires_grad: gradient,
    is_cpu: kind === "cpu", is_cuda: kind === "cuda", layout: "torch.strided",
    dim: () => shape.length, size: (index) => (index === undefined ? shape : shape.at(index)),
    stride: (index) => (index === undefined ? strides : strides.at(index)),
    storage_offset: () => 0, is_neg: () => false, is_conj: () => false, _is_zerotensor: () => false,
    numel: () => shape.reduce((product, size) => product * size, 1),
  };
}

/** What `len` and `type` answer in a guard's text. */
const FUNCTIONS = {
  len: (value) => {
    if (Array.isArray(value) || typeof value === "string") return value.length;
    throw new Unknown("no length is known");
  },
  type: (value) => value?.pythonType ?? typeName(value),
  int: "int", str: "str", float: "float", bool: "bool", tuple: "tuple", list: "list",
};

function typeName(value) {
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "string") return "str";
  if (value === null) return "NoneType";
  throw new Unknown("its type is not known");
}

/**
 * Does a guard hold for these arguments?  What it says of anything else is taken to hold.
 * @param {any} guard
 * @param {Map<string, any>} values  argument -> value
 * @returns {{holds: boolean, actual: string, told: boolean}}
 */
export function check(guard, values) {
  let isAsked = false;
  const lookup = (name) => {
    if (values.has(name)) {
      isAsked = true;
      return values.get(name);
    }
    if (name in FUNCTIONS) return FUNCTIONS[name];
    if (name.startsWith("P_") && guard.expected) return pinned(guard);
    return unknownName(name);
  };
  try {
    const holds = Boolean(evaluate(guard.code, lookup));
    return { holds, told: isAsked, actual: isAsked ? actualValue(guard, lookup) : "" };
  } catch (error) {
    if (error instanceof Unknown) return { holds: true, told: false, actual: "" };
    return { holds: false, told: true, actual: String(error.message) }; // as in Python: a failed guard
  }
}

/** The object that a guard holds, as its `expected` text tells it: a class, a dtype, a device. */
function pinned({ expected }) {
  if (!expected.startsWith("device(")) return expected;
  const [, kind] = expected.split("'"); // device(type='cuda', index=0)
  const [, index] = expected.split("index=");
  return index === undefined ? kind : `${kind}:${Number.parseInt(index, 10)}`;
}

/** The value on the left of the guard's first comparison. */
function actualValue(guard, lookup) {
  const [left] = guard.code.split(/ (?:is not|is|==|!=|<=?|>=?|in) /);
  try {
    const value = evaluate(left, lookup);
    return Array.isArray(value) ? `(${value.join(", ")}${value.length === 1 ? "," : ""})` : pythonText(value);
  } catch {
    return "";
  }
}

function pythonText(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "string" ? value : String(value);
}

/** The first guard of an entry that fails. */
export function firstFailure(entry, values) {
  for (const guard of entry.guards) {
    const found = check(guard, values);
    if (!found.holds) return { guard, actual: found.actual };
  }
  return null;
}

function answer(entry, values) {
  const told = entry.guards.filter((guard) => check(guard, values).told).length;
  const failure = firstFailure(entry, values);
  if (!failure) {
    return make("li", { class: "passes" }, `${entry.id}: passes. ${told} guards ask about these arguments, and hold.`);
  }
  const { guard, actual } = failure;
  const expected = guard.expected || guard.code.split(/ (?:is|==|>=?|<=?) /).slice(1).join(" ") || "true";
  return make(
    "li",
    { class: "fails" },
    `${entry.id}: fails at `,
    make("button", { type: "button", class: "link", onclick: () => choose(guard.id) }, `${guard.kind} ${shortPath(guard.code)}`),
    ` — expected ${expected}, actual ${actual || "something else"}`,
  );
}
