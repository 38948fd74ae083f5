/* Graphs that allocate. What their memory takes, the driver tells for each device as a whole; a launch is let through
 * when what all of the graph's nodes ask for fits beside it. */
#include <pthread.h>
#include <stdlib.h>

#include "holdings.h"
#include "pace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t charged[MOST_GPUS];

struct node_bytes {
    uint64_t bytes[MOST_GPUS];
    bool too_much;
};

static void add_nodes(CUgraph graph, struct node_bytes *sum);

static void add_node(CUgraphNode node, struct node_bytes *sum) {
    int type;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return;
    if (type == NODE_CHILD_GRAPH && REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        add_nodes(child, sum);
    if (type != NODE_MEMORY_ALLOCATION || REAL(cuGraphMemAllocNodeGetParams)(node, &parameters) != CUDA_SUCCESS) return;
    if (parameters.properties.location.type != LOCATION_DEVICE) return;
    int gpu = gpu_of_device(parameters.properties.location.id);
    if (gpu < 0 || parameters.bytes > LARGEST_SIZE)
        sum->too_much = true;
    else
        sum->bytes[gpu] += TO_GRANULES(parameters.bytes);
}

static void add_nodes(CUgraph graph, struct node_bytes *sum) {
    size_t count = 0;
    if (REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count) return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    sum->too_much = sum->too_much || !nodes;
    if (nodes && REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++) add_node(nodes[i], sum);
    free(nodes);
}

/* What a graph allocates on one of the slice's GPUs is held by a number of its own, for no two graphs are so near. */
static uint64_t part_of(CUgraphExec exec, int gpu) {
    return (uintptr_t)exec + (uint64_t)gpu;
}

/* The slice's GPUs; none where its limits could not be read, and then no driver is there to answer either. */
static int gpus_here(void) {
    return limits ? (int)limits->gpus : 0;
}

static bool note(CUgraphExec exec, const struct node_bytes *sum) {
    bool noted = !sum->too_much;
    for (int gpu = 0; noted && gpu < gpus_here(); gpu++) {
        struct holding part = {
            .kind = EXEC,
            .value = part_of(exec, gpu),
            .record = {.bytes = sum->bytes[gpu], .gpu = gpu},
        };
        noted = !sum->bytes[gpu] || holdings_add(part);
    }
    return noted;
}

static void forget_graph(CUgraphExec exec) {
    struct holding part;
    for (int gpu = 0; gpu < gpus_here(); gpu++) holdings_take(EXEC, part_of(exec, gpu), &part);
}

static CUresult remember(CUresult result, CUgraphExec *exec, CUgraph graph) {
    struct node_bytes sum = {0};
    if (result != CUDA_SUCCESS) return result;
    add_nodes(graph, &sum);
    pthread_mutex_lock(&lock);
    bool noted = note(*exec, &sum);
    if (!noted) forget_graph(*exec);
    pthread_mutex_unlock(&lock);
    if (!noted) REAL(cuGraphExecDestroy)(*exec);
    return noted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, remember(REAL(cuGraphInstantiate)(&made, graph, failed, log, size), &made, graph));
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, remember(REAL(cuGraphInstantiate_v2)(&made, graph, failed, log, size), &made, graph));
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, remember(REAL(cuGraphInstantiateWithFlags)(&made, graph, flags), &made, graph));
}

static uint64_t reserved_now(int gpu) {
    uint64_t bytes = 0;
    for (CUdevice device = 0; device < MOST_GPUS; device++)
        if (gpu_of_device(device) == gpu) {
            REAL(cuDeviceGetGraphMemAttribute)(device, ATTRIBUTE_GRAPH_RESERVED_NOW, &bytes);
            return bytes;
        }
    return bytes;
}

static void refresh(int gpu, uint64_t claimed) {
    uint64_t now = reserved_now(gpu), before = charged[gpu] + claimed;
    if (now > before)
        account_charge_anyway(gpu, now - before);
    else
        account_release(gpu, before - now);
    charged[gpu] = now;
}

/* What it allocates by GPU; false if it is a graph that allocates nothing. */
static bool asks_for(CUgraphExec exec, uint64_t bytes[MOST_GPUS]) {
    bool any = false;
    for (int gpu = 0; gpu < gpus_here(); gpu++) {
        struct holding part;
        bytes[gpu] = holdings_find(EXEC, part_of(exec, gpu), &part) ? part.record.bytes : 0;
        any = any || bytes[gpu];
    }
    return any;
}

static bool enter(const uint64_t bytes[MOST_GPUS]) {
    int gpu = 0;
    while (gpu < gpus_here() && (!bytes[gpu] || account_charge(gpu, bytes[gpu]))) gpu++;
    if (gpu == gpus_here()) return true;
    while (gpu--) account_release(gpu, bytes[gpu]);
    return false;
}

static void refresh_all(const uint64_t asked[MOST_GPUS], bool claimed) {
    for (int gpu = 0; gpu < gpus_here(); gpu++)
        if (asked[gpu]) refresh(gpu, claimed ? asked[gpu] : 0);
}

static CUresult call(int index, CUgraphExec exec, CUstream stream) {
    uint64_t bytes[MOST_GPUS];
    if (!asks_for(exec, bytes)) return REAL_AS(index, cuGraphLaunch)(exec, stream);
    pthread_mutex_lock(&lock);
    refresh_all(bytes, false);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (enter(bytes)) {
        result = REAL_AS(index, cuGraphLaunch)(exec, stream);
        refresh_all(bytes, true);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* An upload takes the memory that the nodes ask for, as a launch does: it is made by itself, when that is known. */
static CUresult instantiate(int index, int upload, CUgraphExec *exec, CUgraph graph,
                            CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    if (!parameters) return REAL_AS(index, cuGraphInstantiateWithParams)(exec, graph, parameters);
    CUDA_GRAPH_INSTANTIATE_PARAMS plain = *parameters; /* as in cuMemCreate */
    bool uploads = plain.flags & INSTANTIATE_UPLOAD;
    plain.flags &= ~(unsigned long long)INSTANTIATE_UPLOAD;
    CUresult result = remember(REAL_AS(index, cuGraphInstantiateWithParams)(exec, graph, &plain), exec, graph);
    parameters->failed_node = plain.failed_node;
    parameters->result = plain.result;
    if (result != CUDA_SUCCESS || !uploads) return result;
    result = call(upload, *exec, plain.upload);
    if (result != CUDA_SUCCESS) cuGraphExecDestroy(*exec);
    return result;
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made,
                    instantiate(F_cuGraphInstantiateWithParams, F_cuGraphUpload, &made, graph, parameters));
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made,
                    instantiate(F_cuGraphInstantiateWithParams_ptsz, F_cuGraphUpload_ptsz, &made, graph, parameters));
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload, exec, stream);
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload_ptsz, exec, stream);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    int gpu = pace_before(stream, false);
    CUresult result = call(F_cuGraphLaunch, exec, stream);
    pace_after(gpu, stream, false);
    return result;
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    int gpu = pace_before(stream, true);
    CUresult result = call(F_cuGraphLaunch_ptsz, exec, stream);
    pace_after(gpu, stream, true);
    return result;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    /* One step, or what was noted of another thread's new graph in the same place would be forgotten. */
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (result == CUDA_SUCCESS) forget_graph(exec);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
    int gpu = gpu_of_device(device);
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    if (gpu >= 0) refresh(gpu, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

void graphs_trim(int gpu) {
    if (!charged[gpu]) return;
    for (CUdevice device = 0; device < MOST_GPUS; device++)
        if (gpu_of_device(device) == gpu) cuDeviceGraphMemTrim(device);
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) charged[gpu] = 0;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
