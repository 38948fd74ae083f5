/* Contexts and streams that end while something is still to be done. */
#include "tenant.h"

#include <pthread.h>
#include <string.h>

static CUresult move(uint64_t bytes, int gpu, CUstream stream) {
    return CU(cuMemPrefetchAsync)(held[0].value, bytes, gpu, stream);
}

struct leaver {
    _Atomic int come; /* to the driver, which waits for more than 1 */
    CUstream stream;
    size_t bytes;
};

static void *take_home(void *with) {
    struct leaver *it = with;
    CUmemLocation host = {.type = 2};
    CUdeviceptr address = held[0].value;
    size_t from = 0;
    CU(cuCtxSetCurrent)(context);
    CU(cuMemPrefetchBatchAsync)(&address, &it->bytes, 1, &host, &from, 1, (uintptr_t)&it->come, it->stream);
    return NULL;
}

/* A stream ends while another thread's call that takes the first block from the second GPU by it is with the driver. */
void end_while_placed(uint64_t bytes) {
    struct leaver it = {.bytes = bytes};
    pthread_t thread;
    CUresult result = CU(cuStreamCreate)(&it.stream, 0);
    pthread_create(&thread, NULL, take_home, &it);
    while (!it.come) {}
    if (!result) result = CU(cuStreamDestroy_v2)(it.stream);
    it.come = 2;
    pthread_join(thread, NULL);
    printf("%d\n", result);
}

/* The first block to the second GPU and to the host by a green context's stream, or by its default one, which has
 * some work before; the context ends at once. */
void place_by_green(const char *how, uint64_t bytes) {
    CUgreenCtx green;
    CUcontext part;
    CUstream stream = NULL;
    CUresult result = CU(cuGreenCtxCreate)(&green, NULL, 0, 0);
    if (!result) result = CU(cuCtxFromGreenCtx)(&part, green);
    if (!result && strcmp(how, "stream") == 0) result = CU(cuGreenCtxStreamCreate)(&stream, green, 0, 0);
    if (!result && strcmp(how, "default") == 0) result = CU(cuCtxSetCurrent)(part);
    if (!result) result = move(bytes, 1, stream);
    if (!result) result = CU(cuLaunchKernel)(NULL, 300000, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    if (!result) result = move(bytes, -1, stream);
    if (!result) result = CU(cuGreenCtxDestroy)(green);
    CU(cuCtxSetCurrent)(context);
    printf("%d\n", result);
}

/* A context whose end waits by a word, with work and what is on its way behind it. */
struct ender {
    _Atomic int come;
    CUcontext context;
    CUgreenCtx green;
};

static void *end_it(void *with) {
    struct ender *it = with;
    if (it->green)
        CU(cuGreenCtxDestroy)(it->green);
    else
        CU(cuCtxDestroy_v2)(it->context);
    return NULL;
}

static CUresult begin(struct ender *it, bool is_green, uint64_t bytes) {
    CUresult result = is_green ? CU(cuGreenCtxCreate)(&it->green, (void *)&it->come, 0, 0)
                               : CU(cuCtxCreate_v4)(&it->context, (void *)&it->come, 0, 0);
    if (!result && is_green) result = CU(cuCtxFromGreenCtx)(&it->context, it->green);
    if (!result) result = CU(cuCtxSetCurrent)(it->context);
    if (!result) result = move(bytes, 1, NULL);
    if (!result) result = CU(cuLaunchKernel)(NULL, 300000, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return result ? result : move(bytes, -1, NULL);
}

/* While it ends the second GPU is launched on, and the first block is placed there and freed: only then may the end go on. */
void go_on_while_ending(const char *what, uint64_t bytes) {
    struct ender it = {0};
    CUcontext second;
    pthread_t thread;
    CUresult result = CU(cuDevicePrimaryCtxRetain)(&second, 1);
    if (!result) result = begin(&it, strcmp(what, "green") == 0, bytes);
    pthread_create(&thread, NULL, end_it, &it);
    while (!it.come) {}
    CU(cuCtxSetCurrent)(second);
    for (int i = 0; !result && i < 10; i++) result = CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (!result) result = CU(cuCtxSynchronize)();
    if (!result) result = move(bytes, 1, NULL);
    if (!result) result = CU(cuMemFree_v2)(held[0].value);
    it.come = 2;
    pthread_join(thread, NULL);
    printf("%d\n", result);
}
