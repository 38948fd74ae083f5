/* Modules and libraries: code and variables that the driver puts into device memory. */
#include "code.h"

#include "holdings.h"
#include "images.h"
#include "managed.h"
#include "release.h"
#include "stores.h"

#define CODE_OVERHEAD 4096ULL /* what the driver keeps beside each image, at least */
#define MOST_OPTIONS 16U      /* of a library: CUDA 13.5 knows two */

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
    copies_free((struct copy *)(uintptr_t)code->record.extra);
}

/* A library is loaded for every context of the process; it is charged where it is loaded. */
static CUresult claim_bytes(struct claim *claim, uint64_t bytes) {
    *claim = (struct claim){.gpu = gpu_of_context(), .bytes = bytes + (bytes > LARGEST_SIZE ? 0 : CODE_OVERHEAD)};
    if (claim->gpu < 0) claim->gpu = 0;
    return enter(claim->gpu, claim->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What was found of an image, with what that was answered with. */
static CUresult claim_image(struct claim *claim, const struct image *image, CUresult found) {
    if (found != CUDA_SUCCESS) return found;
    CUresult result = claim_bytes(claim, image->bytes);
    if (result != CUDA_SUCCESS) copies_free(image->copies);
    return result;
}

static CUresult claim_memory(struct claim *claim, struct image *image, const void *content) {
    return claim_image(claim, image, image_in_memory(image, content));
}

static CUresult claim_file(struct claim *claim, struct image *image, const char *path) {
    return claim_image(claim, image, image_in_file(image, path));
}

/* What the driver may come back to is freed with the code. */
static CUresult settle(const struct claim *claim, const struct image *image, CUresult result, void *code,
                       uint64_t context) {
    struct copy *kept = image->kept ? image->copies : NULL;
    struct holding holding = {
        .kind = CODE,
        .value = (uintptr_t)code,
        .record = {.bytes = claim->bytes, .gpu = claim->gpu, .context = context, .extra = (uintptr_t)kept},
    };
    bool held = result == CUDA_SUCCESS && holdings_add(holding);
    if (!held || !kept) copies_free(image->copies);
    if (held) return result;
    leave(claim->gpu, claim->bytes);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult settle_module(const struct claim *claim, const struct image *image, CUresult result,
                              const CUmodule *module) {
    CUresult settled = settle(claim, image, result, *module, current_context());
    if (result == CUDA_SUCCESS && settled != CUDA_SUCCESS) REAL(cuModuleUnload)(*module);
    return settled;
}

/* From a file as from memory: the driver gets what was weighed, not what stands in the file by then. */
static CUresult load_file(CUmodule *module, const char *file) {
    struct claim c;
    struct image image;
    CUresult result = claim_file(&c, &image, file);
    if (result != CUDA_SUCCESS) return result;
    return settle_module(&c, &image, REAL(cuModuleLoadData)(module, image.content), module);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *file) {
    CUmodule loaded = NULL;
    return ANSWERED(module, loaded, load_file(&loaded, file));
}

static CUresult load_data(CUmodule *module, const void *content) {
    struct claim c;
    struct image image;
    CUresult result = claim_memory(&c, &image, content);
    if (result != CUDA_SUCCESS) return result;
    return settle_module(&c, &image, REAL(cuModuleLoadData)(module, image.content), module);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *content) {
    CUmodule loaded = NULL;
    return ANSWERED(module, loaded, load_data(&loaded, content));
}

static CUresult load_with(CUmodule *module, const void *content, unsigned count, int *options, void **values) {
    struct claim c;
    struct image image;
    CUresult result = claim_memory(&c, &image, content);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuModuleLoadDataEx)(module, image.content, count, options, values);
    return settle_module(&c, &image, result, module);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *content, unsigned count, int *options, void **values) {
    CUmodule loaded = NULL;
    return ANSWERED(module, loaded, load_with(&loaded, content, count, options, values));
}

static CUresult load_fat(CUmodule *module, const void *content) {
    struct claim c;
    struct image image;
    CUresult result = claim_memory(&c, &image, content);
    if (result != CUDA_SUCCESS) return result;
    return settle_module(&c, &image, REAL(cuModuleLoadFatBinary)(module, image.content), module);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *content) {
    CUmodule loaded = NULL;
    return ANSWERED(module, loaded, load_fat(&loaded, content));
}

static CUresult load_kept(CUmodule *module, const void *content, code_loader *load, const void *with) {
    struct claim c;
    struct image image;
    CUresult result = claim_memory(&c, &image, content);
    if (result != CUDA_SUCCESS) return result;
    image.kept = true;
    return settle_module(&c, &image, load(module, image.content, with), module);
}

CUresult code_load(CUmodule *module, const void *content, code_loader *load, const void *with) {
    CUmodule loaded = NULL;
    return ANSWERED(module, loaded, load_kept(&loaded, content, load, with));
}

static CUresult settle_library(const struct claim *claim, const struct image *image, CUresult result,
                               const CUlibrary *library) {
    CUresult settled = settle(claim, image, result, *library, 0);
    if (result == CUDA_SUCCESS && settled != CUDA_SUCCESS) REAL(cuLibraryUnload)(*library);
    return settled;
}

/* Options of a library, as they were read once. That its binary is preserved saves the driver a copy; of ours that is
 * not true, and so it is not passed on. */
struct options {
    unsigned count;
    int names[MOST_OPTIONS];
    void *values[MOST_OPTIONS];
};

static bool read_options(struct options *told, const int *options, void *const *values, unsigned count,
                         bool preserved) {
    told->count = 0;
    if (count > MOST_OPTIONS || (count && (!options || !values))) return false;
    for (unsigned i = 0; i < count; i++) {
        told->names[told->count] = options[i];
        told->values[told->count] = values[i];
        if (preserved || told->names[told->count] != LIBRARY_PRESERVED) told->count++;
    }
    return true;
}

static CUresult load_library(CUlibrary *library, const struct claim *claim, const struct image *image, int *jit,
                             void **jit_values, unsigned jit_count, const struct options *options) {
    struct options told = *options;
    int *names = told.count ? told.names : NULL;
    void **values = told.count ? told.values : NULL;
    CUresult result =
        REAL(cuLibraryLoadData)(library, image->content, jit, jit_values, jit_count, names, values, told.count);
    return settle_library(claim, image, result, library);
}

static CUresult library_of_data(CUlibrary *library, const void *content, int *jit, void **jit_values,
                                unsigned jit_count, int *options, void **values, unsigned count) {
    struct claim c;
    struct image image;
    struct options told;
    CUresult result = claim_memory(&c, &image, content);
    if (result != CUDA_SUCCESS) return result;
    if (read_options(&told, options, values, count, image.kept))
        return load_library(library, &c, &image, jit, jit_values, jit_count, &told);
    return settle_library(&c, &image, CUDA_ERROR_INVALID_VALUE, library);
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *content, int *jit, void **jit_values,
                                  unsigned jit_count, int *options, void **values, unsigned count) {
    CUlibrary loaded = NULL;
    return ANSWERED(library, loaded,
                    library_of_data(&loaded, content, jit, jit_values, jit_count, options, values, count));
}

static CUresult library_of_file(CUlibrary *library, const char *file, int *jit, void **jit_values, unsigned jit_count,
                                int *options, void **values, unsigned count) {
    struct claim c;
    struct image image;
    struct options told;
    CUresult result = claim_file(&c, &image, file);
    if (result != CUDA_SUCCESS) return result;
    if (read_options(&told, options, values, count, false))
        return load_library(library, &c, &image, jit, jit_values, jit_count, &told);
    return settle_library(&c, &image, CUDA_ERROR_INVALID_VALUE, library);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values,
                                      unsigned jit_count, int *options, void **values, unsigned count) {
    CUlibrary loaded = NULL;
    return ANSWERED(library, loaded,
                    library_of_file(&loaded, file, jit, jit_values, jit_count, options, values, count));
}

static CUresult unloaded(bool ours, const struct holding *holding, CUresult result) {
    if (ours && result != CUDA_SUCCESS)
        holdings_add(*holding);
    else if (ours)
        code_gone(holding);
    if (result == CUDA_SUCCESS) managed_settle(); /* its variables are gone, wherever they were placed */
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
