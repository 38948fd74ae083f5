/* Who is alive, as far as /proc of this container tells. */
#ifndef ALIQUOT_PROCESSES_H
#define ALIQUOT_PROCESSES_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As stat and fstat, which are other symbols in old C libraries than in new ones. */
static inline int status_of_path(const char *path, struct stat *into) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, into, 0);
}

static inline int status_of_file(int file, struct stat *into) {
    return (int)syscall(SYS_fstat, file, into);
}

/* Clock ticks since boot at which a process started; 0 if there is none of that pid. `ended`: it is only waited for. */
uint64_t process_born(uint32_t pid, bool *ended);

/* The same of this process; 0 if it can't be told. */
uint64_t process_own_born(void);

/* The inode of this process's pid namespace; 0 if it can't be told. */
uint32_t process_namespace(void);

/* The same, if /proc tells of the processes of that namespace by their numbers there; 0 if it is another's, as it is
 * where a sandbox has pids of its own and no /proc for them. */
uint32_t process_namespace_seen(void);

/* Whether a process maps that file; true if it can't be told. */
bool process_maps(uint32_t pid, const struct stat *file);

#endif
