#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "processes.h"

#define MAGIC "ALIQLIM1"

const struct limits *limits;

static bool is_ours(const struct limits *file) {
    return memcmp(file->magic, MAGIC, sizeof file->magic) == 0 && file->version == 1 && file->gpus <= MOST_GPUS &&
           memchr(file->driver, '\0', sizeof file->driver) != NULL;
}

bool limits_open(void) {
    struct stat seen;
    int file = open(limits_path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && status_of_file(file, &seen) == 0 && seen.st_size >= (off_t)sizeof *limits)
        limits = mmap(NULL, sizeof *limits, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (limits && limits != MAP_FAILED && is_ours(limits)) return true;
    fprintf(stderr, "aliquot: no limits of this container at %s: %s\n", limits_path,
            file < 0 ? strerror(errno) : "not what the agent writes");
    limits = NULL;
    return false;
}
