/* Fills and copies on the GPU, paced as launches are: a program that only copies would have all of it. */
#include "copies.h"

#include <string.h>

#include "pace.h"
#include "table.h"

#define MOST_IN_BATCH (1UL << 24) /* more than any driver takes */

enum { KIND_HOST = 1, KIND_UNIFIED = 4 };

static bool is_here(CUdeviceptr address) {
    unsigned kind = KIND_HOST;
    return REAL(cuPointerGetAttribute)(&kind, POINTER_KIND, address) == CUDA_SUCCESS && kind != KIND_HOST;
}

static bool both_here(CUdeviceptr to, CUdeviceptr from) {
    return is_here(to) && is_here(from);
}

static bool side_here(int kind, CUdeviceptr device) {
    return kind == KIND_UNIFIED ? is_here(device) : kind != KIND_HOST;
}

static bool flat_here(const struct flat_copy *copy) {
    return side_here(copy->to.kind, copy->to.device) && side_here(copy->from.kind, copy->from.device);
}

static bool deep_here(const struct deep_copy *copy) {
    return side_here(copy->to.kind, copy->to.device) && side_here(copy->from.kind, copy->from.device);
}

/* Lists of a batch, as they were read once; nothing where the program gave none. */
struct batch {
    CUdeviceptr *to, *from;
};

static CUdeviceptr *copy_list(const CUdeviceptr *list, size_t count) {
    CUdeviceptr *copy = list ? calloc(count + 1, sizeof *copy) : NULL;
    return copy ? memcpy(copy, list, count * sizeof *copy) : NULL;
}

static bool batch_read(struct batch *batch, const CUdeviceptr *to, const CUdeviceptr *from, size_t count) {
    *batch = (struct batch){NULL, NULL};
    if (count > MOST_IN_BATCH) return false;
    *batch = (struct batch){copy_list(to, count), copy_list(from, count)};
    return (batch->to || !to) && (batch->from || !from);
}

static void batch_free(const struct batch *batch) {
    free(batch->to), free(batch->from);
}

static bool any_here(const struct batch *batch, size_t count) {
    for (size_t i = 0; batch->to && batch->from && i < count; i++)
        if (both_here(batch->to[i], batch->from[i])) return true;
    return false;
}

#define PACED(name, works, stream, per_thread, passed)    \
    int gpu = -1;                                         \
    if (works) gpu = pace_before(stream, per_thread);     \
    CUresult result = REAL(name) passed;                  \
    pace_after(gpu, stream, per_thread)

#define WRAPPED(name, works, stream, per_thread, shape, passed) \
    EXPORT CUresult name shape {                                \
        PACED(name, works, stream, per_thread, passed);         \
        return result;                                          \
    }
#define SYNC(name, works, shape, passed)             \
    WRAPPED(name, works, NULL, false, shape, passed) \
    WRAPPED(name##_ptds, works, NULL, true, shape, passed)
#define ASYNC(name, works, shape, passed)              \
    WRAPPED(name, works, stream, false, shape, passed) \
    WRAPPED(name##_ptsz, works, stream, true, shape, passed)

#define TOLD(name, kind, works, stream, per_thread, shape, passed) \
    EXPORT CUresult name shape {                                   \
        if (!copy) return REAL(name) passed;                       \
        const kind told = *copy;                                   \
        copy = &told;                                              \
        PACED(name, works, stream, per_thread, passed);            \
        return result;                                             \
    }
#define TOLD_SYNC(name, kind, works)                                   \
    TOLD(name, kind, works, NULL, false, (const kind *copy), (copy))    \
    TOLD(name##_ptds, kind, works, NULL, true, (const kind *copy), (copy))
#define TOLD_ASYNC(name, kind, works)                                                               \
    TOLD(name, kind, works, stream, false, (const kind *copy, CUstream stream), (copy, stream))      \
    TOLD(name##_ptsz, kind, works, stream, true, (const kind *copy, CUstream stream), (copy, stream))

#define IN_BATCH(name, per_thread, shape, passed)                               \
    EXPORT CUresult name shape {                                                \
        struct batch told;                                                      \
        if (!batch_read(&told, to, from, count)) {                              \
            batch_free(&told);                                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                    \
        }                                                                       \
        PACED(name, any_here(&told, count), stream, per_thread, passed);        \
        batch_free(&told);                                                      \
        return result;                                                          \
    }
#define BATCH(name, shape, passed)       \
    IN_BATCH(name, false, shape, passed) \
    IN_BATCH(name##_ptsz, true, shape, passed)

EACH_SYNC(SYNC)
EACH_ASYNC(ASYNC)
EACH_TOLD_SYNC(TOLD_SYNC)
EACH_TOLD_ASYNC(TOLD_ASYNC)
EACH_BATCH(BATCH)
