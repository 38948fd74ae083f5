/* What is noted of each graph: what it asks for of each of the slice's GPUs, and what it has. */
#ifndef ALIQUOT_GRAPH_SHARES_H
#define ALIQUOT_GRAPH_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "graph_nodes.h"
#include "graphs_core.h"
#include "limits.h"

/* A graph that is about to be launched or uploaded, by GPU. */
struct asking {
    CUgraphExec exec;
    bool known; /* else it is none, or one that is just being made */
    bool allocates, has_bodies; /* or may; as in graph_nodes.h */
    uint64_t as_of; /* so many changes of what is noted */
    struct graph_share share[MOST_GPUS];
    uint64_t claimed[MOST_GPUS];
};

/* Of a new graph; false if this process is out of memory itself. And of one that is gone. */
bool graph_note(CUgraphExec exec, const struct graph_asked *asked);
void graph_forget(CUgraphExec exec);

/* As it was noted when last looked at without a lock; and now, by whoever changes nothing meanwhile. It is the calling
 * thread's until it asks for another one. */
struct asking *graph_asking(CUgraphExec exec);
bool graph_is_as_asked(const struct asking *asking); /* nothing was changed since */
void graph_ask_anew(struct asking *asking);

/* What it has on that GPU has changed. */
void graph_keep(const struct asking *asking, int gpu);

#endif
