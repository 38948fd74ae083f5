/* Fills and copies on the GPU, paced as launches are: a program that only copies would have all of it. */
#include "copies.h"

#include "pace.h"
#include "table.h"

enum { KIND_HOST = 1, KIND_UNIFIED = 4 };

static bool is_here(CUdeviceptr address) {
    unsigned kind = KIND_HOST;
    return REAL(cuPointerGetAttribute)(&kind, POINTER_KIND, address) == CUDA_SUCCESS && kind != KIND_HOST;
}

static bool both_here(CUdeviceptr to, CUdeviceptr from) {
    return is_here(to) && is_here(from);
}

static bool any_here(const CUdeviceptr *to, const CUdeviceptr *from, size_t count) {
    for (size_t i = 0; to && from && i < count; i++)
        if (both_here(to[i], from[i])) return true;
    return false;
}

static bool side_here(int kind, CUdeviceptr device) {
    return kind == KIND_UNIFIED ? is_here(device) : kind != KIND_HOST;
}

static bool flat_here(const struct flat_copy *copy) {
    return copy && side_here(copy->to.kind, copy->to.device) && side_here(copy->from.kind, copy->from.device);
}

static bool deep_here(const struct deep_copy *copy) {
    return copy && side_here(copy->to.kind, copy->to.device) && side_here(copy->from.kind, copy->from.device);
}

#define PACED(name, works, stream, per_thread, shape, passed) \
    EXPORT CUresult name shape {                              \
        int gpu = -1;                                         \
        if (works) gpu = pace_before(stream, per_thread);     \
        CUresult result = REAL(name) passed;                  \
        pace_after(gpu, stream, per_thread);                  \
        return result;                                        \
    }
#define SYNC(name, works, shape, passed)              \
    PACED(name, works, NULL, false, shape, passed)    \
    PACED(name##_ptds, works, NULL, true, shape, passed)
#define ASYNC(name, works, shape, passed)             \
    PACED(name, works, stream, false, shape, passed)  \
    PACED(name##_ptsz, works, stream, true, shape, passed)

EACH_SYNC(SYNC)
EACH_ASYNC(ASYNC)
