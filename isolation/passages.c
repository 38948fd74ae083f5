#include "passages.h"

#include <stdlib.h>

#include "devices.h"
#include "table.h"
#include "tails.h"

static struct passage *recorded(struct passage *passage, const struct lane *lane) {
    CUstream stream = (CUstream)(uintptr_t)lane->stream;
    CUevent event = NULL;
    CUcontext context = NULL;
    bool entered = context_enter(stream);
    bool is_behind = event_here(&event, &context) && REAL(cuEventRecord)(event, stream) == CUDA_SUCCESS;
    if (entered) context_leave();
    *passage = (struct passage){.event = event, .context = context, .owner = lane->context};
    if (is_behind) return passage;
    passages_free(passage);
    return NULL;
}

struct passage *passage_behind(const struct lane *lane) {
    if (stream_is_captured((CUstream)(uintptr_t)lane->stream, false)) return NULL;
    struct passage *passage = calloc(1, sizeof *passage);
    return passage ? recorded(passage, lane) : NULL;
}

void passages_free(struct passage *first) {
    for (struct passage *next; first; first = next) {
        next = first->next;
        if (first->event) REAL(cuEventDestroy_v2)(first->event);
        free(first);
    }
}

static void forget_event(struct passage *passage) {
    if (passage->event) REAL(cuEventDestroy_v2)(passage->event);
    passage->event = NULL;
}

/* ------------------------------------------------------------------ what has left */

/* One without an event waits for its context's end. */
static void settle(struct managed_core *core, struct passage *passage) {
    struct tail behind = {.thread = 1, .event = passage->event, .context = passage->context};
    if (passage->event && tail_ask(&behind) == TAIL_DONE) managed_core_passed(core, passage, true);
}

#define EACH_PASSAGE(passage, core) \
    for (struct passage *passage = (core)->passages, *next; passage && (next = passage->next, true); passage = next)

void passages_settle(struct managed_core *core) {
    EACH_PASSAGE(passage, core) settle(core, passage);
}

void passages_settle_in(struct managed_core *core, const struct placing *placing) {
    for (size_t at = 0; at < placing->count; at++) {
        struct managed *block = NULL;
        struct passage *passage;
        while ((passage = managed_core_passing(core, placing->ranges[at], &block))) settle(core, passage);
    }
}

/* ------------------------------------------------------------------ contexts that end */

void passages_end(struct managed_core *core, CUcontext context) {
    passages_settle(core);
    EACH_PASSAGE(passage, core)
        if (passage->context == context) forget_event(passage);
}

/* Whose event is still there was noted while the context ended: it is gone with it. */
void passages_ended(struct managed_core *core, CUcontext context, bool gone) {
    EACH_PASSAGE(passage, core) {
        if (passage->context != context || (!gone && passage->event)) continue;
        passage->event = NULL;
        managed_core_passed(core, passage, gone);
    }
}

void passages_end_green(struct managed_core *core, const void *green, const void *part) {
    passages_settle(core);
    EACH_PASSAGE(passage, core)
        if (passage->context == part || owner_may_be(passage->owner, green, part)) managed_core_passed(core, passage, false);
    managed_core_let_green_go(core, green, part);
}
