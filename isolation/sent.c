#include "sent.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "processes.h"

#define LONGEST_PATH 256

struct sent {
    uint64_t number;
    struct stat file;
    char path[LONGEST_PATH];
};

/* Of two processes that see the same file each has bytes of its own, or one's memory counts until the other's is gone. */
static uint64_t next_number(void) {
    static _Atomic uint32_t made;
    return ((uint64_t)getpid() << 32) | ++made;
}

static bool is_same(const struct sent *sent, int file) {
    struct stat found;
    return status_of_file(file, &found) == 0 && found.st_dev == sent->file.st_dev && found.st_ino == sent->file.st_ino;
}

static struct sent *sent_by(int file) {
    struct sent *made = calloc(1, sizeof *made);
    char place[64];
    if (!made) return NULL;
    made->number = next_number();
    snprintf(place, sizeof place, "/proc/self/fd/%d", file);
    ssize_t length = readlink(place, made->path, sizeof made->path - 1);
    if (length > 0 && status_of_file(file, &made->file) == 0) return made;
    free(made);
    return NULL;
}

static struct flock byte_of(const struct sent *sent, short kind) {
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)sent->number, .l_len = 1};
}

/* What keeps others from locking it: a read lock, nothing, or -1 where nobody tells. */
static int locked_by(const struct sent *sent) {
    struct flock mark = byte_of(sent, F_WRLCK);
    int other = open(sent->path, O_RDONLY | O_CLOEXEC);
    bool told = other >= 0 && is_same(sent, other) && fcntl(other, F_OFD_GETLK, &mark) == 0;
    if (other >= 0) close(other);
    return told ? mark.l_type : -1;
}

bool sent_mark(struct sent **sent, int file) {
    if (!*sent) *sent = sent_by(file);
    if (!*sent || !is_same(*sent, file)) return false;
    struct flock mark = byte_of(*sent, F_RDLCK);
    /* Where a kernel or a sandbox does not tell of it now, it would not later. */
    return fcntl(file, F_OFD_SETLK, &mark) == 0 && locked_by(*sent) == F_RDLCK;
}

bool sent_is_open(const struct sent *sent) {
    return locked_by(sent) != F_UNLCK;
}

uint64_t sent_number(const struct sent *sent) {
    return sent->number;
}
