/* A program on a GPU: takes memory in every way that needs no second device, computes, and says how long that took. It is
 * told on standard input and answers each line with one line. It needs no toolkit: its kernel is PTX text, and the driver
 * is found by dlopen("libcuda.so.1"), as any program does. On the fake driver it does the same, line for line. */
#include <string.h>
#include <time.h>

#include "calling.h"

#define MOST_WINDOWS 600
#define MOST_TIMED 200000
#define BLOCK 256U

/* Work, not time: a kernel that looked at a clock would be done while another process has the GPU. Each thread goes so
 * many rounds, and what comes of them is written, or the compiler would leave them out. */
static const char kernels[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry work(.param .u64 rounds, .param .u64 out)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .b32 %x;\n"
    "  .reg .b64 %n, %i, %o;\n"
    "  ld.param.u64 %n, [rounds];\n"
    "  ld.param.u64 %o, [out];\n"
    "  cvta.to.global.u64 %o, %o;\n"
    "  mov.u32 %x, %tid.x;\n"
    "  mov.u64 %i, 0;\n"
    "again:\n"
    "  setp.ge.u64 %p, %i, %n;\n"
    "  @%p bra done;\n"
    "  mad.lo.u32 %x, %x, 1664525, 1013904223;\n"
    "  add.u64 %i, %i, 1;\n"
    "  bra again;\n"
    "done:\n"
    "  st.global.u32 [%o], %x;\n"
    "  ret;\n"
    "}\n";

static CUfunction work;
static CUdeviceptr out;
static int blocks = 1;
/* What takes the GPU a microsecond; the fake one does a round in a nanosecond. */
static double rounds_a_microsecond = 1000;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* ------------------------------------------------------------------ ways to take memory */

static CUresult take_pitched(struct held *h, uint64_t bytes) {
    size_t pitch;
    return CU(cuMemAllocPitch_v2)((CUdeviceptr *)&h->value, &pitch, 4096, bytes / 4096, 4);
}

static CUresult give_linear(const struct held *h) {
    return CU(cuMemFree_v2)(h->value);
}

static CUresult take_async(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuMemAllocAsync)((CUdeviceptr *)&h->value, bytes, NULL);
    return result ? result : CU(cuStreamSynchronize)(NULL);
}

static CUresult give_async(const struct held *h) {
    CUresult result = CU(cuMemFreeAsync)(h->value, NULL);
    return result ? result : CU(cuStreamSynchronize)(NULL);
}

static CUresult take_pool(struct held *h, uint64_t bytes) {
    CUmemPoolProps properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUmemoryPool pool;
    CUresult result = CU(cuMemPoolCreate)(&pool, &properties);
    if (result) return result;
    h->more = (uintptr_t)pool;
    result = CU(cuMemAllocFromPoolAsync)((CUdeviceptr *)&h->value, bytes, pool, NULL);
    if (result) CU(cuMemPoolDestroy)(pool);
    return result ? result : CU(cuStreamSynchronize)(NULL);
}

static CUresult give_pool(const struct held *h) {
    give_async(h);
    return CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
}

static CUresult take_array(struct held *h, uint64_t bytes) {
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 4096, .height = bytes / 16384, .format = 0x20, .channels = 1};
    return CU(cuArrayCreate_v2)((CUarray *)&h->value, &shape);
}

static CUresult take_array3d(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 256, .height = 256, .depth = bytes >> 18, .format = 0x20, .channels = 1};
    return CU(cuArray3DCreate_v2)((CUarray *)&h->value, &shape);
}

static CUresult give_array(const struct held *h) {
    return CU(cuArrayDestroy)((CUarray)(uintptr_t)h->value);
}

static CUresult take_mipmap(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 4096, .height = bytes / 16384, .format = 0x20, .channels = 1};
    return CU(cuMipmappedArrayCreate)((CUmipmappedArray *)&h->value, &shape, 3);
}

static CUresult give_mipmap(const struct held *h) {
    return CU(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)h->value);
}

static CUresult take_handle(struct held *h, uint64_t bytes) {
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    return CU(cuMemCreate)((CUhandle *)&h->value, bytes, &properties, 0);
}

static CUresult give_handle(const struct held *h) {
    return CU(cuMemRelease)(h->value);
}

/* Mapped and then released: only the mapping holds it. */
static CUresult take_mapped(struct held *h, uint64_t bytes) {
    struct held handle = {0};
    CUresult result = take_handle(&handle, bytes);
    if (result) return result;
    CU(cuMemAddressReserve)((CUdeviceptr *)&h->value, bytes, 0, 0, 0);
    result = CU(cuMemMap)(h->value, bytes, 0, handle.value, 0);
    h->more = bytes;
    CU(cuMemRelease)(handle.value);
    return result;
}

static CUresult give_mapped(const struct held *h) {
    CUresult result = CU(cuMemUnmap)(h->value, h->more);
    CU(cuMemAddressFree)(h->value, h->more);
    return result;
}

static CUresult take_module(struct held *h, uint64_t bytes) {
    char text[300];
    snprintf(text, sizeof text,
             ".version 6.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 held[%llu];\n",
             (unsigned long long)bytes);
    return CU(cuModuleLoadData)((CUmodule *)&h->value, text);
}

static CUresult give_module(const struct held *h) {
    return CU(cuModuleUnload)((CUmodule)(uintptr_t)h->value);
}

static CUresult take_graph(struct held *h, uint64_t bytes) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
    CU(cuGraphCreate)(&graph, 0);
    CUresult result = CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &parameters);
    if (!result) result = CU(cuGraphInstantiateWithFlags)((CUgraphExec *)&h->value, graph, 0);
    if (result) return result;
    result = CU(cuGraphLaunch)((CUgraphExec)(uintptr_t)h->value, NULL);
    if (!result) result = CU(cuStreamSynchronize)(NULL);
    if (result) CU(cuGraphExecDestroy)((CUgraphExec)(uintptr_t)h->value);
    h->more = parameters.address;
    return result;
}

static CUresult give_graph(const struct held *h) {
    CU(cuMemFree_v2)(h->more);
    CU(cuGraphExecDestroy)((CUgraphExec)(uintptr_t)h->value);
    return CU(cuDeviceGraphMemTrim)(0);
}

static CUresult take_context(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult take_heap(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (result) return result;
    result = CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    if (result) CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult give_context(const struct held *h) {
    CUresult result = CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

/* The host's memory where it is not wanted on the GPU: the last one, for a GPU that is asked for too much of it may hang. */
static CUresult take_managed(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocManaged)((CUdeviceptr *)&h->value, bytes, 1);
}

static const struct way {
    const char *name;
    CUresult (*take)(struct held *h, uint64_t bytes);
    CUresult (*give)(const struct held *h);
} ways[] = {
    {"linear", take_linear, give_linear},    {"pitched", take_pitched, give_linear},
    {"async", take_async, give_async},       {"pool", take_pool, give_pool},
    {"array", take_array, give_array},       {"array3d", take_array3d, give_array},
    {"mipmap", take_mipmap, give_mipmap},    {"handle", take_handle, give_handle},
    {"mapped", take_mapped, give_mapped},    {"module", take_module, give_module},
    {"graph", take_graph, give_graph},       {"context", take_context, give_context},
    {"heap", take_heap, give_context},       {"managed", take_managed, give_linear},
};

static int way_of(const char *name) {
    for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++)
        if (strcmp(ways[way].name, name) == 0) return way;
    return -1;
}

static CUresult take(int way, uint64_t bytes) {
    if (way < 0 || held_count == MOST_HELD) return -1;
    struct held *h = &held[held_count];
    *h = (struct held){.way = way};
    CUresult result = ways[way].take(h, bytes);
    if (result == CUDA_SUCCESS) held_count++;
    return result;
}

/* Until it is refused, or `most` are held; how many there were, and why no more. */
static void fill(int way, uint64_t bytes, int most) {
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count < most && (result = take(way, bytes)) == CUDA_SUCCESS) count++;
    printf("%d %d\n", count, result);
}

static void empty(void) {
    CUresult first = CUDA_SUCCESS;
    while (held_count) {
        struct held gone = held[--held_count];
        CUresult result = ways[gone.way].give(&gone);
        if (!first) first = result;
    }
    printf("%d\n", first);
}

/* ------------------------------------------------------------------ computing */

static CUresult launch(uint64_t rounds) {
    void *parameters[] = {&rounds, &out};
    return CU(cuLaunchKernel)(work, (unsigned)blocks, 1, 1, BLOCK, 1, 1, 0, NULL, parameters, NULL);
}

static void start(void) {
    CUmodule module;
    int many = 1;
    CUresult result = CU(cuInit)(0);
    if (!result) result = CU(cuCtxCreate_v2)(&context, 0, 0);
    if (!result) result = CU(cuModuleLoadData)(&module, kernels);
    if (!result) result = CU(cuModuleGetFunction)(&work, module, "work");
    if (!result) result = CU(cuMemAlloc_v2)(&out, 4);
    if (!result) result = CU(cuDeviceGetAttribute)(&many, DEVICE_MULTIPROCESSORS, 0);
    blocks = 8 * many; /* all of the GPU */
    printf("%d\n", result);
}

/* How many rounds take this GPU a microsecond, when nobody else is there. */
static void calibrate(void) {
    uint64_t rounds = 1000000, best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t began = now_ns();
        launch(rounds);
        CU(cuCtxSynchronize)();
        uint64_t took = now_ns() - began;
        if (took < best) best = took;
    }
    rounds_a_microsecond = (double)rounds * 1000 / (double)best;
    printf("%.3f\n", rounds_a_microsecond);
}

/* Kernels of so many microseconds, waited for by tens, for so long: how many were done in each window of time. */
static void use(double seconds, double microseconds, unsigned window_ms) {
    static unsigned done[MOST_WINDOWS];
    uint64_t began = now_ns(), end = began + (uint64_t)(seconds * 1e9), last = 0;
    memset(done, 0, sizeof done);
    while (now_ns() < end) {
        for (int i = 0; i < 10; i++) launch((uint64_t)(microseconds * rounds_a_microsecond));
        CU(cuCtxSynchronize)();
        last = (now_ns() - began) / (window_ms * 1000000ULL);
        if (last < MOST_WINDOWS) done[last] += 10;
    }
    for (uint64_t i = 0; i < last && i < MOST_WINDOWS; i++) printf("%u ", done[i]);
    printf("%u\n", last < MOST_WINDOWS ? done[last] : 0);
}

/* Requests of so many microseconds one after the other, with a pause: how many, and what half of them, 99 of 100 and all
 * took at most. */
static void serve(double seconds, double microseconds, unsigned pause_us) {
    static uint64_t took[MOST_TIMED];
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    size_t count = 0;
    while (now_ns() < end && count < MOST_TIMED) {
        uint64_t began = now_ns();
        launch((uint64_t)(microseconds * rounds_a_microsecond));
        CU(cuCtxSynchronize)();
        took[count++] = (now_ns() - began) / 1000;
        nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000L}, NULL);
    }
    qsort(took, count, sizeof *took, by_size);
    printf("%zu %llu %llu %llu\n", count, (unsigned long long)took[count / 2],
           (unsigned long long)took[count * 99 / 100], (unsigned long long)took[count - 1]);
}

/* What the host waits for a launch of next to nothing, or for taking a block of 1 MiB and giving it back: the median. */
static void cost(const char *what, int count) {
    static uint64_t took[MOST_TIMED];
    CUdeviceptr block;
    count = count > MOST_TIMED ? MOST_TIMED : count;
    for (int i = 0; i < count; i++) {
        uint64_t began = now_ns();
        if (strcmp(what, "launch") == 0) {
            launch(1);
        } else {
            CU(cuMemAlloc_v2)(&block, 1 << 20);
            CU(cuMemFree_v2)(block);
        }
        took[i] = now_ns() - began;
        if (i % 100 == 99) CU(cuCtxSynchronize)();
    }
    qsort(took, (size_t)count, sizeof *took, by_size);
    printf("%llu\n", (unsigned long long)took[count / 2]);
}

/* ------------------------------------------------------------------ what it is told */

static void obey(const char *line) {
    char word[32];
    double seconds, microseconds;
    unsigned long long bytes;
    unsigned number;
    size_t free_bytes, total;
    if (strcmp(line, "start") == 0) {
        start();
    } else if (sscanf(line, "take %31s %llu", word, &bytes) == 2) {
        printf("%d\n", take(way_of(word), bytes));
    } else if (sscanf(line, "fill %31s %llu %u", word, &bytes, &number) == 3) {
        fill(way_of(word), bytes, (int)number);
    } else if (strcmp(line, "empty") == 0) {
        empty();
    } else if (strcmp(line, "info") == 0) {
        CUresult result = CU(cuMemGetInfo_v2)(&free_bytes, &total);
        printf("%d %zu %zu\n", result, free_bytes, total);
    } else if (strcmp(line, "calibrate") == 0) {
        calibrate();
    } else if (sscanf(line, "speed %lf", &rounds_a_microsecond) == 1) {
        puts("0");
    } else if (sscanf(line, "use %lf %lf %u", &seconds, &microseconds, &number) == 3) {
        use(seconds, microseconds, number);
    } else if (sscanf(line, "serve %lf %lf %u", &seconds, &microseconds, &number) == 3) {
        serve(seconds, microseconds, number);
    } else if (sscanf(line, "cost %31s %u", word, &number) == 2) {
        cost(word, (int)number);
    } else {
        exit(2);
    }
}

int main(void) {
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "program: %s\n", dlerror());
        return 3;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    return 0;
}
