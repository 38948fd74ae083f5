/* A GPU without time: it serves processes in turns of 2 ms, and the interposer's own pacing (isolation/pace_core.c, meter.c,
 * patience.c, moments.c) holds their launches back. In steps of a tenth of a millisecond, so what comes out is the same on
 * any machine. tests/support/virtual_gpu.py makes it, and is its agent ten times a second.
 *
 * A program launches kernels of the lengths that it is given, one after the other from the list's beginning when it is
 * through; after each batch it waits for all of them, and then does something else for a while. */
#include <stdlib.h>
#include <string.h>

#include "pace_core.h"

#define STEP 100000ULL
#define TURN 2000000ULL
#define LOOK_STEPS 10      /* a watch looks once in a millisecond */
#define LAUNCHES_A_STEP 10 /* a launch takes the host some microseconds */
#define MOST_SLICES 16
#define MOST_PROGRAMS 64

struct slice {
    struct account *account;
    struct gpu_limits *limits;
    uint64_t used;
};

struct program {
    struct slice *slice;
    struct pacing pacing;
    const uint64_t *lengths;
    uint64_t count, at, batch, left, idle, idle_until;
    uint64_t submitted, executed, marked[MARK_PLACES], tail, escape;
    uint64_t waits_since; /* of a launch that is held; 0: none is */
};

struct virtual_gpu {
    uint64_t now, steps, turn, turn_left, slices, programs;
    struct slice slice[MOST_SLICES];
    struct program program[MOST_PROGRAMS];
};

struct virtual_gpu *virtual_gpu_make(void);
int virtual_gpu_slice(struct virtual_gpu *gpu, struct account *account, struct gpu_limits *limits);
int virtual_gpu_program(struct virtual_gpu *gpu, int slice, const uint64_t *lengths, uint64_t count, uint64_t batch,
                        uint64_t idle);
void virtual_gpu_run(struct virtual_gpu *gpu, uint64_t ns);
uint64_t virtual_gpu_now(const struct virtual_gpu *gpu);
uint64_t virtual_gpu_used(const struct virtual_gpu *gpu, int slice);
uint64_t virtual_gpu_launched(const struct virtual_gpu *gpu, int program);

struct virtual_gpu *virtual_gpu_make(void) {
    struct virtual_gpu *gpu = calloc(1, sizeof *gpu);
    gpu->now = 1000 * STEP; /* no time of which anybody thinks that it is none */
    return gpu;
}

int virtual_gpu_slice(struct virtual_gpu *gpu, struct account *account, struct gpu_limits *limits) {
    if (gpu->slices == MOST_SLICES) return -1;
    gpu->slice[gpu->slices] = (struct slice){.account = account, .limits = limits};
    return (int)gpu->slices++;
}

int virtual_gpu_program(struct virtual_gpu *gpu, int slice, const uint64_t *lengths, uint64_t count, uint64_t batch,
                        uint64_t idle) {
    if (gpu->programs == MOST_PROGRAMS) return -1;
    struct program *program = &gpu->program[gpu->programs];
    *program = (struct program){
        .slice = &gpu->slice[slice], .lengths = lengths, .count = count, .batch = batch, .left = batch, .idle = idle};
    pacing_begin(&program->pacing);
    return (int)gpu->programs++;
}

static struct spending spending_of(const struct program *program) {
    const struct slice *slice = program->slice;
    return (struct spending){slice->limits, &slice->account->meter[0], (struct moments *)((char *)slice->account + MOMENTS_AT),
                             &slice->account->patience[0]};
}

/* ------------------------------------------------------------------ what the interposer does around its core */

static void look(struct program *program, uint64_t now) {
    struct pacing *pacing = &program->pacing;
    struct spending on = spending_of(program);
    unsigned reached = 0;
    pacing->looked_at = now;
    if (!pacing->in_flight_from) return;
    while (reached < pacing->pending && program->marked[(pacing->first + reached) % MARK_PLACES] <= program->executed)
        reached++;
    if (pacing->escaped_at && program->escape <= program->executed) pacing_escaped(pacing, &on, now);
    pacing_reached(pacing, &on, reached, now);
    if (!pacing_pay(pacing, &on, false, now)) return;
    if (program->executed == program->submitted) pacing_done(pacing, program->tail, now), program->tail = 0;
    pacing_rest(pacing, &on, now);
}

static void give(struct program *program, bool escapes, uint64_t now) {
    struct pacing *pacing = &program->pacing;
    pacing_launch(pacing, now);
    program->submitted += program->lengths[program->at];
    program->at = (program->at + 1) % program->count;
    program->tail++;
    if (escapes) program->escape = program->submitted, pacing_escapes(pacing);
    if (!pacing_launched(pacing, true)) return;
    program->marked[pacing_place(pacing)] = program->submitted;
    pacing_marked(pacing, program->tail, true, now);
    program->tail = 0;
}

/* One launch; whether it passed. */
static bool launch(struct program *program, uint64_t now) {
    struct spending on = spending_of(program);
    meter_want(&on, now);
    if (!program->waits_since) program->waits_since = now;
    enum passing passing = pacing_ask(&program->pacing, &on, false, program->waits_since, now);
    if (passing == STAYS) {
        look(program, now);
        passing = pacing_ask(&program->pacing, &on, false, program->waits_since, now);
    }
    if (passing == STAYS) {
        meter_held(&on, STEP);
        return false;
    }
    program->waits_since = 0;
    give(program, passing == ESCAPES, now);
    return true;
}

static void work(struct program *program, uint64_t now) {
    if (!program->left && program->executed == program->submitted) {
        look(program, now); /* as who waits for the GPU does */
        program->left = program->batch;
        program->idle_until = now + program->idle;
    }
    if (now < program->idle_until) return;
    for (int i = 0; i < LAUNCHES_A_STEP && program->left && launch(program, now); i++) program->left--;
}

/* ------------------------------------------------------------------ the GPU */

static uint64_t queued(const struct program *program) {
    return program->submitted - program->executed;
}

/* A step's worth of time, or less where several come and go within it. */
static void serve(struct virtual_gpu *gpu) {
    for (uint64_t left = STEP; left && gpu->programs;) {
        if (!gpu->turn_left || !queued(&gpu->program[gpu->turn])) {
            uint64_t next = 1;
            while (next <= gpu->programs && !queued(&gpu->program[(gpu->turn + next) % gpu->programs])) next++;
            if (next > gpu->programs) return;
            gpu->turn = (gpu->turn + next) % gpu->programs;
            gpu->turn_left = TURN;
        }
        struct program *program = &gpu->program[gpu->turn];
        uint64_t run = queued(program) < left ? queued(program) : left;
        if (run > gpu->turn_left) run = gpu->turn_left;
        program->executed += run;
        program->slice->used += run;
        gpu->turn_left -= run;
        left -= run;
    }
}

void virtual_gpu_run(struct virtual_gpu *gpu, uint64_t ns) {
    for (uint64_t end = gpu->now + ns; gpu->now < end; gpu->now += STEP, gpu->steps++) {
        serve(gpu);
        for (uint64_t i = 0; i < gpu->programs; i++) {
            if ((gpu->steps + i) % LOOK_STEPS == 0) look(&gpu->program[i], gpu->now);
            work(&gpu->program[i], gpu->now);
        }
    }
}

uint64_t virtual_gpu_now(const struct virtual_gpu *gpu) {
    return gpu->now;
}

uint64_t virtual_gpu_used(const struct virtual_gpu *gpu, int slice) {
    return gpu->slice[slice].used;
}

uint64_t virtual_gpu_launched(const struct virtual_gpu *gpu, int program) {
    return gpu->program[program].at;
}
