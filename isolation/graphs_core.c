#include "graphs_core.h"

uint64_t graph_claim(const struct graph_memory *memory, const struct graph_share *share) {
    return share->asks - (share->forgot == memory->forgot ? share->has : 0);
}

void graph_told(struct graph_memory *memory, uint64_t reserved) {
    if (reserved < memory->reserved) memory->forgot++;
    memory->reserved = reserved;
}

void graph_refused(struct graph_memory *memory, uint64_t reserved) {
    memory->forgot++;
    memory->reserved = reserved;
}

void graph_launched(struct graph_memory *memory, struct graph_share *share, uint64_t reserved) {
    if (reserved < memory->reserved + graph_claim(memory, share)) memory->forgot++;
    memory->reserved = reserved;
    share->has = share->asks < reserved ? share->asks : reserved;
    share->forgot = memory->forgot;
}
