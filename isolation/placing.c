/* Where managed memory is to lie: by prefetching, and by advice. */
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "limits.h"
#include "locations.h"
#include "managed.h"
#include "table.h"

enum { ADVICE_MOSTLY_READ = 1, ADVICE_PREFERRED_LOCATION = 3, ADVICE_NO_PREFERRED_LOCATION = 4 };

/* What a call moves: nothing where it names a GPU to which drivers refuse to bring anything. */
static struct range range_to_device(CUdeviceptr address, size_t bytes, CUdevice device) {
    int gpu = gpu_of_device(device);
    bool moves = gpu < 0 || device_is_brought_to(device);
    return (struct range){address, moves ? bytes : 0, moves ? gpu : -1};
}

static struct range range_to_place(CUdeviceptr address, size_t bytes, CUmemLocation place) {
    bool on_device = place.type == LOCATION_DEVICE || place.type == LOCATION_LOCALITY_DOMAIN;
    return on_device ? range_to_device(address, bytes, device_of_location(place)) : (struct range){address, bytes, -1};
}

#define PREFETCH(name, there, per_thread, shape, passed)                                                     \
    EXPORT CUresult name shape {                                                                             \
        const struct range range = there;                                                                    \
        struct placing *placing;                                                                             \
        if (!managed_begin(&placing, &range, 1, managed_lane(stream, per_thread), false)) return CUDA_SUCCESS; \
        CUresult result = REAL(name) passed;                                                                 \
        managed_end(placing, result);                                                                        \
        return result;                                                                                       \
    }
#define TO_DEVICE(name, per_thread)                                              \
    PREFETCH(name, range_to_device(address, bytes, device), per_thread,          \
             (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), \
             (address, bytes, device, stream))
#define TO_PLACE(name, per_thread)                                                                   \
    PREFETCH(name, range_to_place(address, bytes, place), per_thread,                                \
             (CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), \
             (address, bytes, place, flags, stream))

TO_DEVICE(cuMemPrefetchAsync, false)
TO_DEVICE(cuMemPrefetchAsync_ptsz, true)
TO_PLACE(cuMemPrefetchAsync_v2, false)
TO_PLACE(cuMemPrefetchAsync_v2_ptsz, true)

/* Advice that names a GPU as the preferred one brings memory there, for as long as it holds; of what is mostly read there are
 * copies. */
static bool begin_advice(struct placing **placing, int advice, size_t bytes, struct range there) {
    bool prefers = advice == ADVICE_PREFERRED_LOCATION, copies = advice == ADVICE_MOSTLY_READ;
    const struct range range = prefers ? there : (struct range){there.address, bytes, -1};
    *placing = NULL;
    if (!prefers && !copies && advice != ADVICE_NO_PREFERRED_LOCATION) return true;
    return managed_begin(placing, &range, 1, managed_advice(), copies);
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    struct placing *placing;
    if (!begin_advice(&placing, advice, bytes, range_to_device(address, bytes, device))) return CUDA_SUCCESS;
    CUresult result = REAL(cuMemAdvise)(address, bytes, advice, device);
    managed_end(placing, result);
    return result;
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation place) {
    struct placing *placing;
    if (!begin_advice(&placing, advice, bytes, range_to_place(address, bytes, place))) return CUDA_SUCCESS;
    CUresult result = REAL(cuMemAdvise_v2)(address, bytes, advice, place);
    managed_end(placing, result);
    return result;
}

/* ------------------------------------------------------------------ many at once */

/* Lists as they were read once: which ranges, and from which of them on they go to which place. */
struct batch {
    size_t count, places;
    CUdeviceptr *addresses;
    size_t *bytes, *from;
    CUmemLocation *place;
    struct range *ranges;
};

typedef CUresult prefetch_batch(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from,
                                size_t places, unsigned long long flags, CUstream stream);

static void *copied(const void *list, size_t count, size_t each) {
    void *copy = list && count < SIZE_MAX / each / 2 ? malloc(count * each + 1) : NULL;
    return copy ? memcpy(copy, list, count * each) : NULL;
}

static void batch_free(const struct batch *batch) {
    free(batch->addresses), free(batch->bytes), free(batch->place), free(batch->from), free(batch->ranges);
}

static bool has_ranges(struct batch *batch) {
    if (!batch->addresses || !batch->bytes || !batch->place || !batch->from) return false;
    batch->ranges = calloc(batch->count + 1, sizeof *batch->ranges);
    for (size_t i = 0, at = 0; batch->ranges && i < batch->count; i++) {
        while (at + 1 < batch->places && batch->from[at + 1] <= i) at++;
        batch->ranges[i] = (struct range){batch->addresses[i], batch->bytes[i], -1};
        if (batch->places) batch->ranges[i] = range_to_place(batch->addresses[i], batch->bytes[i], batch->place[at]);
    }
    return batch->ranges;
}

static CUresult place_all(struct batch *batch, unsigned long long flags, CUstream stream, bool per_thread,
                          prefetch_batch *call) {
    struct placing *placing;
    if (!has_ranges(batch)) return CUDA_ERROR_INVALID_VALUE;
    if (!managed_begin(&placing, batch->ranges, batch->count, managed_lane(stream, per_thread), false)) return CUDA_SUCCESS;
    CUresult result = call(batch->addresses, batch->bytes, batch->count, batch->place, batch->from, batch->places, flags,
                           stream);
    managed_end(placing, result);
    return result;
}

#define BATCH(name, per_thread)                                                                                   \
    EXPORT CUresult name(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from, \
                         size_t places, unsigned long long flags, CUstream stream) {                              \
        struct batch told = {                                                                                     \
            .count = count,                                                                                       \
            .places = places,                                                                                     \
            .addresses = copied(addresses, count, sizeof *addresses),                                             \
            .bytes = copied(bytes, count, sizeof *bytes),                                                         \
            .place = copied(place, places, sizeof *place),                                                        \
            .from = copied(from, places, sizeof *from),                                                           \
        };                                                                                                        \
        CUresult result = place_all(&told, flags, stream, per_thread, REAL(name));                                \
        batch_free(&told);                                                                                        \
        return result;                                                                                            \
    }

BATCH(cuMemPrefetchBatchAsync, false)
BATCH(cuMemPrefetchBatchAsync_ptsz, true)
BATCH(cuMemDiscardAndPrefetchBatchAsync, false)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)
