/* What a graph asks for of each of the slice's GPUs, by its nodes. */
#ifndef ALIQUOT_GRAPH_NODES_H
#define ALIQUOT_GRAPH_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "limits.h"

struct graph_asked {
    uint64_t bytes[MOST_GPUS];
    bool has_bodies; /* of conditional nodes: what these ask for no driver tells */
};

/* By the granules that all of its allocations' addresses lie in: the driver gives one address to several of them where
 * none lives while another does. False if nobody can tell, for the driver does not or nodes are added all the time, or it is
 * more than any GPU has. */
bool graph_asks(CUgraph graph, struct graph_asked *asked);

#endif
