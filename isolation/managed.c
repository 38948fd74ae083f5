#include "managed.h"

#include <pthread.h>
#include <stdlib.h>

#include "account.h"
#include "clock.h"
#include "devices.h"
#include "holdings.h"
#include "managed_variables.h"
#include "passages.h"
#include "table.h"
#include "tails.h"

#define NAP (MS / 10)
#define SHORT_WAIT (10 * MS)      /* most calls take less: nobody need be charged for what they might meet */
#define LONGEST_WAIT (60000 * MS) /* a call may wait for the very thread that takes: it has an answer after a minute */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed_core core;
static struct variable *variables;

/* Slices of one GPU, and programs whose limits could not be read, have none of it. */
static bool has_several_gpus(void) {
    return limits && limits->gpus > 1;
}

static void enter(void) {
    pthread_mutex_lock(&lock);
}

/* What the core charges no more. */
static void release_freed(void) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        if (core.freed[gpu]) account_release(gpu, core.freed[gpu]);
        core.freed[gpu] = 0;
    }
}

/* And what it asks after no more. */
static void leave(void) {
    struct passage *over = core.over;
    core.over = NULL;
    release_freed();
    passages_free(over);
    pthread_mutex_unlock(&lock);
}

/* Let others go on. Whoever is known here while he naps can't be ended there. */
static void nap(void) {
    int could_end;
    leave();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &could_end);
    nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
    enter();
    pthread_setcancelstate(could_end, NULL);
}

/* ------------------------------------------------------------------ what has left */

void managed_settle(void) {
    if (!has_several_gpus()) return;
    enter();
    variables_settle(&variables, &core);
    passages_settle(&core);
    leave();
}

/* ------------------------------------------------------------------ charges */

static bool charge_all(const struct fresh *fresh, int *refusing) {
    release_freed();
    for (int gpu = 0; gpu < (int)limits->gpus; gpu++) {
        if (account_charge(gpu, fresh->bytes[gpu])) continue;
        for (int charged = 0; charged < gpu; charged++) account_release(charged, fresh->bytes[charged]);
        *refusing = gpu;
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ blocks */

static bool guard(struct taking *taking, int *refusing) {
    struct fresh fresh;
    managed_core_guard(&core, taking, &fresh);
    if (!charge_all(&fresh, refusing)) return false;
    managed_core_guarded(&core, taking);
    return true;
}

/* Calls that begin meanwhile are left out, or charge it where they might bring it. */
static void wait_alone(const struct taking *taking, uint64_t most) {
    if (!managed_core_is_met(&core, taking)) return;
    for (uint64_t end = now_ns() + most; managed_core_is_met(&core, taking) && now_ns() < end;) nap();
}

/* Until calls that might bring it elsewhere are over, or it is charged there. */
static bool guard_in_time(struct taking *taking) {
    int refusing;
    wait_alone(taking, SHORT_WAIT);
    if (guard(taking, &refusing)) return true;
    leave();
    give_back_unused(refusing);
    enter();
    if (guard(taking, &refusing)) return true;
    wait_alone(taking, LONGEST_WAIT);
    return guard(taking, &refusing);
}

bool managed_taking(struct taking *taking, int home, uint64_t bytes) {
    if (!has_several_gpus()) return true;
    enter();
    managed_core_taking(&core, taking, home, bytes);
    bool fits = guard_in_time(taking);
    if (!fits) managed_core_taken(&core, taking);
    leave();
    return fits;
}

void managed_taken(struct taking *taking) {
    if (!has_several_gpus()) return;
    enter();
    managed_core_taken(&core, taking);
    leave();
}

bool managed_enter(struct taking *taking, struct range range, struct managed **block) {
    *block = NULL;
    if (!has_several_gpus()) return true;
    enter();
    *block = managed_core_enter(&core, taking, range);
    if (*block) variables_replaced(&variables, &core, range);
    leave();
    return *block;
}

void managed_vacated(struct managed *block) {
    if (!block) return;
    enter();
    managed_core_vacated(&core, block);
    leave();
}

void managed_leave(struct managed *block) {
    if (!block) return;
    enter();
    managed_core_leave(&core, block);
    leave();
}

/* ------------------------------------------------------------------ calls that place */

static const void *context_here(void) {
    CUcontext here = NULL;
    REAL(cuCtxGetCurrent)(&here);
    return here;
}

/* NULL: a stream of no green context. */
static const void *green_of(CUstream stream) {
    CUgreenCtx green = NULL;
    return REAL(cuStreamGetGreenCtx)(stream, &green) == CUDA_SUCCESS ? (const void *)green : UNKNOWN_CONTEXT;
}

struct lane managed_lane(CUstream stream, bool per_thread) {
    if (!has_several_gpus()) return (struct lane){0};
    const void *owner = stream_is_made(stream) ? green_of(stream) : context_here();
    return (struct lane){stream_by_one_name(stream), owner, stream_is_thread_s(stream, per_thread) ? BY_THREAD : BY_STREAM};
}

struct lane managed_advice(void) {
    return (struct lane){.by = BY_ADVICE};
}

static bool begin(struct placing *placing, int *refusing) {
    struct fresh fresh;
    if (!variables_find(&variables, &core, placing)) return false;
    bool fits = managed_core_plan(&core, placing, &fresh) && charge_all(&fresh, refusing);
    if (fits)
        managed_core_begin(&core, placing);
    else
        managed_core_drop(&core, placing);
    return fits;
}

static void wait_for_taking(const struct placing *placing) {
    for (uint64_t end = now_ns() + SHORT_WAIT; managed_core_meets(&core, placing) && now_ns() < end;) nap();
}

bool managed_begin(struct placing **placing, const struct range *ranges, size_t count, struct lane lane, bool copies) {
    int refusing = -1;
    *placing = NULL;
    if (!has_several_gpus()) return true;
    struct placing *made = managed_placing(ranges, count, lane);
    if (!made) return false;
    made->copies = copies;
    enter();
    if (managed_core_meets(&core, made)) wait_for_taking(made);
    passages_settle_in(&core, made);
    bool fits = begin(made, &refusing);
    leave();
    if (!fits && refusing >= 0) {
        give_back_unused(refusing);
        enter();
        fits = begin(made, &refusing);
        leave();
    }
    if (fits)
        *placing = made;
    else
        free(made);
    return fits;
}

void managed_end(struct placing *placing, CUresult result) {
    struct passage *passage = NULL;
    if (!placing) return;
    enter();
    if (managed_core_is_followed(&core, placing)) passage = passage_behind(&placing->lane);
    managed_core_end(&core, placing, passage, result == CUDA_SUCCESS);
    leave();
}

/* ------------------------------------------------------------------ streams and contexts that end */

/* One step: else a call between them might be taken for one into the next stream of that number. */
CUresult managed_end_stream(CUstream stream, CUresult (*end)(CUstream stream)) {
    enter();
    managed_core_let_go(&core, stream);
    CUresult result = end(stream);
    leave();
    return result;
}

void managed_pause(void) {
    enter();
}

void managed_resume(void) {
    leave();
}

void managed_ends(CUcontext context) {
    enter();
    passages_end(&core, context);
    leave();
}

void managed_ended(CUcontext context, bool gone) {
    enter();
    passages_ended(&core, context, gone);
    leave();
}

void managed_ends_green(CUgreenCtx green, CUcontext part) {
    enter();
    passages_end_green(&core, green, part);
    leave();
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    core = (struct managed_core){0};
    variables = NULL;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
