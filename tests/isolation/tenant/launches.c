/* Ways to use the GPU. */
#include "tenant.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

void tell_clock(void) {
    printf("%llu\n", (unsigned long long)now_ns() / 1000000);
}

static CUgraphExec graph_of(unsigned microseconds) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    struct { void *function; unsigned shape[6], shared; void **parameters, **extra, *more[2]; } kernel = {0};
    kernel.shape[0] = microseconds;
    CU(cuGraphCreate)(&graph, 0);
    CU(cuGraphAddKernelNode)(&node, graph, NULL, 0, &kernel);
    CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
    return exec;
}

/* How often the driver was asked by what lies in our own memory: it changes that. */
static int spoilt;

/* To the block that was taken first, or from it to itself; each byte takes the fake GPU a nanosecond. */
static void fill_or_copy(const char *how, size_t bytes) {
    CUdeviceptr block = held[0].value, host = (uintptr_t)&host, to = block, from = block;
    struct flat_copy flat = {.to = {.kind = 4, .device = block}, .from = {.kind = 2, .device = block}, .width = bytes, .height = 1};
    struct deep_copy deep = {.to = {.kind = 4, .device = block}, .from = {.kind = 2, .device = block}, .width = bytes, .height = 1, .depth = 1};
    if (strcmp(how, "fill") == 0)
        CU(cuMemsetD8_v2)(block, 0, bytes);
    else if (strcmp(how, "fill-later") == 0)
        CU(cuMemsetD32Async)(block, 0, bytes / 4, NULL);
    else if (strcmp(how, "copy") == 0)
        CU(cuMemcpyDtoDAsync_v2)(block, block, bytes, NULL);
    else if (strcmp(how, "copy-any") == 0)
        CU(cuMemcpyAsync)(block, block, bytes, NULL);
    else if (strcmp(how, "copy-flat") == 0)
        CU(cuMemcpy2DAsync_v2)(&flat, NULL), spoilt += !flat.width;
    else if (strcmp(how, "copy-deep") == 0)
        CU(cuMemcpy3DAsync_v2)(&deep, NULL), spoilt += !deep.width;
    else if (strcmp(how, "copy-batch") == 0)
        CU(cuMemcpyBatchAsync_v2)(&to, &from, &bytes, 1, NULL, NULL, 0, NULL), spoilt += !to + !from;
    else if (strcmp(how, "copy-host") == 0)
        CU(cuMemcpyAsync)(block, host, bytes, NULL);
    else
        exit(4);
}

/* As few programs do. */
static void launch_seldom(const char *how, unsigned microseconds, CUgraphExec graph) {
    CUlaunchConfig config = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    CUDA_LAUNCH_PARAMS each = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    if (strcmp(how, "config-thread") == 0)
        CU(cuLaunchKernelEx_ptsz)(&config, NULL, NULL, NULL), spoilt += !config.grid_x;
    else if (strcmp(how, "cooperative-thread") == 0)
        CU(cuLaunchCooperativeKernel_ptsz)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else if (strcmp(how, "cooperative-several") == 0)
        CU(cuLaunchCooperativeKernelMultiDevice)(&each, 1, 0), spoilt += !each.grid_x;
    else if (strcmp(how, "graph-thread") == 0)
        CU(cuGraphLaunch_ptsz)(graph, NULL);
    else if (strcmp(how, "plain") == 0)
        CU(cuLaunch)(NULL);
    else if (strcmp(how, "grid") == 0)
        CU(cuLaunchGrid)(NULL, (int)microseconds, 1);
    else if (strcmp(how, "grid-later") == 0)
        CU(cuLaunchGridAsync)(NULL, (int)microseconds, 1, NULL);
    else
        fill_or_copy(how, 1000ULL * microseconds);
}

static void launch(const char *how, unsigned microseconds, CUgraphExec graph) {
    CUlaunchConfig config = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    if (strcmp(how, "kernel") == 0)
        CU(cuLaunchKernel)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else if (strcmp(how, "thread") == 0)
        CU(cuLaunchKernel_ptsz)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else if (strcmp(how, "config") == 0)
        CU(cuLaunchKernelEx)(&config, NULL, NULL, NULL), spoilt += !config.grid_x;
    else if (strcmp(how, "cooperative") == 0)
        CU(cuLaunchCooperativeKernel)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else if (strcmp(how, "graph") == 0)
        CU(cuGraphLaunch)(graph, NULL);
    else
        launch_seldom(how, microseconds, graph);
}

/* Whether the driver gets what we ask by, which another thread may change, or what was read of it once. */
void tell_whose(const char *how) {
    spoilt = 0;
    launch(how, 10, NULL);
    CU(cuCtxSynchronize)();
    printf("%s\n", spoilt ? "ours" : "a copy");
}

/* Launch for so long, waiting for the GPU after every `batch` launches as a training step does; `idle` microseconds of
 * the host's own work after each wait. */
void use(double seconds, const char *how, unsigned microseconds, int batch, unsigned idle) {
    CUgraphExec graph = strncmp(how, "graph", 5) == 0 ? graph_of(microseconds) : NULL;
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9), launches = 0, slowest = 0;
    while (now_ns() < end) {
        uint64_t start = now_ns();
        for (int i = 0; i < batch; i++, launches++) launch(how, microseconds, graph);
        CU(cuCtxSynchronize)();
        if (now_ns() - start > slowest) slowest = now_ns() - start;
        if (idle) nanosleep(&(struct timespec){.tv_nsec = idle * 1000L}, NULL);
    }
    printf("%llu %llu\n", (unsigned long long)launches, (unsigned long long)slowest);
}

struct user {
    pthread_t thread;
    double seconds;
    unsigned micros;
};

static void *use_alone(void *with) {
    struct user *user = with;
    uint64_t end = now_ns() + (uint64_t)(user->seconds * 1e9);
    CU(cuCtxSetCurrent)(context);
    while (now_ns() < end) launch("kernel", user->micros, NULL);
    return NULL;
}

/* Many threads launch at once, for so long. */
void crowd(int count, double seconds, unsigned micros) {
    struct user users[64];
    for (int i = 0; i < count && i < 64; i++) {
        users[i] = (struct user){.seconds = seconds, .micros = micros};
        pthread_create(&users[i].thread, NULL, use_alone, &users[i]);
    }
    for (int i = 0; i < count && i < 64; i++) pthread_join(users[i].thread, NULL);
    puts("0");
}

/* What is given to a stream of the second GPU while the first one's context is current: kernels as of a library. */
void astray(const char *how, double seconds, unsigned micros) {
    CUgraphExec graph = strcmp(how, "graph") == 0 ? graph_of(micros) : NULL;
    CUcontext other;
    CUstream stream;
    if (CU(cuDevicePrimaryCtxRetain)(&other, 1) != CUDA_SUCCESS) exit(5);
    CU(cuCtxSetCurrent)(other);
    CU(cuStreamCreate)(&stream, 0);
    CU(cuCtxSetCurrent)(context);
    for (uint64_t end = now_ns() + (uint64_t)(seconds * 1e9); now_ns() < end;) {
        for (int i = 0; i < 20; i++) {
            if (graph)
                CU(cuGraphLaunch)(graph, stream);
            else if (strcmp(how, "fill") == 0)
                CU(cuMemsetD32Async)(held[0].value, 0, 250 * micros, stream);
            else
                CU(cuLaunchKernel)(NULL, micros, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        }
        CU(cuStreamSynchronize)(stream);
    }
    puts("0");
}

/* A green context that ends at once, with what was given to a stream of it, to the calling thread's, or to none of its own. */
static void launch_green(const char *how, unsigned microseconds) {
    CUgreenCtx green;
    CUcontext part;
    CUstream stream = NULL;
    if (CU(cuGreenCtxCreate)(&green, NULL, 0, 0) || CU(cuCtxFromGreenCtx)(&part, green)) exit(5);
    if (strcmp(how, "green") == 0) CU(cuGreenCtxStreamCreate)(&stream, green, 0, 0);
    if (strcmp(how, "green-thread") == 0 || strcmp(how, "green-default") == 0) CU(cuCtxSetCurrent)(part);
    if (strcmp(how, "green-thread") == 0)
        launch("thread", microseconds, NULL);
    else
        CU(cuLaunchKernel)(NULL, microseconds, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    CU(cuCtxSetCurrent)(context);
    CU(cuGreenCtxDestroy)(green);
}

/* Many short kernels teach how long a launch takes; then a long one follows each short one at once, and nothing is asked
 * for until it is over. On streams of their own, they end at once. */
void sneak(const char *how, double seconds, unsigned milliseconds) {
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < 2000; i++) launch("kernel", 1, NULL);
    CU(cuCtxSynchronize)();
    while (now_ns() < end) {
        CUstream stream = NULL;
        if (strcmp(how, "stream") == 0) {
            launch("kernel", 1, NULL);
            CU(cuStreamCreate)(&stream, 0);
            CU(cuLaunchKernel)(NULL, 1000 * milliseconds, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
            CU(cuStreamDestroy_v2)(stream);
        } else if (strncmp(how, "green", 5) == 0) {
            for (int i = 0; i < 2; i++) launch("kernel", 1, NULL); /* who was seen slowly has two launches marked */
            launch_green(how, 1000 * milliseconds);
        } else {
            launch(how, 1, NULL);
            launch(how, 1000 * milliseconds, NULL);
        }
        nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
    }
    puts("0");
}

/* Launches that a capture takes up. */
void capture(int count) {
    CUstream stream;
    CUgraph graph;
    CU(cuStreamCreate)(&stream, 0);
    CU(cuStreamBeginCapture_v2)(stream, 0);
    for (int i = 0; i < count; i++) CU(cuLaunchKernel)(NULL, 1000, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    CU(cuStreamEndCapture)(stream, &graph);
    CU(cuStreamDestroy_v2)(stream);
    puts("0");
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Answer requests for so long, each a batch of kernels, with `idle` microseconds in between; how many there were, and how
 * many microseconds half of them, 99 of 100 and all took at most. */
void serve(double seconds, unsigned microseconds, int batch, unsigned idle) {
    static uint64_t took[1 << 16];
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    size_t count = 0;
    while (now_ns() < end && count < sizeof took / sizeof *took) {
        uint64_t start = now_ns();
        for (int i = 0; i < batch; i++) launch("kernel", microseconds, NULL);
        CU(cuCtxSynchronize)();
        took[count++] = (now_ns() - start) / 1000;
        nanosleep(&(struct timespec){.tv_nsec = idle * 1000L}, NULL);
    }
    qsort(took, count, sizeof *took, by_size);
    printf("%zu %llu %llu %llu\n", count, (unsigned long long)took[count / 2],
           (unsigned long long)took[count * 99 / 100], (unsigned long long)took[count - 1]);
}
