/* Multicast objects. Memory that one is bound to is held by it until it is unbound by the same range, which is how the
 * driver wants it to be unbound; or to the end of the process, where that is not what happens. */
#include <pthread.h>
#include <stdlib.h>

#include "bindings.h"
#include "holdings.h"
#include "imports.h"

struct bound {
    struct bound *next;
    CUhandle object, handle;
    size_t at, bytes;
    int gpu;
};

static struct binding *bindings; /* on the stacks of their callers */
static struct bound *bounds;     /* the newest first */

void binding_begin(struct binding *binding) {
    binding->next = bindings;
    bindings = binding;
}

void binding_end(const struct binding *binding) {
    struct binding **at = &bindings;
    while (*at && *at != binding) at = &(*at)->next;
    if (*at) *at = binding->next;
}

static void take_out(struct bound **at) {
    struct bound *gone = *at;
    *at = gone->next;
    free(gone);
}

bool is_being_bound(CUhandle handle) {
    bool any = false;
    for (struct binding *one = bindings; one; one = one->next)
        if (one->handle == handle) one->gpu = -1, any = true;
    for (struct bound **at = &bounds; *at;) {
        if ((*at)->handle == handle)
            take_out(at);
        else
            at = &(*at)->next;
    }
    return any;
}

bool is_being_bound_at(CUdeviceptr address, size_t bytes) {
    const struct binding *one = bindings;
    while (one && (one->end <= address || one->from >= address + bytes)) one = one->next;
    return one;
}

void bound_for_ever(CUhandle object) {
    for (struct bound **at = &bounds; *at;) {
        if ((*at)->object == object)
            take_out(at);
        else
            at = &(*at)->next;
    }
}

/* What is mapped there is held; what lies there beside the first is so for ever. */
static void hold_if_there(struct holding mapping, void *with) {
    struct binding *binding = with;
    CUhandle handle = mapping.record.extra;
    if (mapping.value >= binding->end || mapping.value + mapping.record.bytes <= binding->from) return;
    if (binding->handle && binding->handle != handle) handle_keep(handle);
    if (binding->handle) return;
    binding->handle = handle;
    binding->gpu = handle_hold(handle);
}

static void begin(struct binding *binding) {
    handles_lock();
    if (binding->handle)
        binding->gpu = handle_hold(binding->handle);
    else
        holdings_each(MAPPING, hold_if_there, binding);
    binding_begin(binding);
    handles_unlock();
}

/* On one of the slice's GPUs: the memory's own, if none is named. */
static CUresult end(const struct binding *binding, struct bound bound, CUresult result) {
    handles_lock();
    binding_end(binding);
    struct bound *made = result == CUDA_SUCCESS && binding->gpu >= 0 ? malloc(sizeof *made) : NULL;
    if (made) {
        *made = bound;
        made->handle = binding->handle;
        if (made->gpu < 0) made->gpu = binding->gpu;
        made->next = bounds;
        bounds = made;
    } else if (result != CUDA_SUCCESS && binding->gpu >= 0) {
        handle_let_go(binding->handle);
    }
    handles_unlock();
    return result;
}

EXPORT CUresult cuMulticastBindMem(CUhandle object, size_t at, CUhandle handle, size_t from, size_t bytes,
                                   unsigned long long flags) {
    struct binding binding = {.handle = handle, .gpu = -1};
    struct bound bound = {.object = object, .at = at, .bytes = bytes, .gpu = -1};
    begin(&binding);
    return end(&binding, bound, REAL(cuMulticastBindMem)(object, at, handle, from, bytes, flags));
}

EXPORT CUresult cuMulticastBindMem_v2(CUhandle object, CUdevice device, size_t at, CUhandle handle, size_t from,
                                      size_t bytes, unsigned long long flags) {
    struct binding binding = {.handle = handle, .gpu = -1};
    struct bound bound = {.object = object, .at = at, .bytes = bytes, .gpu = gpu_of_device(device)};
    begin(&binding);
    return end(&binding, bound, REAL(cuMulticastBindMem_v2)(object, device, at, handle, from, bytes, flags));
}

EXPORT CUresult cuMulticastBindAddr(CUhandle object, size_t at, CUdeviceptr address, size_t bytes,
                                    unsigned long long flags) {
    struct binding binding = {.from = address, .end = address + bytes, .gpu = -1};
    struct bound bound = {.object = object, .at = at, .bytes = bytes, .gpu = -1};
    begin(&binding);
    return end(&binding, bound, REAL(cuMulticastBindAddr)(object, at, address, bytes, flags));
}

EXPORT CUresult cuMulticastBindAddr_v2(CUhandle object, CUdevice device, size_t at, CUdeviceptr address, size_t bytes,
                                       unsigned long long flags) {
    struct binding binding = {.from = address, .end = address + bytes, .gpu = -1};
    struct bound bound = {.object = object, .at = at, .bytes = bytes, .gpu = gpu_of_device(device)};
    begin(&binding);
    return end(&binding, bound, REAL(cuMulticastBindAddr_v2)(object, device, at, address, bytes, flags));
}

static bool is_meant(const struct bound *bound, CUhandle object, int gpu, size_t at, size_t bytes) {
    return bound->object == object && bound->gpu == gpu && bound->at == at && bound->bytes == bytes;
}

/* One step: what another thread binds to the same range afterwards is not to be let go of. */
EXPORT CUresult cuMulticastUnbind(CUhandle object, CUdevice device, size_t at, size_t bytes) {
    int gpu = gpu_of_device(device);
    handles_lock();
    CUresult result = REAL(cuMulticastUnbind)(object, device, at, bytes);
    struct bound **found = &bounds;
    while (*found && !is_meant(*found, object, gpu, at, bytes)) found = &(*found)->next;
    if (result == CUDA_SUCCESS && *found) {
        CUhandle handle = (*found)->handle;
        take_out(found);
        handle_let_go(handle);
    }
    handles_unlock();
    return result;
}

static void forget(void) {
    bindings = NULL; /* their threads are not in the child */
    bounds = NULL;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
