/* Managed memory that is placed on another GPU than the one it was taken on. */
#include "tenant.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* To a GPU, or to the host (-1), by one of the ways there are. */
static CUresult place(const char *how, CUdeviceptr address, size_t bytes, int gpu) {
    CUmemLocation there = {.type = gpu < 0 ? 2 : LOCATION_DEVICE, .id = gpu < 0 ? 0 : gpu};
    CUdeviceptr two[] = {address, address + bytes / 2};
    size_t halves[] = {bytes / 2, bytes - bytes / 2}, from = 0;
    bool thread = strstr(how, "-thread");
    CUstream stream = (CUstream)(uintptr_t)(strstr(how, "-old") ? OLD_DEFAULT_STREAM : 0);
    if (strncmp(how, "prefetch-two", 12) == 0)
        return (thread ? CU(cuMemPrefetchAsync_v2_ptsz) : CU(cuMemPrefetchAsync_v2))(address, bytes, there, 0, stream);
    if (strncmp(how, "prefetch", 8) == 0)
        return (thread ? CU(cuMemPrefetchAsync_ptsz) : CU(cuMemPrefetchAsync))(address, bytes, gpu, stream);
    if (strcmp(how, "read-two") == 0) return CU(cuMemAdvise_v2)(address, bytes, 1, there);
    if (strcmp(how, "unset-two") == 0) return CU(cuMemAdvise_v2)(address, bytes, 4, there);
    if (strcmp(how, "unset") == 0) return CU(cuMemAdvise)(address, bytes, 4, gpu);
    if (strcmp(how, "read") == 0) return CU(cuMemAdvise)(address, bytes, 1, gpu);
    if (strncmp(how, "advise-two", 10) == 0) return CU(cuMemAdvise_v2)(address, bytes, 3, there);
    if (strncmp(how, "advise", 6) == 0) return CU(cuMemAdvise)(address, bytes, 3, gpu);
    if (strncmp(how, "batch", 5) == 0)
        return (thread ? CU(cuMemPrefetchBatchAsync_ptsz) : CU(cuMemPrefetchBatchAsync))(two, halves, 2, &there, &from, 1, 0, stream);
    return (thread ? CU(cuMemDiscardAndPrefetchBatchAsync_ptsz)
                   : CU(cuMemDiscardAndPrefetchBatchAsync))(two, halves, 2, &there, &from, 1, 0, stream);
}

/* The block of that number, or the variable of that module, or part of it; what it was answered by. */
void place_block(const char *how, uint64_t number, uint64_t from, uint64_t bytes, int gpu) {
    CUdeviceptr block = held[number].value;
    bool is_variable = ways[held[number].way].give == give_module;
    if (is_variable && CU(cuModuleGetGlobal_v2)(&block, NULL, (CUmodule)(uintptr_t)block, "held") != CUDA_SUCCESS) exit(5);
    printf("%d\n", place(how, block + from, bytes, gpu));
}

/* The whole first block to the second GPU by a stream of that GPU, which has a minute's work before, and to the host by
 * another, which has none: by the first GPU's default one, or by one that is made when the other has ended, which may have
 * its number. */
void place_by_streams(uint64_t bytes, bool ended) {
    CUstream one, other = NULL;
    CUcontext second;
    CUresult result = CU(cuDevicePrimaryCtxRetain)(&second, 1);
    if (!result) result = CU(cuCtxSetCurrent)(second);
    if (!result) result = CU(cuLaunchKernel)(NULL, 60000000, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (!result) result = CU(cuStreamCreate)(&one, 0);
    if (!result) result = CU(cuMemPrefetchAsync)(held[0].value, bytes, 1, one);
    CU(cuCtxSetCurrent)(context);
    if (ended) CU(cuStreamDestroy_v2)(one), CU(cuStreamCreate)(&other, 0);
    if (!result) result = CU(cuMemPrefetchAsync)(held[0].value, bytes, -1, other);
    printf("%d\n", result);
}

/* The same by one stream, which nobody else is. */
void place_by_stream(uint64_t bytes) {
    CUstream stream;
    CUresult result = CU(cuStreamCreate)(&stream, 0);
    if (!result) result = CU(cuMemPrefetchAsync)(held[0].value, bytes, 1, stream);
    if (!result) result = CU(cuMemPrefetchAsync)(held[0].value, bytes, -1, stream);
    printf("%d\n", result);
}

/* The whole first block to the second GPU and to the host, by a context that ends at once. */
void place_in_passing(uint64_t bytes) {
    CUcontext passing;
    CUresult result = CU(cuCtxCreate_v2)(&passing, 0, 0);
    for (int gpu = 1; !result && gpu >= -1; gpu -= 2) result = place("prefetch", held[0].value, bytes, gpu);
    if (!result) result = CU(cuCtxDestroy_v2)(passing);
    CU(cuCtxSetCurrent)(context);
    printf("%d\n", result);
}

struct placer {
    _Atomic int come; /* to the driver, which waits for more than 1 */
    CUdeviceptr address;
    size_t bytes;
};

static void *place_it(void *with) {
    struct placer *it = with;
    CUmemLocation there = {.type = LOCATION_DEVICE, .id = 1};
    size_t from = 0;
    CU(cuCtxSetCurrent)(context);
    CU(cuMemPrefetchBatchAsync)(&it->address, &it->bytes, 1, &there, &from, 1, (uintptr_t)&it->come, NULL);
    return NULL;
}

/* While another thread's call that brings the first block to the second GPU is with the driver, the second block goes there
 * and to the host. */
void place_beside(uint64_t bytes) {
    struct placer it = {.address = held[0].value, .bytes = bytes};
    pthread_t thread;
    pthread_create(&thread, NULL, place_it, &it);
    while (!it.come) {}
    CUresult result = place("prefetch", held[1].value, bytes, 1);
    if (!result) result = place("prefetch", held[1].value, bytes, -1);
    it.come = 2;
    pthread_join(thread, NULL);
    printf("%d\n", result);
}

/* Free the first block and take it anew while that call is with the driver; whether it is answered, and lies where it did. */
void replace_while_placed(uint64_t bytes) {
    struct placer it = {.address = held[0].value, .bytes = bytes};
    pthread_t thread;
    pthread_create(&thread, NULL, place_it, &it);
    while (!it.come) {}
    CU(cuMemFree_v2)(held[0].value);
    CUresult result = CU(cuMemAllocManaged)((CUdeviceptr *)&held[0].value, bytes, 1);
    it.come = 2;
    pthread_join(thread, NULL);
    printf("%d %d\n", result, held[0].value == it.address);
}

struct waiter {
    struct placer placer;
    pid_t thread;
    _Atomic bool done;
};

/* The call ends when the thread waits, or need not. */
static void *let_go(void *with) {
    struct waiter *it = with;
    while (!it->done && !sleeps(it->thread)) {}
    it->placer.come = 2;
    return NULL;
}

/* Take a block, and free it, while that call is with the driver, and names far more than the first block: what follows it,
 * too. */
void take_behind_placed(uint64_t bytes) {
    struct waiter it = {.placer = {.address = held[0].value, .bytes = 4ULL << 30}, .thread = (pid_t)syscall(SYS_gettid)};
    pthread_t placing, letting;
    CUdeviceptr taken = 0;
    pthread_create(&placing, NULL, place_it, &it.placer);
    while (!it.placer.come) {}
    pthread_create(&letting, NULL, let_go, &it);
    CUresult result = CU(cuMemAllocManaged)(&taken, bytes, 1);
    it.done = true;
    pthread_join(letting, NULL);
    pthread_join(placing, NULL);
    CU(cuMemFree_v2)(taken);
    printf("%d %d\n", result, taken > held[0].value && taken < held[0].value + it.placer.bytes);
}

/* From now on the calls are of this GPU's context. */
void be_on(int gpu) {
    static CUcontext contexts[8];
    CUresult result = CUDA_SUCCESS;
    if (!contexts[gpu]) result = CU(cuDevicePrimaryCtxRetain)(&contexts[gpu], gpu);
    if (!result) result = CU(cuCtxSetCurrent)(context = contexts[gpu]);
    printf("%d\n", result);
}

/* Free memory of the second GPU is taken there until there is no more. */
void fill_second(uint64_t bytes) {
    CUcontext other;
    if (CU(cuDevicePrimaryCtxRetain)(&other, 1) != CUDA_SUCCESS) exit(5);
    CU(cuCtxSetCurrent)(other);
    fill("linear", bytes);
    CU(cuCtxSetCurrent)(context);
}
