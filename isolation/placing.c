/* Where managed memory is to lie: by prefetching, and by advice. */
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "managed.h"
#include "table.h"

enum { ADVICE_MOSTLY_READ = 1, ADVICE_PREFERRED_LOCATION = 3 };

static int gpu_at(CUmemLocation place) {
    return place.type == LOCATION_DEVICE ? gpu_of_device(place.id) : -1;
}

#define PREFETCH(name, gpu, per_thread, shape, passed)                       \
    EXPORT CUresult name shape {                                             \
        const struct lane lane = {stream, per_thread};                       \
        const int there = gpu;                                               \
        if (!managed_comes(address, bytes, there, &lane)) return CUDA_SUCCESS; \
        CUresult result = REAL(name) passed;                                 \
        managed_came(there);                                                 \
        if (result == CUDA_SUCCESS) managed_goes(address, bytes, there, &lane); \
        return result;                                                       \
    }
#define TO_DEVICE(name, per_thread)                                              \
    PREFETCH(name, gpu_of_device(device), per_thread,                            \
             (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), \
             (address, bytes, device, stream))
#define TO_PLACE(name, per_thread)                                                                   \
    PREFETCH(name, gpu_at(place), per_thread,                                                        \
             (CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), \
             (address, bytes, place, flags, stream))

TO_DEVICE(cuMemPrefetchAsync, false)
TO_DEVICE(cuMemPrefetchAsync_ptsz, true)
TO_PLACE(cuMemPrefetchAsync_v2, false)
TO_PLACE(cuMemPrefetchAsync_v2_ptsz, true)

/* Whether advice that names this GPU may be passed on. */
static bool may_advise(CUdeviceptr address, size_t bytes, int advice, int gpu) {
    if (advice == ADVICE_MOSTLY_READ) managed_copied(address, bytes);
    return advice != ADVICE_PREFERRED_LOCATION || managed_comes(address, bytes, gpu, NULL);
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    if (!may_advise(address, bytes, advice, gpu_of_device(device))) return CUDA_SUCCESS;
    return REAL(cuMemAdvise)(address, bytes, advice, device);
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation place) {
    if (!may_advise(address, bytes, advice, gpu_at(place))) return CUDA_SUCCESS;
    return REAL(cuMemAdvise_v2)(address, bytes, advice, place);
}

/* ------------------------------------------------------------------ many at once */

/* Lists as they were read once: which ranges, and from which of them on they go to which place. */
struct batch {
    size_t count, places;
    CUdeviceptr *addresses;
    size_t *bytes, *from;
    CUmemLocation *place;
};

typedef CUresult prefetch_batch(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from,
                                size_t places, unsigned long long flags, CUstream stream);

static void *copied(const void *list, size_t count, size_t each) {
    void *copy = list && count < SIZE_MAX / each / 2 ? malloc(count * each + 1) : NULL;
    return copy ? memcpy(copy, list, count * each) : NULL;
}

static void batch_free(const struct batch *batch) {
    free(batch->addresses), free(batch->bytes), free(batch->place), free(batch->from);
}

static int gpu_in(const struct batch *batch, size_t at) {
    size_t place = 0;
    while (place + 1 < batch->places && batch->from[place + 1] <= at) place++;
    return batch->places ? gpu_at(batch->place[place]) : -1;
}

static void came(const struct batch *batch, size_t count) {
    for (size_t i = 0; i < count; i++) managed_came(gpu_in(batch, i));
}

/* What of it has found room when something has not stays charged until it is freed, or placed anew. */
static bool all_come(const struct batch *batch, const struct lane *lane) {
    for (size_t i = 0; i < batch->count; i++) {
        if (managed_comes(batch->addresses[i], batch->bytes[i], gpu_in(batch, i), lane)) continue;
        came(batch, i);
        return false;
    }
    return true;
}

static CUresult place_all(const struct batch *batch, unsigned long long flags, const struct lane *lane,
                          prefetch_batch *call) {
    if (!batch->addresses || !batch->bytes || !batch->place || !batch->from) return CUDA_ERROR_INVALID_VALUE;
    if (!all_come(batch, lane)) return CUDA_SUCCESS;
    CUresult result = call(batch->addresses, batch->bytes, batch->count, batch->place, batch->from, batch->places, flags,
                           lane->stream);
    came(batch, batch->count);
    for (size_t i = 0; result == CUDA_SUCCESS && i < batch->count; i++)
        managed_goes(batch->addresses[i], batch->bytes[i], gpu_in(batch, i), lane);
    return result;
}

#define BATCH(name, per_thread)                                                                                        \
    EXPORT CUresult name(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from,      \
                         size_t places, unsigned long long flags, CUstream stream) {                                   \
        struct batch told = {                                                                                          \
            .count = count,                                                                                            \
            .places = places,                                                                                          \
            .addresses = copied(addresses, count, sizeof *addresses),                                                  \
            .bytes = copied(bytes, count, sizeof *bytes),                                                              \
            .place = copied(place, places, sizeof *place),                                                             \
            .from = copied(from, places, sizeof *from),                                                                \
        };                                                                                                             \
        CUresult result = place_all(&told, flags, &(struct lane){stream, per_thread}, REAL(name)); \
        batch_free(&told);                                                                                             \
        return result;                                                                                                 \
    }

BATCH(cuMemPrefetchBatchAsync, false)
BATCH(cuMemPrefetchBatchAsync_ptsz, true)
BATCH(cuMemDiscardAndPrefetchBatchAsync, false)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)
