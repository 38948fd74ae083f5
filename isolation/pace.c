/* How fast this container may use a GPU.
 *
 * What is charged is time: while work of this process is in flight, its container's bucket pays `weight` of every
 * moment that passes, at `rate` (limits.h). `free_at` is the instant at which all that was used is paid for; a launch
 * waits for it. Each number is one word that is changed by one atomic step, so a process may be killed anywhere.
 * Whether work is in flight is known from marks: events recorded after some launches, as many as take 5 ms together,
 * and never more than two unfinished. So the queue on the GPU is 10 ms deep, whatever is launched: what is held back
 * is held back here, and a slice that gave way has left the GPU 10 ms later.
 * How much of the GPU a moment in flight really used depends on who else was there; the agent works that out of what all
 * containers tell (agent/aliquot_agent/isolation/turns.py) and sets `weight` so that what is charged is what is used.
 * What must hold: no launch waits longer than a second for work in flight, for that work may itself be waiting for the
 * launch (collectives over several GPUs). A whole GPU of one's own is never held back nor marked. */
#include "pace.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "account.h"
#include "table.h"

#define MS 1000000ULL
#define CREDIT (200 * MS)     /* time unused that may be caught up with */
#define MARK_WORK (5 * MS)    /* work between two marks */
#define MARK_TIME (MS / 2)    /* time between two marks, of a process that launches seldom */
#define LONGEST_HOLD (1000 * MS)
#define LOOK_EVERY MS
#define NAP (MS / 10)
#define STALE (2000 * MS)     /* an agent that has not written for so long is not there */
#define MOST_LAUNCHES 256
#define MARKS 2

struct mark {
    CUevent event;
    CUcontext context;
    uint64_t launches;
};

struct pace {
    pthread_mutex_t lock;
    struct mark marks[MARKS];
    unsigned first, pending;
    uint64_t unmarked, launches_a_mark; /* launches since the last mark; how many make one */
    uint64_t marked_at, launched_at, looked_at, finished_at;
    uint64_t launch_ns;      /* what a launch takes, by the last marks */
    uint64_t began_at;       /* since when something is in flight */
    uint64_t in_flight_from; /* up to when that is paid; 0: nothing is in flight */
};

static struct pace paces[MOST_GPUS];
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_wakes = PTHREAD_COND_INITIALIZER;
static bool watched, watch_started;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void nap(uint64_t ns) {
    if (ns > 50 * MS) ns = 50 * MS; /* limits change while one sleeps */
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static uint64_t rate_of(const struct gpu_limits *gpu, uint64_t now) {
    uint64_t beat = gpu->beat, rate = beat && now < beat + STALE ? gpu->rate : gpu->guarantee;
    return rate ? rate : 1;
}

/* Moments that several processes are in flight count once. */
static void cover(struct meter *meter, uint64_t from, uint64_t now) {
    uint64_t until = meter->covered;
    while (until < now)
        if (atomic_compare_exchange_weak(&meter->covered, &until, now)) {
            atomic_fetch_add(&meter->busy, now - (until > from ? until : from));
            return;
        }
}

static void pay(int gpu, uint64_t ns, uint64_t now) {
    struct meter *meter = &account->meter[gpu];
    const struct gpu_limits *limit = &limits->gpu[gpu];
    uint64_t weight = limit->weight, used = ns * (weight < PARTS_PER_MILLION ? weight : PARTS_PER_MILLION);
    used /= PARTS_PER_MILLION;
    atomic_fetch_add(&meter->in_flight, ns);
    cover(meter, now - ns, now);
    atomic_fetch_add(&meter->charged, used);
    uint64_t costs = used * PARTS_PER_MILLION / rate_of(limit, now), old = meter->free_at, fresh;
    do {
        fresh = (old + CREDIT > now ? old : now - CREDIT) + costs;
    } while (!atomic_compare_exchange_weak(&meter->free_at, &old, fresh));
}

/* A query would spoil a capture that is under way, if this thread did not say that it means no part of it. */
static bool is_reached(const struct mark *mark) {
    int mode = CAPTURE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    CUresult result = REAL(cuEventQuery)(mark->event);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result != CUDA_ERROR_NOT_READY;
}

/* So many launches took so long. Twice as many at once at most: a look that came late saw them all end together. */
static void learn(struct pace *pace, uint64_t launches, uint64_t ns) {
    pace->launch_ns = ns / launches + 1;
    uint64_t fitting = MARK_WORK / pace->launch_ns, most = 2 * pace->launches_a_mark;
    if (most > MOST_LAUNCHES) most = MOST_LAUNCHES;
    pace->launches_a_mark = fitting < 1 ? 1 : fitting > most ? most : fitting;
}

static void note_marks(struct pace *pace, uint64_t now) {
    uint64_t launches = 0, from = pace->finished_at;
    while (pace->pending && is_reached(&pace->marks[pace->first])) {
        launches += pace->marks[pace->first].launches;
        pace->first = (pace->first + 1) % MARKS;
        pace->pending--;
        pace->finished_at = now;
    }
    if (from < pace->began_at) from = pace->began_at;
    if (launches) learn(pace, launches, now - from);
}

/* Take note of what is done, and pay for the time since the last look; under the pace's lock. */
static void look(struct pace *pace, int gpu, uint64_t now) {
    pace->looked_at = now;
    if (!pace->in_flight_from) return;
    note_marks(pace, now);
    pay(gpu, now - pace->in_flight_from, now);
    pace->in_flight_from = now;
    /* Launches after the last mark are too few for one. They end, by what launches took so far, after so long. */
    uint64_t last = pace->launched_at > pace->finished_at ? pace->launched_at : pace->finished_at;
    if (!pace->pending && now >= last + pace->unmarked * pace->launch_ns) {
        pace->in_flight_from = 0;
        pace->unmarked = 0;
    }
}

/* ------------------------------------------------------------------ the watch: charges while nobody launches */

static bool look_at_all(void) {
    bool any = false;
    for (int gpu = 0; gpu < (int)limits->gpus; gpu++) {
        struct pace *pace = &paces[gpu];
        if (pthread_mutex_trylock(&pace->lock) != 0) {
            any = true; /* whoever has it looks by himself */
            continue;
        }
        if (pace->in_flight_from) look(pace, gpu, now_ns());
        any = any || pace->in_flight_from;
        pthread_mutex_unlock(&pace->lock);
    }
    return any;
}

static void *watch(void *nothing) {
    for (;;) {
        nap(LOOK_EVERY);
        if (look_at_all()) continue;
        pthread_mutex_lock(&watch_lock);
        watched = false;
        while (!watched) pthread_cond_wait(&watch_wakes, &watch_lock);
        pthread_mutex_unlock(&watch_lock);
    }
    return nothing;
}

static void start_watch(void) {
    if (!watch_started) {
        sigset_t all, old;
        pthread_t thread;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals are not for our thread */
        watch_started = pthread_create(&thread, NULL, watch, NULL) == 0;
        if (watch_started) pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    watched = true;
    pthread_cond_signal(&watch_wakes);
}

static void wake_watch(void) {
    pthread_mutex_lock(&watch_lock);
    if (!watched) start_watch();
    pthread_mutex_unlock(&watch_lock);
}

/* ------------------------------------------------------------------ launches */

static bool is_free(const struct gpu_limits *gpu) {
    return gpu->guarantee >= PARTS_PER_MILLION;
}

static int gpu_here(void) {
    if (limits->gpus == 1) return 0;
    return gpu_of_context();
}

static bool may_launch(struct pace *pace, int gpu, uint64_t now) {
    if (pace->pending == MARKS && pace->unmarked >= pace->launches_a_mark) return false;
    const struct gpu_limits *limit = &limits->gpu[gpu];
    return account->meter[gpu].free_at <= now || rate_of(limit, now) >= PARTS_PER_MILLION;
}

static bool is_capturing(CUstream stream, bool per_thread) {
    int status = 0;
    if (per_thread)
        REAL(cuStreamIsCapturing_ptsz)(stream, &status);
    else
        REAL(cuStreamIsCapturing)(stream, &status);
    return status != 0;
}

static void mark(struct pace *pace, CUstream stream, bool per_thread, uint64_t now) {
    struct mark *mark = &pace->marks[(pace->first + pace->pending) % MARKS];
    CUcontext here = NULL;
    REAL(cuCtxGetCurrent)(&here);
    if (mark->context != here) {
        if (mark->event) REAL(cuEventDestroy_v2)(mark->event);
        mark->context = here;
        if (REAL(cuEventCreate)(&mark->event, EVENT_NO_TIMING) != CUDA_SUCCESS) mark->context = NULL;
    }
    if (!mark->context || is_capturing(stream, per_thread)) return;
    CUresult marked = per_thread ? REAL(cuEventRecord_ptsz)(mark->event, stream) : REAL(cuEventRecord)(mark->event, stream);
    if (marked != CUDA_SUCCESS) return;
    mark->launches = pace->unmarked;
    pace->unmarked = 0;
    pace->pending++;
    pace->marked_at = now;
}

/* Wait until it may launch, and a second at most while work is in flight; under the pace's lock. */
static void hold(struct pace *pace, int gpu, uint64_t now, CUstream stream, bool per_thread) {
    uint64_t began = now, working = now;
    if (pace->unmarked && pace->pending < MARKS) mark(pace, stream, per_thread, now);
    while (!may_launch(pace, gpu, now)) {
        uint64_t free_at = account->meter[gpu].free_at;
        bool idle = !pace->in_flight_from;
        if (idle) working = now;
        if (now > working + LONGEST_HOLD) break;
        pthread_mutex_unlock(&pace->lock);
        nap(idle && free_at > now + NAP ? free_at - now : NAP);
        pthread_mutex_lock(&pace->lock);
        now = now_ns();
        look(pace, gpu, now);
    }
    if (now > began) atomic_fetch_add(&account->meter[gpu].held, now - began);
}

void pace_before(CUstream stream, bool per_thread) {
    int gpu = limits ? gpu_here() : -1;
    if (gpu < 0 || is_free(&limits->gpu[gpu])) return;
    struct pace *pace = &paces[gpu];
    uint64_t now = now_ns();
    atomic_store_explicit(&account->meter[gpu].wanted, now, memory_order_relaxed);
    pthread_mutex_lock(&pace->lock);
    if (!may_launch(pace, gpu, now) || now > pace->looked_at + LOOK_EVERY) {
        look(pace, gpu, now);
        if (!may_launch(pace, gpu, now)) hold(pace, gpu, now, stream, per_thread);
    }
    bool was_idle = !pace->in_flight_from;
    if (was_idle) pace->began_at = pace->in_flight_from = now_ns();
    pace->unmarked++;
    pthread_mutex_unlock(&pace->lock);
    if (was_idle) wake_watch();
}

void pace_after(CUstream stream, bool per_thread) {
    int gpu = limits ? gpu_here() : -1;
    if (gpu < 0 || is_free(&limits->gpu[gpu])) return;
    struct pace *pace = &paces[gpu];
    uint64_t now = now_ns();
    pthread_mutex_lock(&pace->lock);
    pace->launched_at = now;
    if (pace->pending < MARKS && (pace->unmarked >= pace->launches_a_mark || now > pace->marked_at + MARK_TIME))
        mark(pace, stream, per_thread, now);
    pthread_mutex_unlock(&pace->lock);
}

void pace_done(void) {
    int gpu = limits ? gpu_here() : -1;
    if (gpu < 0 || is_free(&limits->gpu[gpu])) return;
    struct pace *pace = &paces[gpu];
    pthread_mutex_lock(&pace->lock);
    uint64_t now = now_ns();
    if (pace->in_flight_from) note_marks(pace, now);
    if (!pace->pending) pace->unmarked = 0;
    look(pace, gpu, now);
    pthread_mutex_unlock(&pace->lock);
}

static void forget(void) {
    watched = watch_started = false;
    pthread_mutex_init(&watch_lock, NULL);
    pthread_cond_init(&watch_wakes, NULL);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        paces[gpu] = (struct pace){.launches_a_mark = 1};
        pthread_mutex_init(&paces[gpu].lock, NULL);
    }
}

__attribute__((constructor)) static void prepare(void) {
    forget();
    pthread_atfork(NULL, NULL, forget);
}
