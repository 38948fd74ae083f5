/* Pools of the fake driver. A pool grows by granules and shrinks to its threshold when it is waited for. With
 * FAKE_CUDA_POOLS=no-place none says where its memory is, as before CUDA 13. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake.h"
#include "heap.h"
#include "world.h"

struct driver_pool {
    CUmemoryPool next;
    uint64_t reserved, used, threshold;
    int gpu;
    CUmemLocation location;
    bool destroyed; /* and gone with its last block */
};

struct pool_block {
    struct pool_block *next;
    CUdeviceptr address;
    uint64_t bytes, shared; /* shared: it has granules of its own, which other processes may hold */
    CUmemoryPool pool;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool pools, defaults[WORLD_GPUS], default_of_host;
static struct pool_block *blocks;

static CUmemoryPool make_pool(CUmemLocation location) {
    CUmemoryPool made = calloc(1, sizeof *made);
    *made = (struct driver_pool){.next = pools, .gpu = fake_gpu_at(location), .location = location};
    return pools = made;
}

static void shrink(CUmemoryPool pool, uint64_t keep) {
    uint64_t least = WHOLE(pool->used);
    if (least < WHOLE(keep)) least = WHOLE(keep);
    if (pool->reserved <= least) return;
    world_give(pool->gpu, pool->reserved - least);
    pool->reserved = least;
}

void fake_pools_settle(void) {
    pthread_mutex_lock(&lock);
    for (CUmemoryPool pool = pools; pool; pool = pool->next) shrink(pool, pool->threshold);
    pthread_mutex_unlock(&lock);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    CUmemLocation location = {.type = LOCATION_DEVICE, .id = device};
    return cuMemGetDefaultMemPool(pool, &location, ALLOCATION_PINNED);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    int gpu = fake_gpu_at(*location);
    CUmemoryPool *found = gpu == WORLD_HOST ? &default_of_host : &defaults[gpu];
    if (type != ALLOCATION_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    if (!*found) *found = make_pool(*location);
    *pool = *found;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
    return cuMemGetDefaultMemPool(pool, location, type);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    pthread_mutex_lock(&lock);
    *pool = make_pool(properties->location);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, uint64_t bytes, CUmemoryPool pool) {
    if (bytes >= 1ULL << 46) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t rounded = (bytes + 511) & ~511ULL;
    if (pool->used + rounded > pool->reserved) {
        uint64_t more = WHOLE(pool->used + rounded - pool->reserved);
        if (!world_take(pool->gpu, more)) return CUDA_ERROR_OUT_OF_MEMORY;
        pool->reserved += more;
    }
    pool->used += rounded;
    struct pool_block *block = calloc(1, sizeof *block);
    *block = (struct pool_block){.next = blocks, .bytes = rounded, .pool = pool, .address = heap_reserve(bytes)};
    blocks = block;
    *address = block->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUgraph captured = fake_captured(stream);
    if (captured) return fake_graph_allocate(captured, pool->gpu, address, bytes);
    pthread_mutex_lock(&lock);
    CUresult result = allocate(address, bytes, pool);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

/* From the stream's GPU, whichever context is current. */
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUmemoryPool pool;
    CUcontext context = NULL;
    cuStreamGetCtx(stream, &context);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    cuDeviceGetMemPool(&pool, fake_gpu_of(context));
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return cuMemAllocAsync(address, bytes, stream);
}

static void bury(CUmemoryPool pool) {
    world_give(pool->gpu, pool->reserved);
    CUmemoryPool *at = &pools;
    while (*at != pool) at = &(*at)->next;
    *at = pool->next;
    free(pool);
}

static void give_block(struct pool_block *block) {
    CUmemoryPool pool = block->pool;
    pool->used -= block->bytes;
    if (block->shared) {
        world_leave(block->shared);
        pool->reserved -= block->bytes;
    }
    if (pool->destroyed && !pool->used) bury(pool);
    free(block);
}

bool fake_pool_free(uint64_t address) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct pool_block **at = &blocks; *at && !found; at = found ? at : &(*at)->next)
        if ((*at)->address == address) {
            struct pool_block *gone = *at;
            *at = gone->next;
            give_block(gone);
            found = true;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    CUgraph captured = fake_captured(stream);
    CUgraphNode node;
    if (captured) return cuGraphAddMemFreeNode(&node, captured, NULL, 0, address);
    return fake_pool_free(address) ? CUDA_SUCCESS : cuMemFree_v2(address);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, stream);
}

/* As NVIDIA documents it: what is in use stays until it is freed, and the pool with it. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    pthread_mutex_lock(&lock);
    pool->destroyed = true;
    if (!pool->used) bury(pool);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUipcMemHandle *handle, CUdeviceptr address) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (struct pool_block *block = blocks; block; block = block->next)
        if (block->address == address && block->bytes % GRANULE_BYTES == 0) {
            if (!block->shared) block->shared = world_share(block->pool->gpu, block->bytes);
            memset(handle, 0, sizeof *handle);
            memcpy(handle->bytes, &block->shared, sizeof block->shared);
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUipcMemHandle *handle) {
    uint64_t id;
    (void)pool;
    memcpy(&id, handle->bytes, sizeof id);
    *address = heap_join(id);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    pthread_mutex_lock(&lock);
    shrink(pool, keep);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult tell_place(CUmemoryPool pool, int attribute, void *value) {
    const char *how = getenv("FAKE_CUDA_POOLS");
    if (how && strcmp(how, "no-place") == 0) return CUDA_ERROR_INVALID_VALUE;
    *(int *)value = attribute == ATTRIBUTE_POOL_TYPE            ? ALLOCATION_PINNED
                    : attribute == ATTRIBUTE_POOL_LOCATION_TYPE ? pool->location.type
                                                                : pool->location.id;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    if (attribute >= ATTRIBUTE_POOL_TYPE) return tell_place(pool, attribute, value);
    pthread_mutex_lock(&lock);
    uint64_t told = attribute == ATTRIBUTE_POOL_RESERVED_NOW ? pool->reserved
                    : attribute == ATTRIBUTE_POOL_USED_NOW   ? pool->used
                                                             : pool->threshold;
    memcpy(value, &told, sizeof told);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    (void)attribute;
    memcpy(&pool->threshold, value, sizeof pool->threshold);
    return CUDA_SUCCESS;
}
