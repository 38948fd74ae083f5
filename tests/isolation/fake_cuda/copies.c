/* Some of the ways in which the fake driver fills and copies memory: each byte takes its GPU a nanosecond. */
#include "copies.h"
#include "fake.h"
#include "world.h"

static CUresult work(uint64_t bytes, CUstream stream) {
    if (fake_gpu_of_stream(stream) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    world_submit(fake_gpu_of_stream(stream), bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    (void)to, (void)value;
    return work(count, NULL);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    (void)to, (void)value;
    return work(4 * count, stream);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)to, (void)from;
    return work(bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return cuMemcpyAsync(to, from, bytes, stream);
}

CUresult cuMemcpy2DAsync_v2(const struct flat_copy *copy, CUstream stream) {
    uint64_t bytes = copy->width * copy->height;
    SPOIL(copy->width);
    return work(bytes, stream);
}

CUresult cuMemcpy3DAsync_v2(const struct deep_copy *copy, CUstream stream) {
    uint64_t bytes = copy->width * copy->height * copy->depth;
    SPOIL(copy->width);
    return work(bytes, stream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes,
                               size_t *which, size_t kinds, CUstream stream) {
    (void)attributes, (void)which, (void)kinds;
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) {
        all += bytes[i];
        SPOIL(to[i]), SPOIL(from[i]);
    }
    return work(all, stream);
}
