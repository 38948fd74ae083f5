/* Graphs of the fake driver. A graph takes its memory with its first launch or upload and keeps it until it is trimmed,
 * which is not done to one that runs, nor to what it allocated and nobody freed. With FAKE_CUDA_GRAPHS=share it is given what others have that don't run, or are before it in its
 * stream, as NVIDIA documents it; else everybody keeps his own. With
 * FAKE_CUDA_NODES=grow a node is added before any are listed, as by another thread, with grow-once before the first time; or
 * it names what is not answered of them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "conditional.h"
#include "driver.h"
#include "fake.h"
#include "heap.h"
#include "world.h"

struct driver_node {
    CUgraphNode next;
    int type;
    CUmemLocation location;
    uint64_t ns, bytes;
    CUdeviceptr address;
    _Atomic int *come;
};

/* Addresses of a graph: one place for several allocations, of which none lives while another does. */
struct place {
    struct place *next;
    CUdeviceptr address;
    uint64_t bytes;
    int gpu;
    bool free;
};

struct driver_graph {
    CUgraphNode nodes;
    struct place *places;
    size_t count;
    CUgraph body; /* of its conditional node, if it has one */
};

struct driver_exec {
    CUgraphExec next;
    uint64_t ns, bytes[WORLD_GPUS], has[WORLD_GPUS], live[WORLD_GPUS];
    uint64_t later[WORLD_GPUS]; /* what bodies of conditional nodes take, from the second launch on */
    struct place *lasting; /* what it does not free itself; `free` while it does not live */
    CUstream stream;
    uint64_t until; /* of that GPU's work it is the end */
    int on;
    bool frees; /* with each launch what lives of the one before */
    bool launched;
    bool gone; /* destroyed: what it has stays until it is trimmed */
    _Atomic int *come;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUgraphExec execs;
static CUgraphExec vacant; /* the last one that ended for good: the next one lies where it was */

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return CUDA_SUCCESS;
}

static CUgraphNode add_node(CUgraph graph, int type) {
    CUgraphNode made = calloc(1, sizeof *made);
    *made = (struct driver_node){.next = graph->nodes, .type = type};
    graph->count++;
    return graph->nodes = made;
}

/* A kernel's function is a word to wait by: when the node's type is asked, or if it has work, before it is launched. */
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const void *parameters) {
    const struct { _Atomic int *function; unsigned grid_x; } *kernel = parameters;
    (void)after, (void)count;
    *node = add_node(graph, 0);
    (*node)->ns = kernel->grid_x * 1000ULL;
    (*node)->come = kernel->function;
    return CUDA_SUCCESS;
}

static struct place *place_for(CUgraph graph, int gpu, uint64_t bytes) {
    struct place *place = graph->places;
    while (place && !(place->free && place->gpu == gpu && bytes <= place->bytes)) place = place->next;
    if (!place) {
        place = calloc(1, sizeof *place);
        *place = (struct place){.next = graph->places, .bytes = WHOLE(bytes), .gpu = gpu, .address = heap_reserve(bytes)};
        graph->places = place;
    }
    place->free = false;
    return place;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    int gpu = fake_gpu_at(parameters->properties.location);
    (void)after, (void)count;
    *node = add_node(graph, NODE_MEMORY_ALLOCATION);
    (*node)->bytes = parameters->bytes;
    (*node)->location = parameters->properties.location;
    parameters->address = (*node)->address = place_for(graph, gpu, parameters->bytes)->address;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUdeviceptr address) {
    (void)after, (void)count;
    struct place *place = graph->places;
    while (place && (place->free || place->address != address)) place = place->next;
    if (!place) return CUDA_ERROR_INVALID_VALUE;
    place->free = true;
    *node = add_node(graph, NODE_MEMORY_FREE);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *parameters) {
    (void)after, (void)count;
    if (parameters->type != NODE_CONDITIONAL) return CUDA_ERROR_NOT_SUPPORTED;
    *node = add_node(graph, NODE_CONDITIONAL);
    parameters->conditional.bodies = &graph->body;
    return cuGraphCreate(&graph->body, 0);
}

CUresult fake_graph_allocate(CUgraph graph, int gpu, CUdeviceptr *address, uint64_t bytes) {
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {
        .properties = {.type = 1, .location = {.type = LOCATION_DEVICE, .id = gpu}}, .bytes = bytes};
    CUresult result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &asked);
    *address = asked.address;
    return result;
}

static bool nodes_are(const char *how) {
    const char *told = getenv("FAKE_CUDA_NODES");
    return told && strcmp(told, how) == 0;
}

static void grow(CUgraph graph) {
    static bool grew;
    if (nodes_are("grow") || (nodes_are("grow-once") && !grew)) add_node(graph, 0);
    grew = true;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    if (nodes_are("count-untold") && !nodes) return CUDA_ERROR_INVALID_VALUE;
    if (nodes_are("list-untold") && nodes) return CUDA_ERROR_INVALID_VALUE;
    if (nodes) grow(graph);
    CUgraphNode node = graph->nodes;
    for (size_t i = 0; nodes && node && i < *count; i++, node = node->next) nodes[i] = node;
    if (!nodes) *count = graph->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
    if (nodes_are("type-untold")) return CUDA_ERROR_INVALID_VALUE;
    if (!node->ns) fake_come_when_told(node->come);
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    if (nodes_are("allocation-untold")) return CUDA_ERROR_INVALID_VALUE;
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .properties = {.type = 1, .location = node->location},
        .bytes = node->bytes,
        .address = node->address,
    };
    return CUDA_SUCCESS;
}

static void add_place(CUgraphExec exec, const struct place *place) {
    if (place->gpu == WORLD_HOST) return;
    exec->bytes[place->gpu] += place->bytes;
    if (place->free) return;
    struct place *lasting = malloc(sizeof *lasting);
    *lasting = *place;
    lasting->next = exec->lasting;
    lasting->free = true;
    exec->lasting = lasting;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    pthread_mutex_lock(&lock);
    CUgraphExec made = vacant ? vacant : malloc(sizeof *made);
    vacant = NULL;
    pthread_mutex_unlock(&lock);
    *made = (struct driver_exec){.frees = flags & INSTANTIATE_AUTO_FREE};
    for (CUgraphNode node = graph->nodes; node; node = node->next) {
        made->ns += node->ns;
        if (node->ns && node->come) made->come = node->come;
    }
    for (struct place *place = graph->places; place; place = place->next) add_place(made, place);
    for (struct place *place = graph->body ? graph->body->places : NULL; place; place = place->next)
        made->later[place->gpu] += place->bytes;
    pthread_mutex_lock(&lock);
    made->next = execs;
    execs = made;
    pthread_mutex_unlock(&lock);
    *exec = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    (void)failed, (void)log, (void)size;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    return cuGraphInstantiate_v2(exec, graph, failed, log, size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
    if (!result && parameters->flags & INSTANTIATE_UPLOAD) result = cuGraphUpload(*exec, parameters->upload);
    parameters->result = result != CUDA_SUCCESS;
    return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return cuGraphInstantiateWithParams(exec, graph, parameters);
}

static bool runs(CUgraphExec exec) {
    return exec->until && world_done(exec->on) < exec->until;
}

static bool shares(void) {
    const char *how = getenv("FAKE_CUDA_GRAPHS");
    return how && strcmp(how, "share") == 0;
}

static uint64_t spare(CUgraphExec exec, int gpu) {
    return exec->has[gpu] - exec->live[gpu];
}

static void take_of_others(CUgraphExec exec, int gpu, CUstream stream) {
    for (CUgraphExec other = execs; other; other = other->next) {
        uint64_t lacks = exec->bytes[gpu] - exec->has[gpu];
        uint64_t taken = spare(other, gpu) < lacks ? spare(other, gpu) : lacks;
        if (other == exec || (runs(other) && other->stream != stream)) continue;
        other->has[gpu] -= taken;
        exec->has[gpu] += taken;
    }
}

static CUresult back(CUgraphExec exec, CUstream stream) {
    for (int gpu = 0; gpu < (int)world->gpus; gpu++) {
        if (shares()) take_of_others(exec, gpu, stream);
        uint64_t lacks = exec->bytes[gpu] - exec->has[gpu];
        if (!lacks) continue;
        if (!world_take(gpu, lacks)) return CUDA_ERROR_OUT_OF_MEMORY;
        exec->has[gpu] += lacks;
    }
    exec->stream = stream;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    pthread_mutex_lock(&lock);
    CUresult result = back(exec, stream);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphUpload(exec, stream);
}

static void run_bodies(CUgraphExec exec) {
    for (int gpu = 0; exec->launched && gpu < WORLD_GPUS; gpu++) {
        exec->bytes[gpu] += exec->later[gpu];
        exec->later[gpu] = 0;
    }
}

static bool lives(CUgraphExec exec) {
    for (int gpu = 0; gpu < WORLD_GPUS; gpu++)
        if (exec->live[gpu]) return true;
    return false;
}

static void bring_to_life(CUgraphExec exec) {
    for (struct place *place = exec->lasting; place; place = place->next) {
        if (place->free) exec->live[place->gpu] += place->bytes;
        place->free = false;
    }
}

bool fake_graph_free(CUdeviceptr address) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (CUgraphExec exec = execs; exec && !found; exec = exec->next)
        for (struct place *place = exec->lasting; place && !found; place = place->next) {
            if (place->free || place->address != address) continue;
            exec->live[place->gpu] -= place->bytes;
            found = place->free = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    fake_come_when_told(exec->come);
    pthread_mutex_lock(&lock);
    run_bodies(exec);
    CUresult result = lives(exec) && !exec->frees ? CUDA_ERROR_INVALID_VALUE : back(exec, stream);
    if (result == CUDA_SUCCESS) {
        bring_to_life(exec);
        exec->launched = true;
        exec->on = fake_gpu_of_stream(stream);
        exec->until = world_submit(exec->on, exec->ns);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphLaunch(exec, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    pthread_mutex_lock(&lock);
    exec->gone = true;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    for (CUgraphNode node = graph->nodes, next; node; node = next) {
        next = node->next;
        free(node);
    }
    for (struct place *place = graph->places, *next; place; place = next) {
        next = place->next;
        free(place);
    }
    free(graph);
    return CUDA_SUCCESS;
}

static bool has_any(CUgraphExec exec) {
    for (int gpu = 0; gpu < WORLD_GPUS; gpu++)
        if (exec->has[gpu]) return true;
    return false;
}

static void free_exec(CUgraphExec exec) {
    for (struct place *place = exec->lasting, *next; place; place = next) {
        next = place->next;
        free(place);
    }
    free(vacant);
    vacant = exec;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    pthread_mutex_lock(&lock);
    for (CUgraphExec *at = &execs, exec; (exec = *at);) {
        bool ended = !runs(exec);
        if (ended) {
            world_give(device, spare(exec, device));
            exec->has[device] = exec->live[device];
        }
        if (ended && exec->gone && !has_any(exec)) {
            *at = exec->next;
            free_exec(exec);
        } else {
            at = &exec->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value) {
    uint64_t reserved = 0;
    (void)attribute;
    pthread_mutex_lock(&lock);
    for (CUgraphExec exec = execs; exec; exec = exec->next) reserved += exec->has[device];
    memcpy(value, &reserved, sizeof reserved);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
