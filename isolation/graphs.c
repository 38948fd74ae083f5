/* Graphs that allocate. What their memory takes, the driver tells for each device as a whole; a launch is let through
 * when what all of the graph's nodes ask for fits beside it. */
#include <pthread.h>
#include <stdlib.h>

#include "holdings.h"
#include "pace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t charged[MOST_GPUS];

struct node_bytes {
    uint64_t bytes;
    int gpu;
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
    sum->gpu = gpu_of_device(parameters.properties.location.id);
    if (sum->gpu < 0 || parameters.bytes > LARGEST_SIZE) sum->too_much = true;
    sum->bytes += TO_GRANULES(parameters.bytes);
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

static CUresult remember(CUresult result, CUgraphExec *exec, CUgraph graph) {
    struct node_bytes sum = {.gpu = -1};
    if (result != CUDA_SUCCESS) return result;
    add_nodes(graph, &sum);
    struct holding holding = {
        .kind = EXEC,
        .value = (uintptr_t)*exec,
        .record = {.bytes = sum.bytes, .gpu = sum.gpu},
    };
    if (!sum.too_much && (!sum.bytes || holdings_add(holding))) return result;
    REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    return remember(REAL(cuGraphInstantiate)(exec, graph, failed, log, size), exec, graph);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    return remember(REAL(cuGraphInstantiate_v2)(exec, graph, failed, log, size), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return remember(REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return remember(REAL(cuGraphInstantiateWithParams)(exec, graph, parameters), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return remember(REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, parameters), exec, graph);
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

static CUresult call(int index, CUgraphExec exec, CUstream stream) {
    struct holding holding;
    bool allocates = holdings_take(EXEC, (uintptr_t)exec, &holding);
    if (!allocates) return REAL_AS(index, cuGraphLaunch)(exec, stream);
    holdings_add(holding);
    int gpu = holding.record.gpu;
    pthread_mutex_lock(&lock);
    refresh(gpu, 0);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (account_charge(gpu, holding.record.bytes)) {
        result = REAL_AS(index, cuGraphLaunch)(exec, stream);
        refresh(gpu, holding.record.bytes);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload, exec, stream);
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload_ptsz, exec, stream);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    pace_before(stream, false);
    CUresult result = call(F_cuGraphLaunch, exec, stream);
    pace_after(stream, false);
    return result;
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    pace_before(stream, true);
    CUresult result = call(F_cuGraphLaunch_ptsz, exec, stream);
    pace_after(stream, true);
    return result;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    struct holding holding;
    bool ours = holdings_take(EXEC, (uintptr_t)exec, &holding);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (ours && result != CUDA_SUCCESS) holdings_add(holding);
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
