/* Physical memory by handle in the fake driver. Every call is one step, as in a real one. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "fake.h"
#include "heap.h"
#include "world.h"

struct handle {
    uint64_t bytes, shared;
    int gpu, references, mappings;
    CUmemLocation location;
};

struct mapping {
    struct mapping *next;
    CUdeviceptr address;
    uint64_t bytes;
    struct handle *handle;
};

static struct mapping *mappings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The last one that nothing holds any more: the next gets its number. */
static struct handle *vacant;

int fake_gpu_at(CUmemLocation location) {
    bool of_host = location.type >= LOCATION_HOST && location.type <= LOCATION_HOST_NUMA_CURRENT;
    return of_host ? WORLD_HOST : location.type == LOCATION_LOCALITY_DOMAIN ? location.localized.device : location.id;
}

static struct handle *new_handle(void) {
    pthread_mutex_lock(&lock);
    struct handle *made = vacant;
    vacant = NULL;
    pthread_mutex_unlock(&lock);
    return made ? made : malloc(sizeof *made);
}

static void drop_if_free(struct handle *handle) {
    if (handle->references || handle->mappings) return;
    if (handle->shared)
        world_leave(handle->shared);
    else
        world_give(handle->gpu, handle->bytes);
    free(vacant);
    vacant = handle;
}

CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags) {
    (void)flags;
    if (bytes % GRANULE_BYTES || !bytes) return CUDA_ERROR_INVALID_VALUE;
    int gpu = fake_gpu_at(properties->location);
    if (!world_take(gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct handle *made = new_handle();
    *made = (struct handle){.bytes = bytes, .gpu = gpu, .references = 1, .location = properties->location};
    *handle = (uintptr_t)made;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUhandle handle) {
    struct handle *known = (struct handle *)(uintptr_t)handle;
    pthread_mutex_lock(&lock);
    known->references--;
    drop_if_free(known);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    (void)alignment, (void)wanted, (void)flags;
    *address = heap_reserve(bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    (void)address, (void)bytes;
    return CUDA_SUCCESS;
}

/* Mapping a multicast object may wait for others: `flags` is a word of the tenant's or nothing, 1 while it waits for 2. */
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags) {
    struct handle *known = (struct handle *)(uintptr_t)handle;
    _Atomic int *others = (_Atomic int *)(uintptr_t)flags;
    if (others) *others = 1;
    while (others && *others == 1) sched_yield();
    if (offset || bytes > known->bytes) return CUDA_ERROR_INVALID_VALUE;
    struct mapping *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&lock);
    *made = (struct mapping){.next = mappings, .address = address, .bytes = bytes, .handle = known};
    mappings = made;
    known->mappings++;
    pthread_mutex_unlock(&lock);
    fake_come_back_late();
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    (void)bytes;
    pthread_mutex_lock(&lock);
    struct mapping **at = &mappings;
    while (*at && (*at)->address != address) at = &(*at)->next;
    struct mapping *gone = *at;
    if (gone) {
        *at = gone->next;
        gone->handle->mappings--;
        drop_if_free(gone->handle);
    }
    pthread_mutex_unlock(&lock);
    free(gone);
    return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address) {
    pthread_mutex_lock(&lock);
    struct mapping *found = mappings;
    while (found && found->address != (uintptr_t)address) found = found->next;
    if (found) {
        found->handle->references++;
        *handle = (uintptr_t)found->handle;
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUhandle handle) {
    struct handle *known = (struct handle *)(uintptr_t)handle;
    *properties = (CUmemAllocationProp){.type = 1, .location = known->location};
    return CUDA_SUCCESS;
}

/* An array holds the memory that it was mapped to, for ever here; a multicast object what it was bound to. */
CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned count, CUstream stream) {
    (void)stream;
    for (unsigned i = 0; i < count; i++)
        if (maps[i].operation == MEMORY_MAP) ((struct handle *)(uintptr_t)maps[i].handle)->references++;
    return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned count, CUstream stream) {
    return cuMemMapArrayAsync(maps, count, stream);
}

/* Binding waits for others, and binds what there is when they have come. An object is a word of the tenant's that counts
 * who asked, or none. */
static void wait_for_others(CUhandle object) {
    if (object) ++*(_Atomic int *)(uintptr_t)object;
    fake_come_back_late();
}

struct bound {
    struct bound *next;
    CUhandle object, handle;
    size_t at, bytes;
};

static struct bound *bounds;

static void note_bound(struct bound bound) {
    struct bound *made = malloc(sizeof *made);
    pthread_mutex_lock(&lock);
    *made = bound;
    made->next = bounds;
    bounds = made;
    pthread_mutex_unlock(&lock);
}

CUresult cuMulticastBindMem(CUhandle object, size_t at, CUhandle handle, size_t from, size_t bytes,
                            unsigned long long flags) {
    (void)from, (void)flags;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    wait_for_others(object);
    ((struct handle *)(uintptr_t)handle)->references++;
    note_bound((struct bound){.object = object, .handle = handle, .at = at, .bytes = bytes});
    return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUhandle object, CUdevice device, size_t at, size_t bytes) {
    (void)device;
    pthread_mutex_lock(&lock);
    struct bound **from = &bounds;
    while (*from && ((*from)->object != object || (*from)->at != at || (*from)->bytes != bytes)) from = &(*from)->next;
    struct bound *gone = *from;
    if (gone) *from = gone->next;
    pthread_mutex_unlock(&lock);
    CUresult result = gone ? cuMemRelease(gone->handle) : CUDA_ERROR_INVALID_VALUE;
    free(gone);
    return result;
}

CUresult cuMulticastBindAddr(CUhandle object, size_t at, CUdeviceptr address, size_t bytes, unsigned long long flags) {
    CUhandle handle = 0;
    (void)flags;
    wait_for_others(object);
    CUresult result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    if (result == CUDA_SUCCESS)
        note_bound((struct bound){.object = object, .handle = handle, .at = at, .bytes = bytes});
    return result;
}

CUresult cuMulticastBindMem_v2(CUhandle object, CUdevice device, size_t at, CUhandle handle, size_t from, size_t bytes,
                               unsigned long long flags) {
    (void)device;
    return cuMulticastBindMem(object, at, handle, from, bytes, flags);
}

CUresult cuMulticastBindAddr_v2(CUhandle object, CUdevice device, size_t at, CUdeviceptr address, size_t bytes,
                                unsigned long long flags) {
    (void)device;
    return cuMulticastBindAddr(object, at, address, bytes, flags);
}

/* A shared handle is a file descriptor whose file says which block it is. It has a name, as a driver's device has. */
CUresult cuMemExportToShareableHandle(void *shareable, CUhandle handle, int type, unsigned long long flags) {
    struct handle *known = (struct handle *)(uintptr_t)handle;
    (void)flags;
    if (type != 1 || known->gpu == WORLD_HOST) return CUDA_ERROR_NOT_SUPPORTED;
    if (!known->shared) known->shared = world_share(known->gpu, known->bytes);
    char path[512];
    snprintf(path, sizeof path, "%s.shared-%llu", getenv("FAKE_CUDA_WORLD"), (unsigned long long)known->shared);
    bool nameless = getenv("FAKE_CUDA_NAMELESS");
    int file = nameless ? memfd_create("shared", MFD_CLOEXEC) : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (pwrite(file, &known->shared, 8, 0) != 8) return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareable = file;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shareable, int type) {
    uint64_t id = 0;
    int gpu;
    if (type != 1 || pread((int)(intptr_t)shareable, &id, 8, 0) != 8) return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = world_join(id, &gpu);
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    struct handle *made = new_handle();
    *made = (struct handle){.bytes = bytes, .shared = id, .gpu = gpu, .references = 1};
    made->location = (CUmemLocation){.type = LOCATION_DEVICE, .id = gpu};
    *handle = (uintptr_t)made;
    return CUDA_SUCCESS;
}
