/* What another thread puts where something is answered, or listed. */
#include "tenant.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

/* A page where an answer is expected. It is closed whenever nobody may have touched it but once: who writes there is let
 * through for one instruction, and whoever comes next finds the answer of before in its place. What the program itself
 * finds there is what was written. */
static struct swapping_page {
    struct held *held;
    uint64_t other, answer;
    unsigned touched;
} page;

#define PAGE 4096

static void open_page(bool open) {
    mprotect(page.held, PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

#if defined(__x86_64__)
extern const char __executable_start, etext;

static void touched(int signal, siginfo_t *at, void *with) {
    greg_t *registers = ((ucontext_t *)with)->uc_mcontext.gregs;
    const char *who = (const char *)registers[REG_RIP];
    (void)signal, (void)at;
    open_page(true);
    if (who >= &__executable_start && who < &etext) {
        if (page.answer) page.held->value = page.answer;
        return;
    }
    if (page.touched++ == 1) page.answer = page.held->value, page.held->value = page.other;
    if (page.touched == 1) registers[REG_EFL] |= 0x100; /* a trap behind the next instruction */
}

static void stepped(int signal, siginfo_t *at, void *with) {
    (void)signal, (void)at;
    ((ucontext_t *)with)->uc_mcontext.gregs[REG_EFL] &= ~0x100LL;
    open_page(false);
}

static void watch_page(void) {
    struct sigaction how = {.sa_flags = SA_SIGINFO, .sa_sigaction = touched};
    sigaction(SIGSEGV, &how, NULL);
    how.sa_sigaction = stepped;
    sigaction(SIGTRAP, &how, NULL);
}
#else
static void watch_page(void) {
    puts("no single steps on this machine");
    exit(6);
}
#endif

/* Take a small one and then a large one, whose answer is changed into the small one's if anybody reads it before us; and
 * give the small one. How many large ones passed, and how often the place of an answer was touched by others at most. */
void take_with_answer_swapped(const char *name, uint64_t bytes, int times) {
    const struct way *way = &ways[way_of(name)];
    int passed = 0;
    unsigned most = 0;
    page.held = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    watch_page();
    for (int i = 0; i < times; i++) {
        struct held small = {0};
        if (way->take(&small, 1 << 21) != CUDA_SUCCESS) break;
        *page.held = (struct held){0};
        page.other = small.value, page.answer = 0, page.touched = 0;
        open_page(false);
        passed += way->take(page.held, bytes) == CUDA_SUCCESS;
        open_page(true);
        way->give(&small);
        if (page.touched > most) most = page.touched;
    }
    printf("%d %u\n", passed, most);
}

#define LONG_LIST 512 /* takes a while to read */

struct swapping {
    CUarrayMapInfo maps[LONG_LIST];
    CUhandle handles[2];
    _Atomic bool over;
};

static void *swap_it(void *with) {
    struct swapping *swapping = with;
    for (uint64_t i = 0; !swapping->over; i++) *(volatile CUhandle *)&swapping->maps[0].handle = swapping->handles[i % 2];
    return NULL;
}

/* Map a small handle or a large one to an array, whichever another thread has put into the list by then. */
static void map_swapped(CUhandle small, CUhandle large, __typeof__(&cuMemMapArrayAsync) map) {
    struct swapping it = {.handles = {small, large}};
    pthread_t thread;
    for (int i = 0; i < LONG_LIST; i++)
        it.maps[i] = (CUarrayMapInfo){.operation = MEMORY_MAP, .handle = small, .devices = 1};
    pthread_create(&thread, NULL, swap_it, &it);
    while (*(volatile CUhandle *)&it.maps[0].handle != large) {}
    while (*(volatile CUhandle *)&it.maps[0].handle != small) {}
    map(it.maps, LONG_LIST, NULL);
    it.over = true;
    pthread_join(thread, NULL);
}

/* Both are released each time, until another small one or large one is refused. */
void swap_while_mapped(bool threads, uint64_t bytes) {
    struct held small, large;
    int count = 0;
    for (bool fits = true; fits && take_handle(&small, 1 << 21) == CUDA_SUCCESS; give_handle(&small)) {
        fits = take_handle(&large, bytes) == CUDA_SUCCESS;
        if (!fits) continue;
        map_swapped(small.value, large.value, threads ? CU(cuMemMapArrayAsync_ptsz) : CU(cuMemMapArrayAsync));
        give_handle(&large);
        count++;
    }
    printf("%d\n", count);
}
