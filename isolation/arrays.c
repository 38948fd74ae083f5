/* Arrays and mipmapped arrays: no address tells where they lie, so they are charged by their shape. */
#include "holdings.h"
#include "release.h"
#include "stores.h"

#define ROW 128ULL /* rows are padded so, at least */

static uint64_t element_bytes(int format, unsigned channels) {
    switch (format) {
    case 0x01: case 0x08: return channels;                       /* 8 bits */
    case 0x02: case 0x09: case 0x10: return 2ULL * channels;     /* 16 bits */
    case 0x03: case 0x0a: case 0x20: return 4ULL * channels;     /* 32 bits */
    default: return 16;                                          /* planar, packed, compressed: never more than this */
    }
}

static bool times(uint64_t *value, uint64_t by) {
    return !__builtin_mul_overflow(*value, by ? by : 1, value);
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level) {
    uint64_t width = shape->width >> level, height = shape->height >> level, depth = shape->depth;
    bool layered = shape->flags & 1, cube = shape->flags & 4;
    if (!layered && !cube) depth >>= level;
    uint64_t bytes = element_bytes(shape->format, shape->channels);
    if (!times(&bytes, width) || bytes > LARGEST_SIZE) return UINT64_MAX;
    bytes = (bytes + ROW - 1) & ~(ROW - 1);
    return times(&bytes, height) && times(&bytes, depth) && bytes <= LARGEST_SIZE ? bytes : UINT64_MAX;
}

static uint64_t shape_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    uint64_t all = 0;
    if (shape->flags & 0x40) return 0; /* sparse: backed by memory that cuMemCreate is charged for */
    for (unsigned level = 0; level < levels && level < 32; level++) {
        uint64_t bytes = level_bytes(shape, level);
        if (bytes == UINT64_MAX) return UINT64_MAX;
        all += bytes;
    }
    return all;
}

static bool is_small(uint64_t bytes) {
    return bytes <= LARGEST_STORED;
}

static bool enter(int gpu, uint64_t bytes) {
    if (bytes > LARGEST_SIZE) return false;
    return is_small(bytes) ? store_enter(STORE_ARRAYS, gpu, bytes) : charge(gpu, TO_GRANULES(bytes));
}

static void leave(int gpu, uint64_t bytes) {
    if (is_small(bytes))
        store_leave(STORE_ARRAYS, gpu, bytes);
    else
        account_release(gpu, TO_GRANULES(bytes));
}

void arrays_gone(const struct holding *array) {
    leave(array->record.gpu, array->record.bytes);
}

struct claim {
    int gpu;
    uint64_t bytes;
};

static CUresult claim(struct claim *claim, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    *claim = (struct claim){.gpu = gpu_of_context(), .bytes = shape_bytes(shape, levels)};
    if (claim->gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    return enter(claim->gpu, claim->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult settle(const struct claim *claim, CUresult result, void *array, CUresult (*destroy)(void *array)) {
    struct holding holding = {
        .kind = ARRAY,
        .value = (uintptr_t)array,
        .record = {.bytes = claim->bytes, .gpu = claim->gpu, .context = current_context()},
    };
    if (result == CUDA_SUCCESS && holdings_add(holding)) return result;
    if (result == CUDA_SUCCESS) destroy(array);
    leave(claim->gpu, claim->bytes);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult destroy_array(void *array) {
    return REAL(cuArrayDestroy)(array);
}

static CUresult destroy_mipmap(void *array) {
    return REAL(cuMipmappedArrayDestroy)(array);
}

static CUresult create_flat(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat) {
    CUDA_ARRAY_DESCRIPTOR told = *flat; /* as in cuMemCreate */
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .width = told.width, .height = told.height, .format = told.format, .channels = told.channels};
    struct claim c;
    CUresult result = claim(&c, &shape, 1);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuArrayCreate_v2)(array, &told);
    return settle(&c, result, *array, destroy_array);
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat) {
    CUarray made = NULL;
    return ANSWERED(array, made, flat ? create_flat(&made, flat) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult create_deep(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CUDA_ARRAY3D_DESCRIPTOR told = *shape;
    struct claim c;
    CUresult result = claim(&c, &told, 1);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuArray3DCreate_v2)(array, &told);
    return settle(&c, result, *array, destroy_array);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CUarray made = NULL;
    return ANSWERED(array, made, shape ? create_deep(&made, shape) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult create_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    CUDA_ARRAY3D_DESCRIPTOR told = *shape;
    struct claim c;
    CUresult result = claim(&c, &told, levels);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuMipmappedArrayCreate)(array, &told, levels);
    return settle(&c, result, *array, destroy_mipmap);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                       unsigned levels) {
    CUmipmappedArray made = NULL;
    return ANSWERED(array, made, shape ? create_mipmap(&made, shape, levels) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult destroy(void *array, CUresult (*call)(void *array)) {
    struct holding holding;
    bool ours = holdings_take(ARRAY, (uintptr_t)array, &holding);
    CUresult result = call(array);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(holding);
    else if (ours)
        arrays_gone(&holding);
    return result;
}

EXPORT CUresult cuArrayDestroy(CUarray array) {
    return destroy(array, destroy_array);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return destroy(array, destroy_mipmap);
}
