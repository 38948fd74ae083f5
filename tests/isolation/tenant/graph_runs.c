/* Graphs that are made once and run again and again, as programs have them: each command is one call of such a program. */
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../fake_cuda/conditional.h"
#include "tenant.h"

#define MOST_RUNS 64
#define MOST_STREAMS 8

enum freeing { NEVER, INSIDE, WITH_THE_NEXT };

static CUgraphExec runs[MOST_RUNS];
static CUdeviceptr last[MOST_RUNS]; /* allocated by it */
static int count;

/* Streams by number; 0 is the default one. */
static CUstream stream_of(unsigned number) {
    static CUstream streams[MOST_STREAMS];
    if (number >= MOST_STREAMS) exit(5);
    if (number && !streams[number] && CU(cuStreamCreate)(&streams[number], 0)) exit(5);
    return streams[number];
}

static void works(CUgraph graph, unsigned microseconds) {
    const struct { void *function; unsigned grid_x; } kernel = {NULL, microseconds};
    CUgraphNode node;
    if (microseconds && CU(cuGraphAddKernelNode)(&node, graph, NULL, 0, &kernel)) exit(5);
}

static void instantiate(CUgraph graph, CUdeviceptr address, enum freeing freeing) {
    if (count == MOST_RUNS) exit(5);
    last[count] = address;
    CUresult result =
        CU(cuGraphInstantiateWithFlags)(&runs[count], graph, freeing == WITH_THE_NEXT ? INSTANTIATE_AUTO_FREE : 0);
    printf("%d\n", result ? -(int)result : count++);
}

/* So many allocations one after the other, each freed before the next or none. */
static void make(unsigned allocations, unsigned long long bytes, enum freeing freeing, unsigned microseconds) {
    CUdeviceptr address = 0;
    CUgraph graph;
    CUgraphNode node;
    CU(cuGraphCreate)(&graph, 0);
    for (unsigned i = 0; i < allocations; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS asked = {
            .properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
        if (CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &asked)) exit(5);
        address = asked.address;
        if (freeing == INSIDE && CU(cuGraphAddMemFreeNode)(&node, graph, NULL, 0, address)) exit(5);
    }
    works(graph, microseconds);
    instantiate(graph, address, freeing);
}

static void allocate_and_free(CUgraph graph, unsigned long long bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {
        .properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
    CUgraphNode node;
    if (CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &asked)) exit(5);
    if (CU(cuGraphAddMemFreeNode)(&node, graph, NULL, 0, asked.address)) exit(5);
}

/* One whose conditional node has a body that allocates, beside an allocation of its own or none. */
static void make_conditional(unsigned long long own, unsigned long long of_body) {
    CUgraphNodeParams parameters = {.type = NODE_CONDITIONAL, .conditional = {.size = 1}};
    CUgraph graph;
    CUgraphNode node;
    CU(cuGraphCreate)(&graph, 0);
    if (own) allocate_and_free(graph, own);
    if (CU(cuGraphAddNode)(&node, graph, NULL, 0, &parameters)) exit(5);
    allocate_and_free(*parameters.conditional.bodies, of_body);
    instantiate(graph, 0, INSIDE);
}

/* The same of a stream's own allocations, which a capture takes up. */
static void capture_allocations(unsigned allocations, unsigned long long bytes, enum freeing freeing) {
    CUstream stream = stream_of(MOST_STREAMS - 1);
    CUdeviceptr address = 0;
    CUgraph graph;
    CUresult result = CU(cuStreamBeginCapture_v2)(stream, 0);
    for (unsigned i = 0; !result && i < allocations; i++) {
        result = CU(cuMemAllocAsync)(&address, bytes, stream);
        if (!result && freeing == INSIDE) result = CU(cuMemFreeAsync)(address, stream);
    }
    if (CU(cuStreamEndCapture)(stream, &graph)) exit(5);
    if (result)
        printf("%d\n", -(int)result);
    else
        instantiate(graph, address, freeing);
}

/* Waits in the driver by the word. */
static void waits(CUgraph graph, _Atomic int *come, unsigned microseconds) {
    const struct { _Atomic int *come; unsigned grid_x; } kernel = {come, microseconds};
    CUgraphNode node;
    if (CU(cuGraphAddKernelNode)(&node, graph, NULL, 0, &kernel)) exit(5);
}

/* The handle of one that is gone, where the next one will be. */
static CUgraphExec vacate(CUgraphExec exec) {
    if (CU(cuGraphExecDestroy)(exec) || CU(cuDeviceGraphMemTrim)(0)) exit(5);
    return exec;
}

struct meeting {
    _Atomic int come;
    pid_t thread; /* which launches */
    CUgraph graph;
    CUgraphExec exec;
    CUresult result;
    _Atomic bool launched;
};

static void *instantiate_it(void *with) {
    struct meeting *it = with;
    CU(cuCtxSetCurrent)(context);
    it->result = CU(cuGraphInstantiateWithFlags)(&it->exec, it->graph, 0);
    return NULL;
}

/* It is noted when the other thread waits for that, or need not. */
static void *let_note(void *with) {
    struct meeting *it = with;
    while (!it->launched && !sleeps(it->thread)) {}
    it->come = 3;
    return NULL;
}

/* While a graph that allocates is asked by one thread what it does, it is launched by its handle, which an earlier one had:
 * whether it is instantiated, is launched, and had that handle. */
static void launch_before_noted(unsigned long long bytes) {
    struct meeting it = {.thread = (pid_t)syscall(SYS_gettid)};
    CUgraph plain;
    CUgraphExec gone;
    pthread_t making, noting;
    if (CU(cuGraphCreate)(&plain, 0) || CU(cuGraphInstantiateWithFlags)(&gone, plain, 0)) exit(5);
    vacate(gone);
    if (CU(cuGraphCreate)(&it.graph, 0)) exit(5);
    allocate_and_free(it.graph, bytes);
    waits(it.graph, &it.come, 0);
    pthread_create(&making, NULL, instantiate_it, &it);
    while (!it.come) {}
    pthread_create(&noting, NULL, let_note, &it);
    CUresult result = CU(cuGraphLaunch)(gone, NULL);
    it.launched = true;
    pthread_join(noting, NULL);
    pthread_join(making, NULL);
    printf("%d %d %d\n", it.result, result, gone == it.exec);
}

static void *launch_it(void *with) {
    struct meeting *it = with;
    CU(cuCtxSetCurrent)(context);
    it->result = CU(cuGraphLaunch)(it->exec, NULL);
    return NULL;
}

/* While one that allocates nothing is with the driver to be launched, it ends, and one that allocates comes into its place:
 * whether that is instantiated, is launched, and did. */
static void launch_while_replaced(unsigned long long bytes) {
    struct meeting it = {0};
    CUgraph plain;
    CUgraphExec next;
    pthread_t launching;
    if (CU(cuGraphCreate)(&plain, 0)) exit(5);
    waits(plain, &it.come, 1);
    if (CU(cuGraphInstantiateWithFlags)(&it.exec, plain, 0) || CU(cuGraphCreate)(&it.graph, 0)) exit(5);
    allocate_and_free(it.graph, bytes);
    pthread_create(&launching, NULL, launch_it, &it);
    while (!it.come) {}
    vacate(it.exec);
    CUresult result = CU(cuGraphInstantiateWithFlags)(&next, it.graph, 0);
    it.come = 3;
    pthread_join(launching, NULL);
    printf("%d %d %d\n", result, it.result, next == it.exec);
}

static CUgraphExec run_of(unsigned number) {
    if (number >= (unsigned)count || !runs[number]) exit(5);
    return runs[number];
}

static CUresult end(unsigned number) {
    CUresult result = CU(cuGraphExecDestroy)(run_of(number));
    runs[number] = NULL;
    return result;
}

bool obey_of_graphs(const char *line) {
    unsigned number, stream, freeing, microseconds;
    unsigned long long bytes, other;
    if (sscanf(line, "graph-conditional %llu %llu", &bytes, &other) == 2)
        make_conditional(bytes, other);
    else if (sscanf(line, "graph-make %u %llu %u %u", &number, &bytes, &freeing, &microseconds) == 4)
        make(number, bytes, freeing, microseconds);
    else if (sscanf(line, "graph-capture %u %llu %u", &number, &bytes, &freeing) == 3)
        capture_allocations(number, bytes, freeing);
    else if (sscanf(line, "graph-launch-unnoted %llu", &bytes) == 1)
        launch_before_noted(bytes);
    else if (sscanf(line, "graph-launch-replaced %llu", &bytes) == 1)
        launch_while_replaced(bytes);
    else if (sscanf(line, "graph-launch %u %u", &number, &stream) == 2)
        printf("%d\n", CU(cuGraphLaunch)(run_of(number), stream_of(stream)));
    else if (sscanf(line, "graph-upload %u %u", &number, &stream) == 2)
        printf("%d\n", CU(cuGraphUpload)(run_of(number), stream_of(stream)));
    else if (sscanf(line, "graph-free %u %u", &number, &stream) == 2)
        printf("%d\n", CU(cuMemFreeAsync)(last[number], stream_of(stream)));
    else if (sscanf(line, "graph-end %u", &number) == 1)
        printf("%d\n", end(number));
    else if (strcmp(line, "graph-trim\n") == 0)
        printf("%d\n", CU(cuDeviceGraphMemTrim)(0));
    else if (sscanf(line, "graph-wait %u", &stream) == 1)
        printf("%d\n", CU(cuStreamSynchronize)(stream_of(stream)));
    else
        return false;
    return true;
}
