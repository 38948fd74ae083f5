/* Launches that no mark stands behind yet, by the stream that they were given to.
 *
 * A stream is asked whether it is done, from whatever thread looks: so it must be alive. Whoever ends a stream or a
 * context says so first (pace.h). A thread's own default stream can only be named by that thread: behind each launch to
 * it an event is recorded, and that is asked. */
#ifndef ALIQUOT_TAILS_H
#define ALIQUOT_TAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

#define MOST_TAILS 8

struct tail {
    CUstream stream;
    CUcontext context;
    uintptr_t thread; /* of a thread's own default stream, whose it is; else 0 */
    CUevent event;    /* behind its last launch; of such a stream only */
    CUcontext event_context;
    uint64_t launches;
};

struct tails {
    struct tail of[MOST_TAILS];
};

enum tail_state { TAIL_DONE, TAIL_WORKING, TAIL_UNKNOWN };

/* Note a launch; false if there is no room for another stream. */
bool tails_add(struct tails *tails, CUstream stream, bool per_thread);

/* The stream's, or NULL if nothing of it is noted. */
struct tail *tails_find(struct tails *tails, CUstream stream, bool per_thread);

bool tails_are_full(const struct tails *tails);

/* Whether the stream is done with everything; unknown while it takes part in a capture, which a question would spoil. */
enum tail_state tail_ask(const struct tail *tail);

/* A context is about to end: what of it is not in use now is not to be asked for later. */
void tails_spare(struct tails *tails, CUcontext context);

/* A context is gone, and what was made in it. How many launches are forgotten. */
uint64_t tails_drop(struct tails *tails, CUcontext context);

/* Whether it is the calling thread's own default stream. */
bool stream_is_thread_s(CUstream stream, bool per_thread);

bool stream_is_capturing(CUstream stream, bool per_thread);

/* The same at no cost in a process that has begun no capture, as most never do. */
bool stream_is_captured(CUstream stream, bool per_thread);
void captures_begin(void);

/* Have an event of the calling thread's context there, in another one's place if need be; false if there is none. */
bool event_here(CUevent *event, CUcontext *context);

/* Have one there that is behind all that a stream was given, and so by whatever thread; false if there is none. */
bool event_behind(CUstream stream, bool per_thread, CUevent *event, CUcontext *context);
bool event_behind_tail(struct tail *tail, CUevent *event, CUcontext *context);

#endif
