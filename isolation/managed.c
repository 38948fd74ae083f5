#include "managed.h"

#include <pthread.h>
#include <stdlib.h>

#include "account.h"
#include "devices.h"
#include "granules.h"
#include "pace.h"
#include "table.h"
#include "tails.h"

/* Of each granule by bits: on which GPUs besides it is charged, and which of them it leaves with `event`. */
struct placed {
    uint16_t on, leaves;
};
_Static_assert(MOST_GPUS <= 16, "a bit for each GPU");

struct managed {
    struct managed *next;
    uint64_t address, bytes;
    int home;
    bool copied;
    bool brought, tangled; /* by one stream, of this context if it is a default one; by several, or nobody knows */
    CUstream stream;
    CUcontext of;
    CUevent event; /* behind what takes granules away; none: nothing is on its way */
    CUcontext context;
    struct placed granules[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *blocks;
static unsigned coming; /* calls that bring something and are not over: what they are behind nobody knows yet */

static uint64_t first_of(const struct managed *block) {
    return block->address / GRANULE;
}

static uint64_t count_of(const struct managed *block) {
    return (block->address + block->bytes - 1) / GRANULE - first_of(block) + 1;
}

struct managed *managed_enter(uint64_t address, uint64_t bytes, int gpu) {
    if (limits->gpus < 2 || !bytes) return NULL;
    struct managed block = {.address = address, .bytes = bytes, .home = gpu}, *made;
    made = calloc(1, sizeof *made + count_of(&block) * sizeof *made->granules);
    if (!made) return NULL;
    *made = block;
    pthread_mutex_lock(&lock);
    made->next = blocks;
    blocks = made;
    pthread_mutex_unlock(&lock);
    return made;
}

static void release(struct placed *granule, uint16_t from) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        if (granule->on & from & 1U << gpu) account_release(gpu, GRANULE);
    granule->on &= (uint16_t)~from;
    granule->leaves &= (uint16_t)~from;
}

/* What was on its way has arrived, or (unknown) may never: then it stays charged where it was. */
static void arrived(struct managed *block, bool known) {
    uint16_t left = 0;
    for (uint64_t i = 0; i < count_of(block); i++) {
        struct placed *granule = &block->granules[i];
        if (known && granule->leaves) release(granule, granule->leaves);
        granule->leaves = 0;
        left |= granule->on;
    }
    block->event = NULL;
    if (!left) block->brought = block->tangled = false;
}

static void settle(struct managed *block) {
    struct tail behind = {.thread = 1, .event = block->event, .context = block->context};
    if (!block->event || tail_ask(&behind) != TAIL_DONE) return;
    REAL(cuEventDestroy_v2)(block->event);
    arrived(block, true);
}

static void settle_all(void) {
    for (struct managed *block = blocks; block; block = block->next) settle(block);
}

void managed_settle(void) {
    if (limits->gpus < 2) return;
    pthread_mutex_lock(&lock);
    settle_all();
    pthread_mutex_unlock(&lock);
}

void managed_leave(struct managed *block) {
    if (!block) return;
    pthread_mutex_lock(&lock);
    struct managed **at = &blocks;
    while (*at != block) at = &(*at)->next;
    *at = block->next;
    if (block->event) REAL(cuEventDestroy_v2)(block->event);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < count_of(block); i++) release(&block->granules[i], UINT16_MAX);
    free(block);
}

/* The granules of a block that a range touches: all, or those that it covers whole as far as the block goes. */
struct span {
    uint64_t from, to;
};

static struct span span_of(const struct managed *block, uint64_t address, uint64_t bytes, bool whole) {
    uint64_t end = address + bytes < address ? UINT64_MAX : address + bytes, last = block->address + block->bytes;
    uint64_t first = first_of(block);
    if (!bytes || end <= block->address || address >= last) return (struct span){0, 0};
    uint64_t from = address <= block->address ? first : (whole ? address + GRANULE - 1 : address) / GRANULE;
    uint64_t to = end >= last ? first + count_of(block) : (whole ? end : end + GRANULE - 1) / GRANULE;
    return (struct span){from - first, to > from ? to - first : from - first};
}

static uint64_t fresh_in(const struct managed *block, struct span span, uint16_t bit) {
    uint64_t fresh = 0;
    for (uint64_t i = span.from; i < span.to; i++) fresh += !(block->granules[i].on & bit);
    return fresh * GRANULE;
}

static CUcontext owner_of(const struct lane *lane) {
    CUcontext here = NULL;
    if ((uintptr_t)lane->stream <= LAST_BUILT_IN_STREAM) REAL(cuCtxGetCurrent)(&here);
    return here;
}

/* Whether what the lane does is behind all that brought the block where it is. */
static bool is_behind(const struct managed *block, const struct lane *lane) {
    if (block->tangled || stream_is_thread_s(lane->stream, lane->per_thread)) return false;
    return !block->brought || (block->stream == lane->stream && block->of == owner_of(lane));
}

static void bring(struct managed *block, const struct lane *lane) {
    block->tangled = !is_behind(block, lane);
    block->brought = true;
    block->stream = lane->stream;
    block->of = owner_of(lane);
}

static bool comes(struct managed *block, struct span span, int gpu) {
    const uint16_t bit = (uint16_t)(1U << gpu);
    if (!account_charge(gpu, fresh_in(block, span, bit))) {
        settle_all();
        if (!account_charge(gpu, fresh_in(block, span, bit))) return false;
    }
    for (uint64_t i = span.from; i < span.to; i++) {
        block->granules[i].on |= bit;
        block->granules[i].leaves &= (uint16_t)~bit;
    }
    return true;
}

bool managed_comes(uint64_t address, uint64_t bytes, int gpu, const struct lane *lane) {
    bool fit = true;
    if (gpu < 0 || limits->gpus < 2) return true;
    pthread_mutex_lock(&lock);
    for (struct managed *block = blocks; block && fit; block = block->next) {
        struct span span = span_of(block, address, bytes, false);
        if (block->home == gpu || span.from == span.to) continue;
        settle(block);
        fit = comes(block, span, gpu);
        if (fit && lane) bring(block, lane);
    }
    if (fit && lane) coming++;
    pthread_mutex_unlock(&lock);
    return fit;
}

/* What is on its way by that stream already arrives with this, later: nothing else may be behind it. */
static void goes(struct managed *block, struct span span, uint16_t stays, const struct lane *lane) {
    CUstream stream = lane->stream;
    uint16_t any = 0;
    if (block->copied || !is_behind(block, lane)) return;
    settle(block);
    for (uint64_t i = span.from; i < span.to; i++) any |= block->granules[i].on;
    if (!(any & ~stays) || stream_is_captured(stream, lane->per_thread)) return;
    bool entered = context_enter(stream);
    bool behind = event_here(&block->event, &block->context) &&
                  REAL(cuEventRecord)(block->event, stream) == CUDA_SUCCESS;
    if (entered) context_leave();
    for (uint64_t i = span.from; behind && i < span.to; i++)
        block->granules[i].leaves |= block->granules[i].on & (uint16_t)~stays;
    if (behind) bring(block, lane);
    if (!behind && block->event) {
        REAL(cuEventDestroy_v2)(block->event);
        block->event = NULL;
    }
}

void managed_came(int gpu) {
    if (gpu < 0 || limits->gpus < 2) return;
    pthread_mutex_lock(&lock);
    coming--;
    pthread_mutex_unlock(&lock);
}

void managed_goes(uint64_t address, uint64_t bytes, int gpu, const struct lane *lane) {
    const uint16_t stays = gpu < 0 ? 0 : (uint16_t)(1U << gpu);
    if (!limits || limits->gpus < 2) return;
    pthread_mutex_lock(&lock);
    for (struct managed *block = blocks; !coming && block; block = block->next) {
        struct span span = span_of(block, address, bytes, true);
        if (span.from < span.to) goes(block, span, stays, lane);
    }
    pthread_mutex_unlock(&lock);
}

void managed_let_go(CUstream stream) {
    pthread_mutex_lock(&lock);
    for (struct managed *block = blocks; block; block = block->next)
        if (block->brought && block->stream == stream) block->tangled = true;
    pthread_mutex_unlock(&lock);
}

void managed_copied(uint64_t address, uint64_t bytes) {
    if (!limits || limits->gpus < 2) return;
    pthread_mutex_lock(&lock);
    for (struct managed *block = blocks; block; block = block->next) {
        struct span span = span_of(block, address, bytes, false);
        if (span.from == span.to) continue;
        block->copied = true;
        if (block->event) REAL(cuEventDestroy_v2)(block->event);
        arrived(block, false);
    }
    pthread_mutex_unlock(&lock);
}

void managed_pause(void) {
    pthread_mutex_lock(&lock);
}

/* Any streams may have ended with any context. */
void managed_resume(CUcontext gone) {
    for (struct managed *block = blocks; gone == EVERY_CONTEXT && block; block = block->next) block->tangled = true;
    for (struct managed *block = blocks; gone && block; block = block->next)
        if (block->event && (gone == EVERY_CONTEXT || block->context == gone)) arrived(block, gone != EVERY_CONTEXT);
    pthread_mutex_unlock(&lock);
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    blocks = NULL;
    coming = 0;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
