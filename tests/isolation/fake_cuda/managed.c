/* Where managed memory is to lie. The fake driver brings it there at once, as far as there is room. */
#include <stdlib.h>

#include "fake.h"
#include "heap.h"
#include "world.h"

bool fake_managed_is(const char *how) {
    const char *told = getenv("FAKE_CUDA_MANAGED");
    return told && strcmp(told, how) == 0;
}

static CUresult bring(CUdeviceptr address, size_t bytes, CUmemLocation place) {
    const bool to_gpu = place.type == LOCATION_DEVICE;
    if (!world) return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_managed_is("still") || (to_gpu && place.id >= (int)world->gpus)) return CUDA_ERROR_INVALID_DEVICE;
    heap_move(address, bytes, to_gpu ? place.id : -1);
    return CUDA_SUCCESS;
}

static CUresult bring_to(CUdeviceptr address, size_t bytes, CUdevice device) {
    return bring(address, bytes, (CUmemLocation){.type = device < 0 ? 0 : LOCATION_DEVICE, .id = device});
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    (void)stream;
    return bring_to(address, bytes, device);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync(address, bytes, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream) {
    (void)flags, (void)stream;
    return bring(address, bytes, place);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags,
                                    CUstream stream) {
    return cuMemPrefetchAsync_v2(address, bytes, place, flags, stream);
}

/* Advice alone moves nothing at once in a real driver; here it does, which is the worst that it may lead to. */
CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    if (advice == 1) heap_copy(address, bytes);
    return advice == 3 ? bring_to(address, bytes, device) : CUDA_SUCCESS;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation place) {
    if (advice == 1) heap_copy(address, bytes);
    return advice == 3 ? bring(address, bytes, place) : CUDA_SUCCESS;
}

/* Flags, of which there are none, are here a word to wait by. */
#define BATCH(name)                                                                                               \
    CUresult name(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from,        \
                  size_t places, unsigned long long flags, CUstream stream) {                                     \
        size_t at = 0;                                                                                            \
        (void)stream;                                                                                             \
        fake_come_when_told((_Atomic int *)(uintptr_t)flags);                                                     \
        CUresult result = CUDA_SUCCESS;                                                                           \
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {                                            \
            while (at + 1 < places && from[at + 1] <= i) at++;                                                    \
            result = bring(addresses[i], bytes[i], place[at]);                                                    \
        }                                                                                                         \
        return result;                                                                                            \
    }
BATCH(cuMemPrefetchBatchAsync)
BATCH(cuMemPrefetchBatchAsync_ptsz)
BATCH(cuMemDiscardAndPrefetchBatchAsync)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)
