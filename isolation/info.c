/* What the container is told of its memory: its own share, as if the GPU had no more. */
#include "account.h"
#include "table.h"

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(free, total);
    int gpu = result == CUDA_SUCCESS ? gpu_of_context() : -1;
    if (gpu < 0) return result;
    uint64_t limit = limits->gpu[gpu].memory, held = account_held(gpu), left = held < limit ? limit - held : 0;
    if (total && *total > limit) *total = limit;
    if (free && *free > left) *free = left;
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    int gpu = result == CUDA_SUCCESS ? gpu_of_device(device) : -1;
    if (gpu >= 0 && bytes && *bytes > limits->gpu[gpu].memory) *bytes = limits->gpu[gpu].memory;
    return result;
}
