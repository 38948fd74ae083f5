#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lending.h"
#include "processes.h"

#define MAGIC "ALIQACC1"

struct account *account;

static struct process_slot *slots;
static struct stat account_file;
/* Which slot is ours, plus one; the kernel wipes this page in a child, so that a child takes a slot of its own. */
static _Atomic uint32_t *own_slot;

static bool make_ready(int file) {
    /* The kernel drops this lock with its holder, so that whoever dies here leaves the work to the next. */
    if (flock(file, LOCK_EX) != 0) return false;
    if (!atomic_load(&account->ready)) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&account->lock, &kind);
        pthread_mutexattr_destroy(&kind);
        memcpy(account->magic, MAGIC, sizeof account->magic);
        atomic_store(&account->ready, 1);
    }
    flock(file, LOCK_UN);
    return memcmp(account->magic, MAGIC, sizeof account->magic) == 0;
}

bool account_open(void) {
    int file = open(account_path, O_RDWR | O_CLOEXEC);
    if (file < 0 || status_of_file(file, &account_file) != 0 || account_file.st_size != ACCOUNT_BYTES) {
        fprintf(stderr, "aliquot: no account of GPU memory at %s: %s\n", account_path,
                file < 0 ? strerror(errno) : "not of the size that the agent gives it");
        if (file >= 0) close(file);
        return false;
    }
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    account = mmap(NULL, ACCOUNT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    bool whole = page != MAP_FAILED && account != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0;
    whole = whole && make_ready(file);
    close(file);
    if (!whole) {
        fprintf(stderr, "aliquot: the account of GPU memory at %s can't be used\n", account_path);
        return false;
    }
    own_slot = page;
    slots = (struct process_slot *)((char *)account + SLOTS_AT);
    return true;
}

static void lock(void) {
    /* What the dead holder was about to write is one word, which is there or not: nothing to mend. */
    if (pthread_mutex_lock(&account->lock) == EOWNERDEAD) pthread_mutex_consistent(&account->lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&account->lock);
}

static bool is_gone(const struct process_slot *slot, uint32_t here) {
    if (here == 0 || slot->namespace != here) return false; /* not to be judged from here: it counts */
    bool ended;
    uint64_t born = process_born(slot->pid, &ended);
    return ended || born != slot->born || !process_maps(slot->pid, &account_file);
}

struct process_slot *account_slots(void) {
    return slots;
}

struct moments *account_moments(int gpu) {
    return (struct moments *)((char *)account + MOMENTS_AT) + gpu;
}

static void clear(struct process_slot *slot) {
    lending_clear((uint32_t)(slot - slots));
    /* First, so that what was lent counts for its borrowers before it no longer counts for its lender. */
    atomic_fetch_add(&slot->life, 1);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) atomic_store(&slot->used[gpu], 0);
    atomic_store(&slot->born, 0);
}

static void clear_dead(void) {
    uint32_t here = process_namespace_seen(), own = *own_slot, count = account->highest;
    if (count > MOST_PROCESSES) count = MOST_PROCESSES;
    for (uint32_t i = 0; i < count; i++)
        if (slots[i].born && i + 1 != own && is_gone(&slots[i], here)) clear(&slots[i]);
}

/* The kernel gives each program 16 random bytes. */
static uint64_t program_here(void) {
    uint64_t program = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random) memcpy(&program, random, sizeof program);
    return program;
}

static struct process_slot *free_slot(uint32_t pid, uint64_t born, uint32_t namespace) {
    struct process_slot *found = NULL;
    for (uint32_t i = 0; i < MOST_PROCESSES; i++) {
        struct process_slot *slot = &slots[i];
        /* Our own from before an exec: the driver freed everything with the old program. Who began in the same tick of the
         * clock in another namespace, and has the same number there, is somebody else. */
        bool is_own = slot->born == born && slot->pid == pid && slot->namespace == namespace;
        if (is_own && slot->program != program_here()) clear(slot);
        if (!slot->born && !found) found = slot;
        if (i >= account->highest) break;
    }
    return found;
}

static struct process_slot *take_slot(void) {
    uint32_t pid = (uint32_t)getpid(), namespace = process_namespace();
    uint64_t born = process_own_born();
    if (!born) born = 1;
    struct process_slot *slot = free_slot(pid, born, namespace);
    if (!slot) {
        clear_dead();
        slot = free_slot(pid, born, namespace);
    }
    if (!slot) return NULL;
    uint32_t number = (uint32_t)(slot - slots) + 1;
    clear(slot);
    slot->pid = pid;
    slot->namespace = namespace;
    slot->program = program_here();
    if (number > account->highest) atomic_store(&account->highest, number);
    atomic_store(&slot->born, born);
    atomic_store(own_slot, number);
    return slot;
}

static struct process_slot *own(void) {
    return *own_slot ? &slots[*own_slot - 1] : take_slot();
}

static uint64_t sum(int gpu) {
    uint64_t all = 0;
    uint32_t count = account->highest;
    if (count > MOST_PROCESSES) count = MOST_PROCESSES;
    for (uint32_t i = 0; i < count; i++) all += atomic_load_explicit(&slots[i].used[gpu], memory_order_relaxed);
    return all + lending_sum(gpu);
}

static bool fits(int gpu, uint64_t bytes) {
    uint64_t limit = limits->gpu[gpu].memory, held = sum(gpu) + limits->gpu[gpu].unaccounted;
    return held <= limit && bytes <= limit - held;
}

bool account_charge(int gpu, uint64_t bytes) {
    if (bytes == 0) return true;
    lock();
    struct process_slot *slot = own();
    bool charged = slot && fits(gpu, bytes);
    if (slot && !charged) {
        clear_dead();
        charged = fits(gpu, bytes);
    }
    if (charged) atomic_fetch_add(&slot->used[gpu], bytes);
    unlock();
    return charged;
}

void account_charge_anyway(int gpu, uint64_t bytes) {
    lock();
    struct process_slot *slot = own();
    if (slot) atomic_fetch_add(&slot->used[gpu], bytes);
    unlock();
}

void account_release(int gpu, uint64_t bytes) {
    uint32_t own_number = *own_slot;
    if (own_number == 0) return; /* a child frees what its parent holds: the driver refuses, and so it is never called */
    atomic_fetch_sub(&slots[own_number - 1].used[gpu], bytes);
}

void account_lend(const CUipcMemHandle *handle, uint64_t address, uint64_t bytes, int gpu) {
    lock();
    struct process_slot *slot = own();
    if (slot) lending_lend(handle, address, bytes, (uint32_t)(slot - slots), gpu);
    unlock();
}

uint32_t account_borrow(const CUipcMemHandle *handle) {
    lock();
    struct process_slot *slot = own();
    uint32_t entry = slot ? lending_borrow(handle, (uint32_t)(slot - slots)) : 0;
    unlock();
    return entry;
}

void account_return(uint32_t borrowed) {
    lock();
    lending_return(borrowed);
    unlock();
}

void account_recall(uint64_t address) {
    lock();
    if (*own_slot) lending_freed(address, *own_slot - 1);
    unlock();
}

uint64_t account_held(int gpu) {
    lock();
    clear_dead();
    uint64_t all = sum(gpu) + limits->gpu[gpu].unaccounted;
    unlock();
    return all;
}
