/* Loaded before a program: its naps are over at once, and its clock goes on by what they would have taken on a busy machine,
 * twice as long as they were to be. So a wait of a minute is seen without one. */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ULL

static _Atomic uint64_t slept;

int nanosleep(const struct timespec *asked, struct timespec *left) {
    (void)left;
    slept += 2 * ((uint64_t)asked->tv_sec * SECOND + (uint64_t)asked->tv_nsec);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *told) {
    long result = syscall(SYS_clock_gettime, clock, told);
    uint64_t now = (uint64_t)told->tv_sec * SECOND + (uint64_t)told->tv_nsec + slept;
    told->tv_sec = (time_t)(now / SECOND);
    told->tv_nsec = (long)(now % SECOND);
    return (int)result;
}
