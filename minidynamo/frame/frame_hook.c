/* The frame hook (PEP 523): swap the code object of a frame before it runs.
 *
 * In:   a frame whose arguments are bound but which has not executed one instruction.
 * Out:  the same frame, pointed at a replacement code object; the ordinary evaluator runs it and
 *       clears and pops it by its usual rules (3.11: the caller does; 3.12+: the evaluator
 *       does).  There is no second frame to clean up.
 *
 *     # called in this thread when no entry of a frame fits
 *     hook.set_callback(lambda func, code, args: None)
 *
 * Mirrors torch/csrc/dynamo/eval_frame.c, which builds a second "shadow" frame instead.
 * Left out: Python 3.14, generators and coroutines (their frames run as they are), and other
 * tools that have a frame evaluator (torch.compile, `python -X perf`): where one is installed,
 * the hook stays away, and functions run as they are.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE                         /* RTLD_NOLOAD */
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

/* ---- what differs between CPython versions --------------------------------------------------- */
typedef _PyInterpreterFrame Frame;
#if PY_VERSION_HEX >= 0x030C0000
#  define frame_func(f)    ((f)->f_funcobj)
#  define frame_slots(co)  ((co)->co_framesize)
#  define get_extra        PyUnstable_Code_GetExtra
#  define set_extra        PyUnstable_Code_SetExtra
#  define new_extra_index  PyUnstable_Eval_RequestCodeExtraIndex
#  define recursion_left   py_recursion_remaining
#  if PY_VERSION_HEX >= 0x030D0000
#    define frame_code(f)    ((PyCodeObject *)(f)->f_executable)
#    define swap_code(f, co) \
        ((f)->f_executable = (PyObject *)(co), (f)->instr_ptr = _PyCode_CODE(co))
#  else
#    define frame_code(f)    ((f)->f_code)
#    define swap_code(f, co) ((f)->f_code = (co), (f)->prev_instr = _PyCode_CODE(co) - 1)
#  endif
#else
#  define frame_func(f)    ((PyObject *)(f)->f_func)
#  define frame_code(f)    ((f)->f_code)
#  define frame_slots(co)  ((co)->co_nlocalsplus + (co)->co_stacksize + (int)FRAME_SPECIALS_SIZE)
/* the evaluator steps before it reads an instruction: it starts one in front of the first */
#  define swap_code(f, co) ((f)->f_code = (co), (f)->prev_instr = _PyCode_CODE(co) - 1)
#  define get_extra        _PyCode_GetExtra
#  define set_extra        _PyCode_SetExtra
#  define new_extra_index  _PyEval_RequestCodeExtraIndex
#  define recursion_left   recursion_remaining
#endif

/* calls that guards and the compiler may nest near the recursion limit */
#define HEADROOM 200
#define GENERATOR_LIKE (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)

/* the one that has imported this module; no other can */
static PyInterpreterState *interpreter;

/* ---- state ----------------------------------------------------------------------------------- */
static _Thread_local PyObject *callback;    /* NULL: the hook is off in this thread */
/* arguments that the next frame takes over, see hand_over */
static _Thread_local PyObject *moved;
static int enabled_threads;                 /* threads whose callback is set; guarded by the GIL */
static Py_ssize_t extra_index;              /* our slot in every code object */
/* marks what a callee wants to be called next, see hand_over */
static PyObject *tail_call;

/* What torch dispatches on in this thread beside tensors: c10::impl::raw_local_dispatch_key_set,
 * two sets of keys, included and excluded ones, 0 where they are the usual ones.
 * miniinductor/autograd/fake_mode.py says which of them are guarded. */
static _Thread_local uint64_t *dispatch_keys;
/* NULL: this torch has no such variable, and Python asks torch */
static void *torch_library;
static unsigned long long guarded_keys, inference_keys[2];
#define DISPATCH_KEYS "_ZN3c104impl26raw_local_dispatch_key_setE"

/* Is there a dispatch mode, a transform, a tracer...?  Compiled code would pass it by. */
static inline int
is_unusual(void)
{
    if (!dispatch_keys && !(torch_library && (dispatch_keys = dlsym(torch_library, DISPATCH_KEYS))))
        return 0;
    unsigned long long included = dispatch_keys[0], excluded = dispatch_keys[1] & ~guarded_keys;
    return (included || excluded)
        && (included != inference_keys[0] || excluded != inference_keys[1]);
}

/* watch_dispatch_keys(autocast's, those included and excluded in inference mode) -> is that
 * possible? Where torch dispatches on others, frames run as they are. */
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

/* PEP 523: CPython keeps room for pointers of such tools in every code object.  Ours is the
 * code's cache:
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
    /* dies after the slot is consistent again */
    PyObject *old = Py_XNewRef(cache_of((PyCodeObject *)code));
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

/* Is `entry` a (guard, code, ...) whose code can run in a frame of `code`, of `n` parameters?
   Sets an error if not. */
static int
valid_entry(PyObject *entry, PyCodeObject *code, int n)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) < 2
        || !PyCode_Check(PyTuple_GET_ITEM(entry, 1))) {
        PyErr_Format(PyExc_TypeError, "expected None or (guard, code, ...) for %U, got %R",
                     code->co_name, entry);
        return 0;
    }
    PyCodeObject *co = (PyCodeObject *)PyTuple_GET_ITEM(entry, 1);
    if (co->co_argcount != n || parameter_count(co) != n || co->co_nfreevars != code->co_nfreevars
        || co->co_flags & GENERATOR_LIKE || !(co->co_flags & CO_OPTIMIZED)) {
        PyErr_Format(PyExc_ValueError, "replacement for %U must take its %d parameters, all"
                     " positional, and its %d free variables",
                     code->co_name, n, code->co_nfreevars);
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

static void
move_to_front(PyObject *list, Py_ssize_t place)
{
    PyObject *item = PyList_GET_ITEM(list, place);
    for (; place > 0; place--)
        PyList_SET_ITEM(list, place, PyList_GET_ITEM(list, place - 1));
    PyList_SET_ITEM(list, 0, item);
}

/* The first entry whose guard(func, *params) is true: a new reference to its code, or NULL
 * (perhaps with an error). The entry found moves to the front, so that the usual one is checked
 * first. */
static PyCodeObject *
lookup(PyObject *cb, PyObject *cache, PyCodeObject *code,
       PyObject *func, PyObject *const *params, int n)
{
    PyObject *args[n + 1];
    args[0] = func;
    memcpy(args + 1, params, n * sizeof(PyObject *));
    PyCodeObject *found = NULL;
    /* 1: the guard holds, -1: an error, which the frame raises */
    int verdict = 0;
    /* The size is asked each time: a guard may read a property of the program's, whose code may
       change the list */
    for (Py_ssize_t i = 0; !verdict && i < PyList_GET_SIZE(cache); i++) {
        PyObject *entry = PyList_GET_ITEM(cache, i), *answer = NULL;
        if (is_of_another(entry, cb))
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
    return found;
}

/* Ask Python: callback(func, code, args) -> None or (guard, replacement, ...). */
static PyCodeObject *
compile(PyObject *cb, PyCodeObject *code, PyObject *cache,
        PyObject *func, PyObject *const *params, int n)
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

static void switch_to(PyObject *cb);
static PyObject *switch_back(PyObject *old, PyObject *result);

static PyObject *
eval_frame(PyThreadState *ts, Frame *frame, int throwflag)
{
    PyObject *cb = callback;
    PyCodeObject *code = frame_code(frame);
    /* the frame holds its arguments now: the caller's list is emptied */
    if (moved) {
        PyObject *list = moved;
        moved = NULL;
        PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL);
    }
    /* left alone: a frame that an exception is thrown into, what a debugger runs (`tracing`),
     * bodies of modules and classes (not CO_OPTIMIZED), generators */
    if (cb == NULL || throwflag || ts->tracing
        || !(code->co_flags & CO_OPTIMIZED) || code->co_flags & GENERATOR_LIKE)
        return _PyEval_EvalFrameDefault(ts, frame, throwflag);
    PyObject *cache = cache_of(code);
    if (cache == Py_None)
        return _PyEval_EvalFrameDefault(ts, frame, 0);
    if (cache == Py_Ellipsis || is_unusual())
        goto unhooked;
    if (cache)
        Py_INCREF(cache);
    else if (!(cache = PyList_New(0)) || put_cache((PyObject *)code, cache) < 0)
        return _PyEval_EvalFrameDefault(ts, frame, 1);

    int n = parameter_count(code);
    PyObject *func = frame_func(frame);
    /* Guards and the compiler run unhooked.  Not by `switch_to`, which would take the hook out
     * of the interpreter; the reference is `cb` meanwhile. */
    callback = NULL;
    ts->recursion_left += HEADROOM;
    PyThreadState_EnterTracing(ts);         /* debuggers do not stop in guards */
    PyCodeObject *co = lookup(cb, cache, code, func, frame->localsplus, n);
    PyThreadState_LeaveTracing(ts);
    if (!co && !PyErr_Occurred())
        co = compile(cb, code, cache, func, frame->localsplus, n);
    /* one that a guard or the compiler has set, and not put back, ends here */
    PyObject *left = callback;
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
        return _PyEval_EvalFrameDefault(ts, frame, PyErr_Occurred() != NULL);

    /* Frames lie one behind the other on the thread's data stack.  Ours is the topmost: if there
     * is room behind it, it grows by the locals that the replacement has and the original had
     * not; they must be NULL. */
    PyObject **end = (PyObject **)frame + frame_slots(co);
    if (frame_slots(co) > frame_slots(code) && end >= ts->datastack_limit) {
        Py_DECREF(co);                      /* seldom: a chunk of the data stack is full */
        return _PyEval_EvalFrameDefault(ts, frame, 0);
    }
    ts->datastack_top = end;
    for (int i = n; i < co->co_nlocalsplus; i++)
        frame->localsplus[i] = NULL;
    frame->stacktop = co->co_nlocalsplus;
    swap_code(frame, co);
    Py_DECREF(code);
    return _PyEval_EvalFrameDefault(ts, frame, 0);
unhooked:
    switch_to(NULL);
    return switch_back(cb, _PyEval_EvalFrameDefault(ts, frame, 0));
}

/* ---- switching ------------------------------------------------------------------------------- */
/* Make `cb` (stolen, or NULL: off) this thread's callback.  The hook is installed while any
 * thread has one, because an installed hook slows all Python calls of the process.  Where
 * another tool's evaluator is installed, that one stays. */
static void
switch_to(PyObject *cb)
{
    _PyFrameEvalFunction installed = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (cb && installed == _PyEval_EvalFrameDefault)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, eval_frame);
    enabled_threads += (cb != NULL) - (callback != NULL);
    callback = cb;
    if (!enabled_threads && installed == eval_frame)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
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

/* ---- resume functions ------------------------------------------------------------------------ */
/* hand_over(function, list) -> function(*list), where the list is emptied once the callee has
 * begun: with a hook installed, CALL keeps its arguments on the caller's stack until the callee
 * returns, and what the callee deletes would live on. A callee that returns (tail_call,
 * function, list) wants that to be called next: a loop that breaks a graph in each turn goes on
 * without nesting deeper. */
static PyObject *
hand_over(PyObject *m, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a function and a list");
    PyObject *function = Py_NewRef(args[0]), *list = Py_NewRef(args[1]);
    for (;;) {
        moved = list;
        PyObject *result = PyObject_Vectorcall(
            function, PySequence_Fast_ITEMS(list), PyList_GET_SIZE(list), NULL);
        moved = NULL;
        Py_DECREF(function);
        Py_DECREF(list);
        if (!result || !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 3
            || PyTuple_GET_ITEM(result, 0) != tail_call)
            return result;
        function = Py_NewRef(PyTuple_GET_ITEM(result, 1));
        list = Py_NewRef(PyTuple_GET_ITEM(result, 2));
        Py_DECREF(result);
    }
}

/* ---- calling a function with the hook on or off: frame_hook.py says what it does ------------- */
#include "switched.h"                 /* the class `Switched` */

static PyMethodDef methods[] = {
    {"set_callback", set_callback, METH_O,
     "set_callback(callback or None) -> the previous one; this thread's"},
    {"get_callback", get_callback, METH_NOARGS, "get_callback() -> this thread's callback or None"},
    {"get_cache", get_cache, METH_O,
     "get_cache(code) -> list of entries | None (run as is) | ... (with what it calls)"
     " | False (never seen)"},
    {"watch_dispatch_keys", watch_dispatch_keys, METH_VARARGS},
    {"set_cache", set_cache, METH_VARARGS,
     "set_cache(code, None to run as is | ... with what it calls, too | list of entries)"},
    {"hand_over", (PyCFunction)(void (*)(void))hand_over, METH_FASTCALL},
    {NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "minidynamo.frame._frame_hook",
    "PEP 523 frame hook; see frame_hook.py", -1, methods};

PyMODINIT_FUNC
PyInit__frame_hook(void)
{
    interpreter = PyInterpreterState_Get();
    if ((extra_index = new_extra_index(drop_cache)) < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no free slot in code objects: too many PEP 523 tools in this process");
        return NULL;
    }
    PyObject *m = PyModule_Create(&module);
    tail_call = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (!m || !tail_call || PyModule_AddObjectRef(m, "tail_call", tail_call) < 0
        || PyModule_AddType(m, &SwitchedType) < 0)
        return NULL;
    return m;
}
