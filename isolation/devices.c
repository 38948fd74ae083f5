#include "devices.h"

#include <string.h>

#include "table.h"

#define MOST_DEVICES 64

/* Of each device of the driver: the GPU's number plus two, or one for a GPU that was not granted; 0: not asked yet. */
static _Atomic int known[MOST_DEVICES];

static int find(CUdevice device) {
    CUuuid uuid;
    CUresult told = REAL(cuDeviceGetUuid_v2)(&uuid, device);
    if (told != CUDA_SUCCESS) told = REAL(cuDeviceGetUuid)(&uuid, device);
    if (told != CUDA_SUCCESS) return -1;
    for (uint32_t gpu = 0; gpu < limits->gpus; gpu++)
        if (memcmp(limits->gpu[gpu].uuid, uuid.bytes, sizeof uuid.bytes) == 0) return (int)gpu;
    return -1;
}

int gpu_of_device(int device) {
    if (device < 0 || device >= MOST_DEVICES) return -1;
    int seen = known[device];
    if (seen == 0) known[device] = seen = find(device) + 2;
    return seen - 2;
}

/* The first number of its compute capability; 0 where the driver does not tell. */
static int generation_of(CUdevice device) {
    int generation = 0;
    return REAL(cuDeviceGetAttribute)(&generation, DEVICE_GENERATION, device) == CUDA_SUCCESS ? generation : 0;
}

bool gpus_may_run(unsigned machine) {
    int count = 0;
    if (!machine || REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || count <= 0) return true;
    for (int i = 0; i < count; i++) {
        int generation = generation_of(i);
        bool renamed = machine == 101 && generation == 11; /* as CUDA 12 called the first of these */
        if (generation <= 0 || (int)machine / 10 == generation || renamed) return true;
    }
    return false;
}

int gpu_of_context(void) {
    CUdevice device;
    return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? gpu_of_device(device) : -1;
}

bool context_enter(CUstream stream) {
    CUcontext own = NULL, here = NULL;
    bool is_made = (uintptr_t)stream > LAST_BUILT_IN_STREAM;
    if (!is_made || REAL(cuStreamGetCtx)(stream, &own) != CUDA_SUCCESS) return false;
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
