/* The frame hook (PEP 523): swap the code object of a frame before it runs.
 *
 * In:   a frame whose arguments are bound but which has not executed one instruction.
 * Out:  the same frame, pointed at a replacement code object; the ordinary evaluator runs it and clears and pops it by
 *       its usual rules (3.11: the caller does; 3.12+: the evaluator does).  There is no second frame to clean up.
 *
 *     hook.set_callback(lambda func, code, args: None)   # called once for every new code object of this thread
 *
 * Mirrors torch/csrc/dynamo/eval_frame.c, which builds a second "shadow" frame instead.
 * Another tool may have installed an evaluator before us, or install one later: see "Other tools".
 * Left out: Python 3.14, generators and coroutines (their frames run as they are).
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE                         /* dladdr: frame/other_evaluators.h */
#include <Python.h>
#include <dlfcn.h>
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#  error "minidynamo's frame hook knows the frames of CPython 3.11, 3.12 and 3.13 only"
#endif
#define Py_BUILD_CORE
#undef _PyGC_FINALIZED                      /* gh-105268: clashes in 3.12 */
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#include <opcode.h>

/* ---- what differs between CPython versions ---------------------------------------------------------------------- */
typedef _PyInterpreterFrame Frame;
#if PY_VERSION_HEX >= 0x030C0000
#  include "newer_pythons.h"         /* the same for 3.12 and 3.13 */
#else
#  define frame_func(f)    ((PyObject *)(f)->f_func)
#  define frame_code(f)    ((f)->f_code)
#  define frame_slots(co)  ((co)->co_nlocalsplus + (co)->co_stacksize + (int)FRAME_SPECIALS_SIZE)
#  define swap_code(f, co) ((f)->f_code = (co), (f)->prev_instr = _PyCode_CODE(co) - 1)   /* it steps first */
#  define get_extra        _PyCode_GetExtra
#  define set_extra        _PyCode_SetExtra
#  define new_extra_index  _PyEval_RequestCodeExtraIndex
#  define recursion_left   recursion_remaining
#endif

#define HEADROOM 200                        /* calls that guards and the compiler may nest near the recursion limit */
#define GENERATOR_LIKE (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)

static PyInterpreterState *interpreter;     /* the one that has imported this module; no other can */

/* ---- state ------------------------------------------------------------------------------------------------------ */
/* What is of one thread lies at a fixed distance from the thread's own pointer where the C library allows it (48 bytes of
 * what glibc keeps free for this): elsewhere each access calls a function. */
#if defined(__GLIBC__) && defined(__x86_64__)
#  define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#  define OF_THREAD static _Thread_local
#endif
OF_THREAD PyObject *callback;    /* NULL: the hook is off in this thread */
static int enabled_threads;                 /* threads whose callback is set; guarded by the GIL */
static Py_ssize_t extra_index;              /* our slot in every code object */
static _PyFrameEvalFunction previous = _PyEval_EvalFrameDefault;    /* whose frames ours are, too: see run_frame */

/* What torch dispatches on in this thread beside tensors: c10::impl::raw_local_dispatch_key_set, two sets of keys, included
 * and excluded ones, 0 where they are the usual ones.  miniinductor/autograd/fake_mode.py says which of them are guarded. */
OF_THREAD uint64_t *dispatch_keys;
static void *torch_library;                 /* NULL: this torch has no such variable, and Python asks torch */
static unsigned long long guarded_keys, inference_keys[2];
#define DISPATCH_KEYS "_ZN3c104impl26raw_local_dispatch_key_setE"

/* Is there a dispatch mode, a transform, a tracer...?  Compiled code would pass it by. */
static inline int
is_unusual(void)
{
    if (!dispatch_keys && !(torch_library && (dispatch_keys = dlsym(torch_library, DISPATCH_KEYS))))
        return 0;
    unsigned long long included = dispatch_keys[0], excluded = dispatch_keys[1] & ~guarded_keys;
    return (included || excluded) && (included != inference_keys[0] || excluded != inference_keys[1]);
}

/* watch_dispatch_keys(autocast's, those included and excluded in inference mode) -> is that possible? */
static PyObject *
watch_dispatch_keys(PyObject *m, PyObject *args)
{
    if (!PyArg_ParseTuple(args, "K(KK)", &guarded_keys, inference_keys, inference_keys + 1))
        return NULL;
    torch_library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (torch_library && !dlsym(torch_library, DISPATCH_KEYS))
        torch_library = NULL;
    return PyBool_FromLong(torch_library != NULL);
}

/* PEP 523: CPython keeps room for pointers of such tools in every code object.  Ours is the code's cache:
 *     NULL        never seen
 *     None        run as it is, always
 *     Ellipsis    run as it is, and all that it calls, too: with the hook off
 *     a list      [(guard, replacement code, ...), ...] */
static PyObject *
cache_of(PyCodeObject *code)
{
    void *cache = NULL;
    get_extra((PyObject *)code, extra_index, &cache);
    return (PyObject *)cache;
}

static void drop_cache(void *cache) { Py_XDECREF((PyObject *)cache); }

static int
put_cache(PyObject *code, PyObject *cache)
{
    PyObject *old = Py_XNewRef(cache_of((PyCodeObject *)code));     /* dies after the slot is consistent again */
    int status = set_extra(code, extra_index, Py_NewRef(cache));
    if (status < 0)
        Py_DECREF(cache);
    Py_XDECREF(old);
    return status;
}

static int
parameter_count(PyCodeObject *co)
{
    return co->co_argcount + co->co_kwonlyargcount
        + !!(co->co_flags & CO_VARARGS) + !!(co->co_flags & CO_VARKEYWORDS);
}

/* Is `entry` a (guard, code, ...) whose code can run in a frame of `code`, of `n` parameters?  Sets an error if not. */
static int
valid_entry(PyObject *entry, PyCodeObject *code, int n)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) < 2 || !PyCode_Check(PyTuple_GET_ITEM(entry, 1))) {
        PyErr_Format(PyExc_TypeError, "expected None or (guard, code, ...) for %U, got %R", code->co_name, entry);
        return 0;
    }
    PyCodeObject *co = (PyCodeObject *)PyTuple_GET_ITEM(entry, 1);
    if (co->co_argcount != n || parameter_count(co) != n || co->co_nfreevars != code->co_nfreevars
        || co->co_flags & GENERATOR_LIKE || !(co->co_flags & CO_OPTIMIZED)) {
        PyErr_Format(PyExc_ValueError, "replacement for %U must take its %d parameters, all positional, and its %d free"
                     " variables", code->co_name, n, code->co_nfreevars);
        return 0;
    }
    return 1;
}

/* Was `entry` made by another callback?  Python may have put anything into the list. */
static int
is_of_another(PyObject *entry, PyObject *cb)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) < 3)
        return 0;
    PyObject *maker = PyTuple_GET_ITEM(entry, 2);
    return maker != cb && PyCallable_Check(maker);
}

/* Was `entry` made for another module than `self`?  Its guard will hardly hold: a class has one code for all its modules. */
static int
is_for_another(PyObject *entry, PyObject *self)
{
    PyObject *owner = PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) > 4 ? PyTuple_GET_ITEM(entry, 4) : Py_None;
    return PyLong_Check(owner) && PyLong_AsVoidPtr(owner) != self;
}

static void
move_to_front(PyObject *list, Py_ssize_t place)
{
    PyObject *item = PyList_GET_ITEM(list, place);
    for (; place > 0; place--)
        PyList_SET_ITEM(list, place, PyList_GET_ITEM(list, place - 1));
    PyList_SET_ITEM(list, 0, item);
}

/* The first entry whose guard(func, *params) is true: a new reference to its code, or NULL (perhaps with an error).
 * The entry found moves to the front, so that the usual one is checked first; those of other modules come last. */
static PyCodeObject *
lookup(PyObject *cb, PyObject *cache, PyCodeObject *code, PyObject *func, PyObject *const *params, int n)
{
    PyObject *stack[64], **args = stack;    /* few functions take more: those are given memory */
    if (n + 1 > 64 && !(args = PyMem_New(PyObject *, n + 1)))
        return (PyCodeObject *)PyErr_NoMemory();
    args[0] = func;
    memcpy(args + 1, params, n * sizeof(PyObject *));
    PyCodeObject *found = NULL;
    int verdict = 0;                        /* 1: the guard holds, -1: an error, which the frame raises */
    /* first those of this module and of none, then those of others; the size is asked each time: a guard may read a
     * property of the program's, whose code may change the list */
    for (Py_ssize_t i = 0, others = 0; !verdict && others < 2; i++) {
        if (i >= PyList_GET_SIZE(cache)) {
            others++, i = -1;
            continue;
        }
        PyObject *entry = PyList_GET_ITEM(cache, i), *answer = NULL;
        if (is_of_another(entry, cb) || (n && is_for_another(entry, params[0])) != others)
            continue;
        Py_INCREF(entry);
        if (valid_entry(entry, code, n))
            answer = PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), args, n + 1, NULL);
        verdict = answer ? PyObject_IsTrue(answer) : -1;
        if (verdict == 1) {
            found = (PyCodeObject *)Py_NewRef(PyTuple_GET_ITEM(entry, 1));
            if (i < PyList_GET_SIZE(cache) && PyList_GET_ITEM(cache, i) == entry)
                move_to_front(cache, i);
        }
        Py_DECREF(entry);
        Py_XDECREF(answer);
    }
    if (args != stack)
        PyMem_Free(args);
    return found;
}

/* Ask Python: callback(func, code, args) -> None or (guard, replacement, ...). */
static PyCodeObject *
compile(PyObject *cb, PyCodeObject *code, PyObject *cache, PyObject *func, PyObject *const *params, int n)
{
    PyObject *args = PyTuple_New(n);
    if (!args)
        return NULL;
    for (int i = 0; i < n; i++)
        PyTuple_SET_ITEM(args, i, Py_NewRef(params[i]));
    PyObject *entry = PyObject_CallFunctionObjArgs(cb, func, code, args, NULL);
    Py_DECREF(args);
    PyCodeObject *co = NULL;
    if (entry && entry != Py_None && valid_entry(entry, code, n)) {
        /* None: a frame of the replacement itself is never compiled */
        PyObject *replacement = PyTuple_GET_ITEM(entry, 1);
        if (put_cache(replacement, Py_None) == 0 && PyList_Append(cache, entry) == 0)
            co = (PyCodeObject *)Py_NewRef(replacement);
    }
    Py_XDECREF(entry);
    return co;
}

static PyObject *eval_frame(PyThreadState *ts, Frame *frame, int throwflag);
static void switch_to(PyObject *cb);
static PyObject *switch_back(PyObject *old, PyObject *result);

/* ---- what lies beside the core ---------------------------------------------------------------------------------- */
#include "other_evaluators.h"        /* torch.compile, `python -X perf`, tracers */
#include "hand_over.h"               /* hand_over: a caller's arguments live in the callee alone */

static PyObject *
eval_frame(PyThreadState *ts, Frame *frame, int throwflag)
{
    PyObject *cb = callback;
    PyCodeObject *code = frame_code(frame);
    take_over();
    /* left alone: a frame that an exception is thrown into, what a debugger runs (`tracing`), bodies of modules and
     * classes (not CO_OPTIMIZED), generators */
    if (cb == NULL || throwflag || ts->tracing
        || !(code->co_flags & CO_OPTIMIZED) || code->co_flags & GENERATOR_LIKE)
        return run_frame(ts, frame, throwflag);
    PyObject *cache = cache_of(code);
    if (cache == Py_None)
        return run_frame(ts, frame, 0);
    if (cache == Py_Ellipsis || is_unusual())
        goto unhooked;
    if (cache)
        Py_INCREF(cache);
    else if (!(cache = PyList_New(0)) || put_cache((PyObject *)code, cache) < 0)
        return run_frame(ts, frame, 1);

    int n = parameter_count(code);
    PyObject *func = frame_func(frame);
    /* Guards and the compiler run unhooked.  Not by `switch_to`, which would take the hook out of the interpreter; the
     * reference is `cb` meanwhile. */
    callback = NULL;
    ts->recursion_left += HEADROOM;
    PyThreadState_EnterTracing(ts);         /* debuggers do not stop in guards */
    PyCodeObject *co = lookup(cb, cache, code, func, frame->localsplus, n);
    PyThreadState_LeaveTracing(ts);
    if (!co && !PyErr_Occurred())
        co = compile(cb, code, cache, func, frame->localsplus, n);
    PyObject *left = callback;              /* one that a guard or the compiler has set, and not put back, ends here */
    if (left) {
        switch_to(NULL);
        Py_DECREF(left);
    }
    callback = cb;
    ts->recursion_left -= HEADROOM;
    Py_DECREF(cache);
    if (!co && !PyErr_Occurred() && cache_of(code) == Py_Ellipsis)
        goto unhooked;
    if (!co)        /* throwflag=1 makes the evaluator unwind and pop this frame */
        return run_frame(ts, frame, PyErr_Occurred() != NULL);

    /* Frames lie one behind the other on the thread's data stack.  Ours is the topmost: if there is room behind it, it
     * grows by the locals that the replacement has and the original had not; they must be NULL. */
    PyObject **end = (PyObject **)frame + frame_slots(co);
    if (frame_slots(co) > frame_slots(code) && end >= ts->datastack_limit) {
        Py_DECREF(co);                      /* seldom: a chunk of the data stack is full */
        return run_frame(ts, frame, 0);
    }
    ts->datastack_top = end;
    for (int i = n; i < co->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = co->co_nlocalsplus;
    swap_code(frame, co);
    Py_DECREF(code);
    return run_frame(ts, frame, 0);
unhooked:
    switch_to(NULL);
    return switch_back(cb, run_frame(ts, frame, 0));
}

/* ---- switching -------------------------------------------------------------------------------------------------- */
/* Make `cb` (stolen, or NULL: off) this thread's callback.  The hook is installed while any thread has one, because
 * an installed hook slows all Python calls of the process; then the evaluator that was there is there again.  It stays
 * where it is while another tool's lies above it. */
static void
switch_to(PyObject *cb)
{
    _PyFrameEvalFunction installed = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (cb && installed != eval_frame) {
        previous = installed;
        _PyInterpreterState_SetEvalFrameFunc(interpreter, eval_frame);
    }
    enabled_threads += (cb != NULL) - (callback != NULL);
    callback = cb;
    if (!enabled_threads && installed == eval_frame)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
}

/* Make `old` (stolen) the callback again, and pass on the outcome of what ran in between. */
static PyObject *
switch_back(PyObject *old, PyObject *result)
{
    PyObject *left = callback, *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    switch_to(old);
    PyErr_Restore(type, value, traceback);
    Py_XDECREF(left);
    return result;
}

static PyObject *
set_callback(PyObject *m, PyObject *cb)
{
    PyObject *old = callback;
    switch_to(cb == Py_None ? NULL : Py_NewRef(cb));
    return old ? old : Py_NewRef(Py_None);
}

static PyObject *
get_callback(PyObject *m, PyObject *unused)
{
    return Py_NewRef(callback ? callback : Py_None);
}

static PyObject *
get_cache(PyObject *m, PyObject *code)
{
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "expected a code object, got %R", code);
    PyObject *cache = cache_of((PyCodeObject *)code);
    return Py_NewRef(cache ? cache : Py_False);
}

static PyObject *
set_cache(PyObject *m, PyObject *args)
{
    PyObject *code, *cache;
    if (!PyArg_ParseTuple(args, "O!O", &PyCode_Type, &code, &cache))
        return NULL;
    if (cache != Py_None && cache != Py_Ellipsis && !PyList_Check(cache))
        return PyErr_Format(PyExc_TypeError, "expected None, ... or a list, got %R", cache);
    if (put_cache(code, cache) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- calling a function with the hook on or off: frame_hook.py says what it does -------------------------------- */
#include "switched.h"                 /* add_switched: the class `Switched` */

static PyMethodDef methods[] = {
    {"set_callback", set_callback, METH_O, "set_callback(callback or None) -> the previous one; this thread's"},
    {"get_callback", get_callback, METH_NOARGS, "get_callback() -> this thread's callback or None"},
    OTHERS_METHODS
    {"get_cache", get_cache, METH_O, "get_cache(code) -> list of entries | None (run as is) | ... (with what it calls) | False (never seen)"},
    {"watch_dispatch_keys", watch_dispatch_keys, METH_VARARGS,
     "watch_dispatch_keys(autocast's, (included, excluded) in inference mode): where torch dispatches on others, frames run as is"},
    {"set_cache", set_cache, METH_VARARGS, "set_cache(code, None to run as is | ... with what it calls, too | list of entries)"},
    HAND_OVER_METHODS
    {NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "minidynamo.frame._frame_hook", "PEP 523 frame hook; see frame_hook.py", -1, methods};

PyMODINIT_FUNC
PyInit__frame_hook(void)
{
    interpreter = PyInterpreterState_Get();
    if ((extra_index = new_extra_index(drop_cache)) < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no free slot in code objects: too many PEP 523 tools in this process");
        return NULL;
    }
    PyObject *m = PyModule_Create(&module);
    if (!m || add_hand_over(m) < 0 || add_switched(m) < 0)
        return NULL;
    return m;
}
