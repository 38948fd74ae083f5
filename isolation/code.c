/* Modules and libraries: code and variables that the driver puts into device memory. */
#include "holdings.h"
#include "images.h"
#include "release.h"
#include "stores.h"

#define CODE_OVERHEAD 4096ULL /* what the driver keeps beside each image, at least */

struct claim {
    int gpu;
    uint64_t bytes;
};

static bool enter(int gpu, uint64_t bytes) {
    if (bytes > LARGEST_SIZE) return false;
    return bytes <= LARGEST_STORED ? store_enter(STORE_CODE, gpu, bytes) : charge(gpu, TO_GRANULES(bytes));
}

static void leave(int gpu, uint64_t bytes) {
    if (bytes <= LARGEST_STORED)
        store_leave(STORE_CODE, gpu, bytes);
    else
        account_release(gpu, TO_GRANULES(bytes));
}

void code_gone(const struct holding *code) {
    leave(code->record.gpu, code->record.bytes);
}

/* A library is loaded for every context of the process; it is charged where it is loaded. */
static CUresult claim(struct claim *claim, uint64_t bytes) {
    *claim = (struct claim){.gpu = gpu_of_context(), .bytes = bytes + (bytes > LARGEST_SIZE ? 0 : CODE_OVERHEAD)};
    if (claim->gpu < 0) claim->gpu = 0;
    return enter(claim->gpu, claim->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult settle(const struct claim *claim, CUresult result, void *code, uint64_t context) {
    struct holding holding = {
        .kind = CODE,
        .value = (uintptr_t)code,
        .record = {.bytes = claim->bytes, .gpu = claim->gpu, .context = context},
    };
    if (result == CUDA_SUCCESS && holdings_add(holding)) return result;
    leave(claim->gpu, claim->bytes);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult settle_module(const struct claim *claim, CUresult result, CUmodule *module) {
    bool loaded = result == CUDA_SUCCESS;
    CUresult settled = settle(claim, result, loaded ? *module : NULL, current_context());
    if (loaded && settled != CUDA_SUCCESS) REAL(cuModuleUnload)(*module);
    return settled;
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *file) {
    struct claim c;
    CUresult result = claim(&c, file ? image_file_bytes(file) : 0);
    return result == CUDA_SUCCESS ? settle_module(&c, REAL(cuModuleLoad)(module, file), module) : result;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    struct claim c;
    CUresult result = claim(&c, image_bytes(image));
    return result == CUDA_SUCCESS ? settle_module(&c, REAL(cuModuleLoadData)(module, image), module) : result;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    struct claim c;
    CUresult result = claim(&c, image_bytes(image));
    if (result != CUDA_SUCCESS) return result;
    return settle_module(&c, REAL(cuModuleLoadDataEx)(module, image, count, options, values), module);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    struct claim c;
    CUresult result = claim(&c, image_bytes(image));
    return result == CUDA_SUCCESS ? settle_module(&c, REAL(cuModuleLoadFatBinary)(module, image), module) : result;
}

static CUresult settle_library(const struct claim *claim, CUresult result, CUlibrary *library) {
    bool loaded = result == CUDA_SUCCESS;
    CUresult settled = settle(claim, result, loaded ? *library : NULL, 0);
    if (loaded && settled != CUDA_SUCCESS) REAL(cuLibraryUnload)(*library);
    return settled;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values,
                                  unsigned jit_count, int *options, void **values, unsigned count) {
    struct claim c;
    CUresult result = claim(&c, image_bytes(image));
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuLibraryLoadData)(library, image, jit, jit_values, jit_count, options, values, count);
    return settle_library(&c, result, library);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values,
                                      unsigned jit_count, int *options, void **values, unsigned count) {
    struct claim c;
    CUresult result = claim(&c, file ? image_file_bytes(file) : 0);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuLibraryLoadFromFile)(library, file, jit, jit_values, jit_count, options, values, count);
    return settle_library(&c, result, library);
}

static CUresult unloaded(bool ours, const struct holding *holding, CUresult result) {
    if (ours && result != CUDA_SUCCESS)
        holdings_add(*holding);
    else if (ours)
        code_gone(holding);
    return result;
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    struct holding holding;
    bool ours = holdings_take(CODE, (uintptr_t)module, &holding);
    return unloaded(ours, &holding, REAL(cuModuleUnload)(module));
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    struct holding holding;
    bool ours = holdings_take(CODE, (uintptr_t)library, &holding);
    return unloaded(ours, &holding, REAL(cuLibraryUnload)(library));
}
