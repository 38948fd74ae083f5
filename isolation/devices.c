#include "devices.h"

#include <string.h>

#include "table.h"

#define MOST_DEVICES 64

/* Of each device of the driver: the GPU's number plus two, or one for a GPU that was not granted; 0: not asked yet. */
static _Atomic int known[MOST_DEVICES];

static CUresult ask_uuid(CUuuid *uuid, CUdevice device) {
    CUresult told = REAL(cuDeviceGetUuid_v2)(uuid, device);
    return told == CUDA_SUCCESS ? told : REAL(cuDeviceGetUuid)(uuid, device);
}

static int find(const CUuuid *uuid) {
    for (uint32_t gpu = 0; gpu < limits->gpus; gpu++)
        if (memcmp(limits->gpu[gpu].uuid, uuid->bytes, sizeof uuid->bytes) == 0) return (int)gpu;
    return -1;
}

int gpu_of_device(int device) {
    CUuuid uuid;
    if (device < 0 || device >= MOST_DEVICES) return -1;
    int seen = known[device];
    if (seen) return seen - 2;
    /* Before cuInit, and after one that failed, it tells nothing, which is not to be remembered. */
    if (ask_uuid(&uuid, device) != CUDA_SUCCESS) return -1;
    known[device] = seen = find(&uuid) + 2;
    return seen - 2;
}

CUresult device_refused(CUdevice device) {
    CUuuid uuid;
    CUresult told = ask_uuid(&uuid, device);
    return told == CUDA_SUCCESS ? CUDA_ERROR_INVALID_DEVICE : told;
}

bool device_is_brought_to(CUdevice device) {
    int can = 0;
    return REAL(cuDeviceGetAttribute)(&can, DEVICE_CONCURRENT_MANAGED, device) != CUDA_SUCCESS || can;
}

/* 90 for compute capability 9.0; 0 where the driver does not tell. */
static unsigned kind_of(CUdevice device) {
    int major = 0, minor = 0;
    if (REAL(cuDeviceGetAttribute)(&major, DEVICE_GENERATION, device) != CUDA_SUCCESS || major <= 0) return 0;
    if (REAL(cuDeviceGetAttribute)(&minor, DEVICE_VARIANT, device) != CUDA_SUCCESS || minor < 0) return 0;
    return (unsigned)major * 10 + (unsigned)minor;
}

static bool any_gpu(bool (*may)(unsigned kind, unsigned machine), unsigned machine) {
    int count = 0;
    if (!machine || REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || count <= 0) return true;
    for (int i = 0; i < count; i++) {
        unsigned kind = kind_of(i);
        if (!kind || may(kind, machine)) return true;
    }
    return false;
}

static bool may_load(unsigned kind, unsigned machine) {
    bool renamed = machine == 101 && kind / 10 == 11; /* as CUDA 12 called the first of these */
    return renamed || (machine / 10 == kind / 10 && machine <= kind);
}

static bool may_compile(unsigned kind, unsigned machine) {
    return machine <= kind;
}

bool gpus_may_load(unsigned machine) {
    return any_gpu(may_load, machine);
}

bool gpus_may_compile(unsigned machine) {
    return any_gpu(may_compile, machine);
}

int gpu_of_context(void) {
    CUdevice device;
    return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? gpu_of_device(device) : -1;
}

bool context_enter(CUstream stream) {
    CUcontext own = NULL, here = NULL;
    if (!stream_is_made(stream) || REAL(cuStreamGetCtx)(stream, &own) != CUDA_SUCCESS) return false;
    REAL(cuCtxGetCurrent)(&here);
    return own != here && REAL(cuCtxPushCurrent_v2)(own) == CUDA_SUCCESS;
}

void context_leave(void) {
    CUcontext left;
    REAL(cuCtxPopCurrent_v2)(&left);
}

int gpu_of_stream(CUstream stream) {
    bool entered = context_enter(stream);
    int gpu = gpu_of_context();
    if (entered) context_leave();
    return gpu;
}
