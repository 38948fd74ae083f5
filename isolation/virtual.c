/* Physical memory by handle (cuMemCreate), memory of other processes and of other interfaces.
 *
 * A handle's memory lives while anything holds it: its references, its mappings, and what it was exported to. Exported
 * memory stays charged to the end of the process, for nothing tells when the last file descriptor of it is closed. */
#include "holdings.h"

#define EXPORTED 1U

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
    return record->references || record->mappings || (record->flags & EXPORTED);
}

/* Forget the handle if nothing holds its memory any more. */
static void drop_if_free(CUhandle handle) {
    struct holding found;
    if (!holdings_take(HANDLE, handle, &found)) return;
    if (is_held(&found.record))
        holdings_add(found);
    else
        account_release(found.record.gpu, found.record.bytes);
}

static CUresult remember(CUhandle handle, int gpu, uint64_t bytes) {
    struct holding holding = {
        .kind = HANDLE,
        .value = handle,
        .record = {.bytes = bytes, .gpu = gpu, .references = 1},
    };
    if (holdings_add(holding)) return CUDA_SUCCESS;
    REAL(cuMemRelease)(handle);
    account_release(gpu, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags) {
    if (!properties || properties->location.type != LOCATION_DEVICE)
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    int gpu = gpu_of_device(properties->location.id);
    if (gpu < 0) return CUDA_ERROR_INVALID_DEVICE;
    uint64_t claimed = TO_GRANULES(bytes);
    if (bytes > LARGEST_SIZE || !charge(gpu, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS) return remember(*handle, gpu, claimed);
    account_release(gpu, claimed);
    return result;
}

EXPORT CUresult cuMemRelease(CUhandle handle) {
    change_handle(handle, (struct change){.references = -1});
    CUresult result = REAL(cuMemRelease)(handle);
    if (result != CUDA_SUCCESS)
        change_handle(handle, (struct change){.references = 1});
    else
        drop_if_free(handle);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS) change_handle(*handle, (struct change){.references = 1});
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle,
                         unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    struct holding mapping = {
        .kind = MAPPING,
        .value = address,
        .record = {.bytes = bytes, .extra = handle},
    };
    change_handle(handle, (struct change){.mappings = 1});
    if (holdings_add(mapping)) return result;
    REAL(cuMemUnmap)(address, bytes);
    change_handle(handle, (struct change){.mappings = -1});
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    CUresult result = REAL(cuMemUnmap)(address, bytes);
    CUdeviceptr end = address + bytes;
    struct holding mapping;
    while (result == CUDA_SUCCESS && address < end && holdings_take(MAPPING, address, &mapping)) {
        change_handle(mapping.record.extra, (struct change){.mappings = -1});
        drop_if_free(mapping.record.extra);
        address += mapping.record.bytes ? mapping.record.bytes : bytes;
    }
    return result;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUhandle handle, int type, unsigned long long flags) {
    CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS) change_handle(handle, (struct change){.flags = EXPORTED});
    return result;
}

/* How much an imported handle is, nothing tells: what it was mapped with will, so it is charged when it is mapped. The
 * driver's own answer to that is the address range of the mapping. */
EXPORT CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shareable, int type) {
    return REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
}

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
    int gpu = gpu_of_context();
    if (gpu < 0 || !description) return REAL(cuImportExternalMemory)(memory, description);
    uint64_t claimed = TO_GRANULES(description->size);
    if (description->size > LARGEST_SIZE || !charge(gpu, claimed)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuImportExternalMemory)(memory, description);
    struct holding holding = {.kind = EXTERNAL, .record = {.bytes = claimed, .gpu = gpu}};
    if (result == CUDA_SUCCESS) holding.value = (uintptr_t)*memory;
    if (result == CUDA_SUCCESS && holdings_add(holding)) return result;
    if (result == CUDA_SUCCESS) REAL(cuDestroyExternalMemory)(*memory);
    account_release(gpu, claimed);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
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

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    return REAL(cuIpcGetMemHandle)(handle, address);
}

/* Charged in full: the exporter may end first, and then the memory lives on by this mapping alone. */
static CUresult open_handle(int index, CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    int gpu = gpu_of_context();
    if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = REAL_AS(index, cuIpcOpenMemHandle)(address, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    CUdeviceptr base;
    size_t bytes = 0;
    REAL(cuMemGetAddressRange_v2)(&base, &bytes, *address);
    struct holding holding = {
        .kind = IMPORTED,
        .value = *address,
        .record = {.bytes = TO_GRANULES(bytes), .gpu = gpu, .context = current_context()},
    };
    if (account_charge(gpu, holding.record.bytes) && holdings_add(holding)) return result;
    REAL(cuIpcCloseMemHandle)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return open_handle(F_cuIpcOpenMemHandle, address, handle, flags);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return open_handle(F_cuIpcOpenMemHandle_v2, address, handle, flags);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    struct holding holding;
    bool ours = holdings_take(IMPORTED, address, &holding);
    CUresult result = REAL(cuIpcCloseMemHandle)(address);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(holding);
    else if (ours)
        account_release(holding.record.gpu, holding.record.bytes);
    return result;
}
