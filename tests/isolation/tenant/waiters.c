#include "waiters.h"

#include <string.h>
#include <sys/mman.h>

#define WORDS_BYTES 4096

void *take_it(void *with) {
    struct waiter *waiter = with;
    CU(cuCtxSetCurrent)(context);
    waiter->result = CU(cuMemAllocManaged)(&waiter->address, waiter->bytes, (unsigned)(uintptr_t)waiter->come + waiter->before);
    waiter->over = true;
    return NULL;
}

void await(const struct waiter *waiter) {
    while (*waiter->come != 1) {
        if (!waiter->over) continue;
        printf("nobody waits in the driver: the call was answered by %d\n", waiter->result);
        exit(5);
    }
}

void take_and_wait(struct waiter *waiter) {
    pthread_create(&waiter->thread, NULL, take_it, waiter);
    await(waiter);
}

void let_go(struct waiter *waiter) {
    *waiter->come = 3;
    pthread_join(waiter->thread, NULL);
}

_Atomic int *new_words(void) {
    static void *words;
    if (!words) words = mmap((void *)0x10000000, WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memset(words, 0, WORDS_BYTES);
}

bool sleeps(pid_t thread) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *stat = fopen(path, "r");
    if (!stat) return false;
    if (fscanf(stat, "%*d %*s %c", &state) != 1) state = 0;
    fclose(stat);
    return state == 'S';
}
