/* Threads that come between two steps of each other. */
#include <string.h>

#include "tenant.h"
#include "waiters.h"

struct thief {
    pthread_t thread;
    const struct way *way;
    uint64_t bytes;
    int taken;
};

static void *steal(void *with) {
    struct thief *thief = with;
    struct held h = {0};
    CU(cuCtxSetCurrent)(context);
    while (thief->way->take(&h, thief->bytes) == CUDA_SUCCESS) thief->taken++;
    return NULL;
}

/* Many threads take at once, until each is refused. */
void race(const char *name, uint64_t bytes) {
    struct thief thieves[16];
    int taken = 0;
    for (int i = 0; i < 16; i++) {
        thieves[i] = (struct thief){.way = &ways[way_of(name)], .bytes = bytes};
        pthread_create(&thieves[i].thread, NULL, steal, &thieves[i]);
    }
    for (int i = 0; i < 16; i++) pthread_join(thieves[i].thread, NULL), taken += thieves[i].taken;
    printf("%d\n", taken);
}

/* Two blocks come into the same granule, and the one that is charged is to be entered while the other is given back. */
void meet_in_granule(uint64_t charged, uint64_t squeezed) {
    _Atomic int *words = new_words();
    struct waiter first = {.bytes = charged, .come = &words[0]};
    struct waiter second = {.bytes = squeezed, .come = &words[1]};
    take_and_wait(&first);
    take_and_wait(&second);
    *second.come = 2;
    await(&second);
    *first.come = 3;
    let_go(&second);
    let_go(&first);
    printf("%d %d %d\n", first.result, second.result, CU(cuMemFree_v2)(first.address));
}

static void keep(const struct waiter *waiter, CUdeviceptr before) {
    held[0].value = waiter->address;
    printf("%d %d\n", waiter->result, waiter->address == before);
}

/* While another thread waits in the driver for a block, the first one goes to the second GPU and is freed; the next lies in
 * its place. */
void take_where_freed(uint64_t bytes) {
    struct waiter next = {.bytes = bytes, .come = new_words(), .before = true};
    CUdeviceptr before = held[0].value;
    take_and_wait(&next);
    CU(cuMemPrefetchAsync)(before, bytes, 1, NULL);
    CU(cuMemFree_v2)(before);
    let_go(&next);
    keep(&next, before);
}

static void *bring_it(void *with) {
    struct waiter *waiter = with;
    CUmemLocation there = {.type = LOCATION_DEVICE, .id = 1};
    size_t from = 0;
    CU(cuCtxSetCurrent)(context);
    waiter->result = CU(cuMemPrefetchBatchAsync)(&waiter->address, &waiter->bytes, 1, &there, &from, 1, (uintptr_t)waiter->come, NULL);
    waiter->over = true;
    return NULL;
}

static void *free_it(void *with) {
    struct waiter *waiter = with;
    CU(cuCtxSetCurrent)(context);
    waiter->result = CU(cuMemFree_v2)(waiter->address);
    waiter->over = true;
    return NULL;
}

/* A call is to bring a block to the second GPU; the block is freed, the next one is in its place, and has gone there when the
 * call is over: and only then does whoever freed come back, and then who took. */
void place_while_freed(uint64_t bytes) {
    _Atomic int *words = new_words();
    struct waiter first = {.bytes = bytes, .come = &words[0]}, next = {.bytes = bytes, .come = &words[1]}, call;
    pthread_t freeing;
    take_and_wait(&first);
    *first.come = 2;
    pthread_join(first.thread, NULL);
    call = (struct waiter){.address = first.address, .bytes = bytes, .come = &words[2]};
    pthread_create(&call.thread, NULL, bring_it, &call);
    await(&call);
    first.over = false;
    pthread_create(&freeing, NULL, free_it, &first);
    await(&first);
    take_and_wait(&next);
    let_go(&call);
    *first.come = 3;
    pthread_join(freeing, NULL);
    let_go(&next);
    keep(&next, first.address);
}

struct mapper {
    CUdeviceptr address;
    CUhandle handle;
    uint64_t bytes;
    _Atomic int *come; /* what a map of it waits for, or NULL */
};

static void *map_it(void *with) {
    struct mapper *mapper = with;
    CU(cuCtxSetCurrent)(context);
    CU(cuMemMap)(mapper->address, mapper->bytes, 0, mapper->handle, (uintptr_t)mapper->come);
    return NULL;
}

/* Release a handle as soon as another thread's mapping of it can be seen, be that call over or not. */
void release_while_mapped(uint64_t bytes) {
    struct mapper mapper = {.bytes = whole(bytes)};
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUhandle again;
    pthread_t thread;
    CUresult result = CU(cuMemCreate)(&mapper.handle, mapper.bytes, &properties, 0);
    CU(cuMemAddressReserve)(&mapper.address, mapper.bytes, 0, 0, 0);
    pthread_create(&thread, NULL, map_it, &mapper);
    while (CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)mapper.address) != CUDA_SUCCESS) {}
    CU(cuMemRelease)(again);
    CU(cuMemRelease)(mapper.handle);
    pthread_join(thread, NULL);
    printf("%d\n", result);
}

/* Take a handle while another thread's mapping of what nobody is charged for waits until that is done. */
void take_while_mapping_waits(uint64_t bytes) {
    _Atomic int come = 0;
    struct mapper mapper = {.bytes = 1 << 21, .come = &come};
    CUmemAllocationProp elsewhere = {.type = 1, .location = {.type = LOCATION_DEVICE + 1}};
    struct held taken;
    pthread_t thread;
    CU(cuMemCreate)(&mapper.handle, mapper.bytes, &elsewhere, 0);
    CU(cuMemAddressReserve)(&mapper.address, mapper.bytes, 0, 0, 0);
    pthread_create(&thread, NULL, map_it, &mapper);
    while (!come) {}
    CUresult result = take_handle(&taken, bytes);
    come = 2;
    pthread_join(thread, NULL);
    if (!result) result = CU(cuMemUnmap)(mapper.address, mapper.bytes);
    if (!result) result = CU(cuMemRelease)(mapper.handle);
    printf("%d\n", result ? result : give_handle(&taken));
}

static void *destroy_it(void *with) {
    CU(cuCtxDestroy_v2)(*(CUcontext *)with);
    return NULL;
}

/* Make a context where another thread's was, as soon as that is seen to be gone, be that call over or not. */
void replace_context(uint64_t bytes) {
    CUcontext first, next;
    CUdeviceptr address;
    pthread_t thread;
    CU(cuCtxCreate_v2)(&first, 0, 0);
    pthread_create(&thread, NULL, destroy_it, &first);
    while (CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS) {}
    CUresult result = CU(cuCtxCreate_v2)(&next, 0, 0);
    if (!result) result = CU(cuMemAlloc_v2)(&address, bytes);
    pthread_join(thread, NULL);
    printf("%d %d\n", result, first == next);
}

struct binding {
    _Atomic int asked; /* the fake driver's object: how many it was asked to bind */
    CUdeviceptr address;
    CUhandle handle;
    const char *how;
    CUresult result;
};

static void *bind_it(void *with) {
    struct binding *it = with;
    CUhandle object = (uintptr_t)&it->asked;
    CU(cuCtxSetCurrent)(context);
    if (strcmp(it->how, "multicast") == 0)
        it->result = CU(cuMulticastBindMem)(object, 0, it->handle, 0, 1 << 21, 0);
    else if (strcmp(it->how, "multicast-two") == 0)
        it->result = CU(cuMulticastBindMem_v2)(object, 0, 0, it->handle, 0, 1 << 21, 0);
    else if (strcmp(it->how, "multicast-address") == 0)
        it->result = CU(cuMulticastBindAddr)(object, 0, it->address, 1 << 21, 0);
    else
        it->result = CU(cuMulticastBindAddr_v2)(object, 0, 0, it->address, 1 << 21, 0);
    return NULL;
}

/* Put a large handle in the place of the small one that another thread is binding: at its address and, where the driver
 * gives out the same number again, by that number. Nothing else holds either afterwards. */
void bind_while_replaced(const char *how, uint64_t bytes) {
    struct held small, large;
    struct binding it = {.how = how};
    bool mapped = strstr(how, "address");
    pthread_t thread;
    take_handle(&small, 1 << 21);
    it.handle = small.value;
    CU(cuMemAddressReserve)(&it.address, 1 << 21, 0, 0, 0);
    if (mapped) CU(cuMemMap)(it.address, 1 << 21, 0, small.value, 0);
    pthread_create(&thread, NULL, bind_it, &it);
    while (!it.asked) {}
    if (mapped) CU(cuMemUnmap)(it.address, 1 << 21);
    give_handle(&small);
    take_handle(&large, bytes);
    if (mapped) CU(cuMemMap)(it.address, 1 << 21, 0, large.value, 0);
    pthread_join(thread, NULL);
    if (mapped) CU(cuMemUnmap)(it.address, 1 << 21);
    give_handle(&large);
    printf("%d\n", it.result);
}

static void *lower_it(void *with) {
    CU(cuCtxSetCurrent)(context);
    CU(cuCtxSetLimit)(LIMIT_HEAP, *(size_t *)with);
    return NULL;
}

/* Raise a limit as soon as another thread's lowering of it can be seen, be that call over or not. */
void raise_while_lowered(uint64_t bytes) {
    size_t low = 4096, now = 0;
    pthread_t thread;
    CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    pthread_create(&thread, NULL, lower_it, &low);
    while (CU(cuCtxGetLimit)(&now, LIMIT_HEAP) != CUDA_SUCCESS || now != low) {}
    CUresult result = CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    pthread_join(thread, NULL);
    printf("%d\n", result);
}
