/* Ways to take memory by its address, by its shape, from outside, and by contexts. */
#include "tenant.h"

CUresult take_managed(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocManaged)((CUdeviceptr *)&h->value, bytes, 1);
}

CUresult take_pitched(struct held *h, uint64_t bytes) {
    size_t pitch;
    return CU(cuMemAllocPitch_v2)((CUdeviceptr *)&h->value, &pitch, 100, bytes / 100 + 1, 4);
}

CUresult give_linear(struct held *h) {
    return CU(cuMemFree_v2)(h->value);
}

CUresult take_async(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocAsync)((CUdeviceptr *)&h->value, bytes, NULL);
}

CUresult take_async_thread(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocAsync_ptsz)((CUdeviceptr *)&h->value, bytes, NULL);
}

CUresult give_async(struct held *h) {
    return CU(cuMemFreeAsync)(h->value, NULL);
}

static CUresult take_of_pool(struct held *h, uint64_t bytes, __typeof__(&cuMemAllocFromPoolAsync) allocate) {
    CUmemPoolProps properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    uint64_t keep = UINT64_MAX;
    CUmemoryPool pool;
    CUresult result = CU(cuMemPoolCreate)(&pool, &properties);
    if (result) return result;
    CU(cuMemPoolSetAttribute)(pool, 4, &keep);
    result = allocate((CUdeviceptr *)&h->value, bytes, pool, NULL);
    h->more = (uintptr_t)pool;
    if (result) CU(cuMemPoolDestroy)(pool);
    return result;
}

CUresult take_pool(struct held *h, uint64_t bytes) {
    return take_of_pool(h, bytes, CU(cuMemAllocFromPoolAsync));
}

CUresult take_pool_thread(struct held *h, uint64_t bytes) {
    return take_of_pool(h, bytes, CU(cuMemAllocFromPoolAsync_ptsz));
}

CUresult give_pool_thread(struct held *h) {
    CU(cuMemFreeAsync_ptsz)(h->value, NULL);
    return CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
}

CUresult give_pool(struct held *h) {
    CU(cuMemFreeAsync)(h->value, NULL);
    return CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
}

/* The pool is destroyed while its block is in use. */
CUresult take_orphan(struct held *h, uint64_t bytes) {
    CUresult result = take_pool(h, bytes);
    if (!result) CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
    return result;
}

CUresult take_array(struct held *h, uint64_t bytes) {
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 256, .height = bytes / 1024 + 1, .format = 0x20, .channels = 1};
    return CU(cuArrayCreate_v2)((CUarray *)&h->value, &shape);
}

CUresult take_array3d(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .width = 64, .height = 16, .depth = bytes / 4096 + 1, .format = 0x20, .channels = 1};
    return CU(cuArray3DCreate_v2)((CUarray *)&h->value, &shape);
}

CUresult give_array(struct held *h) {
    return CU(cuArrayDestroy)((CUarray)(uintptr_t)h->value);
}

CUresult take_mipmap(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 256, .height = bytes / 1024 + 1, .format = 0x20, .channels = 1};
    return CU(cuMipmappedArrayCreate)((CUmipmappedArray *)&h->value, &shape, 4);
}

CUresult give_mipmap(struct held *h) {
    return CU(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)h->value);
}

CUresult take_external(struct held *h, uint64_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = 1, .size = bytes};
    return CU(cuImportExternalMemory)((CUexternalMemory *)&h->value, &description);
}

CUresult give_external(struct held *h) {
    return CU(cuDestroyExternalMemory)((CUexternalMemory)(uintptr_t)h->value);
}

CUresult take_context(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

CUresult take_context_three(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v3)((CUcontext *)&h->value, NULL, 0, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

CUresult take_context_four(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v4)((CUcontext *)&h->value, NULL, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

CUresult give_context(struct held *h) {
    return CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
}

/* It ends with the second detaching. */
CUresult take_context_attached(struct held *h, uint64_t bytes) {
    CUcontext attached;
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (!result) result = CU(cuCtxAttach)(&attached, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

CUresult give_context_attached(struct held *h) {
    CUresult result = CU(cuCtxDetach)((CUcontext)(uintptr_t)h->value);
    return result ? result : CU(cuCtxDetach)((CUcontext)(uintptr_t)h->value);
}

CUresult take_heap(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (result) return result;
    result = CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    if (!result) result = CU(cuCtxSetLimit)(LIMIT_PRINTF, bytes);
    if (result) CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

CUresult take_stack(struct held *h, uint64_t bytes) {
    int multiprocessors, threads;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (result) return result;
    CU(cuDeviceGetAttribute)(&multiprocessors, DEVICE_MULTIPROCESSORS, 0);
    CU(cuDeviceGetAttribute)(&threads, DEVICE_THREADS_A_MULTIPROCESSOR, 0);
    result = CU(cuCtxSetLimit)(LIMIT_STACK, 1024 + bytes / (size_t)(multiprocessors * threads));
    if (result) CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUgreenCtx green;

void make_green(void) {
    printf("%d\n", CU(cuInit)(0) + CU(cuGreenCtxCreate)(&green, NULL, 0, 0));
}

/* Take what a stream of another GPU gives, with the first GPU's context current. */
void fill_elsewhere(uint64_t bytes) {
    CUcontext other;
    CUstream stream;
    CUdeviceptr address;
    int count = 0;
    if (CU(cuDevicePrimaryCtxRetain)(&other, 1) != CUDA_SUCCESS) exit(5);
    CU(cuCtxSetCurrent)(other);
    CU(cuStreamCreate)(&stream, 0);
    CU(cuCtxSetCurrent)(context);
    CUresult result;
    while ((result = CU(cuMemAllocAsync)(&address, bytes, stream)) == CUDA_SUCCESS) count++;
    printf("%d %d\n", count, result);
}

void end_green(void) {
    printf("%d\n", CU(cuGreenCtxDestroy)(green));
}
