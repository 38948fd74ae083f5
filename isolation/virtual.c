/* Physical memory by handle (cuMemCreate).
 *
 * A handle's memory lives while anything holds it: its references, its mappings, and what else was made of it. Exported
 * memory is charged until no descriptor of it is open (sent.h): who imported it by one is charged for it himself. What a
 * multicast object is bound to is charged until it is unbound. What a sparse array is mapped to, or a fabric knows, stays
 * charged to the end of the process, for nothing tells when the last array or node that has it is gone.
 * What must hold: what the driver does with a handle and what is noted of it are one step. A thread that releases a
 * handle while another one maps it would else find nobody who holds it. So there is one lock around both; but not around
 * what may block until other processes have come, binding to a multicast object and mapping one: whatever gets the address
 * or the handle of such a call while it is under way counts as bound. */
#include <pthread.h>
#include <string.h>

#include "bindings.h"
#include "holdings.h"
#include "imports.h"
#include "locations.h"
#include "sent.h"

#define KEPT 1U

/* Again by one thread: a charge that is refused settles what was sent, and imports are charged under it. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Atomic int away; /* how much of it was let go of while descriptors were open */

struct change {
    int references, mappings;
    uint32_t flags;
};

static void apply(struct record *record, void *with) {
    const struct change *change = with;
    record->references += (uint32_t)change->references;
    record->mappings += (uint32_t)change->mappings;
    record->flags |= change->flags;
}

static void change_handle(CUhandle handle, struct change change) {
    holdings_change(HANDLE, handle, apply, &change);
}

static bool is_held(const struct record *record) {
    return record->references || record->mappings || (record->flags & KEPT);
}

static struct sent *sent_of(const struct holding *handle) {
    return (struct sent *)(uintptr_t)handle->record.extra;
}

static void settle(struct holding handle, void *nothing) {
    struct holding gone;
    (void)nothing;
    if (sent_is_open(sent_of(&handle)) || !holdings_take(SENT, handle.value, &gone)) return;
    away--;
    free(sent_of(&handle));
    account_release(gone.record.gpu, gone.record.bytes);
}

/* Forget the handle if nothing holds its memory any more; the driver may give its number to another one. */
static void drop_if_free(CUhandle handle) {
    struct holding found;
    if (!holdings_find(HANDLE, handle, &found) || is_held(&found.record)) return;
    holdings_take(HANDLE, handle, &found);
    if (!sent_of(&found)) {
        account_release(found.record.gpu, found.record.bytes);
        return;
    }
    found.kind = SENT;
    found.value = sent_number(sent_of(&found));
    if (!holdings_add(found)) return; /* then it stays charged */
    away++;
    settle(found, NULL);
}

void handles_lock(void) {
    pthread_mutex_lock(&lock);
}

void handles_unlock(void) {
    pthread_mutex_unlock(&lock);
}

bool handles_settle(void) {
    if (!away) return false;
    handles_lock();
    int before = away;
    holdings_each(SENT, settle, NULL);
    bool any = away < before;
    handles_unlock();
    return any;
}

int handle_hold(CUhandle handle) {
    struct holding found;
    if (!holdings_find(HANDLE, handle, &found)) return -1;
    change_handle(handle, (struct change){.mappings = 1});
    return found.record.gpu;
}

void handle_let_go(CUhandle handle) {
    change_handle(handle, (struct change){.mappings = -1});
    drop_if_free(handle);
}

void handle_keep(CUhandle handle) {
    change_handle(handle, (struct change){.flags = KEPT});
}

CUresult handle_remember(CUhandle handle, int gpu, uint64_t bytes) {
    struct holding holding = {
        .kind = HANDLE,
        .value = handle,
        .record = {.bytes = bytes, .gpu = gpu, .references = 1, .flags = is_being_bound(handle) ? KEPT : 0},
    };
    if (holdings_add(holding)) return CUDA_SUCCESS;
    REAL(cuMemRelease)(handle);
    account_release(gpu, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUhandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                       unsigned long long flags) {
    if (!properties) return REAL(cuMemCreate)(handle, bytes, properties, flags);
    /* Another thread may write to what was read: the driver gets a copy. */
    CUmemAllocationProp told = *properties;
    int gpu = gpu_of_location(told.location, told.type);
    if (gpu == ON_HOST) return REAL(cuMemCreate)(handle, bytes, &told, flags);
    if (gpu < 0) return location_refused(told.location, told.type);
    uint64_t claimed = TO_GRANULES(bytes);
    if (bytes > LARGEST_SIZE || !charge(gpu, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
    handles_lock();
    CUresult result = REAL(cuMemCreate)(handle, bytes, &told, flags);
    if (result == CUDA_SUCCESS)
        result = handle_remember(*handle, gpu, claimed);
    else
        account_release(gpu, claimed);
    handles_unlock();
    return result;
}

EXPORT CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags) {
    CUhandle made = 0;
    return ANSWERED(handle, made, create(&made, bytes, properties, flags));
}

EXPORT CUresult cuMemRelease(CUhandle handle) {
    handles_lock();
    CUresult result = REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS) {
        bound_for_ever(handle);
        change_handle(handle, (struct change){.references = -1});
        drop_if_free(handle);
    }
    handles_unlock();
    return result;
}

static CUresult retain(CUhandle *handle, void *address) {
    handles_lock();
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS) change_handle(*handle, (struct change){.references = 1});
    handles_unlock();
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address) {
    CUhandle retained = 0;
    return ANSWERED(handle, retained, retain(&retained, address));
}

static CUresult note_mapping(CUdeviceptr address, size_t bytes, CUhandle handle) {
    struct holding mapping = {
        .kind = MAPPING,
        .value = address,
        .record = {.bytes = bytes, .extra = handle},
    };
    change_handle(handle, (struct change){.mappings = 1, .flags = is_being_bound_at(address, bytes) ? KEPT : 0});
    if (holdings_add(mapping)) return CUDA_SUCCESS;
    REAL(cuMemUnmap)(address, bytes);
    change_handle(handle, (struct change){.mappings = -1});
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A handle that nobody was charged for may be a multicast object, or memory of the host's. */
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle,
                         unsigned long long flags) {
    struct binding binding = {.handle = handle};
    struct holding charged;
    handles_lock();
    bool may_block = !holdings_find(HANDLE, handle, &charged);
    if (may_block) {
        binding_begin(&binding);
        handles_unlock();
    }
    CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (may_block) {
        handles_lock();
        binding_end(&binding);
    }
    if (result == CUDA_SUCCESS) result = note_mapping(address, bytes, handle);
    handles_unlock();
    return result;
}

static CUresult unmap_locked(CUdeviceptr address, size_t bytes) {
    CUresult result = REAL(cuMemUnmap)(address, bytes);
    CUdeviceptr end = address + bytes;
    struct holding mapping;
    while (result == CUDA_SUCCESS && address < end && holdings_take(MAPPING, address, &mapping)) {
        handle_let_go(mapping.record.extra);
        address += mapping.record.bytes ? mapping.record.bytes : bytes;
    }
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    handles_lock();
    CUresult result = unmap_locked(address, bytes);
    handles_unlock();
    return result;
}

static void note_sent(struct record *record, void *with) {
    struct sent *sent = (struct sent *)(uintptr_t)record->extra;
    if (!sent_mark(&sent, *(const int *)with)) record->flags |= KEPT;
    record->extra = (uintptr_t)sent;
}

static CUresult send(int *file, CUhandle handle, unsigned long long flags) {
    handles_lock();
    CUresult result = REAL(cuMemExportToShareableHandle)(file, handle, SHAREABLE_DESCRIPTOR, flags);
    if (result == CUDA_SUCCESS) holdings_change(HANDLE, handle, note_sent, file);
    handles_unlock();
    return result;
}

static CUresult tell(void *shareable, CUhandle handle, int type, unsigned long long flags) {
    handles_lock();
    CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS) handle_keep(handle);
    handles_unlock();
    return result;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUhandle handle, int type, unsigned long long flags) {
    int file = -1;
    if (type != SHAREABLE_DESCRIPTOR) return tell(shareable, handle, type, flags);
    return ANSWERED((int *)shareable, file, send(&file, handle, flags));
}

/* With a copy of the list, or another thread could put in a handle that nobody keeps. */
static CUresult map_array(CUarrayMapInfo *maps, unsigned count, CUstream stream,
                          CUresult (*call)(CUarrayMapInfo *maps, unsigned count, CUstream stream)) {
    if (!maps || !count) return call(maps, count, stream);
    CUarrayMapInfo *told = calloc(count, sizeof *told);
    if (!told) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(told, maps, count * sizeof *told);
    handles_lock();
    for (unsigned i = 0; i < count; i++)
        if (told[i].operation == MEMORY_MAP) handle_keep(told[i].handle);
    CUresult result = call(told, count, stream);
    handles_unlock();
    free(told);
    return result;
}

EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned count, CUstream stream) {
    return map_array(maps, count, stream, REAL(cuMemMapArrayAsync));
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned count, CUstream stream) {
    return map_array(maps, count, stream, REAL(cuMemMapArrayAsync_ptsz));
}

static void forget(void) {
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    away = 0;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
