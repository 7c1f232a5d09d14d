/* Other tools that have a frame evaluator: torch.compile, the trampolines of `python -X perf`, tracers.
 *
 * In:   the evaluator that was there when ours was installed (`previous`).
 * Out:  `run_frame`: it gets the frames that run as they are; `calls_alone`: a compiled function is called with
 *       torch.compile off (api.py).
 *
 * A part of frame_hook.c.
 */

static PyObject *call_alone;                /* NULL, or what calls a function with torch.compile off, see set_alone */
OF_THREAD PyObject *alone;       /* what `call_alone` has been given and has not called yet */
OF_THREAD Frame *passed_on;      /* the frame that `previous` has been given last */

/* Run a frame as it would run without us: the evaluator that was there when ours was installed gets it.
 * Two tools that were installed in turns may each hold the other for its predecessor: what comes back to us goes to
 * Python. */
static PyObject *
run_frame(PyThreadState *ts, Frame *frame, int throwflag)
{
    if (previous == _PyEval_EvalFrameDefault || passed_on == frame)
        return _PyEval_EvalFrameDefault(ts, frame, throwflag);
    Frame *before = passed_on;
    passed_on = frame;
    PyObject *result = previous(ts, frame, throwflag);
    passed_on = before;
    return result;
}

/* May torch.compile be at work in this thread?  It would compile what compiled calls run, and our compiler. */
static int
is_torch_installed(void)
{
    Dl_info info;
    _PyFrameEvalFunction evaluator = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (evaluator == eval_frame)
        evaluator = previous;
    return evaluator != _PyEval_EvalFrameDefault && dladdr((void *)evaluator, &info) && info.dli_fname
        && strstr(info.dli_fname, "libtorch");
}

static PyObject *
set_alone(PyObject *m, PyObject *function)
{
    Py_XSETREF(call_alone, function == Py_None ? NULL : Py_NewRef(function));
    Py_RETURN_NONE;
}

#define OTHERS_METHODS \
    {"set_alone", set_alone, METH_O, \
     "set_alone(call or None): call(function, *args, **kwargs) calls it with torch.compile off in this thread"},


/* Is `self`, a compiled function, to be called by `call_alone`?  Not when that calls it. */
static int
calls_alone(PyObject *self, int hooked)
{
    int asked = hooked && call_alone && alone != self && is_torch_installed();
    if (!asked)
        alone = NULL;
    return asked;
}

static PyObject *
called_alone(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *bound = PyMethod_New(call_alone, self);
    alone = self;
    PyObject *result = bound ? PyObject_Vectorcall(bound, args, nargsf, kwnames) : NULL;
    alone = NULL;
    Py_XDECREF(bound);
    return result;
}
