/* What a context may take for its kernels, as cuCtxSetLimit says: the driver takes it at once. */
#include "contexts.h"
#include "holdings.h"

#define HEAP_INCLUDED (8ULL << 20) /* what a context brings along for malloc in kernels */
#define STACK_INCLUDED 1024ULL     /* and as each thread's stack */

/* Every thread that the GPU may run at once has a stack, and the driver takes all of them together. */
static uint64_t stack_charge(size_t value) {
    int multiprocessors = 256, threads = 2048; /* more than any GPU has, should the driver not tell */
    uint64_t bytes;
    CUdevice device;
    if (value <= STACK_INCLUDED || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) return 0;
    REAL(cuDeviceGetAttribute)(&multiprocessors, DEVICE_MULTIPROCESSORS, device);
    REAL(cuDeviceGetAttribute)(&threads, DEVICE_THREADS_A_MULTIPROCESSOR, device);
    uint64_t at_once = (uint64_t)multiprocessors * (uint64_t)threads;
    if (__builtin_mul_overflow(value - STACK_INCLUDED, at_once, &bytes) || bytes > LARGEST_SIZE) return UINT64_MAX;
    return TO_GRANULES(bytes);
}

static uint64_t limit_charge(int limit, size_t value) {
    if (limit == LIMIT_STACK) return stack_charge(value);
    if (limit != LIMIT_HEAP && limit != LIMIT_PRINTF) return 0;
    if (value > LARGEST_SIZE) return value;
    return value > HEAP_INCLUDED ? TO_GRANULES(value - HEAP_INCLUDED) : 0;
}

static CUresult set_limit(int limit, size_t value, int gpu) {
    uint64_t context = current_context(), bytes = limit_charge(limit, value);
    if (!charge(gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuCtxSetLimit)(limit, value);
    struct holding old, fresh = {
        .kind = CONTEXT_LIMIT,
        .value = context ^ (uint64_t)limit,
        .record = {.bytes = bytes, .gpu = gpu, .context = context},
    };
    if (result != CUDA_SUCCESS) {
        account_release(gpu, bytes);
    } else {
        if (holdings_take(CONTEXT_LIMIT, fresh.value, &old)) account_release(gpu, old.record.bytes);
        holdings_add(fresh);
    }
    return result;
}

/* What kernels may allocate by themselves, print into and have as stacks: the driver takes it for the whole context. One
 * step: else of two threads that set it, one's limit would be in force and the other's be charged. */
EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    int gpu = gpu_of_context();
    bool takes_memory = limit == LIMIT_HEAP || limit == LIMIT_PRINTF || limit == LIMIT_STACK;
    if (gpu < 0 || !takes_memory) return REAL(cuCtxSetLimit)(limit, value);
    contexts_lock();
    CUresult result = set_limit(limit, value, gpu);
    contexts_unlock();
    return result;
}
