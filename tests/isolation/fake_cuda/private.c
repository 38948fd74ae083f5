/* Private tables, as drivers have them: a size in bytes, and functions at places of which some are empty. */
#include <string.h>

#include "driver.h"

static CUresult load(CUmodule *module, const void *wrapper) {
    return cuModuleLoadFatBinary(module, wrapper);
}

static CUresult load_with(CUmodule *module, const void *wrapper, void *one, void *two, unsigned three) {
    return one || two || three ? CUDA_ERROR_INVALID_VALUE : cuModuleLoadFatBinary(module, wrapper);
}

static CUresult load_bare(const void *binary, CUmodule *module, void *one, void *two, unsigned three) {
    return one || two || three != 7 ? CUDA_ERROR_INVALID_VALUE : cuModuleLoadData(module, binary);
}

static CUresult create(CUcontext *context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

static CUresult primary(CUcontext *context, CUdevice device) {
    return cuDevicePrimaryCtxRetain(context, device);
}

static const void *const runtime[9] = {(void *)sizeof runtime, load, primary, NULL, NULL, NULL, load_with, NULL, load_bare};
static const void *const contexts[2] = {(void *)sizeof contexts, create};
static const void *const others[] = {load, create, NULL};

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static const unsigned char of_runtime[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b}, of_contexts[] = {0x0c, 0xa5, 0x0b, 0x8c};
    if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(id, of_runtime, sizeof of_runtime) == 0) *table = runtime;
    else *table = memcmp(id, of_contexts, sizeof of_contexts) == 0 ? contexts : others;
    return CUDA_SUCCESS;
}
