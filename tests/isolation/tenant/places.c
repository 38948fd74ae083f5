/* Memory by where it is to lie: other GPUs' pools, parts of a GPU, the host's. */
#include "tenant.h"

#include <string.h>

#define MOST 20

static CUresult take_handle_at(CUmemLocation there, uint64_t bytes) {
    CUmemAllocationProp properties = {.type = 1, .location = there};
    CUhandle handle;
    return CU(cuMemCreate)(&handle, bytes, &properties, 0);
}

static CUresult take_graph_at(CUmemLocation there, uint64_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {.properties = {.type = 1, .location = there}, .bytes = bytes};
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CU(cuGraphCreate)(&graph, 0);
    CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &asked);
    CUresult result = CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
    return result ? result : CU(cuGraphLaunch)(exec, NULL);
}

static CUmemoryPool pool;

static CUresult find_pool(const char *which, CUmemLocation there) {
    CUmemPoolProps properties = {.type = 1, .location = there};
    if (strcmp(which, "made") == 0) return CU(cuMemPoolCreate)(&pool, &properties);
    if (strcmp(which, "default") == 0) return CU(cuDeviceGetDefaultMemPool)(&pool, there.id);
    if (strcmp(which, "present") == 0) return CU(cuDeviceGetMemPool)(&pool, there.id);
    if (strcmp(which, "default-at") == 0) return CU(cuMemGetDefaultMemPool)(&pool, &there, 1);
    return CU(cuMemGetMemPool)(&pool, &there, 1);
}

static CUresult take_at(const char *what, CUmemLocation there, uint64_t bytes) {
    CUdeviceptr address;
    if (strcmp(what, "handle") == 0) return take_handle_at(there, bytes);
    if (strcmp(what, "graph") == 0) return take_graph_at(there, bytes);
    return CU(cuMemAllocFromPoolAsync)(&address, bytes, pool, NULL);
}

/* With the first GPU's context current, as often as it is given, MOST times at the most. */
void fill_at(const char *what, int type, int id, uint64_t bytes) {
    CUmemLocation there = {.type = type, .id = id};
    CUresult result = strcmp(what, "handle") && strcmp(what, "graph") ? find_pool(what, there) : CUDA_SUCCESS;
    int count = 0;
    while (!result && count < MOST) {
        result = take_at(what, there, bytes);
        if (!result) count++;
    }
    printf("%d %d\n", count, result);
}

void end_pool(void) {
    printf("%d\n", CU(cuMemPoolDestroy)(pool));
}
