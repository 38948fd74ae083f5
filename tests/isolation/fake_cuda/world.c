#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x444c524f57454b46ULL
#define TURN_NS 2000000ULL
#define SWEEP_NS 5000000ULL
#define NOBODY UINT64_MAX
#define CLIENTS ((uint64_t)WORLD_PROCESSES) /* whose turn it is: that of all clients of MPS */
#define WHOLE 100

struct world *world;

static uint32_t own_index, own_pid;

_Static_assert(sizeof(struct world) <= WORLD_BYTES, "the test makes the file this large");

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t born(uint32_t pid) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = '\0';
    unsigned long long started = 0;
    char state = 'Z';
    const char *rest = strrchr(text, ')');
    if (rest)
        sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &started);
    /* Dead and waited for, X comes after Z: who was gone at an earlier look is not to be back at a later one. */
    return state == 'Z' || state == 'X' ? 0 : started;
}

static void lock(void) {
    if (pthread_mutex_lock(&world->lock) == EOWNERDEAD) pthread_mutex_consistent(&world->lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&world->lock);
}

bool world_open(void) {
    if (world) return true;
    const char *path = getenv("FAKE_CUDA_WORLD");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return false;
    struct world *mapped = mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || mapped->magic != MAGIC) return false;
    flock(file, LOCK_EX);
    if (!mapped->ready) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mapped->lock, &kind);
        for (int gpu = 0; gpu < WORLD_GPUS; gpu++) mapped->clock[gpu] = now_ns(), mapped->turn[gpu] = NOBODY;
        mapped->ready = 1;
    }
    flock(file, LOCK_UN);
    close(file);
    world = mapped;
    return true;
}

/* Counted anew each time: a process that is killed between two additions must leave no sum wrong. */
static void recount(int gpu) {
    uint64_t used[WORLD_TENANTS] = {0};
    for (uint64_t i = 0; i < world->highest; i++)
        if (world->process[i].born) used[world->process[i].tenant] += world->process[i].used[gpu];
    for (uint64_t i = 0; i < world->blocks_used; i++)
        if (world->block[i].id && (int)world->block[i].gpu == gpu) used[world->block[i].tenant] += world->block[i].bytes;
    for (int i = 0; i < WORLD_TENANTS; i++) world->tenant[i].used[gpu] = used[i];
}

static uint64_t used_by_all(int gpu) {
    uint64_t all = 0;
    for (int i = 0; i < WORLD_TENANTS; i++) all += world->tenant[i].used[gpu];
    return all;
}

static void leave_block(struct world_block *block, uint32_t holder) {
    bool held = false;
    for (int i = 0; i < WORLD_HOLDERS; i++) {
        if (block->holder[i] == holder) block->holder[i] = 0;
        held = held || block->holder[i];
    }
    if (held) return;
    block->id = 0;
}

static void bury(uint32_t index) {
    struct world_process *process = &world->process[index];
    for (int gpu = 0; gpu < WORLD_GPUS; gpu++) process->used[gpu] = process->submitted[gpu] = process->executed[gpu] = 0;
    for (uint64_t i = 0; i < world->blocks_used; i++)
        for (int j = 0; world->block[i].id && j < WORLD_HOLDERS; j++)
            if (world->block[i].holder[j] == index + 1) leave_block(&world->block[i], index + 1);
    process->born = 0;
}

static void sweep(void) {
    for (uint32_t i = 0; i < world->highest; i++)
        if (world->process[i].born && born(world->process[i].pid) != world->process[i].born) bury(i);
    world->swept = now_ns();
}

static uint64_t own_width(void) {
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (!getenv("CUDA_MPS_PIPE_DIRECTORY")) return 0;
    return percent ? (uint64_t)atoi(percent) : WHOLE;
}

/* A process that became another one by exec had everything freed by the driver. */
static struct world_process *own(void) {
    uint32_t pid = (uint32_t)getpid();
    if (own_pid == pid) return &world->process[own_index];
    uint64_t started = born(pid);
    const char *tenant = getenv("FAKE_CUDA_TENANT");
    if (world->highest == WORLD_PROCESSES) sweep();
    uint32_t found = WORLD_PROCESSES;
    for (uint32_t i = 0; i < WORLD_PROCESSES; i++) {
        if (world->process[i].pid == pid && world->process[i].born == started) bury(i);
        if (!world->process[i].born && found == WORLD_PROCESSES) found = i;
        if (i >= world->highest) break;
    }
    if (found == WORLD_PROCESSES) abort();
    world->process[found] = (struct world_process){.born = started, .pid = pid, .width = own_width()};
    world->process[found].tenant = tenant ? (uint32_t)atoi(tenant) % WORLD_TENANTS : 0;
    if (found + 1 > world->highest) world->highest = found + 1;
    own_index = found;
    own_pid = pid;
    return &world->process[found];
}

bool world_take(int gpu, uint64_t bytes) {
    if (gpu == WORLD_HOST) return true;
    lock();
    struct world_process *process = own();
    struct world_tenant *tenant = &world->tenant[process->tenant];
    recount(gpu);
    if (tenant->used[gpu] + bytes > tenant->peak[gpu] || used_by_all(gpu) + bytes > world->memory[gpu]) {
        sweep();
        recount(gpu);
    }
    bool fits = used_by_all(gpu) + bytes <= world->memory[gpu];
    if (fits) {
        process->used[gpu] += bytes;
        recount(gpu);
        if (tenant->used[gpu] > tenant->peak[gpu]) tenant->peak[gpu] = tenant->used[gpu];
    }
    unlock();
    return fits;
}

void world_give(int gpu, uint64_t bytes) {
    if (gpu == WORLD_HOST) return;
    lock();
    struct world_process *process = own();
    process->used[gpu] -= bytes;
    recount(gpu);
    unlock();
}

void world_free_memory(int gpu, uint64_t *free, uint64_t *total) {
    lock();
    *total = world->memory[gpu];
    recount(gpu);
    *free = *total - used_by_all(gpu);
    unlock();
}

uint64_t world_share(int gpu, uint64_t bytes) {
    lock();
    struct world_process *process = own();
    uint64_t id = 0;
    for (int i = 0; i < WORLD_BLOCKS && !id; i++) {
        struct world_block *block = &world->block[i];
        if (block->id) continue;
        id = ++world->blocks_made;
        if ((uint64_t)i >= world->blocks_used) world->blocks_used = (uint64_t)i + 1;
        *block = (struct world_block){.id = id, .bytes = bytes, .gpu = (uint32_t)gpu, .tenant = process->tenant};
        block->holder[0] = own_index + 1;
        process->used[gpu] -= bytes;
    }
    unlock();
    return id;
}

uint64_t world_join(uint64_t id, int *gpu) {
    uint64_t bytes = 0;
    lock();
    own();
    for (int i = 0; i < WORLD_BLOCKS; i++)
        for (int j = 0; id && world->block[i].id == id && !bytes && j < WORLD_HOLDERS; j++)
            if (!world->block[i].holder[j]) {
                world->block[i].holder[j] = own_index + 1;
                bytes = world->block[i].bytes;
                *gpu = (int)world->block[i].gpu;
            }
    unlock();
    return bytes;
}

void world_leave(uint64_t id) {
    lock();
    own();
    for (int i = 0; i < WORLD_BLOCKS; i++)
        if (world->block[i].id == id) leave_block(&world->block[i], own_index + 1);
    for (int gpu = 0; gpu < (int)world->gpus; gpu++) recount(gpu);
    unlock();
}

static uint64_t left(const struct world_process *process, int gpu) {
    return process->born ? process->submitted[gpu] - process->executed[gpu] : 0;
}

/* How wide all clients that have work would run together, in percent. */
static uint64_t clients_width(int gpu) {
    uint64_t width = 0;
    for (uint64_t i = 0; i < world->highest; i++)
        if (left(&world->process[i], gpu)) width += world->process[i].width;
    return width;
}

static bool has_work(uint64_t turn, int gpu) {
    if (turn == CLIENTS) return clients_width(gpu) > 0;
    return left(&world->process[turn], gpu) && !world->process[turn].width;
}

static void next_turn(int gpu) {
    uint64_t count = world->highest, last = world->turn[gpu] == CLIENTS ? count : world->turn[gpu];
    uint64_t from = world->turn[gpu] == NOBODY ? 0 : last + 1;
    world->turn[gpu] = NOBODY;
    for (uint64_t i = 0; i <= count; i++) {
        uint64_t at = (from + i) % (count + 1), turn = at == count ? CLIENTS : at;
        if (!has_work(turn, gpu)) continue;
        world->turn[gpu] = turn;
        world->turn_left[gpu] = TURN_NS;
        return;
    }
}

static void run_one(struct world_process *process, int gpu, uint64_t ns) {
    process->executed[gpu] += ns;
    world->tenant[process->tenant].busy_ns[gpu] += ns;
}

/* Until one of them has no more to do, at the most; how long that was. */
static uint64_t run_clients(int gpu, uint64_t most) {
    uint64_t width = clients_width(gpu), of = width > WHOLE ? width : WHOLE;
    for (uint64_t i = 0; i < world->highest; i++) {
        const struct world_process *process = &world->process[i];
        if (!left(process, gpu) || !process->width) continue;
        uint64_t needs = (left(process, gpu) * of + process->width - 1) / process->width;
        if (needs < most) most = needs;
    }
    for (uint64_t i = 0; i < world->highest; i++) {
        struct world_process *process = &world->process[i];
        uint64_t done = most * process->width / of, todo = left(process, gpu);
        if (process->width) run_one(process, gpu, done < todo ? done : todo);
    }
    return most;
}

static void advance(int gpu, uint64_t now) {
    if (now > world->swept + SWEEP_NS) sweep();
    while (world->clock[gpu] < now) {
        uint64_t turn = world->turn[gpu];
        if (turn == NOBODY || !has_work(turn, gpu) || !world->turn_left[gpu]) next_turn(gpu);
        turn = world->turn[gpu];
        if (turn == NOBODY) {
            world->clock[gpu] = now;
            return;
        }
        uint64_t run = now - world->clock[gpu];
        if (run > world->turn_left[gpu]) run = world->turn_left[gpu];
        if (turn == CLIENTS) {
            run = run_clients(gpu, run);
        } else {
            struct world_process *process = &world->process[turn];
            if (run > left(process, gpu)) run = left(process, gpu);
            run_one(process, gpu, run);
        }
        world->turn_left[gpu] -= run;
        world->clock[gpu] += run;
    }
}

uint64_t world_submit(int gpu, uint64_t ns) {
    lock();
    struct world_process *process = own();
    advance(gpu, now_ns());
    uint64_t target = process->submitted[gpu] += ns;
    unlock();
    return target;
}

uint64_t world_submitted(int gpu) {
    lock();
    uint64_t submitted = own()->submitted[gpu];
    unlock();
    return submitted;
}

uint64_t world_done(int gpu) {
    lock();
    struct world_process *process = own();
    advance(gpu, now_ns());
    uint64_t done = process->executed[gpu];
    unlock();
    return done;
}

void world_wait(int gpu, uint64_t target) {
    for (uint64_t done; (done = world_done(gpu)) < target;) {
        uint64_t ns = target - done > 50000 ? target - done : 50000;
        if (ns > 2000000) ns = 2000000;
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    }
}
