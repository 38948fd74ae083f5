/* Stream-ordered memory. A pool is charged with what it has reserved, which the driver itself tells, so that caching,
 * reuse and thresholds need no model of ours. */
#include <pthread.h>

#include "devices.h"
#include "holdings.h"
#include "locations.h"
#include "release.h"
#include "tails.h"

/* One at a time changes a pool's size, or what it took could not be told from what another thread took. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool in_use; /* whether this process ever had memory of a pool: most never have */

#define DOOMED 2U /* of a pool: the program has destroyed it, and blocks of it are in use */

static uint64_t attribute(CUmemoryPool pool, int which) {
    uint64_t value = 0;
    return REAL(cuMemPoolGetAttribute)(pool, which, &value) == CUDA_SUCCESS ? value : 0;
}

static void exchange(struct record *record, void *with) {
    uint64_t *bytes = with, old = record->bytes;
    record->bytes = *bytes;
    *bytes = old;
}

/* Bring the pool's charge to what it has reserved; false if that is more than may be held. `claimed` is charged
 * already and stands in no record. */
static bool refresh(CUmemoryPool pool, int gpu, uint64_t claimed) {
    if (gpu == ON_HOST) return true;
    uint64_t now = attribute(pool, ATTRIBUTE_POOL_RESERVED_NOW), before = now;
    struct holding fresh = {.kind = POOL, .value = (uintptr_t)pool, .record = {.bytes = now, .gpu = gpu}};
    if (!holdings_change(POOL, (uintptr_t)pool, exchange, &before)) {
        holdings_add(fresh);
        before = 0;
    }
    before += claimed;
    bool fits = true;
    if (now > before) {
        fits = account_charge(gpu, now - before);
        if (!fits) account_charge_anyway(gpu, now - before);
    } else {
        account_release(gpu, before - now);
    }
    return fits;
}

static CUresult give_back(CUmemoryPool pool, int gpu, CUdeviceptr address, uint64_t keep) {
    REAL(cuMemFree_v2)(address);
    REAL(cuMemPoolTrimTo)(pool, keep);
    refresh(pool, gpu, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void trim(struct holding pool, void *with) {
    if (pool.record.gpu != *(int *)with || !pool.record.bytes) return;
    REAL(cuMemPoolTrimTo)((CUmemoryPool)(uintptr_t)pool.value, 0);
    refresh((CUmemoryPool)(uintptr_t)pool.value, pool.record.gpu, 0);
}

static CUresult ask(int index, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    if (index == F_cuMemAllocAsync || index == F_cuMemAllocAsync_ptsz)
        return REAL_AS(index, cuMemAllocAsync)(address, bytes, stream);
    return REAL_AS(index, cuMemAllocFromPoolAsync)(address, bytes, pool, stream);
}

static CUresult allocate_locked(int index, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream,
                                int gpu) {
    uint64_t reserved = attribute(pool, ATTRIBUTE_POOL_RESERVED_NOW), used = attribute(pool, ATTRIBUTE_POOL_USED_NOW);
    /* In a capture it becomes a graph's node, and takes nothing before that is launched. One that another thread ends
     * meanwhile is found by what the pool has afterwards. */
    bool captured = stream_is_captured(stream, index == F_cuMemAllocAsync_ptsz || index == F_cuMemAllocFromPoolAsync_ptsz);
    /* The driver rounds sizes up, to 512 bytes on all present GPUs. */
    uint64_t claimed = captured || used + ((bytes + 511) & ~511ULL) <= reserved ? 0 : TO_GRANULES(bytes);
    if (!account_charge(gpu, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ask(index, address, bytes, pool, stream);
    bool fits = refresh(pool, gpu, claimed);
    if (result != CUDA_SUCCESS || (captured && fits)) return result;
    if (!fits) return give_back(pool, gpu, *address, reserved);
    struct holding block = {
        .kind = POOL_BLOCK,
        .value = *address,
        .record = {.bytes = bytes, .extra = (uintptr_t)pool, .gpu = gpu},
    };
    return holdings_add(block) ? CUDA_SUCCESS : give_back(pool, gpu, *address, reserved);
}

/* Where no pool is named the driver takes memory from the stream's GPU, whichever context is current. */
static CUresult device_of(CUstream stream, CUdevice *device) {
    bool entered = limits && limits->gpus > 1 && context_enter(stream);
    CUresult result = REAL(cuCtxGetDevice)(device);
    if (entered) context_leave();
    return result;
}

static CUresult allocate_once(int index, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream,
                              int gpu) {
    pthread_mutex_lock(&lock);
    CUresult result = allocate_locked(index, address, bytes, pool, stream, gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

/* A pool's own GPU, where one is named: another one's default pool is no less a pool of that GPU. */
static int home_of(CUmemoryPool pool, int stream_s, bool named) {
    struct holding known;
    if (holdings_find(POOL, (uintptr_t)pool, &known)) return known.record.gpu;
    return named ? gpu_of_pool(pool, stream_s) : stream_s;
}

static CUresult allocate(int index, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdevice device;
    if (bytes > LARGEST_SIZE) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = device_of(stream, &device);
    bool named = pool;
    if (result == CUDA_SUCCESS && !named) result = REAL(cuDeviceGetMemPool)(&pool, device);
    if (result != CUDA_SUCCESS) return result;
    int gpu = home_of(pool, gpu_of_device(device), named);
    if (gpu == ON_HOST) return ask(index, address, bytes, pool, stream);
    if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    in_use = true;
    result = allocate_once(index, address, bytes, pool, stream, gpu);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    give_back_unused(gpu);
    return allocate_once(index, address, bytes, pool, stream, gpu);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, allocate(F_cuMemAllocAsync, &taken, bytes, NULL, stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, allocate(F_cuMemAllocAsync_ptsz, &taken, bytes, NULL, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr taken = 0;
    if (!pool) return CUDA_ERROR_INVALID_VALUE;
    return ANSWERED(address, taken, allocate(F_cuMemAllocFromPoolAsync, &taken, bytes, pool, stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr taken = 0;
    if (!pool) return CUDA_ERROR_INVALID_VALUE;
    return ANSWERED(address, taken, allocate(F_cuMemAllocFromPoolAsync_ptsz, &taken, bytes, pool, stream));
}

bool pools_take_block(CUdeviceptr address, struct holding *block) {
    return holdings_take(POOL_BLOCK, address, block) || holdings_take(IMPORTED, address, block);
}

void pools_block_freed(const struct holding *block) {
    if (block->kind == IMPORTED)
        import_gone(block);
    else if (block->record.flags & LENT)
        account_recall(block->value);
}

static CUresult free_async(int index, CUdeviceptr address, CUstream stream) {
    struct holding block;
    bool ours = pools_take_block(address, &block);
    CUresult result = REAL_AS(index, cuMemFreeAsync)(address, stream);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(block);
    else if (ours)
        pools_block_freed(&block);
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return free_async(F_cuMemFreeAsync, address, stream);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return free_async(F_cuMemFreeAsync_ptsz, address, stream);
}

static CUresult create(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    if (!properties) return REAL(cuMemPoolCreate)(pool, properties);
    CUmemPoolProps told = *properties; /* as in cuMemCreate */
    int gpu = gpu_of_location(told.location, told.type);
    if (gpu == NOT_GRANTED || gpu == NOBODY_KNOWS) return location_refused(told.location, told.type);
    CUresult result = REAL(cuMemPoolCreate)(pool, &told);
    if (result != CUDA_SUCCESS || gpu == ANYWHERE) return result;
    struct holding holding = {.kind = POOL, .value = (uintptr_t)*pool, .record = {.gpu = gpu}};
    if (holdings_add(holding)) return result;
    REAL(cuMemPoolDestroy)(*pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    CUmemoryPool made = NULL;
    return ANSWERED(pool, made, create(&made, properties));
}

static CUresult destroy(CUmemoryPool pool) {
    struct holding holding;
    bool ours = holdings_take(POOL, (uintptr_t)pool, &holding);
    CUresult result = REAL(cuMemPoolDestroy)(pool);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(holding);
    else if (ours && holding.record.gpu != ON_HOST)
        account_release(holding.record.gpu, holding.record.bytes);
    return result;
}

static bool is_of_host(CUmemoryPool pool) {
    struct holding known;
    return holdings_find(POOL, (uintptr_t)pool, &known) && known.record.gpu == ON_HOST;
}

static bool is_empty(CUmemoryPool pool) {
    REAL(cuMemPoolTrimTo)(pool, 0);
    return attribute(pool, ATTRIBUTE_POOL_RESERVED_NOW) == 0;
}

static void doom(struct record *record, void *nothing) {
    (void)nothing;
    record->flags |= DOOMED;
}

/* The driver keeps a destroyed pool until its last block is free, and answers no question about it any more. So one that
 * holds memory is destroyed later: meanwhile it is asked and charged as ever, and keeps nothing in store. */
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    uint64_t in_store = 0;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (is_of_host(pool) || is_empty(pool) || !holdings_change(POOL, (uintptr_t)pool, doom, NULL))
        result = destroy(pool);
    else
        REAL(cuMemPoolSetAttribute)(pool, ATTRIBUTE_POOL_THRESHOLD, &in_store);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    struct holding known;
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuMemPoolTrimTo)(pool, keep);
    if (holdings_find(POOL, (uintptr_t)pool, &known)) refresh(pool, known.record.gpu, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

void pools_trim(int gpu) {
    pthread_mutex_lock(&lock);
    holdings_each(POOL, trim, &gpu);
    pthread_mutex_unlock(&lock);
}

static void settle(struct holding holding, void *nothing) {
    CUmemoryPool pool = (CUmemoryPool)(uintptr_t)holding.value;
    (void)nothing;
    if ((holding.record.flags & DOOMED) && is_empty(pool))
        destroy(pool);
    else
        refresh(pool, holding.record.gpu, 0);
}

void pools_settle(void) {
    if (!in_use) return;
    pthread_mutex_lock(&lock);
    holdings_each(POOL, settle, NULL);
    pthread_mutex_unlock(&lock);
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
