/* Memory of other processes and of other interfaces: charged in full to whoever opens it, for its maker may end first,
 * and then it lives on by this process alone. */
#include "holdings.h"
#include "imports.h"
#include "locations.h"
#include "release.h"

static bool fits_handle(CUdeviceptr address, uint64_t bytes, CUhandle handle) {
    if (REAL(cuMemMap)(address, bytes, 0, handle, 0) != CUDA_SUCCESS) return false;
    REAL(cuMemUnmap)(address, bytes);
    return true;
}

/* No call tells how large an imported handle is; but no more of it can be mapped than there is. `most` is the answer
 * for one that is larger. */
static uint64_t bytes_of_handle(CUhandle handle, uint64_t most) {
    CUdeviceptr address = 0;
    uint64_t below = 0, above = most / GRANULE + 1;
    if (REAL(cuMemAddressReserve)(&address, above * GRANULE, 0, 0, 0) != CUDA_SUCCESS) return most;
    while (above - below > 1) {
        uint64_t middle = below + (above - below) / 2;
        if (fits_handle(address, middle * GRANULE, handle))
            below = middle;
        else
            above = middle;
    }
    REAL(cuMemAddressFree)(address, (most / GRANULE + 1) * GRANULE);
    return below * GRANULE;
}

static CUresult import_handle(CUhandle *handle, void *shareable, int type) {
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    CUmemAllocationProp properties = {.location = {.type = LOCATION_DEVICE, .id = -1}};
    size_t total = 0;
    if (result != CUDA_SUCCESS) return result;
    REAL(cuMemGetAllocationPropertiesFromHandle)(&properties, *handle);
    int gpu = gpu_of_location(properties.location, properties.type);
    if (gpu == ON_HOST) return result;
    if (gpu >= 0) REAL(cuDeviceTotalMem_v2)(&total, device_of_location(properties.location));
    uint64_t bytes = gpu >= 0 ? bytes_of_handle(*handle, total) : 0;
    if (gpu >= 0 && charge(gpu, bytes)) return handle_remember(*handle, gpu, bytes);
    REAL(cuMemRelease)(*handle);
    if (gpu == NOT_GRANTED) return CUDA_ERROR_INVALID_DEVICE;
    return gpu < 0 ? location_refused(properties.location, properties.type) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult import_step(CUhandle *handle, void *shareable, int type) {
    handles_lock();
    CUresult result = import_handle(handle, shareable, type);
    handles_unlock();
    return result;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shareable, int type) {
    CUhandle imported = 0;
    return ANSWERED(handle, imported, import_step(&imported, shareable, type));
}

static CUresult import_external(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
    int gpu = gpu_of_context();
    if (gpu < 0 || !description) return REAL(cuImportExternalMemory)(memory, description);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC told = *description; /* as in cuMemCreate */
    uint64_t claimed = TO_GRANULES(told.size);
    if (told.size > LARGEST_SIZE || !charge(gpu, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuImportExternalMemory)(memory, &told);
    struct holding holding = {.kind = EXTERNAL, .record = {.bytes = claimed, .gpu = gpu}};
    if (result == CUDA_SUCCESS) holding.value = (uintptr_t)*memory;
    if (result == CUDA_SUCCESS && holdings_add(holding)) return result;
    if (result == CUDA_SUCCESS) REAL(cuDestroyExternalMemory)(*memory);
    account_release(gpu, claimed);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
    CUexternalMemory imported = NULL;
    return ANSWERED(memory, imported, import_external(&imported, description));
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    struct holding holding;
    bool ours = holdings_take(EXTERNAL, (uintptr_t)memory, &holding);
    CUresult result = REAL(cuDestroyExternalMemory)(memory);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(holding);
    else if (ours)
        account_release(holding.record.gpu, holding.record.bytes);
    return result;
}

static void note_lent(struct record *record, void *with) {
    record->flags |= LENT;
    *(struct record *)with = *record;
}

static CUresult lend(CUresult result, enum kind kind, const CUipcMemHandle *handle, CUdeviceptr address) {
    struct record block;
    if (result == CUDA_SUCCESS && holdings_change(kind, address, note_lent, &block))
        account_lend(handle, address, TO_GRANULES(block.bytes), block.gpu);
    return result;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    CUipcMemHandle lent = {{0}};
    return ANSWERED(handle, lent, lend(REAL(cuIpcGetMemHandle)(&lent, address), BLOCK, &lent, address));
}

EXPORT CUresult cuMemPoolExportPointer(CUipcMemHandle *handle, CUdeviceptr address) {
    CUipcMemHandle lent = {{0}};
    return ANSWERED(handle, lent, lend(REAL(cuMemPoolExportPointer)(&lent, address), POOL_BLOCK, &lent, address));
}

/* Charge what nobody of this container is charged for; false if there is no room. */
static bool enter(struct holding *holding, const CUipcMemHandle *handle) {
    CUdeviceptr base;
    size_t bytes = 0;
    holding->record.references = account_borrow(handle);
    if (!holding->record.references) {
        REAL(cuMemGetAddressRange_v2)(&base, &bytes, holding->value);
        holding->record.bytes = TO_GRANULES(bytes);
        if (!charge(holding->record.gpu, holding->record.bytes)) return false;
    }
    if (holdings_add(*holding)) return true;
    import_gone(holding);
    return false;
}

struct opening {
    uint64_t context;
    bool again;
};

static void open_again(struct record *record, void *with) {
    struct opening *opening = with;
    opening->again = record->context == opening->context;
    record->mappings += opening->again;
}

static void close_once(struct record *record, void *with) {
    *(bool *)with = record->mappings > 0;
    record->mappings -= record->mappings > 0;
}

void import_gone(const struct holding *import) {
    account_return(import->record.references);
    account_release(import->record.gpu, import->record.bytes);
}

/* Who opens what his context has open is given the same address, and closes it as often. Nothing is charged for that. */
static CUresult open_locked(int index, CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    int gpu = gpu_of_context();
    if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = REAL_AS(index, cuIpcOpenMemHandle)(address, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    struct opening opening = {.context = current_context()};
    struct holding holding = {
        .kind = IMPORTED,
        .value = *address,
        .record = {.gpu = gpu, .context = opening.context},
    };
    if (holdings_change(IMPORTED, *address, open_again, &opening) && opening.again) return result;
    if (enter(&holding, &handle)) return result;
    REAL(cuIpcCloseMemHandle)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_handle(int index, CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    handles_lock();
    CUresult result = open_locked(index, address, handle, flags);
    handles_unlock();
    return result;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    CUdeviceptr opened = 0;
    return ANSWERED(address, opened, open_handle(F_cuIpcOpenMemHandle, &opened, handle, flags));
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    CUdeviceptr opened = 0;
    return ANSWERED(address, opened, open_handle(F_cuIpcOpenMemHandle_v2, &opened, handle, flags));
}

/* Belongs to no context: it is freed as the pool's own blocks are. */
static CUresult import_pointer(CUdeviceptr *address, CUmemoryPool pool, CUipcMemHandle *handle) {
    CUresult result = REAL(cuMemPoolImportPointer)(address, pool, handle);
    int device;
    if (result != CUDA_SUCCESS) return result;
    if (REAL(cuPointerGetAttribute)(&device, POINTER_DEVICE, *address) != CUDA_SUCCESS) device = -1;
    struct holding holding = {.kind = IMPORTED, .value = *address, .record = {.gpu = gpu_of_device(device)}};
    if (holding.record.gpu >= 0 && enter(&holding, handle)) return result;
    REAL(cuMemFree_v2)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* One step, as closing is: what is given the place of something that was just closed is not to be taken for it. With a
 * copy of the handle, as in cuMemCreate: another one may be lent by this container. */
static CUresult import_told(CUdeviceptr *address, CUmemoryPool pool, CUipcMemHandle handle) {
    handles_lock();
    CUresult result = import_pointer(address, pool, &handle);
    handles_unlock();
    return result;
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUipcMemHandle *handle) {
    CUdeviceptr imported = 0;
    return ANSWERED(address, imported, handle ? import_told(&imported, pool, *handle) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult close_locked(CUdeviceptr address) {
    struct holding holding;
    bool stays = false;
    CUresult result = REAL(cuIpcCloseMemHandle)(address);
    if (result != CUDA_SUCCESS) return result;
    holdings_change(IMPORTED, address, close_once, &stays);
    if (!stays && holdings_take(IMPORTED, address, &holding)) import_gone(&holding);
    return result;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    handles_lock();
    CUresult result = close_locked(address);
    handles_unlock();
    return result;
}
