/* A libcuda.so.1 of our own: devices, contexts, streams, launches and look-ups. A kernel takes as many microseconds as
 * its grid is wide. Whatever is not written here answers a number of its own (weak.c), so that a test can see that each
 * name reaches the function of that name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"
#include "fake.h"
#include "heap.h"
#include "world.h"

#define HEAP_INCLUDED (8ULL << 20)
#define STACK_INCLUDED 1024ULL
/* A small GPU: so many stacks there are. */
#define MULTIPROCESSORS 4
#define THREADS 1024

struct driver_context {
    int gpu;
    uint64_t limits[3];
    unsigned attached; /* times, beyond its making */
    CUcontext below; /* on the thread's stack of contexts */
    bool ended;      /* of a green one: it stays in memory, so that whoever uses its streams once more is found out */
    _Atomic int *come; /* its end waits by this word */
};

struct driver_green_context {
    CUdevice device;
    struct driver_context part; /* as which it is made current */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct driver_context primary[WORLD_GPUS];
static int retained[WORLD_GPUS];
static __thread CUcontext current;

int fake_gpu(void) {
    return current ? current->gpu : -1;
}

int fake_gpu_of(const void *context) {
    return ((const struct driver_context *)context)->gpu;
}

const void *fake_owner(void) {
    return current;
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    return world_open() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = world ? (int)world->gpus : 0;
    return world ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!world) return CUDA_ERROR_NOT_INITIALIZED;
    *device = ordinal;
    return ordinal >= 0 && ordinal < (int)world->gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    if (!world) return CUDA_ERROR_NOT_INITIALIZED;
    if (device < 0 || device >= (int)world->gpus) return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, 0xA0, sizeof *uuid);
    uuid->bytes[15] = (unsigned char)device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    *bytes = world->memory[device];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->gpu;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

void fake_come_back_late(void) {
    const char *told = getenv("FAKE_CUDA_LATE_MS");
    if (told) nanosleep(&(struct timespec){.tv_nsec = atol(told) * 1000000L}, NULL);
}

void fake_come_when_told(_Atomic int *come) {
    if (!come || *come == 3) return;
    *come = 1;
    while (*come == 1) {}
}

/* The last context that was destroyed: the next one lies where it was. */
static _Atomic(CUcontext) vacant;

CUresult cuCtxSetCurrent(CUcontext context) {
    if (context && context == vacant) return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context, CUdevice device) {
    if (!world_take(device, world->context_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext made = atomic_exchange(&vacant, NULL);
    if (!made) made = malloc(sizeof *made);
    *made = (struct driver_context){.gpu = device};
    *context = current = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    (void)flags;
    return create(context, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
    (void)flags, (void)affinity, (void)count;
    return create(context, device);
}

/* Parameters, of which the driver's own are not asked for here, are a word to wait by. */
CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    (void)flags;
    CUresult result = create(context, device);
    if (result == CUDA_SUCCESS) (*context)->come = parameters;
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (context == vacant || context->ended) return CUDA_ERROR_INVALID_CONTEXT;
    context->below = current;
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    *context = current;
    current = current->below;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    *value = attribute == DEVICE_MULTIPROCESSORS            ? MULTIPROCESSORS
             : attribute == DEVICE_THREADS_A_MULTIPROCESSOR ? THREADS
             : attribute == DEVICE_GENERATION               ? GENERATION
             : attribute == DEVICE_CONCURRENT_MANAGED       ? !fake_managed_is("still")
                                                            : 0;
    return CUDA_SUCCESS;
}

static uint64_t beyond(int limit, uint64_t value) {
    uint64_t included = limit == LIMIT_STACK ? STACK_INCLUDED : HEAP_INCLUDED;
    uint64_t times = limit == LIMIT_STACK ? MULTIPROCESSORS * THREADS : 1;
    return value > included ? WHOLE((value - included) * times) : 0;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    fake_come_when_told(context->come);
    heap_give_all(context);
    for (int i = 0; i < 3; i++) world_give(context->gpu, beyond(i, context->limits[i]));
    world_give(context->gpu, world->context_bytes);
    if (current == context) current = NULL;
    free(atomic_exchange(&vacant, context));
    fake_come_back_late();
    return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    (void)flags;
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    current->attached++;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext context) {
    if (!context->attached) return cuCtxDestroy_v2(context);
    context->attached--;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (limit != LIMIT_HEAP && limit != LIMIT_PRINTF && limit != LIMIT_STACK) return CUDA_SUCCESS;
    if (!world_take(current->gpu, beyond(limit, value))) return CUDA_ERROR_OUT_OF_MEMORY;
    world_give(current->gpu, beyond(limit, current->limits[limit]));
    current->limits[limit] = value;
    if (!beyond(limit, value)) fake_come_back_late();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
    *value = current->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_SUCCESS;
    if (!retained[device] && !world_take(device, world->context_bytes)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        retained[device]++;
        primary[device].gpu = device;
        *context = &primary[device];
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    pthread_mutex_lock(&lock);
    if (retained[device] && --retained[device] == 0) {
        heap_give_all(&primary[device]);
        for (int i = 0; i < 3; i++) world_give(device, beyond(i, primary[device].limits[i]));
        memset(primary[device].limits, 0, sizeof primary[device].limits);
        world_give(device, world->context_bytes);
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* A part of the primary context, which it holds. Resources, of which it has none, are a word to wait by. */
CUresult cuGreenCtxCreate(CUgreenCtx *context, void *resources, CUdevice device, unsigned flags) {
    CUcontext held;
    (void)flags;
    CUresult result = cuDevicePrimaryCtxRetain(&held, device);
    if (result != CUDA_SUCCESS) return result;
    *context = malloc(sizeof **context);
    **context = (struct driver_green_context){.device = device, .part = {.gpu = device, .come = resources}};
    return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    *context = &green->part;
    return CUDA_SUCCESS;
}

CUresult fake_primary_of(CUgreenCtx green, CUcontext *context) {
    *context = &primary[green->device];
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx context) {
    fake_come_when_told(context->part.come);
    context->part.ended = true;
    return cuDevicePrimaryCtxRelease_v2(context->device);
}

bool fake_ended(const void *context) {
    return ((const struct driver_context *)context)->ended;
}

CUresult cuCtxSynchronize(void) {
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    world_wait(current->gpu, world_submitted(current->gpu));
    fake_pools_settle();
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ looking up */

static void *own_symbol(const char *name) {
    static void *self;
    Dl_info info;
    if (!self && dladdr((void *)own_symbol, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return self ? dlsym(self, name) : NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    char name[128];
    *function = NULL;
    if (flags & LOOKUP_PER_THREAD_STREAM) {
        snprintf(name, sizeof name, "%s_ptsz", symbol);
        *function = own_symbol(name);
    }
    snprintf(name, sizeof name, "%s_v2", symbol);
    if (!*function && version >= 3020) *function = own_symbol(name);
    if (!*function) *function = own_symbol(symbol);
    if (status) *status = *function ? 0 : 1;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* Newer than the interposer's list: one that allocates, one that does not. */
CUresult cuMemAllocFromTheFuture(CUdeviceptr *address, size_t bytes) {
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuDeviceAskTheFuture(void) {
    return 4711;
}
