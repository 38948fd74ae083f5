/* Graphs that allocate, and don't free it: what they have is in use until somebody else does. */
#include "tenant.h"

static CUgraph allocating(uint64_t bytes, CUdeviceptr *address) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
    CU(cuGraphCreate)(&graph, 0);
    CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &parameters);
    *address = parameters.address;
    return graph;
}

static CUgraphExec exec_of(const struct held *h) {
    return (CUgraphExec)(uintptr_t)h->value;
}

/* What a launch or an upload said of it: without that it takes nothing. */
static CUresult begun(struct held *h, CUresult result) {
    if (result) CU(cuGraphExecDestroy)(exec_of(h));
    return result;
}

CUresult take_graph(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUresult result = CU(cuGraphInstantiateWithFlags)((CUgraphExec *)&h->value, allocating(bytes, &address), 0);
    h->more = address; /* not before: nobody touches the place of an answer until it is there */
    return result ? result : begun(h, CU(cuGraphLaunch)(exec_of(h), NULL));
}

CUresult take_graph_thread(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    CUresult result = CU(cuGraphInstantiateWithParams_ptsz)((CUgraphExec *)&h->value, allocating(bytes, &address), &how);
    h->more = address;
    return result ? result : begun(h, CU(cuGraphLaunch_ptsz)(exec_of(h), NULL));
}

/* An upload takes it, and a launch after that keeps it from being trimmed. */
static CUresult uploaded(struct held *h, CUresult result) {
    return begun(h, result ? result : CU(cuGraphLaunch)(exec_of(h), NULL));
}

CUresult take_graph_upload(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUresult result = CU(cuGraphInstantiate)((CUgraphExec *)&h->value, allocating(bytes, &address), NULL, NULL, 0);
    h->more = address;
    return result ? result : uploaded(h, CU(cuGraphUpload)(exec_of(h), NULL));
}

CUresult take_graph_upload_thread(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUresult result = CU(cuGraphInstantiate_v2)((CUgraphExec *)&h->value, allocating(bytes, &address), NULL, NULL, 0);
    h->more = address;
    return result ? result : uploaded(h, CU(cuGraphUpload_ptsz)(exec_of(h), NULL));
}

CUresult take_graph_made(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = INSTANTIATE_UPLOAD};
    CUresult result = CU(cuGraphInstantiateWithParams)((CUgraphExec *)&h->value, allocating(bytes, &address), &how);
    h->more = address;
    return result ? result : uploaded(h, CUDA_SUCCESS);
}

CUresult take_graph_made_thread(struct held *h, uint64_t bytes) {
    CUdeviceptr address;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = INSTANTIATE_UPLOAD};
    CUresult result = CU(cuGraphInstantiateWithParams_ptsz)((CUgraphExec *)&h->value, allocating(bytes, &address), &how);
    h->more = address;
    return result ? result : uploaded(h, CUDA_SUCCESS);
}

CUresult give_graph(struct held *h) {
    CUresult result = CU(cuMemFreeAsync)(h->more, NULL);
    CU(cuGraphExecDestroy)(exec_of(h));
    return result ? result : CU(cuDeviceGraphMemTrim)(0);
}

/* Launch graphs that allocate on two GPUs until one is refused. */
void fill_two(uint64_t first, uint64_t second) {
    const uint64_t sizes[] = {first, second};
    CUresult result = CUDA_SUCCESS;
    int count = -1;
    for (; result == CUDA_SUCCESS; count++) {
        CUgraph graph;
        CUgraphNode node;
        CUgraphExec exec;
        CU(cuGraphCreate)(&graph, 0);
        for (int gpu = 0; gpu < 2; gpu++) {
            CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
                .properties = {.type = 1, .location = {.type = LOCATION_DEVICE, .id = gpu}}, .bytes = sizes[gpu]};
            CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &parameters);
        }
        result = CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
        if (!result) result = CU(cuGraphLaunch)(exec, NULL);
    }
    printf("%d %d\n", count, result);
}
