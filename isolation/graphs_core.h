/* What the graphs of one process have of a GPU's memory, and what a launch may take beyond that. Pure: whoever holds this
 * is told what the driver has reserved for graphs (graphs.c for a container; tests/isolation/test_graph_memory.py for a
 * driver that gives a graph's memory to others, or keeps it, as it likes).
 *
 * How it works. The driver tells one number for the whole device. A graph takes its memory with its first launch or its
 * upload and keeps it from launch to launch; so a launch that follows another one takes nothing. But the driver may give
 * it to graphs that don't run at the same time, and does where they are launched into one stream. Then a launch takes less
 * than was claimed for it. Whose memory it was given instead nobody knows, and of all others it is forgotten that they
 * have any. It is forgotten of all when the number falls: memory was trimmed, and nobody says of which graphs.
 * What must hold: a graph that has memory by this has it. So a launch takes no more than what is claimed for it here. */
#ifndef ALIQUOT_GRAPHS_CORE_H
#define ALIQUOT_GRAPHS_CORE_H

#include <stdint.h>

/* All graphs of one GPU. */
struct graph_memory {
    uint64_t reserved; /* by the driver, when it was last asked: so much is charged */
    uint32_t forgot;   /* how often it was forgotten who has what */
};

/* One of them. */
struct graph_share {
    uint64_t asks; /* by its nodes */
    uint64_t has;  /* while nothing is forgotten after so many times */
    uint32_t forgot;
};

/* What its next launch or upload takes beyond what is reserved, at the most. */
uint64_t graph_claim(const struct graph_memory *memory, const struct graph_share *share);

/* So much is reserved now. */
void graph_told(struct graph_memory *memory, uint64_t reserved);

/* It was launched or uploaded, and so much is reserved now. One of which nothing was claimed need not be told. */
void graph_launched(struct graph_memory *memory, struct graph_share *share, uint64_t reserved);

/* The driver refused to: what it had taken of others by then nobody knows. */
void graph_refused(struct graph_memory *memory, uint64_t reserved);

#endif
