/* What the container is told of its memory: its own share, as if the GPU had no more. */
#include "account.h"
#include "managed.h"
#include "table.h"

static CUresult ask(size_t *left, size_t *all) {
    CUresult result = REAL(cuMemGetInfo_v2)(left, all);
    int gpu = result == CUDA_SUCCESS ? gpu_of_context() : -1;
    if (gpu < 0) return result;
    managed_settle(); /* what has left is free */
    uint64_t limit = limits->gpu[gpu].memory, held = account_held(gpu), rest = held < limit ? limit - held : 0;
    if (*all > limit) *all = limit;
    if (*left > rest) *left = rest;
    return result;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    size_t left = 0, all = 0;
    if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = ANSWERED(free, left, ask(&left, &all));
    return ANSWERED(total, all, result);
}

static CUresult ask_size(size_t *bytes, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    int gpu = result == CUDA_SUCCESS ? gpu_of_device(device) : -1;
    if (gpu >= 0 && *bytes > limits->gpu[gpu].memory) *bytes = limits->gpu[gpu].memory;
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    size_t all = 0;
    return ANSWERED(bytes, all, ask_size(&all, device));
}
