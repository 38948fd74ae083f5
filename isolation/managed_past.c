#include "managed_past.h"

#include <stdlib.h>

#include "managed_blocks.h"

/* A block that the driver was about to be asked to free: nothing else lies there any earlier. */
struct vacated {
    struct vacated *next;
    uint64_t address, end;
    uint64_t since; /* step */
};

void past_add(struct managed_core *core, struct placing *placing) {
    placing->ended = ++core->steps;
    placing->next = core->past;
    core->past = placing;
    if (!core->takings) past_forget(core);
}

static void forget_calls(struct managed_core *core, uint64_t until) {
    for (struct placing **at = &core->past; *at;) {
        struct placing *placing = *at;
        if (placing->ended > until) {
            at = &placing->next;
            continue;
        }
        *at = placing->next;
        free(placing);
    }
}

static void forget_vacated(struct managed_core *core, uint64_t until) {
    for (struct vacated **at = &core->vacated; *at;) {
        struct vacated *vacated = *at;
        if (vacated->since > until) {
            at = &vacated->next;
            continue;
        }
        *at = vacated->next;
        free(vacated);
    }
}

void past_forget(struct managed_core *core) {
    uint64_t until = core->steps;
    for (const struct taking *taking = core->takings; taking; taking = taking->next)
        if (taking->begun < until) until = taking->begun;
    forget_calls(core, until);
    forget_vacated(core, until);
}

/* Where there is no memory to note it, a block that comes there is charged as if it might have been there before. */
void managed_core_vacated(struct managed_core *core, const struct managed *block) {
    struct vacated *vacated = core->takings ? malloc(sizeof *vacated) : NULL;
    if (!vacated) return;
    *vacated = (struct vacated){core->vacated, block->span.address, block->span.end, core->steps};
    core->vacated = vacated;
}

uint64_t past_begins(const struct managed_core *core, const struct taking *taking, const struct span *block) {
    uint64_t begins = taking->begun;
    for (const struct vacated *other = core->vacated; other; other = other->next)
        if (other->since > begins && other->address < block->end && other->end > block->address) begins = other->since;
    return begins;
}
