/* How fast this container may use a GPU.
 *
 * What is charged is time: while work of this process is in flight, its container pays for every moment (meter.c), and a
 * launch waits until all of it is paid. Whether work is in flight is known from marks: events recorded after some
 * launches, as many as take the container 5 ms of the GPU, never more than two unfinished. So the queue on the GPU is
 * 10 ms deep: what is held back is held back here, and a slice that gave way uses 10 ms more. Behind the last mark are
 * a few more launches (tails.h): their streams are asked, for a long one may hide among short ones.
 * How much of the GPU a moment in flight really used depends on who else was there; the agent works that out of what all
 * containers tell (agent/aliquot_agent/isolation/turns.py), so that what is charged is what is used.
 * What must hold: the time is taken under the pace's lock, for with an older one than the last look's less than nothing
 * would be paid, which is 18,000 seconds in a word without a sign. No launch waits longer than a second for work in
 * flight, for that work may itself be waiting for the launch (collectives over several GPUs). A whole GPU of one's own
 * is never held back nor marked. */
#include "pace.h"

#include <pthread.h>
#include <time.h>

#include "limits.h"
#include "meter.h"
#include "table.h"
#include "tails.h"
#include "watch.h"

#define MS 1000000ULL
#define MARK_WORK (5 * MS)    /* work between two marks */
#define MARK_TIME (MS / 2)    /* time between two marks, of a process that launches seldom */
#define LONGEST_HOLD (1000 * MS)
#define LOOK_EVERY MS
#define NAP (MS / 10)
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
    struct tails tails;
    uint64_t unmarked, launches_a_mark; /* launches that no mark is behind; how many make one */
    uint64_t launching;                 /* threads that are about to launch */
    uint64_t asked_at, marked_at, looked_at, finished_at;
    uint64_t launch_ns;      /* what a launch takes, by the last marks */
    struct metered metered;  /* as of then */
    uint64_t began_at;       /* since when something is in flight */
    uint64_t in_flight_from; /* up to when that is paid; 0: nothing is in flight */
};

static struct pace paces[MOST_GPUS];

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void nap(uint64_t ns) {
    if (ns > 50 * MS) ns = 50 * MS; /* limits change while one sleeps */
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* A query would spoil a capture that is under way, if this thread did not say that it means no part of it. */
static bool is_reached(const struct mark *mark) {
    if (!mark->event) return true; /* it went with its context */
    int mode = CAPTURE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    CUresult result = REAL(cuEventQuery)(mark->event);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result != CUDA_ERROR_NOT_READY;
}

/* So many launches took so long, beside others' work as a rule: a mark is 5 ms of what the container had meanwhile. By
 * time alone it would be part of a turn where four contend, and who comes with so little waits for all the others each
 * time. Twice as many at once at most: a look that came late saw them all end together. */
static void learn(struct pace *pace, int gpu, uint64_t launches, uint64_t ns) {
    pace->launch_ns = ns / launches + 1;
    uint64_t work = meter_work(gpu, pace->launch_ns, &pace->metered) + 1;
    uint64_t fitting = MARK_WORK / work, most = 2 * pace->launches_a_mark;
    if (most > MOST_LAUNCHES) most = MOST_LAUNCHES;
    pace->launches_a_mark = fitting < 1 ? 1 : fitting > most ? most : fitting;
}

static void note_marks(struct pace *pace, int gpu, uint64_t now) {
    uint64_t launches = 0, from = pace->finished_at;
    while (pace->pending && is_reached(&pace->marks[pace->first])) {
        launches += pace->marks[pace->first].launches;
        pace->first = (pace->first + 1) % MARKS;
        pace->pending--;
        pace->finished_at = now;
    }
    if (from < pace->began_at) from = pace->began_at;
    if (launches) learn(pace, gpu, launches, now - from);
}

/* A thread that was about to launch and never came back may have ended there. */
static bool is_launching(const struct pace *pace, uint64_t now) {
    return pace->launching && now < pace->asked_at + LONGEST_HOLD;
}

static void forget_tail(struct pace *pace, struct tail *tail) {
    pace->unmarked -= tail->launches;
    tail->launches = 0;
}

/* Forget launches behind marks that are done; where nobody can tell, they take as long as launches took so far. */
static void settle(struct pace *pace, uint64_t now) {
    uint64_t last = pace->asked_at > pace->finished_at ? pace->asked_at : pace->finished_at;
    for (int i = 0; i < MOST_TAILS; i++) {
        struct tail *tail = &pace->tails.of[i];
        enum tail_state state = tail->launches ? tail_ask(tail) : TAIL_WORKING;
        if (state == TAIL_UNKNOWN && now >= last + tail->launches * pace->launch_ns) state = TAIL_DONE;
        if (state != TAIL_DONE) continue;
        forget_tail(pace, tail);
        if (!pace->pending) pace->finished_at = now;
    }
}

/* Take note of what is done, and pay for the time since the last look; under the pace's lock. */
static void look(struct pace *pace, int gpu, uint64_t now) {
    pace->looked_at = now;
    if (!pace->in_flight_from) return;
    note_marks(pace, gpu, now);
    meter_pay(gpu, now - pace->in_flight_from, now);
    pace->in_flight_from = now;
    bool works = pace->pending || is_launching(pace, now);
    if (works && !tails_are_full(&pace->tails)) return;
    settle(pace, now);
    if (!works && !pace->unmarked) pace->in_flight_from = pace->launching = 0;
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
        if (pace->in_flight_from) look(pace, gpu, now_ns());
        any = any || pace->in_flight_from;
        pthread_mutex_unlock(&pace->lock);
    }
    return any;
}

/* ------------------------------------------------------------------ launches */

static bool is_free(const struct gpu_limits *gpu) {
    return gpu->guarantee >= PARTS_PER_MILLION;
}

/* The slice's GPU that the thread works with; -1 where nothing is to be paced. */
static int gpu_here(void) {
    int gpu = !limits ? -1 : limits->gpus == 1 ? 0 : gpu_of_context();
    return gpu < 0 || is_free(&limits->gpu[gpu]) ? -1 : gpu;
}

static bool may_launch(struct pace *pace, int gpu, uint64_t now) {
    if (pace->pending == MARKS &&
        (pace->unmarked + pace->launching >= pace->launches_a_mark || tails_are_full(&pace->tails)))
        return false;
    return meter_due(gpu, now) == 0;
}

static void mark(struct pace *pace, CUstream stream, bool per_thread, uint64_t now) {
    struct mark *mark = &pace->marks[(pace->first + pace->pending) % MARKS];
    struct tail *tail = tails_find(&pace->tails, stream, per_thread);
    if (!event_here(&mark->event, &mark->context) || stream_is_capturing(stream, per_thread)) return;
    CUresult marked = per_thread ? REAL(cuEventRecord_ptsz)(mark->event, stream) : REAL(cuEventRecord)(mark->event, stream);
    if (marked != CUDA_SUCCESS) return;
    mark->launches = tail ? tail->launches : 1;
    if (tail) forget_tail(pace, tail);
    pace->pending++;
    pace->marked_at = now;
}

/* Wait until it may launch, and a second at most while work is in flight; under the pace's lock. When that was. */
static uint64_t hold(struct pace *pace, int gpu, uint64_t now, CUstream stream, bool per_thread) {
    uint64_t began = now, working = now;
    if (pace->pending < MARKS && tails_find(&pace->tails, stream, per_thread)) mark(pace, stream, per_thread, now);
    while (!may_launch(pace, gpu, now)) {
        uint64_t due = meter_due(gpu, now);
        bool idle = !pace->in_flight_from;
        if (idle) working = now;
        if (now > working + LONGEST_HOLD) break;
        meter_want(gpu, now); /* who waits wants: the agent gives what is idle to those who do */
        pthread_mutex_unlock(&pace->lock);
        nap(idle && due > NAP ? due : NAP);
        pthread_mutex_lock(&pace->lock);
        now = now_ns();
        look(pace, gpu, now);
    }
    if (now > began) meter_held(gpu, now - began);
    return now;
}

int pace_before(CUstream stream, bool per_thread) {
    int gpu = gpu_here();
    if (gpu < 0 || stream_is_captured(stream, per_thread)) return -1; /* what a capture takes up is no work */
    struct pace *pace = &paces[gpu];
    pthread_mutex_lock(&pace->lock);
    uint64_t now = now_ns();
    meter_want(gpu, now);
    if (!may_launch(pace, gpu, now) || now > pace->looked_at + LOOK_EVERY) {
        look(pace, gpu, now);
        if (!may_launch(pace, gpu, now)) now = hold(pace, gpu, now, stream, per_thread);
    }
    bool was_idle = !pace->in_flight_from;
    pace->asked_at = now;
    if (was_idle) pace->began_at = pace->in_flight_from = now;
    pace->launching++;
    pthread_mutex_unlock(&pace->lock);
    if (was_idle) watch_wake(look_at_all);
    return gpu;
}

/* Goes by the time at which the launch was let pass: to ask for another would be a quarter of all that it costs. */
void pace_after(int gpu, CUstream stream, bool per_thread) {
    if (gpu < 0) return;
    struct pace *pace = &paces[gpu];
    pthread_mutex_lock(&pace->lock);
    uint64_t now = pace->asked_at;
    if (pace->launching) pace->launching--;
    bool noted = tails_add(&pace->tails, stream, per_thread);
    pace->unmarked += noted;
    bool due = !noted || pace->unmarked >= pace->launches_a_mark || now > pace->marked_at + MARK_TIME;
    if (pace->pending < MARKS && due) mark(pace, stream, per_thread, now);
    pthread_mutex_unlock(&pace->lock);
}

void pace_done(void) {
    int gpu = gpu_here();
    if (gpu < 0) return;
    pthread_mutex_lock(&paces[gpu].lock);
    look(&paces[gpu], gpu, now_ns());
    pthread_mutex_unlock(&paces[gpu].lock);
}

/* ------------------------------------------------------------------ streams and contexts that end */

static void let_go(struct pace *pace, int gpu, CUstream stream, bool per_thread) {
    uint64_t now = now_ns(), end = now + LONGEST_HOLD;
    while (pace->pending == MARKS && tails_find(&pace->tails, stream, per_thread) && now < end) {
        pthread_mutex_unlock(&pace->lock);
        nap(NAP);
        pthread_mutex_lock(&pace->lock);
        now = now_ns();
        look(pace, gpu, now);
    }
    struct tail *tail = tails_find(&pace->tails, stream, per_thread);
    CUcontext before;
    if (!tail || REAL(cuCtxPushCurrent_v2)(tail->context) != CUDA_SUCCESS) return;
    if (pace->pending < MARKS) mark(pace, stream, per_thread, now);
    forget_tail(pace, tail);
    REAL(cuCtxPopCurrent_v2)(&before);
}

void pace_let_go(CUstream stream, bool per_thread) {
    for (int gpu = 0; limits && gpu < (int)limits->gpus; gpu++) {
        pthread_mutex_lock(&paces[gpu].lock);
        let_go(&paces[gpu], gpu, stream, per_thread);
        pthread_mutex_unlock(&paces[gpu].lock);
    }
}

void pace_pause(void) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) pthread_mutex_lock(&paces[gpu].lock);
}

void pace_resume(CUcontext gone) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        struct pace *pace = &paces[gpu];
        if (gone) pace->unmarked -= tails_drop(&pace->tails, gone);
        for (int i = 0; gone && i < MARKS; i++)
            if (pace->marks[i].context == gone) pace->marks[i].event = NULL;
        pthread_mutex_unlock(&pace->lock);
    }
}

static void forget(void) {
    watch_forget();
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        paces[gpu] = (struct pace){.launches_a_mark = 1};
        pthread_mutex_init(&paces[gpu].lock, NULL);
    }
}

__attribute__((constructor)) static void prepare(void) {
    forget();
    pthread_atfork(NULL, NULL, forget);
}
