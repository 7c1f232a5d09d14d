/* Launches compiled Triton kernels from Python: `CudaKernel(...)(tensor_or_int, ..., stream)`,
 * through the driver's cuLaunchKernel.
 *
 * Kernels are compiled for 16-byte aligned pointers; a call with another one goes to `unaligned`.
 * Mirrors: the static launchers of torch/_inductor.  Built without torch's or CUDA's headers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_ARGUMENTS 1024

static PyObject *data_ptr_name = NULL;

/* The pointer a kernel gets for `object`: 0 on success. */
static int argument(PyObject *object, void **result)
{
    if (PyLong_Check(object)) {
        long long number = PyLong_AsLongLong(object);
        *result = (void *)(intptr_t)number;
        return number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *address = PyObject_CallMethodNoArgs(object, data_ptr_name);
    if (!address) return -1;
    *result = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void *, void **, void **);
static struct {
    launch_function launch;
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*attribute)(void *, int, int);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*error_name)(int, const char **);
} cuda;
static const char *const cuda_names[] = {
    "cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute",
    "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuGetErrorName"};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void *function;
    PyObject *name, *unaligned;
    unsigned programs, threads, shared;
    int device;
} CudaKernel;

static PyObject *cuda_error(int error, const char *what)
{
    const char *name = "unknown error";
    if (cuda.error_name) cuda.error_name(error, &name);
    return PyErr_Format(PyExc_RuntimeError, "CUDA: %s (%d) in %s", name, error, what);
}

/* A thread that has made no CUDA call yet has no context: take the device's. */
static int enter_context(int device)
{
    void *context;
    int error = cuda.retain(&context, device);
    return error ? error : cuda.set_current(context);
}

static PyObject *cuda_kernel_call(PyObject *callable, PyObject *const *args, size_t flags,
                                  PyObject *keywords)
{
    CudaKernel *kernel = (CudaKernel *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags) - 1;       /* the last one is the stream */
    void *pointers[MOST_ARGUMENTS + 2], *addresses[MOST_ARGUMENTS + 2], *stream;
    uintptr_t bits = 0;
    if (count < 0 || count > MOST_ARGUMENTS)
        return PyErr_Format(PyExc_ValueError, "%U: wrong number of arguments", kernel->name);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (argument(args[i], &pointers[i]) < 0) return NULL;
        if (!PyLong_Check(args[i])) bits |= (uintptr_t)pointers[i];
        addresses[i] = &pointers[i];
    }
    if (bits & 15 && kernel->unaligned != Py_None)
        return PyObject_Vectorcall(kernel->unaligned, args, flags, keywords);
    if (argument(args[count], &stream) < 0) return NULL;
    /* Triton's scratch buffers, which these kernels do not use */
    for (int i = 0; i < 2; i++) {
        pointers[count + i] = NULL;
        addresses[count + i] = &pointers[count + i];
    }
    for (int try = 0; ; try++) {
        int error = cuda.launch(kernel->function, kernel->programs, 1, 1, kernel->threads, 1, 1,
                                kernel->shared, stream, addresses, NULL);
        if (!error) Py_RETURN_NONE;
        if (try || (error = enter_context(kernel->device)))
            return cuda_error(error, PyUnicode_AsUTF8(kernel->name));
    }
}

/* CudaKernel(function, name, device, programs, threads, shared bytes, unaligned) */
static PyObject *cuda_kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned long long function;
    unsigned programs, threads, shared;
    int device;
    PyObject *name, *unaligned;
    if (!PyArg_ParseTuple(args, "KUiIIIO", &function, &name, &device, &programs, &threads, &shared,
                          &unaligned))
        return NULL;
    CudaKernel *self = (CudaKernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    *self = (CudaKernel){.ob_base = self->ob_base, .vectorcall = cuda_kernel_call,
                         .function = (void *)(uintptr_t)function, .name = Py_NewRef(name),
                         .unaligned = Py_NewRef(unaligned), .programs = programs,
                         .threads = threads, .shared = shared, .device = device};
    return (PyObject *)self;
}

static void cuda_kernel_free(CudaKernel *self)
{
    Py_XDECREF(self->name);
    Py_XDECREF(self->unaligned);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject CudaKernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "miniinductor.codegen.triton._launcher.CudaKernel",
    .tp_basicsize = sizeof(CudaKernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(CudaKernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = cuda_kernel_new,
    .tp_dealloc = (destructor)cuda_kernel_free,
};

/* load_cubin(code, function name, shared bytes, device) -> address of the loaded function */
static PyObject *load_cubin(PyObject *self, PyObject *args)
{
    const char *code, *name;
    Py_ssize_t length;
    int shared, device, error;
    void *module, *function;
    if (!PyArg_ParseTuple(args, "y#sii", &code, &length, &name, &shared, &device)) return NULL;
    if (!cuda.launch) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) return PyErr_Format(PyExc_RuntimeError, "no CUDA driver: %s", dlerror());
        void **functions = (void **)&cuda;
        for (int i = 0; i < 7; i++) functions[i] = dlsym(library, cuda_names[i]);
    }
    /* attribute 8: MAX_DYNAMIC_SHARED_SIZE_BYTES */
    if ((error = enter_context(device)) || (error = cuda.load(&module, code))
        || (error = cuda.function(&function, module, name))
        || (shared > 48 << 10 && (error = cuda.attribute(function, 8, shared))))
        return cuda_error(error, name);
    return PyLong_FromVoidPtr(function);
}

static PyMethodDef methods[] = {
    {"load_cubin", load_cubin, METH_VARARGS,
     "Load a compiled CUDA kernel; its function's address."},
    {NULL}
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_launcher", "Launches compiled Triton kernels.", -1, methods
};

PyMODINIT_FUNC PyInit__launcher(void)
{
    PyObject *module = PyModule_Create(&definition);
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    if (!module || !data_ptr_name || PyType_Ready(&CudaKernelType) < 0
        || PyModule_AddObjectRef(module, "CudaKernel", (PyObject *)&CudaKernelType) < 0)
        return NULL;
    return module;
}
