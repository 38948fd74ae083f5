/* Memory by handles: mapped, exported, held by sparse arrays and by multicast objects. */
#include "tenant.h"

#include <unistd.h>

uint64_t whole(uint64_t bytes) {
    return (bytes + (2 << 20) - 1) >> 21 << 21;
}

CUresult take_handle(struct held *h, uint64_t bytes) {
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    return CU(cuMemCreate)((CUhandle *)&h->value, whole(bytes), &properties, 0);
}

CUresult give_handle(struct held *h) {
    return CU(cuMemRelease)(h->value);
}

/* Mapped and then released: only the mapping holds it. */
CUresult take_mapped(struct held *h, uint64_t bytes) {
    CUhandle handle;
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUresult result = CU(cuMemCreate)(&handle, whole(bytes), &properties, 0);
    if (result) return result;
    CU(cuMemAddressReserve)((CUdeviceptr *)&h->value, whole(bytes), 0, 0, 0);
    result = CU(cuMemMap)(h->value, whole(bytes), 0, handle, 0);
    h->more = whole(bytes);
    CU(cuMemRelease)(handle);
    return result;
}

CUresult give_mapped(struct held *h) {
    return CU(cuMemUnmap)(h->value, h->more);
}

/* Held by nothing but a descriptor. */
CUresult take_exported(struct held *h, uint64_t bytes) {
    struct held handle;
    int file = -1;
    CUresult result = take_handle(&handle, bytes);
    if (result) return result;
    CU(cuMemExportToShareableHandle)(&file, handle.value, 1, 0);
    h->value = (uint64_t)file;
    return give_handle(&handle);
}

/* By two, which are closed before the handle is let go of. */
CUresult take_exported_closed(struct held *h, uint64_t bytes) {
    int one = -1, two = -1;
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMemExportToShareableHandle)(&one, h->value, 1, 0);
    CU(cuMemExportToShareableHandle)(&two, h->value, 1, 0);
    return close(one) || close(two) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult give_exported(struct held *h) {
    return close((int)h->value) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Held by nothing but a sparse array, or by a multicast object that is never unbound. */
CUresult take_sparse(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CUarrayMapInfo map = {.operation = MEMORY_MAP, .handle = h->value, .devices = 1};
    CU(cuMemMapArrayAsync)(&map, 1, NULL);
    return CU(cuMemRelease)(h->value);
}

CUresult take_multicast(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMulticastBindMem)(0, 0, h->value, 0, whole(bytes), 0);
    return CU(cuMemRelease)(h->value);
}

CUresult take_multicast_address(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr)(0, 0, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

CUresult take_sparse_thread(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CUarrayMapInfo map = {.operation = MEMORY_MAP, .handle = h->value, .devices = 1};
    CU(cuMemMapArrayAsync_ptsz)(&map, 1, NULL);
    return CU(cuMemRelease)(h->value);
}

CUresult take_multicast_two(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMulticastBindMem_v2)(0, 0, 0, h->value, 0, whole(bytes), 0);
    return CU(cuMemRelease)(h->value);
}

CUresult take_multicast_address_two(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr_v2)(0, 0, 0, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

/* By the handle's number, so that each has a place of its own. */
CUresult take_unbindable(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    h->more = whole(bytes);
    if (!CU(cuMulticastBindMem)(0, h->value, h->value, 0, 0, 0)) exit(3); /* none at all: refused, and holds nothing */
    CU(cuMulticastBindMem)(0, h->value, h->value, 0, h->more, 0);
    return CU(cuMemRelease)(h->value);
}

CUresult take_unbindable_address(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr_v2)(0, 0, h->value, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

CUresult give_unbound(struct held *h) {
    return CU(cuMulticastUnbind)(0, 0, h->value, h->more);
}

/* The object is let go of before it is unbound: by then its number may be another one's. */
void unbind_too_late(uint64_t bytes) {
    CUmemAllocationProp elsewhere = {.type = 1, .location = {.type = LOCATION_DEVICE + 1}};
    CUhandle object;
    struct held h = {0};
    CUresult result = CU(cuMemCreate)(&object, 1 << 21, &elsewhere, 0);
    if (!result) result = take_handle(&h, bytes);
    if (!result) result = CU(cuMulticastBindMem)(object, 0, h.value, 0, bytes, 0);
    CU(cuMemRelease)(object);
    CU(cuMulticastUnbind)(object, 0, 0, bytes);
    CU(cuMemRelease)(h.value);
    printf("%d\n", result);
}

CUresult give_nothing(struct held *h) {
    (void)h;
    return CUDA_SUCCESS;
}
