/* How fast this container may use a GPU: what the driver is asked and told for it. What follows from that is
 * pace_core.c's.
 *
 * While work of this process is in flight, its container pays for every moment (meter.c), and a launch waits until all of
 * it is paid. Behind the last mark are a few more launches (tails.h): their streams are asked, for a long one may hide
 * among short ones.
 * How much of the GPU a moment in flight really used depends on who else was there; the agent works that out of what all
 * containers tell (agent/aliquot_agent/isolation/turns.py), so that what is charged is what is used.
 * What must hold: the time is taken under the pace's lock. Events and streams are asked and used in the context that they
 * were made in, whichever is the caller's. A whole GPU of one's own is never held back nor marked. */
#include "pace.h"

#include <pthread.h>

#include "clock.h"
#include "devices.h"
#include "managed.h"
#include "marks.h"
#include "pace_core.h"
#include "table.h"
#include "tails.h"
#include "watch.h"

#define LOOK_EVERY MS
#define NAP (MS / 10)
#define ESCAPED 256             /* beside a GPU's number: the launch passed unpaid */
#define LONGEST_END (1000 * MS) /* of a stream, while there is no place for a mark */

struct pace {
    pthread_mutex_t lock;
    struct pacing core;
    struct mark marks[MARK_PLACES], escape;
    struct tails tails;
    CUcontext ending; /* it is with the driver, and what was given to it counts as in flight; or NULL */
};

static struct pace paces[MOST_GPUS];

static void nap(uint64_t ns) {
    if (ns > 50 * MS) ns = 50 * MS; /* limits change while one sleeps */
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static struct spending spending_on(int gpu) {
    return (struct spending){&limits->gpu[gpu], &account->meter[gpu], account_moments(gpu), &account->patience[gpu]};
}

/* ------------------------------------------------------------------ looks */

static bool is_reached(const struct pace *pace, const struct mark *mark) {
    return mark_is_reached(mark, pace->ending);
}

static unsigned marks_reached(const struct pace *pace) {
    unsigned count = 0;
    while (count < pace->core.pending && is_reached(pace, &pace->marks[(pace->core.first + count) % MARK_PLACES])) count++;
    return count;
}

static void forget_tail(struct pace *pace, struct tail *tail, uint64_t now) {
    pacing_done(&pace->core, tail->launches, now);
    tail->launches = 0;
}

/* Forget launches behind marks that are done; where nobody can tell, they take as long as launches took so far. */
static void settle(struct pace *pace, uint64_t now) {
    for (int i = 0; i < MOST_TAILS; i++) {
        struct tail *tail = &pace->tails.of[i];
        bool is_ending = pace->ending && tail->context == pace->ending;
        enum tail_state state = tail->launches && !is_ending ? tail_ask(tail) : TAIL_WORKING;
        if (state == TAIL_UNKNOWN && pacing_is_over(&pace->core, tail->launches, now)) state = TAIL_DONE;
        if (state == TAIL_DONE) forget_tail(pace, tail, now);
    }
}

/* Take note of what is done, and pay for the time since the last look; under the pace's lock. */
static void look(struct pace *pace, int gpu, uint64_t now) {
    struct spending on = spending_on(gpu);
    pace->core.looked_at = now;
    if (!pace->core.in_flight_from) return;
    if (pace->core.escaped_at && is_reached(pace, &pace->escape)) pacing_escaped(&pace->core, &on, now);
    pacing_reached(&pace->core, &on, marks_reached(pace), now);
    if (pacing_pay(&pace->core, &on, tails_are_full(&pace->tails), now)) {
        settle(pace, now);
        pacing_rest(&pace->core, &on, now);
    }
}

/* For the watch: charges while nobody launches. Whether anything is in flight. */
static bool look_at_all(void) {
    bool any = false;
    for (int gpu = 0; gpu < (int)limits->gpus; gpu++) {
        struct pace *pace = &paces[gpu];
        if (pthread_mutex_trylock(&pace->lock) != 0) {
            any = true; /* whoever has it looks by himself */
            continue;
        }
        if (pace->core.in_flight_from) look(pace, gpu, now_ns());
        any = any || pace->core.in_flight_from;
        pthread_mutex_unlock(&pace->lock);
    }
    return any;
}

/* ------------------------------------------------------------------ launches */

static bool is_free(const struct gpu_limits *gpu) {
    return gpu->guarantee >= PARTS_PER_MILLION;
}

/* The slice's GPU that the stream works on; -1 where nothing is to be paced. */
static int gpu_paced(CUstream stream) {
    int gpu = !limits ? -1 : limits->gpus == 1 ? 0 : gpu_of_stream(stream);
    return gpu < 0 || is_free(&limits->gpu[gpu]) ? -1 : gpu;
}

static void mark(struct pace *pace, CUstream stream, bool per_thread, uint64_t now) {
    struct tail *tail = tails_find(&pace->tails, stream, per_thread);
    struct mark *place = &pace->marks[pacing_place(&pace->core)];
    if (!mark_put(place, pace->ending, stream, per_thread)) return;
    pacing_marked(&pace->core, tail ? tail->launches : 1, tail, now);
    if (tail) tail->launches = 0;
}

static enum passing ask(struct pace *pace, const struct spending *on, uint64_t began, uint64_t now) {
    return pacing_ask(&pace->core, on, tails_are_full(&pace->tails), began, now);
}

/* Wait until it may pass; under the pace's lock. When that was. */
static uint64_t hold(struct pace *pace, int gpu, uint64_t began, CUstream stream, bool per_thread, bool *escapes) {
    struct spending on = spending_on(gpu);
    uint64_t now = began;
    enum passing passing;
    if (pacing_may_mark(&pace->core) && tails_find(&pace->tails, stream, per_thread)) mark(pace, stream, per_thread, now);
    while ((passing = ask(pace, &on, began, now)) == STAYS) {
        uint64_t due = pace->core.in_flight_from ? 0 : meter_due(&on, now);
        meter_want(&on, now); /* who waits wants: the agent gives what is idle to those who do */
        pthread_mutex_unlock(&pace->lock);
        nap(due > NAP ? due : NAP);
        pthread_mutex_lock(&pace->lock);
        now = now_ns();
        look(pace, gpu, now);
    }
    if (now > began) meter_held(&on, now - began);
    *escapes = passing == ESCAPES;
    return now;
}

int pace_before(CUstream stream, bool per_thread) {
    int gpu = gpu_paced(stream);
    if (gpu < 0 || stream_is_captured(stream, per_thread)) return -1; /* what a capture takes up is no work */
    struct pace *pace = &paces[gpu];
    struct spending on = spending_on(gpu);
    bool escapes = false;
    pthread_mutex_lock(&pace->lock);
    uint64_t now = now_ns();
    meter_want(&on, now);
    if (now > pace->core.looked_at + LOOK_EVERY) look(pace, gpu, now);
    if (ask(pace, &on, now, now) == STAYS) {
        look(pace, gpu, now);
        now = hold(pace, gpu, now, stream, per_thread, &escapes);
    }
    bool was_idle = pacing_launch(&pace->core, now);
    pthread_mutex_unlock(&pace->lock);
    if (was_idle) watch_wake(look_at_all);
    return escapes ? gpu | ESCAPED : gpu;
}

void pace_after(int paced, CUstream stream, bool per_thread) {
    if (paced < 0) return;
    struct pace *pace = &paces[paced & ~ESCAPED];
    pthread_mutex_lock(&pace->lock);
    if (paced & ESCAPED && mark_put(&pace->escape, pace->ending, stream, per_thread)) pacing_escapes(&pace->core);
    bool noted = tails_add(&pace->tails, stream, per_thread);
    if (pacing_launched(&pace->core, noted)) mark(pace, stream, per_thread, pace->core.asked_at);
    pthread_mutex_unlock(&pace->lock);
}

void pace_done(void) {
    int gpu = gpu_paced(NULL);
    if (gpu < 0) return;
    pthread_mutex_lock(&paces[gpu].lock);
    look(&paces[gpu], gpu, now_ns());
    pthread_mutex_unlock(&paces[gpu].lock);
}

/* ------------------------------------------------------------------ streams and contexts that end */

/* Until there are places for so many marks; not for ever. When that was. */
static uint64_t await_places(struct pace *pace, int gpu, unsigned places) {
    uint64_t now = now_ns(), end = now + LONGEST_END;
    while (pacing_places(&pace->core) < places && now < end) {
        pthread_mutex_unlock(&pace->lock);
        nap(NAP);
        pthread_mutex_lock(&pace->lock);
        now = now_ns();
        look(pace, gpu, now);
    }
    return now;
}

static void let_go(struct pace *pace, int gpu, CUstream stream, bool per_thread) {
    if (!tails_find(&pace->tails, stream, per_thread)) return;
    uint64_t now = await_places(pace, gpu, 1);
    struct tail *tail = tails_find(&pace->tails, stream, per_thread);
    if (tail && pacing_places(&pace->core)) mark(pace, stream, per_thread, now);
    if (tail && tail->launches) forget_tail(pace, tail, now);
}

void pace_let_go(CUstream stream, bool per_thread) {
    for (int gpu = 0; limits && gpu < (int)limits->gpus; gpu++) {
        pthread_mutex_lock(&paces[gpu].lock);
        let_go(&paces[gpu], gpu, stream, per_thread);
        pthread_mutex_unlock(&paces[gpu].lock);
    }
}

static bool mark_tail(struct pace *pace, struct tail *tail, uint64_t now) {
    struct mark *place = &pace->marks[pacing_place(&pace->core)];
    if (!pacing_places(&pace->core) || !event_behind_tail(tail, &place->event, &place->context)) return false;
    pacing_marked(&pace->core, tail->launches, true, now);
    tail->launches = 0;
    return true;
}

/* Whose a stream is that was made the driver may say by another context. */
static bool may_end(const struct tail *tail, CUcontext green) {
    return tail->launches && (stream_is_made(tail->stream) || (green && tail->context == green));
}

void pace_await_places(void) {
    for (int gpu = 0; limits && gpu < (int)limits->gpus; gpu++) {
        pthread_mutex_lock(&paces[gpu].lock);
        await_places(&paces[gpu], gpu, MOST_TAILS);
        pthread_mutex_unlock(&paces[gpu].lock);
    }
}

static void let_go_green(struct pace *pace, CUcontext green, uint64_t now) {
    for (int i = 0; i < MOST_TAILS; i++) {
        struct tail *tail = &pace->tails.of[i];
        if (may_end(tail, green) && !mark_tail(pace, tail, now)) forget_tail(pace, tail, now);
    }
}

void pace_pause(void) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) pthread_mutex_lock(&paces[gpu].lock);
    managed_pause(); /* it has events of contexts, too */
}

void pace_resume(void) {
    managed_resume();
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) pthread_mutex_unlock(&paces[gpu].lock);
}

void pace_ends(CUcontext context, CUgreenCtx green) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        pthread_mutex_lock(&paces[gpu].lock);
        if (green) let_go_green(&paces[gpu], context, now_ns());
        tails_spare(&paces[gpu].tails, context);
        paces[gpu].ending = context;
        pthread_mutex_unlock(&paces[gpu].lock);
    }
    if (green)
        managed_ends_green(green, context);
    else
        managed_ends(context);
}

static void forget_context(struct pace *pace, CUcontext gone) {
    pace->core.unmarked -= tails_drop(&pace->tails, gone);
    for (int i = 0; i < MARK_PLACES; i++)
        if (pace->marks[i].context == gone) pace->marks[i].event = NULL;
    if (pace->escape.context == gone) pace->escape.event = NULL;
}

void pace_ended(CUcontext context, bool gone) {
    managed_ended(context, gone);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        pthread_mutex_lock(&paces[gpu].lock);
        if (gone) forget_context(&paces[gpu], context);
        paces[gpu].ending = NULL;
        pthread_mutex_unlock(&paces[gpu].lock);
    }
}

static void forget(void) {
    watch_forget();
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        paces[gpu] = (struct pace){0};
        pacing_begin(&paces[gpu].core);
        pthread_mutex_init(&paces[gpu].lock, NULL);
    }
}

__attribute__((constructor)) static void prepare(void) {
    forget();
    pthread_atfork(NULL, NULL, forget);
}
