#include "graph_nodes.h"

#include <stdlib.h>

#include "granules.h"
#include "locations.h"
#include "table.h"

#define MOST_LISTINGS 8 /* of one graph: who adds to it all the time is not waited for */

/* Granules by their numbers, of one GPU. */
struct stretch {
    int gpu;
    uint64_t from, end;
};

struct stretches {
    struct stretch *of;
    size_t count, size;
    struct graph_asked *asked; /* first of what has no address */
    bool failed;
};

static void add(struct stretches *all, struct stretch one) {
    if (all->count == all->size) {
        size_t size = all->size ? 2 * all->size : 64;
        struct stretch *wider = realloc(all->of, size * sizeof *wider);
        all->failed = all->failed || !wider;
        if (!wider) return;
        all->of = wider;
        all->size = size;
    }
    all->of[all->count++] = one;
}

static void add_allocation(struct stretches *all, const CUDA_MEM_ALLOC_NODE_PARAMS *asked) {
    uint64_t address = asked->address, end;
    int gpu = gpu_of_location(asked->properties.location, asked->properties.type);
    if (gpu == ON_HOST) return;
    if (gpu < 0) location_refused(asked->properties.location, asked->properties.type); /* that it is said */
    if (gpu < 0 || asked->bytes > LARGEST_SIZE || __builtin_add_overflow(address, asked->bytes + GRANULE - 1, &end))
        all->failed = true;
    else if (!address)
        all->asked->bytes[gpu] += TO_GRANULES(asked->bytes);
    else
        add(all, (struct stretch){.gpu = gpu, .from = address / GRANULE, .end = end / GRANULE});
}

static void add_nodes(struct stretches *all, CUgraph graph);

static void add_child(struct stretches *all, CUgraphNode node) {
    CUgraph child;
    if (REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        add_nodes(all, child);
    else
        all->failed = true;
}

static void add_allocation_node(struct stretches *all, CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS asked;
    if (REAL(cuGraphMemAllocNodeGetParams)(node, &asked) != CUDA_SUCCESS)
        all->failed = true;
    else
        add_allocation(all, &asked);
}

static void add_node(struct stretches *all, CUgraphNode node) {
    int type;
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        all->failed = true;
    else if (type == NODE_CONDITIONAL)
        all->asked->has_bodies = true;
    else if (type == NODE_CHILD_GRAPH)
        add_child(all, node);
    else if (type == NODE_MEMORY_ALLOCATION)
        add_allocation_node(all, node);
}

/* Another thread may add nodes meanwhile, and a list that is too short lacks others than those: it is whole if there are as
 * many afterwards. A graph that allocates loses none. */
static bool list(CUgraph graph, CUgraphNode **nodes, size_t *count) {
    size_t before = 0, after = 0;
    *nodes = NULL;
    bool told = REAL(cuGraphGetNodes)(graph, NULL, &before) == CUDA_SUCCESS;
    for (int listings = 0; told && listings < MOST_LISTINGS; listings++, before = after) {
        CUgraphNode *wider = before ? realloc(*nodes, before * sizeof *wider) : *nodes;
        if (before && !wider) return false;
        *nodes = wider;
        *count = before;
        told = (!before || REAL(cuGraphGetNodes)(graph, *nodes, count) == CUDA_SUCCESS) &&
               REAL(cuGraphGetNodes)(graph, NULL, &after) == CUDA_SUCCESS;
        if (told && before == after && *count == before) return true;
    }
    return false;
}

static void add_nodes(struct stretches *all, CUgraph graph) {
    CUgraphNode *nodes;
    size_t count = 0;
    bool listed = list(graph, &nodes, &count);
    all->failed = all->failed || !listed;
    for (size_t i = 0; listed && i < count; i++) add_node(all, nodes[i]);
    free(nodes);
}

static int in_order(const void *one, const void *other) {
    const struct stretch *a = one, *b = other;
    if (a->gpu != b->gpu) return a->gpu < b->gpu ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Each granule once. */
static bool sum(const struct stretches *all) {
    uint64_t counted = 0; /* up to that granule, of the same GPU */
    for (size_t i = 0; i < all->count; i++) {
        const struct stretch *one = &all->of[i];
        if (!i || all->of[i - 1].gpu != one->gpu) counted = 0;
        uint64_t from = one->from > counted ? one->from : counted;
        if (one->end <= from) continue;
        all->asked->bytes[one->gpu] += (one->end - from) * GRANULE;
        counted = one->end;
        if (all->asked->bytes[one->gpu] > LARGEST_SIZE) return false;
    }
    return true;
}

bool graph_asks(CUgraph graph, struct graph_asked *asked) {
    struct stretches all = {.asked = asked};
    *asked = (struct graph_asked){0};
    add_nodes(&all, graph);
    if (all.count) qsort(all.of, all.count, sizeof *all.of, in_order);
    bool told = !all.failed && sum(&all);
    free(all.of);
    return told;
}
