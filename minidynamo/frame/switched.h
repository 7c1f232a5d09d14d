/* Switched(fn, callback): call fn with the hook on (callback) or off (None) in this thread.
 *
 * In:   a function and a callback, or None.   Out: an object that is called like the function;
 *       that costs tens of nanoseconds beside the call of fn.
 *
 * A part of frame_hook.c.
 */
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *fn, *cb, *dict, *weakrefs;
    vectorcallfunc vectorcall;
} Switched;

static PyObject *
switched_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Switched *s = (Switched *)self;
    /* its reference stays with us while another is installed */
    PyObject *old = callback;
    if (old == s->cb)
        return PyObject_Vectorcall(s->fn, args, nargsf, kwnames);
    Py_INCREF(s);
    switch_to(Py_XNewRef(s->cb));
    PyObject *result = switch_back(old, PyObject_Vectorcall(s->fn, args, nargsf, kwnames));
    Py_DECREF(s);
    return result;
}

static PyObject *
switched_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    PyObject *fn, *cb;
    if (!PyArg_ParseTuple(args, "OO", &fn, &cb))
        return NULL;
    Switched *s = (Switched *)type->tp_alloc(type, 0);
    if (s) {
        s->fn = Py_NewRef(fn);
        s->cb = cb == Py_None ? NULL : Py_NewRef(cb);
        s->vectorcall = switched_call;
    }
    return (PyObject *)s;
}

static PyObject *
switched_repr(Switched *s)
{
    return PyUnicode_FromFormat(s->cb ? "<compiled %R>" : "<disabled %R>", s->fn);
}

static int
switched_traverse(Switched *s, visitproc visit, void *arg)
{
    Py_VISIT(s->fn); Py_VISIT(s->cb); Py_VISIT(s->dict);
    return 0;
}

static int
switched_clear(Switched *s)
{
    Py_CLEAR(s->fn); Py_CLEAR(s->cb); Py_CLEAR(s->dict);
    return 0;
}

static void
switched_dealloc(Switched *s)
{
    PyObject_GC_UnTrack(s);
    if (s->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)s);
    switched_clear(s);
    Py_TYPE(s)->tp_free((PyObject *)s);
}

static PyObject *
switched_get(PyObject *self, PyObject *obj, PyObject *type)     /* bind as a method */
{
    return obj && obj != Py_None ? PyMethod_New(self, obj) : Py_NewRef(self);
}

static PyObject *
get_of_function(PyObject *self, void *name)
{
    return PyObject_GetAttrString(((Switched *)self)->fn, name);
}

static int
set_of_function(PyObject *self, PyObject *value, void *name)
{
    /* value NULL: deletes it */
    return PyObject_SetAttrString(((Switched *)self)->fn, name, value);
}

static PyMemberDef switched_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Switched, fn), READONLY},
    {"__callback__", T_OBJECT, offsetof(Switched, cb), READONLY},
    {NULL}};

#define of_function(name) {name, get_of_function, set_of_function, "the function's", name}
static PyGetSetDef switched_getset[] = {
    of_function("__code__"),
    of_function("__defaults__"), of_function("__kwdefaults__"),
    of_function("__globals__"), of_function("__closure__"), of_function("__builtins__"),
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict},
    {NULL}};

static PyTypeObject SwitchedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "minidynamo.frame._frame_hook.Switched",
    .tp_basicsize = sizeof(Switched),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC
        | Py_TPFLAGS_BASETYPE,
    .tp_vectorcall_offset = offsetof(Switched, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dictoffset = offsetof(Switched, dict),
    .tp_weaklistoffset = offsetof(Switched, weakrefs),
    .tp_descr_get = switched_get,
    .tp_new = switched_new,
    .tp_dealloc = (destructor)switched_dealloc,
    .tp_repr = (reprfunc)switched_repr,
    .tp_traverse = (traverseproc)switched_traverse,
    .tp_clear = (inquiry)switched_clear,
    .tp_members = switched_members,
    .tp_getset = switched_getset,
};
